"""A capture of one real engine: requests of token ids and, behind each, the batches of events that it caused, as they
came from the socket. A fixture of it lets a test follow an engine's cache without one. Owns the file's form; must never
go by the gateway.
"""

import json
import random
import time

import zmq

from engines import MODEL
from http_json import ask
from talk import complete, token_ids

QUIET_MS = 300


def capture(url, port, path, requests, block):
    """Writes a line for each request and each batch. The cache is cleared at the beginning by evicting all of it."""
    socket = zmq.Context.instance().socket(zmq.SUB)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    socket.connect(f"tcp://127.0.0.1:{port}")
    time.sleep(1)
    dice = random.Random(13)
    prompts = [token_ids(300 + at, (2 + at % 3) * block + 7 * at) for at in range(18)]
    weights = [1 / (1 + at) for at in range(len(prompts))]
    lines, batches, hits = [], 0, 0
    metrics = next(line for line in ask(f"{url}/metrics")[2].splitlines() if line.startswith("vllm:cache_config_info{"))
    lines.append({"engine": "vllm", "version": ask(f"{url}/version")[2]["version"], "cache": metrics})
    for at in range(requests):
        salt = {"cache_salt": f"tenant-{at % 2}"} if at % 6 == 5 else {}
        ids = dice.choices(prompts, weights)[0]
        answer = 2 * block if at == 10 else 1
        outcome = complete(url, ids, answer=answer, ignore_eos=True, **salt)
        assert outcome.status == 200, outcome
        lines.append({"model": MODEL, "prompt": ids, "cached_tokens": outcome.cached, **salt})
        hits += outcome.cached
        while socket.poll(QUIET_MS):
            topic, seq, payload = socket.recv_multipart()
            lines.append({"topic": topic.decode(), "seq": int.from_bytes(seq, "big"), "payload_hex": payload.hex()})
            batches += 1
    socket.close(0)
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    return f"{requests} requests, {batches} batches, {hits} tokens cached; {path.stat().st_size} bytes"
