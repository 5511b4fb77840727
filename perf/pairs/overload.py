"""Twice the load that a simulated pair can bear, for a minute, through a gateway with a capacity gate. Owns the loads and
what is read beside them: latency of those let in, time to a refusal, memory, sockets, connections to engines.
"""

import threading
import time

from servers import VIP, Pair, bench, counted, gateway, resident, sockets

# A queue of this depth holds requests for longer than they may wait: some find no place, some have no turn in time.
SLOTS, DEPTH, WAIT = 32, 64, 250
PREFILL_MS, STEP_MS, TOKENS = 20, 10, 16
CAPACITY = SLOTS / ((PREFILL_MS + PREFILL_MS + (TOKENS - 1) * STEP_MS) / 1000)
LOAD = ["--stream", "--max-tokens", TOKENS, "--timeout", 20]


def overload(run, seconds):
    pace = ["--ttft", PREFILL_MS, "--itl", STEP_MS]
    pair = Pair(run.binary, "vllm", run.logs / "overload.log", pace, ["--max-running", SLOTS])
    gate = {"fc_mode": "enforce", "fc_max_outstanding": SLOTS, "fc_max_queue_depth": DEPTH, "fc_max_queue_wait_ms": WAIT}
    server = gateway(run.binary, run.folder / "gateway", run.logs / "gateway.log", pair, gate)
    try:
        pair.start()
        server.start()
        server.wait(20)
        full = bench(run.binary, VIP, "--connections", SLOTS, "--duration", 5, *LOAD)
        capacity = full["per_second"]
        time.sleep(1)
        looks = [look(server, pair)]
        rows = [told("0.8", bench(run.binary, VIP, "--rate", f"{0.8 * capacity:.1f}", "--duration", min(15, seconds), *LOAD))]
        looks.append(look(server, pair))
        rows.append(told("2", watched(run, server, pair, capacity, seconds, looks)))
        time.sleep(2)
        looks.append(look(server, pair))
        held = sum(side["pair"]["held"] + side["running"] + side["waiting"] for side in pair.stats())
    finally:
        server.end()
        pair.end()
    return {"head": HEAD, "rows": rows, "notes": notes(capacity, looks, rows, held, seconds)}


HEAD = [
    "Load / capacity", "a second", "good", "429", "504", "other failures", "first token p50 ms", "p99", "last p50 ms", "p99",
    "between tokens p99 ms", "429 after at most ms", "504 after at most ms", "begun late p99 ms",
]  # fmt: skip


def watched(run, server, pair, capacity, seconds, looks):
    """The load at twice the capacity, with a look after a sixth of it and just before its end."""

    def looking():
        time.sleep(seconds / 6)
        looks.append(look(server, pair))
        time.sleep(seconds * 5 / 6 - 1)
        looks.append(look(server, pair))

    watcher = threading.Thread(target=looking)
    watcher.start()
    report = bench(run.binary, VIP, "--rate", f"{2 * capacity:.1f}", "--duration", seconds, *LOAD)
    watcher.join()
    return report


def look(server, pair):
    """Resident MB, sockets, connections to engines that the gateway opened for requests (probes and questions for load are
    not its shards'), and requests that engines finished."""
    finished = sum(side["finished"] for side in pair.stats())
    return resident(server.process.pid), sockets(server.process.pid), counted(server, "connects"), finished


def told(load, report):
    first, last, gap, late = (report[name] for name in ("ttft_ms", "end_to_end_ms", "inter_token_ms", "generator_late_ms"))
    failures, longest = report["failures"], report["longest_failure_ms"]
    known = failures.get("status 429", 0), failures.get("status 504", 0)
    most = lambda name: f"{longest[name]:.1f}" if name in longest else "–"
    return [
        load, f"{(report['good'] + report['failed']) / report['seconds']:.0f}", report["good"], *known, report["failed"] - sum(known),
        f"{first['p50']:.1f}", f"{first['p99']:.1f}", f"{last['p50']:.1f}", f"{last['p99']:.1f}", f"{gap['p99']:.2f}",
        most("status 429"), most("status 504"), f"{late['p99']:.2f}",
    ]  # fmt: skip


def notes(capacity, looks, rows, held, seconds):
    start, before, early, late, after = looks
    connects, requests = late[2] - early[2], (late[3] - early[3]) / 2
    return [
        f"Capacity: {capacity:.0f} a second measured with {SLOTS} connections, {CAPACITY:.0f} by the engines' times "
        f"({SLOTS} at once, {PREFILL_MS} ms to prefill's and to decode's first token, {TOKENS} tokens {STEP_MS} ms apart).",
        f"Gate: {SLOTS} at once, {DEPTH} may wait, {WAIT} ms at most. A 504 is due after {WAIT} ms, a 429 at once; so may the first token of who is let in be later by {WAIT} ms.",  # fmt: skip
        f"Resident memory: {start[0]:.1f} MB before, {before[0]:.1f} after the first load, {early[0]:.1f} after {seconds / 6:.0f} s of the second, "
        f"{late[0]:.1f} at its end, {after[0]:.1f} two seconds later.",
        f"Open sockets: {start[1]} before, {before[1]} after the first load, {early[1]} and {late[1]} in the second, {after[1]} after it.",
        f"Connections to engines opened for requests in the steady state: {connects} for {requests:.0f} requests of two legs, "
        f"{connects / max(1, requests) * 1000:.2f} for 1,000. Left over at the engines: {held}.",
    ]
