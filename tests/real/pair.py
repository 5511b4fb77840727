"""Prefill and decode on two real vLLM: what is claimed of a pair behind the gateway, by the engines' own logs and counters.
Owns requests, what each engine says of them, and the order of legs; must never claim a figure of time.
"""

import ast
import os
import re
import signal
import threading
import time

from engines import MODEL, SIDE
from http_json import ask, metric
from parts import events
from talk import Conversations, token_ids

DONE, LOADED = "vllm:request_success_total", "vllm:external_prefix_cache_hits_total"
RECEIVED = re.compile(r"Received request (\S+): params: (.*), lora_request")
PARAMS = re.compile(r"'kv_transfer_params': (\{.*?\})[,}]?[^{}]*\)$")
# As the NIXL connector is asked for its blocks, here without the gateway.
KEEP = {
    "do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
    "remote_host": None, "remote_port": None,
}  # fmt: skip
BLOCK = 32
# Long enough for a request of these to reach any engine; what must not come has not come by then.
PATIENCE = 2.0


class Legs:
    """The two engines of a pair, one that serves alone, and the gateway's place."""

    def __init__(self, prefill, decode, alone, url, gateway):
        self.prefill, self.decode, self.alone, self.url, self.gateway = prefill, decode, alone, url, gateway
        self.read = {}

    def received(self, engine):
        """(id, what it says of the parameters) of requests that came since the last look."""
        with open(engine.log, "rb") as log:
            log.seek(self.read.get(engine.name, 0))
            raw = log.read()
        whole = raw[: raw.rfind(b"\n") + 1]
        self.read[engine.name] = self.read.get(engine.name, 0) + len(whole)
        return RECEIVED.findall(whole.decode("utf-8", "replace"))

    def skip(self):
        self.received(self.prefill), self.received(self.decode)

    def both(self):
        """What came to either engine since, once nothing more comes."""
        time.sleep(0.3)
        return self.received(self.prefill), self.received(self.decode)


def handed(said):
    """The `kv_transfer_params` of a logged request; None where it has none."""
    found = PARAMS.search(said)
    return ast.literal_eval(found[1]) if found else None


def bodies(seed):
    """Completions in ids and text and chats, streamed and not, each prompt a new one of several blocks."""
    talk = Conversations(seed, count=2, systems=2)
    prompts = [
        ("/v1/completions", {"prompt": token_ids(seed, 5 * BLOCK + 7)}),
        ("/v1/completions", {"prompt": talk.sentence(60)}),
        ("/v1/chat/completions", {"messages": talk.turns[0]}),
        ("/v1/chat/completions", {"messages": talk.turns[1], "max_completion_tokens": 9}),
    ]
    for at, (path, more) in enumerate(prompts):
        for stream in (False, True):
            body = {"model": MODEL, "max_tokens": 24, "temperature": 0, "ignore_eos": True, "stream": stream, **more}
            if stream:
                # Another prompt than the one that was not streamed: nothing is found that it left.
                body |= renewed(path, body, at)
                body["stream_options"] = {"include_usage": True}
            yield path, body


def renewed(path, body, at):
    if "messages" in body:
        return {"messages": [{"role": "system", "content": f"Number {at} streams."}, *body["messages"]]}
    prompt = body["prompt"]
    return {"prompt": f"{at} streams: {prompt}" if isinstance(prompt, str) else [11 + at, *prompt]}


def text_of(path, answer, stream):
    status, _, told = answer
    assert status == 200, answer
    choices = [choice for event in events(answer) for choice in event["choices"]] if stream else told["choices"]
    if path == "/v1/completions":
        return "".join(choice["text"] for choice in choices)
    return "".join((choice["delta"] if stream else choice["message"]).get("content") or "" for choice in choices)


def texts(legs, seed):
    """Every answer has the text that one engine alone gives, each engine had it once, both under one id."""
    asked, empty = 0, 0
    for path, body in bodies(seed):
        legs.skip()
        alone = text_of(path, ask(legs.alone.url + path, body), body["stream"])
        answer = ask(legs.url + path, body, {"x-request-id": f"trial-{seed}-{asked}"})
        through = text_of(path, answer, body["stream"])
        assert through == alone, f"{path} stream={body['stream']}: alone {alone!r}, of the pair {through!r}"
        prefill, decode = legs.both()
        assert (len(prefill), len(decode)) == (1, 1), (prefill, decode)
        for name, _ in prefill + decode:
            assert f"trial-{seed}-{asked}" in name, name
        assert "max_tokens=1," in prefill[0][1] and "max_tokens=1," not in decode[0][1], (prefill, decode)
        asked, empty = asked + 1, empty + (not alone)
    assert empty == 0, f"{empty} texts are empty: that proves nothing"
    return f"{asked} requests (ids, text, chats; streamed or not): the text of one vLLM, one leg at each engine, both under the client's id"


def receipts(legs, seed):
    """Without an id of the client's both legs carry the gateway's, which says where they went."""
    legs.skip()
    answer = ask(legs.url + "/v1/completions", completion(seed))
    assert answer[0] == 200, answer
    prefill, decode = legs.both()
    form = re.compile(rf"___prefill_addr_127.0.0.1:{SIDE}___decode_addr_127.0.0.1:{SIDE + 1}_[0-9a-f]{{32}}")
    ids = [form.search(name) for name, _ in prefill + decode]
    assert len(ids) == 2 and all(ids) and ids[0][0] == ids[1][0], (prefill, decode)
    return f"{ids[0][0]} at both engines, as {prefill[0][0]} and {decode[0][0]}"


