"""Conversations of tests/real, and what came of each request: where it went, what was predicted, what the engine says it
had cached. Owns requests and their outcomes; must never judge them.
"""

import random
from dataclasses import dataclass

from engines import MODEL
from http_json import ask

WORDS = (
    "harbour lantern copper river ledger orchard signal winter engine garden paper silver mountain letter window "
    "bridge candle forest market needle summer captain basket thunder meadow pencil castle ribbon anchor shadow"
).split()
QUESTIONS = ["What then?", "Why is that so?", "Tell me more of it.", "And the price?", "Who knows of it?", "How long?"]


@dataclass
class Outcome:
    """One request. `cached` is None where the engine does not tell."""

    status: int
    endpoint: str
    tier: str
    reason: str
    missed: str
    predicted: int
    cached: int | None
    prompt: int
    answer: str

    @property
    def agrees(self):
        """Whether the engine spared what the gateway said. A request that was not routed by blocks predicts nothing."""
        return self.tier != "tier15" or self.cached == self.predicted


def send(url, path, body, headers=None):
    status, fields, answer = ask(url + path, body, headers)
    receipt = dict(pair.split("=", 1) for pair in fields.get("x-warmpath-receipt", "").split(", ") if "=" in pair)
    told = answer if isinstance(answer, dict) else {}
    usage = told.get("usage") or {}
    choice = (told.get("choices") or [{}])[0]
    text = (choice.get("message") or {}).get("content") or choice.get("text") or ""
    return Outcome(
        status,
        receipt.get("endpoint", ""),
        receipt.get("tier", ""),
        receipt.get("reason", ""),
        receipt.get("missed", ""),
        int(receipt.get("predicted_tokens", 0)),
        (usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
        usage.get("prompt_tokens", 0),
        text,
    )


def chat(url, messages, answer=12, **more):
    body = {"model": MODEL, "messages": messages, "max_tokens": answer, "temperature": 0, **more}
    return send(url, "/v1/chat/completions", body)


def complete(url, prompt, answer=1, **more):
    body = {"model": MODEL, "prompt": prompt, "max_tokens": answer, "temperature": 0, **more}
    return send(url, "/v1/completions", body)


class Conversations:
    """So many conversations over a few system prompts. Each seed gives others, of the same shape."""

    def __init__(self, seed, count=6, systems=2, words=70):
        self.dice = random.Random(seed)
        self.systems = [self.sentence(words) for _ in range(systems)]
        self.turns = [self.begin(at) for at in range(count)]
        self.count = count

    def sentence(self, words):
        return " ".join(self.dice.choices(WORDS, k=words)).capitalize() + "."

    def begin(self, at):
        system = self.systems[at % len(self.systems)]
        return [{"role": "system", "content": system}, {"role": "user", "content": self.sentence(25)}]

    def turn(self, at, url, settle=lambda: None, **more):
        """One turn of one conversation: the answer and a next question join it."""
        messages = self.turns[at]
        outcome = chat(url, messages, **more)
        messages.append({"role": "assistant", "content": outcome.answer})
        messages.append({"role": "user", "content": f"{self.dice.choice(QUESTIONS)} {self.sentence(6)}"})
        settle()
        return outcome

    def round(self, url, settle=lambda: None, **more):
        """One turn of each, in an order of its own, so that turns do not fall on engines in step."""
        order = list(range(self.count))
        self.dice.shuffle(order)
        return [self.turn(at, url, settle, **more) for at in order]


def token_ids(seed, count):
    """Ids that every vocabulary has."""
    dice = random.Random(seed)
    return [dice.randrange(10, 250) for _ in range(count)]
