"""Conversations of perf/text: seeded prose and code that no other conversation has, as bodies of requests and as the
tokens that an engine would make of them. Owns both; the tokens come from the tokenizers package and from the template
written out here, never from the gateway that is measured.
"""

import json
import random
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ["ARCHITECTURE.md", "README.md", "shards/src/relay.rs"]
MODEL = "org/qwen3"


class Writer:
    """Text in runs of words, and conversations of it."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        # Tokens of the template in a text would be cuts, which prose has none of.
        text = " ".join((ROOT / name).read_text().replace("<|", "< |") for name in SOURCES)
        self.words = [word + " " for word in text.split(" ")]

    def text(self, size):
        runs, length = [], 0
        while length < size:
            at = self.random.randrange(len(self.words) - 16)
            run = "".join(self.words[at : at + self.random.randint(1, 16)])
            runs.append(run)
            length += len(run.encode())
        return "".join(runs)

    def conversation(self, size):
        """About `size` bytes in turns of a KiB, ending on a question."""
        turns = [("system", self.text(1024))]
        for _ in range(max(2, size // 2048) - 1):
            turns += [("user", self.text(1024)), ("assistant", self.text(1024))]
        return [*turns, ("user", self.text(200))]

    def next_turn(self, turns):
        return [*turns, ("assistant", self.text(600)), ("user", self.text(200))]


def body(turns):
    """A streamed chat, of which simulated engines tell no usage: they count other tokens than the model has, and would
    not be trusted for it."""
    messages = [{"role": role, "content": text} for role, text in turns]
    return json.dumps({"model": MODEL, "max_tokens": 1, "stream": True, "messages": messages}, ensure_ascii=False).encode()


def rendered(turns):
    """As Qwen3's template has it: without tools, and without thoughts in the history."""
    said = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)
    return said + "<|im_start|>assistant\n"


class Tokens:
    """The tokens of a conversation, as an engine has them."""

    def __init__(self, folder):
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def of(self, turns):
        return self.tokenizer.encode(rendered(turns), add_special_tokens=False).ids


class Fresh:
    """Bodies of a size that are new each time, made of ready pieces: fast enough to be sent at a rate."""

    def __init__(self, writer, pieces=2000):
        self.random = writer.random
        self.pieces = [json.dumps(writer.text(256), ensure_ascii=False)[1:-1].encode() for _ in range(pieces)]

    def message(self, role, size):
        count = max(1, size // 256)
        return b'{"role":"%s","content":"%s"}' % (role, b"".join(self.random.choices(self.pieces, k=count)))

    def messages(self, size):
        """Messages of a conversation of `size` bytes that ends on a question, joined by commas."""
        pairs = max(2, size // 2048) - 1
        turns = [self.message(b"system", 1024)]
        for _ in range(pairs):
            turns += [self.message(b"user", 1024), self.message(b"assistant", 1024)]
        return b",".join([*turns, self.message(b"user", 256)])

    def more(self, messages):
        """The next turn."""
        return b",".join([messages, self.message(b"assistant", 512), self.message(b"user", 256)])

    @staticmethod
    def body(messages, tokens=1):
        return b'{"model":"%s","max_tokens":%d,"stream":true,"messages":[%s]}' % (MODEL.encode(), tokens, messages)


def turns_of(messages):
    """The conversation that joined messages are."""
    return [(turn["role"], turn["content"]) for turn in json.loads(b"[" + messages + b"]")]
