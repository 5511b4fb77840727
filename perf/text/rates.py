"""The gateway under loads at a rate: prompts of 100,000 tokens (row E3), and a mixture that shows how long its loops'
turns are (row E5). Owns the loads and what is read beside them; must never call a rate met that was not kept.
"""

import subprocess
import threading
import time

from cells import World
from chats import Fresh, Tokens, Writer, turns_of
from client import Paced, send
from servers import VIP, by_part, computed, spent

PROMPT = 400_000
RATE = 100
CONVERSATIONS = 16
# Connections; name, bytes of the first turn, conversations, turns, tokens of an answer.
MIXTURE = [(48, "streams", 2048, 600, 4, 32), (16, "short", 8192, 500, 2, 1), (4, "long", 65536, 40, 6, 1)]
STREAMED = ["--ttft", 5, "--itl", 5, "--tokens", 32]


def long_prompts(run, shards, seconds):
    """Row E3: next turns, then cold ones, then both by the rule that looks into no body."""
    rows = []
    with World(run, shards) as world:
        fresh, tokens = Fresh(Writer(100 + shards)), Tokens(run.folder / "model")
        # They grow to over the size in the time.
        chats = [fresh.messages(PROMPT * 9 // 10) for _ in range(CONVERSATIONS)]
        for number, chat in enumerate(chats):
            send(VIP["exact"], fresh.body(chat))
            world.engines[number % 2].hold(tokens.of(turns_of(chat)))
        world.gateway.wait_events()

        def next_turn(number):
            at = number % CONVERSATIONS
            chats[at] = fresh.more(chats[at])
            return fresh.body(chats[at])

        def cold(_):
            return fresh.body(fresh.messages(PROMPT))

        for name, vip, make, target in [
            ("next turns, by blocks", "exact", next_turn, "0.10"),
            ("next turns, blind", "blind", next_turn, "–"),
            ("cold, by blocks", "exact", cold, "0.50"),
            ("cold, blind", "blind", cold, "–"),
        ]:
            rows.append([name, *at_rate(world, VIP[vip], make, seconds), target])
    head = ["400 KB prompts", "a second", "answered", "failed", "cores: request's way", "events", "rest", "CPU µs a request", "p50 ms", "p99 ms", "begun late p99 ms", "expected in the cache", "misses", "target (E3)"]  # fmt: skip
    return {"head": head, "rows": rows, "notes": [f"{seconds} s each at {RATE} a second, {CONVERSATIONS} conversations; the share of a core is CPU time over the time that the load took."]}  # fmt: skip


def at_rate(world, port, make, seconds):
    gateway = world.gateway
    exact = lambda: [gateway.sum(f"warmpath_exact_{what}_total") for what in ("prompt_tokens", "predicted_tokens", "misses")]
    told, before = exact(), computed(gateway.process.pid)
    paced = Paced(port, RATE)
    took = paced.run(seconds, make)
    parts = by_part(spent(before, computed(gateway.process.pid)))
    prompt, predicted, misses = (now - was for now, was in zip(exact(), told))
    times, late = sorted(paced.times), sorted(paced.late)
    of = lambda values, share: f"{1000 * values[int(len(values) * share)]:.1f}" if values else "–"
    cores = [f"{parts[part] / 1e9 / took:.3f}" for part in ("way", "events", "rest")]
    hit = f"{100 * predicted / prompt:.0f} %" if prompt else "–"
    each = f"{parts['way'] / 1000 / max(1, len(times)):.0f}"
    return [f"{len(times) / took:.1f}", len(times), len(paced.faults), *cores, each, of(times, 0.5), of(times, 0.99), of(late, 0.99), hit, f"{misses:.0f}"]  # fmt: skip


def mixed(run, shards, seconds):
    """Row E5: streams, short chats and long ones, cold and going on, all by blocks."""
    with World(run, shards, pace=STREAMED) as world:
        before, cpu = world.gateway.turns(), computed(world.gateway.process.pid)
        url = f"http://127.0.0.1:{VIP['exact']}"
        bench = [run.binary, "bench", "--url", url, "--duration", seconds, "--connections"]
        loads = [[*bench, many, "--bodies", bodies_file(run, *shape)] for many, *shape in MIXTURE]
        running = [
            subprocess.Popen([str(part) for part in load], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for load in loads
        ]  # fmt: skip
        faults = []
        large = threading.Thread(target=large_prompts, args=(seconds, faults))
        large.start()
        said = [process.communicate(timeout=seconds + 60) for process in running]
        large.join()
        faults += [err.strip().splitlines()[-1] for process, (_, err) in zip(running, said) if process.returncode]
        cores = {part: nanos / 1e9 / seconds for part, nanos in by_part(spent(cpu, computed(world.gateway.process.pid))).items()}
        turns = {what: count - before[what] for what, count in world.gateway.turns().items()}
        longest, misses = world.gateway.longest_turns(), world.gateway.missed()
    million = lambda what: f"{turns[what]:.0f} ({1e6 * turns[what] / max(1, turns['all']):.1f} in 10^6)"
    row = [f"{shards}", f"{turns['all']:.0f}", million("128"), million("256"), longest, f"{cores['way']:.2f}"]
    head = ["shards", "turns of loops", "over 128 µs of CPU", "over 256 µs (E5: under 1 in 10^6 over 200)", "longest of each shard (stage)", "cores"]
    return {"head": head, "rows": [row], "notes": [f"Misses: {misses}. " + ("; ".join(faults) or "No request failed.")]}


def bodies_file(run, name, size, chats, turns, tokens):
    """Conversations turn by turn, one body a line. No usage is asked for: simulated engines count other tokens."""
    fresh, path = Fresh(Writer(size)), run.folder / f"bodies-{name}.jsonl"
    with open(path, "wb") as file:
        for _ in range(chats):
            messages = fresh.messages(size)
            for _ in range(turns):
                file.write(fresh.body(messages, tokens) + b"\n")
                messages = fresh.more(messages)
    return path


def large_prompts(seconds, faults):
    """Two prompts of 400 KB a second beside the rest."""
    fresh, until = Fresh(Writer(7)), time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            send(VIP["exact"], fresh.body(fresh.messages(PROMPT)))
        except (OSError, RuntimeError) as fault:
            faults.append(str(fault))
        time.sleep(0.5)
