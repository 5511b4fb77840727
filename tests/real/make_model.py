"""A model small enough to be served by a CPU in milliseconds: random weights, a tokenizer and a chat template.

Usage: make_model.py FOLDER. Writes FOLDER/model (a Llama with two layers) and FOLDER/lora-a, FOLDER/lora-b
(adapters of it). Owns what the engines under test serve; must never fetch anything, nor depend on chance: the same
packages write the same files.
"""

import json
import random
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 512
HIDDEN = 64
LAYERS = 2
# Long enough for the conversations of this test, no longer: the KV cache is sized by it.
CONTEXT = 4096
SPECIAL = ["<|bos|>", "<|eos|>", "<|pad|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORDS = (
    "harbour lantern copper river ledger orchard signal winter engine garden paper silver mountain letter window "
    "bridge candle forest market needle summer captain basket thunder meadow pencil castle ribbon anchor shadow "
    "the a of and to in is it that for on with as was at by an be this from or are"
).split()


def write_tokenizer(folder: Path) -> None:
    """A byte-level BPE, trained on sentences of the words above, with the specials of ChatML."""
    dice = random.Random(11)
    sentences = [" ".join(dice.choices(WORDS, k=30)).capitalize() + "." for _ in range(500)]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(sentences, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=SPECIAL[0],
        eos_token=SPECIAL[1],
        pad_token=SPECIAL[2],
        additional_special_tokens=SPECIAL[3:],
        model_max_length=CONTEXT,
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)


def write_weights(folder: Path) -> None:
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=HIDDEN // 2,
        max_position_embeddings=CONTEXT,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
        tie_word_embeddings=False,
        dtype="float32",
    )
    LlamaForCausalLM(config).save_pretrained(folder, safe_serialization=True)


def write_adapter(folder: Path, seed: int) -> None:
    """A LoRA of rank 8 over the queries and values of each layer."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    weights = {}
    for layer in range(LAYERS):
        for target in ("q_proj", "v_proj"):
            name = f"base_model.model.model.layers.{layer}.self_attn.{target}"
            weights[f"{name}.lora_A.weight"] = 0.1 * torch.randn(8, HIDDEN)
            weights[f"{name}.lora_B.weight"] = 0.1 * torch.randn(HIDDEN, 8)
    save_file(weights, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": 8,
        "lora_alpha": 16,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": ["q_proj", "v_proj"],
        "base_model_name_or_path": "model",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))


def main() -> None:
    folder = Path(sys.argv[1])
    model = folder / "model"
    model.mkdir(parents=True, exist_ok=True)
    write_tokenizer(model)
    write_weights(model)
    write_adapter(folder / "lora-a", 21)
    write_adapter(folder / "lora-b", 22)
    print(f"wrote {model}: {sorted(path.name for path in model.iterdir())}")


if __name__ == "__main__":
    main()
