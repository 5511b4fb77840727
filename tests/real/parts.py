"""The parts of tests/real: each is a claim, tried on real engines. Owns what is tried and what must come of it; a part
ends with a line of figures, fails by AssertionError, and is not run by NotRun.
"""

import json
import random

from engines import HTTP, MODEL
from http_json import ask, metric
from talk import Conversations, complete, token_ids

HITS, QUERIES = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"


class NotRun(Exception):
    pass


class Pool:
    """Engines, a gateway in front of them, and every outcome so far."""

    def __init__(self, engines, gateway, turns, outcomes):
        self.engines, self.gateway, self.turns, self.outcomes = engines, gateway, turns, outcomes

    def counters(self):
        return [(metric(engine.url, HITS), metric(engine.url, QUERIES)) for engine in self.engines]

    def keep(self, part, outcomes):
        self.outcomes += [(part, outcome) for outcome in outcomes]
        refused = [outcome for outcome in outcomes if outcome.status != 200]
        assert not refused, f"{len(refused)} requests failed: {refused[0]}"
        return outcomes

    def settle(self):
        self.gateway.wait_quiet()


def share(before, after):
    """Tokens hit and asked for between two looks at the counters, over all engines."""
    hits = sum(new[0] - old[0] for old, new in zip(before, after))
    asked = sum(new[1] - old[1] for old, new in zip(before, after))
    return hits, asked


def agreement(outcomes, least):
    """Every request that was routed by blocks found cached what was predicted; at least so many were."""
    exact = [outcome for outcome in outcomes if outcome.tier == "tier15"]
    untold = [outcome for outcome in exact if outcome.cached is None]
    assert not untold, f"{len(untold)} answers do not tell cached tokens"
    wrong = [outcome for outcome in exact if not outcome.agrees]
    assert not wrong, f"{len(wrong)} of {len(exact)} disagree, first: {wrong[0]}"
    misses = sorted({outcome.missed or outcome.reason for outcome in outcomes if outcome.tier != "tier15"})
    assert len(exact) >= least, f"only {len(exact)} of {len(outcomes)} were routed by blocks; others: {misses}"
    tokens = sum(outcome.cached for outcome in exact)
    return f"{len(exact)} of {len(outcomes)} by blocks, each as predicted ({tokens} tokens); others: {misses or 'none'}"


def conversations(pool, turns_url, exact_url, words=70):
    """Prefix hits by the engines' own counters: the same shape of conversations in turn and by blocks."""
    rounds = 5
    begun = pool.counters()
    talk = Conversations(1, words=words)
    in_turn = [outcome for _ in range(rounds) for outcome in talk.round(turns_url, pool.settle)]
    middle = pool.counters()
    talk = Conversations(2, words=words)
    exact = [outcome for _ in range(rounds) for outcome in talk.round(exact_url, pool.settle)]
    ended = pool.counters()
    pool.keep("conversations: in turn", in_turn)
    pool.keep("conversations", exact)
    (hits_turn, asked_turn), (hits_exact, asked_exact) = share(begun, middle), share(middle, ended)
    said = agreement(exact, least=len(exact) - talk.count)
    assert hits_exact / asked_exact > hits_turn / asked_turn, f"{hits_exact}/{asked_exact} against {hits_turn}/{asked_turn}"
    cached = sum(outcome.cached or 0 for outcome in exact)
    assert cached == hits_exact, f"answers tell {cached} cached tokens, the engines' counters {hits_exact}"
    return (
        f"engines' counters: in turn {hits_turn:.0f} of {asked_turn:.0f} prompt tokens hit "
        f"({100 * hits_turn / asked_turn:.1f} %), by blocks {hits_exact:.0f} of {asked_exact:.0f} "
        f"({100 * hits_exact / asked_exact:.1f} %); {said}"
    )


def completions(pool, url, block):
    """Prompts of token ids and of text, and an answer whose blocks fill while it is decoded."""
    ids, outcomes = token_ids(3, 6 * block + 5), []
    first = complete(url, ids)
    pool.settle()
    outcomes += [complete(url, ids), complete(url, ids[: 3 * block + 1]), complete(url, ids[: 4 * block])]
    pool.settle()
    text = Conversations(4).sentence(200)
    opened = complete(url, text)
    pool.settle()
    outcomes.append(complete(url, text + " And so on."))
    decoded = complete(url, token_ids(5, block + 8), answer=2 * block, ignore_eos=True)
    pool.settle()
    outcomes.append(complete(url, text + decoded.answer))
    pool.keep("completions", [first, opened, decoded] + outcomes)
    return agreement(outcomes, least=len(outcomes))


