"""Two real vLLM engines for `warmpath demo --real`, started by the lines of this folder's tests.

Usage: serve.py FOLDER. Says on a line of JSON what it started once both serve; then answers each line of its input:
`look` (counters of both), `kill N`, `start N`, `up N`. Ends the engines when its input ends. Owns that dialogue; must never
outlive whoever started it.
"""

import json
import os
import queue
import sys
import threading
from pathlib import Path

from engines import HTTP, MODEL, SEEDED, SEED_ENV, vllm
from http_json import ask, metric
from parts import HITS, QUERIES
from processes import end_all

START_SECONDS = 900
# As many tokens as the simulated engines of the demo cache.
BLOCKS = 160
BLOCK = 32


def listen(lines):
    """Each line of the input; its end is the end of everything, whatever is waited for."""
    for line in filter(str.strip, sys.stdin):
        lines.put(line.split())
    end_all()
    os._exit(0)


def counters(engine):
    return [metric(engine.url, QUERIES), metric(engine.url, HITS)]


def is_up(engine):
    """Whether it serves; an error if it has ended instead."""
    if engine.process is None or engine.process.poll() is not None:
        raise RuntimeError(f"{engine.name} does not run: {engine.tail()[-300:]}")
    try:
        return ask(engine.url + engine.ready, timeout=5)[0] == 200
    except OSError:
        return False


def answer(engines, command, *place):
    engine = engines[int(place[0])] if place else None
    match command:
        case "look":
            return {"counters": [counters(engine) for engine in engines]}
        case "kill":
            engine.end(kill=True)
            return {}
        case "start":
            engine.start()
            return {}
        case "up":
            return {"up": is_up(engine)}
    raise ValueError(f"{command} is none of look, kill, start, up")


def say(what):
    print(json.dumps(what), flush=True)


def main():
    folder = Path(sys.argv[1]).resolve()
    (folder / "logs").mkdir(exist_ok=True)
    lines = queue.Queue()
    threading.Thread(target=listen, args=[lines], daemon=True).start()
    flags = [*SEEDED, "--num-gpu-blocks-override", BLOCKS]
    engines = [vllm(folder, n, flags, SEED_ENV, folder / f"logs/demo-{n}.log", adapters=False) for n in (0, 1)]
    try:
        for engine in engines:
            engine.start()
        for engine in engines:
            engine.wait(START_SECONDS)
    except RuntimeError as fault:
        return say({"error": str(fault)[-600:]})
    version = ask(engines[0].url + "/version")[2]["version"]
    places = [f"127.0.0.1:{HTTP + n}" for n in (0, 1)]
    say({"endpoints": places, "model": MODEL, "version": version, "block_size": BLOCK, "cache_blocks": BLOCKS})
    while True:
        try:
            say(answer(engines, *lines.get()))
        except (OSError, RuntimeError, ValueError, IndexError) as fault:
            say({"error": f"{type(fault).__name__}: {fault}"})


if __name__ == "__main__":
    main()
