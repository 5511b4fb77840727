"""The tiny model's tokenizer and shape as a GGUF file with random weights, for llama.cpp.

Usage: make_gguf.py FOLDER. Reads FOLDER/model, writes FOLDER/tiny.gguf. Owns the file's tensors and keys; must never
depend on chance.
"""

import json
import sys
from pathlib import Path

import gguf
import numpy

HIDDEN, LAYERS, HEADS = 64, 2, 2


def tokens(tokenizer, size):
    """Every id's text and type; ids that the tokenizer has none for are unused."""
    added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    texts, types = [f"<unused-{at}>" for at in range(size)], [gguf.TokenType.UNUSED] * size
    for text, at in {**tokenizer["model"]["vocab"], **added}.items():
        texts[at] = text
        types[at] = gguf.TokenType.CONTROL if text in added else gguf.TokenType.NORMAL
    return texts, types


def write_tokenizer(writer, folder, size):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    texts, types = tokens(tokenizer, size)
    merges = tokenizer["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in merges])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)
    writer.add_chat_template((folder / "chat_template.jinja").read_text())


def write_tensors(writer, size):
    dice = numpy.random.default_rng(5)

    def put(name, *shape):
        writer.add_tensor(f"{name}.weight", (0.05 * dice.standard_normal(shape)).astype(numpy.float32))

    def put_norm(name):
        writer.add_tensor(f"{name}.weight", numpy.ones(HIDDEN, numpy.float32))

    put("token_embd", size, HIDDEN)
    put("output", size, HIDDEN)
    put_norm("output_norm")
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            put(f"blk.{layer}.{name}", HIDDEN, HIDDEN)
        put(f"blk.{layer}.ffn_gate", 2 * HIDDEN, HIDDEN)
        put(f"blk.{layer}.ffn_up", 2 * HIDDEN, HIDDEN)
        put(f"blk.{layer}.ffn_down", HIDDEN, 2 * HIDDEN)
        put_norm(f"blk.{layer}.attn_norm")
        put_norm(f"blk.{layer}.ffn_norm")


def main():
    folder = Path(sys.argv[1])
    config = json.loads((folder / "model/config.json").read_text())
    size = config["vocab_size"]
    writer = gguf.GGUFWriter(folder / "tiny.gguf", "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(2 * HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(size)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    write_tokenizer(writer, folder / "model", size)
    write_tensors(writer, size)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"wrote {folder / 'tiny.gguf'}")


if __name__ == "__main__":
    main()