def streams(pool, direct, url):
    """A streamed chat has the same text through the gateway as without it, and its last event tells the usage."""
    ask_for = {
        "model": MODEL, "messages": Conversations(14).turns[0], "max_tokens": 40, "temperature": 0, "ignore_eos": True,
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    alone, through = [events(ask(f"{at}/v1/chat/completions", ask_for)) for at in (direct, url)]
    assert text_of(alone) == text_of(through), (text_of(alone), text_of(through))
    usage = through[-1]["usage"]
    assert usage["completion_tokens"] == 40, usage
    return f"{len(through)} events, {usage['completion_tokens']} tokens, the same text as without the gateway"


def events(answer):
    """The events of a stream that ended as it should."""
    status, _, text = answer
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert status == 200 and lines[-1] == "[DONE]", text[-300:]
    return [json.loads(line) for line in lines[:-1]]


def text_of(stream):
    deltas = [choice["delta"].get("content") or "" for event in stream for choice in event["choices"]]
    return "".join(deltas)


def completions_again(pool, url, block):
    """The same under another rule over the same engines: what they hold by now is known there too."""
    ids = token_ids(3, 6 * block + 5)
    outcomes = [complete(url, ids), complete(url, ids[: 3 * block + 1])]
    pool.keep("completions again", outcomes)
    return agreement(outcomes, least=2)


def salt(pool, url, block):
    """The same prompt under two salts and none shares nothing; under one salt it is found again."""
    ids = token_ids(6, 4 * block + 3)
    outcomes = []
    for more in ({"cache_salt": "tenant-a"}, {"cache_salt": "tenant-b"}, {}):
        cold = complete(url, ids, **more)
        assert not cold.cached, f"{more}: {cold.cached} tokens were cached that nobody sent"
        pool.settle()
        warm = complete(url, ids, **more)
        assert warm.cached == 4 * block, f"{more}: {warm}"
        outcomes += [cold, warm]
    pool.keep("salt", outcomes)
    return agreement(outcomes, least=3)


def lora(pool, url, block):
    """A prompt under the model and under two adapters shares nothing."""
    ids = token_ids(7, 4 * block + 3)
    outcomes = []
    for model in (MODEL, "lora-a", "lora-b"):
        cold = complete(url, ids, model=model)
        assert cold.status == 200, f"{model}: {cold}"
        assert not cold.cached, f"{model}: {cold.cached} tokens were cached that nobody sent"
        pool.settle()
        outcomes += [cold, complete(url, ids, model=model)]
        pool.settle()
    pool.keep("lora", outcomes)
    assert all(warm.cached == 4 * block for warm in outcomes[1::2]), [warm.cached for warm in outcomes[1::2]]
    return agreement(outcomes, least=3)


def eviction(pool, url, blocks, block):
    """More prompts than the caches hold, some asked for more often than others: what is predicted follows what was
    evicted."""
    begun = [row["ranks"][0].get("removed", 0) for row in pool.gateway.caches()]
    prompts = [token_ids(100 + at, 3 * block + 5) for at in range(blocks)]
    dice = random.Random(12)
    weights = [1 / (1 + at) for at in range(len(prompts))]
    outcomes = []
    for ids in dice.choices(prompts, weights, k=4 * blocks):
        outcomes.append(complete(url, ids))
        pool.settle()
    pool.keep("eviction", outcomes)
    rows = pool.gateway.caches()
    removed = sum(row["ranks"][0].get("removed", 0) - old for row, old in zip(rows[:2], begun[:2]))
    held = [row["ranks"][0]["blocks"]["gpu"] for row in rows[:2]]
    assert removed > 0, "nothing was evicted"
    assert all(count <= blocks for count in held), f"{held} blocks are counted, {blocks} there are"
    said = agreement(outcomes, least=blocks)
    return f"{said}; {removed} blocks removed by both engines, held {held} of {blocks} each"


def restart(pool, url, start_again):
    """An engine is killed in the midst of conversations and comes back: requests go on, and what it held is forgotten."""
    talk = Conversations(8)
    before = [outcome for _ in range(2) for outcome in talk.round(url, pool.settle)]
    victim = pool.engines[1]
    at = f"127.0.0.1:{HTTP + 1}"
    held = {row["endpoint"]: row["ranks"][0]["blocks"]["gpu"] for row in pool.gateway.caches()}
    victim.end(kill=True)
    pool.gateway.wait("the dead engine counts for nothing", lambda rows: dead(rows, at))
    during = talk.round(url, pool.settle)
    assert all(outcome.endpoint != at for outcome in during), during
    seconds = start_again(victim)
    rows = pool.gateway.wait_connected(90)
    back = {row["endpoint"]: row["ranks"][0]["blocks"]["gpu"] for row in rows}
    after = [outcome for _ in range(2) for outcome in talk.round(url, pool.settle)]
    fresh = Conversations(9)
    after += [outcome for _ in range(3) for outcome in fresh.round(url, pool.settle)]
    pool.keep("restart: before", before)
    pool.keep("restart: while dead", during)
    pool.keep("restart: after", after)
    agreement(before + during, least=1)
    said = agreement(after, least=len(after) - 2 * fresh.count)
    to_it = sum(outcome.endpoint == at for outcome in after)
    return (
        f"killed with {held[at]} blocks known, {back[at]} after it was back ({seconds:.0f} s); while dead all "
        f"{len(during)} requests went to the other; after: {to_it} of {len(after)} to the new process, {said}"
    )


def gateway_restart(pool, url, block):
    """The gateway starts anew before warm engines: by their replay it knows at once what they hold."""
    prompts = [token_ids(400 + at, 3 * block + 9) for at in range(6)]
    cold = [complete(url, ids) for ids in prompts]
    pool.settle()
    known = {row["endpoint"]: row["ranks"][0]["blocks"]["gpu"] for row in pool.gateway.caches()}
    pool.gateway.end()
    pool.gateway.start()
    pool.gateway.wait_connected(60)
    pool.settle()
    rows = pool.gateway.caches()
    again = {row["endpoint"]: row["ranks"][0]["blocks"]["gpu"] for row in rows}
    warm = [complete(url, ids) for ids in prompts]
    pool.keep("gateway restart", cold + warm)
    assert again == known, f"{known} blocks were known, {again} after the restart"
    standings = sorted({rank["standing"] for row in rows for rank in row["ranks"]})
    return f"{known} blocks known before and after ({', '.join(standings)}); {agreement(warm, least=len(warm))}"


def dead(rows, endpoint):
    row = next(row for row in rows if row["endpoint"] == endpoint)
    return not any(rank["connected"] for rank in row["ranks"])


def llama(direct, relayed, chwbl, engines):
    """llama.cpp behind the gateway: the same answer as direct, and one prompt's beginning always at one engine."""
    ask_for = {"model": MODEL, "prompt": Conversations(10).sentence(60), "max_tokens": 8, "temperature": 0, "cache_prompt": False}
    alone = ask(f"{direct}/v1/completions", ask_for)
    through = ask(f"{relayed}/v1/completions", ask_for)
    assert (alone[0], through[0]) == (200, 200), (alone, through)
    assert alone[2]["choices"] == through[2]["choices"], (alone[2]["choices"], through[2]["choices"])
    status, _, streamed = ask(f"{relayed}/v1/completions", {**ask_for, "stream": True})
    assert status == 200 and "data: [DONE]" in streamed, streamed[-200:]
    homes, cached = {}, 0
    talk = Conversations(11, count=6, systems=6)
    for _ in range(4):
        for at in range(talk.count):
            outcome = talk.turn(at, chwbl)
            assert outcome.status == 200, outcome
            homes.setdefault(at, set()).add(outcome.endpoint)
            cached += outcome.cached or 0
    assert all(len(places) == 1 for places in homes.values()), homes
    used = {place for places in homes.values() for place in places}
    assert len(used) == len(engines), f"all conversations went to {used}"
    return f"relayed as direct, streamed to [DONE]; {len(homes)} conversations stayed each at one of {len(used)} servers, {cached} tokens cached"
