"""Makes the small tokenizers beside it: byte-level BPE with ChatML's tokens, and other kinds of normalizer,
pre-tokenizer, post-processor and added tokens. Usage, with `tokenizers` 0.22 installed: python3 make.py FOLDER"""
import copy
import json
import random
import sys

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = sys.argv[1]
WORDS = ("the quick brown fox jumps over a lazy dog while seven wizards quietly mix bold potions "
         "gateway routes requests to the replica that already holds the prefix cache blocks "
         "system user assistant tool call result token stream block hash parent event").split()
SPECIALS = ["<|bos|>", "<|eos|>", "<|pad|>", "<|im_start|>", "<|im_end|>"]


def corpus():
    draw = random.Random(7)
    return [" ".join(draw.choice(WORDS) for _ in range(40)) + "." for _ in range(400)]


def save(name, document):
    with open(f"{FOLDER}/{name}.json", "w", encoding="utf-8") as file:
        json.dump(document, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


def train(tokenizer, specials, alphabet, size):
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=specials, initial_alphabet=alphabet,
                                  show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return train(tokenizer, SPECIALS, pre_tokenizers.ByteLevel.alphabet(), 512)


def with_bytes(tokenizer):
    """BPE that falls back to bytes, as SentencePiece's."""
    document = json.loads(tokenizer.to_str())
    vocab = document["model"]["vocab"]
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    document["model"].update(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    return document


def metaspace(scheme):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    return with_bytes(train(tokenizer, ["<unk>", "<s>", "</s>", *SPECIALS], [], 400))


def legacy():
    """Llama 2: the blank before a text is the normalizer's."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    document = with_bytes(train(tokenizer, ["<unk>", "<s>", "</s>", *SPECIALS], [], 400))
    document["pre_tokenizer"] = None
    return document


def cut_by(pattern):
    """Byte-level with words cut by a pattern of its own."""
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    write = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, write]}}


def edited(base, **changes):
    """With tokens' flags set by content, and tokens added."""
    document = copy.deepcopy(base)
    for token in document["added_tokens"]:
        token.update(changes.get("flags", {}).get(token["content"], {}))
    vocab = document["model"]["vocab"]
    for content, flags in changes.get("tokens", []):
        entry = {"id": len(vocab), "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                 "normalized": False, "special": False, **flags}
        vocab[content] = entry["id"]
        document["added_tokens"].append(entry)
    document.update(changes.get("parts", {}))
    return document


QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

base = json.loads(byte_level().to_str())
save("tiny", base)
save("qwen", edited(base, parts={"normalizer": {"type": "NFC"}, **cut_by(QWEN)}))
save("o200k", edited(base, parts=cut_by(O200K)))
save("nfc", edited(base, parts={"normalizer": {"type": "NFC"}},
                   tokens=[("<e\u0301>", {}), ("<n>", {"normalized": True})]))
save("strips", edited(base, flags={"<|im_end|>": {"rstrip": True}, "<|pad|>": {"lstrip": True}},
                      tokens=[("<word>", {"single_word": True}), (" <blank>", {}), ("<line>\n", {})]))
save("tangled", edited(base, tokens=[(token, {}) for token in (
    "<a>", "<a>>", "x<a", "<b>", "y<b>", "b>c", "<c>", "z<c>", "aba", "<", "<|im_start|>user")]))
every = {token["content"]: {"normalized": True} for token in base["added_tokens"]}
save("normalized", edited(base, flags=every, tokens=[("|>", {}), ("<n>", {"normalized": True}), ("n>x", {})]))
around = processors.TemplateProcessing(single="<|bos|> $A <|eos|>", special_tokens=[("<|bos|>", 0), ("<|eos|>", 1)])
document = Tokenizer.from_str(json.dumps(base))
document.post_processor = around
save("around", json.loads(document.to_str()))
save("metaspace_first", metaspace("first"))
save("metaspace_always", metaspace("always"))
save("legacy", legacy())