def completion(seed, blocks=4, **more):
    return {"model": MODEL, "prompt": token_ids(seed, blocks * BLOCK + 9), "max_tokens": 8, "temperature": 0, **more}


def order(legs, seed):
    """Decode is frozen: prefill serves its leg, decode has none. Prefill is frozen: decode gets nothing at all."""
    for frozen, other, comes in ((legs.decode, legs.prefill, 1), (legs.prefill, legs.decode, 0)):
        legs.skip()
        answers, seed = [], seed + 1
        begun = metric(other.url, DONE)
        os.killpg(frozen.process.pid, signal.SIGSTOP)
        try:
            sender = threading.Thread(target=lambda: answers.append(ask(legs.url + "/v1/completions", completion(seed))))
            sender.start()
            time.sleep(PATIENCE)
            seen = len(legs.received(other)), metric(other.url, DONE) - begun, len(legs.received(frozen)), len(answers)
        finally:
            os.killpg(frozen.process.pid, signal.SIGCONT)
        sender.join()
        assert seen == (comes, comes, 0, 0), f"{frozen.name} frozen: {other.name} received, ended, {frozen.name} received, client: {seen}"
        assert answers[0][0] == 200, answers
    return f"decode frozen: prefill served its leg, no answer came; prefill frozen: decode got nothing in {PATIENCE:.0f} s; both answered when thawed"


def told_nothing(legs, seed):
    """ExampleConnector answers no parameters, and decode gets none; it loads by the prompt, from the shared folder."""
    direct = ask(legs.prefill.url + "/v1/completions", completion(seed, kv_transfer_params=KEEP, max_tokens=1))
    legs.skip()
    loaded = metric(legs.decode.url, LOADED)
    answer = ask(legs.url + "/v1/completions", completion(seed + 1))
    prefill, decode = legs.both()
    loaded = metric(legs.decode.url, LOADED) - loaded
    assert direct[0] == answer[0] == 200, (direct, answer)
    assert direct[2].get("kv_transfer_params") is None, direct[2]
    assert handed(prefill[0][1]) == KEEP and handed(decode[0][1]) is None, (prefill, decode)
    assert loaded == 4 * BLOCK, f"decode loaded {loaded} tokens"
    return f"prefill got {handed(prefill[0][1])} and answered null; decode got no kv_transfer_params and loaded {loaded:.0f} of {4 * BLOCK + 9} tokens from the folder"


def told_blocks(legs, seed):
    """NIXL: what prefill answers has the members that the engine's own answer has, and decode reads by them."""
    direct = ask(legs.prefill.url + "/v1/completions", completion(seed, kv_transfer_params=KEEP, max_tokens=1))
    assert direct[0] == 200 and isinstance(direct[2]["kv_transfer_params"], dict), direct
    own = direct[2]["kv_transfer_params"]
    legs.skip()
    loaded = metric(legs.decode.url, LOADED)
    answer = ask(legs.url + "/v1/completions", completion(seed + 1))
    prefill, decode = legs.both()
    got, loaded = handed(decode[0][1]), metric(legs.decode.url, LOADED) - loaded
    assert answer[0] == 200 and handed(prefill[0][1]) == KEEP, (answer, prefill)
    assert got is not None and list(got) == list(own), f"decode got {got}, prefill answers {own}"
    assert got["remote_engine_id"] == own["remote_engine_id"] and got["remote_request_id"].startswith(prefill[0][0] + "-"), (got, prefill)
    assert loaded >= 4 * BLOCK, f"decode read {loaded} tokens"
    return f"decode got {got} and read {loaded:.0f} of {4 * BLOCK + 9} tokens from prefill"


def refusals(legs, seed):
    """What prefill refuses is its own answer to the client, and no leg goes to decode; what decode alone can refuse comes
    from decode. Both say what one engine says."""
    said = []
    for more, legs_seen in (({"temperature": -1}, (0, 0)), ({"max_tokens": 100_000}, (1, 0))):
        body = completion(seed, **more)
        legs.skip()
        alone, through = ask(legs.alone.url + "/v1/completions", body), ask(legs.url + "/v1/completions", body)
        prefill, decode = legs.both()
        assert alone[0] == through[0] == 400 and alone[2] == through[2], (more, alone, through)
        assert (len(prefill), len(decode)) == legs_seen, (more, prefill, decode)
        said.append(f"{more}: 400 {through[2]['error']['message'][:60]!r}")
    status, _, answer = ask(legs.url + "/v1/completions", completion(seed, max_tokens="many"))
    said.append(f"max_tokens 'many': {status} {str(answer)[:120]}")
    assert status == 400, answer
    return "; ".join(said)


def prefill_dies(legs, seed):
    """Prefill is killed: a request in flight and those after it end, with an answer or one typed error."""
    answers = []
    os.killpg(legs.prefill.process.pid, signal.SIGSTOP)
    sender = threading.Thread(target=lambda: answers.append(ask(legs.url + "/v1/completions", completion(seed))))
    sender.start()
    time.sleep(PATIENCE)
    legs.prefill.end(kill=True)
    sender.join()
    legs.received(legs.decode)
    after = [ask(legs.url + "/v1/completions", completion(seed + 1 + at)) for at in range(4)]
    decode = legs.received(legs.decode)
    told = [(status, (body.get("error") or {}).get("code") if status != 200 else "served") for status, _, body in answers + after]
    assert all(answer in ((200, "served"), (503, "pd_pool_unavailable")) for answer in told), told
    assert len(decode) == sum(answer[0] == 200 for answer in told[1:]), (told, decode)
    plain = ask(legs.decode.url + "/health")[0]
    assert plain == 200, f"decode is {plain}"
    return f"in flight: {told[0]}; after it: {told[1:]}; decode goes on"
