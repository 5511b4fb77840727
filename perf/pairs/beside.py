"""The gateway beside other routers before one simulated pair: CPU time and latency of a request, in rounds in which each
router has its turn. Owns the cells; must never compare a router that did not hand blocks over as if it had.
"""

import statistics
import time

from servers import ROUTER, VIP, Pair, bench, computed, gateway, router

KINDS = {"vllm": ["warmpath", "vllm-router", "smg"], "sglang": ["warmpath", "sglang-router", "smg"]}
CELLS = [(name, size, more) for name, more in (("whole", []), ("stream", ["--stream"])) for size in (1024, 32768)]
CONNECTIONS = 4
HEAD = ["Dialect", "Answer", "Prompt", "Router", "CPU µs a request", "p50 ms", "p99 ms", "failed", "handed over for each request"]  # fmt: skip


def beside(run, rounds, requests):
    rows = [row for kind, names in KINDS.items() for row in of_kind(run, kind, names, rounds, requests)]
    notes = [
        f"{rounds} rounds of {requests} requests a cell over {CONNECTIONS} connections, routers in turn; median (lowest to highest) of rounds. "
        "CPU time is that of all threads of the router's process and of what it started, by the scheduler."
    ]
    return {"head": HEAD, "rows": rows, "notes": notes}


def of_kind(run, kind, names, rounds, requests):
    pair = Pair(run.binary, kind, run.logs / f"{kind}.log")
    missing = {name: why for name in names if (why := run.missing(name))}
    seen = {(cell, name): [] for cell in range(len(CELLS)) for name in names}
    pair.start()
    try:
        for number in range(rounds):
            for at in range(len(names)):
                name = names[(at + number) % len(names)]
                if name not in missing:
                    one_turn(run, pair, name, number, requests, seen, missing)
    finally:
        pair.end()
    for cell, (answer, size, _) in enumerate(CELLS):
        for name in names:
            told = [f"not_run: {missing[name]}", *["–"] * 4] if name in missing else summed(seen[cell, name])
            yield [kind, answer, f"{size // 1024} KB", name, *told]


def one_turn(run, pair, name, number, requests, seen, missing):
    log = run.logs / f"{name}.log"
    own = name == "warmpath"
    server = gateway(run.binary, run.folder / "gateway", log, pair, {}) if own else router(name, run.program(name), log, pair)
    port = VIP if own else ROUTER
    try:
        server.start()
        server.wait(30)
        time.sleep(0.5)
        bench(run.binary, port, "--connections", CONNECTIONS, "--requests", 50, "--timeout", 10)
        for cell, (_, size, more) in enumerate(CELLS):
            pair.reset()
            before = computed(server.process.pid)
            load = ["--connections", CONNECTIONS, "--requests", requests, "--duration", 60, "--timeout", 10]
            report = bench(run.binary, port, *load, "--size", size, "--seed", number, *more)
            cpu = (computed(server.process.pid) - before) / 1000 / requests
            seen[cell, name].append((cpu, report, pair.judged(requests)))
    except (OSError, RuntimeError) as fault:
        missing[name] = " ".join(str(fault).split())[-200:]
    finally:
        server.end()


def summed(turns):
    spread = lambda values, digits: f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"
    times = [report["end_to_end_ms"] for _, report, _ in turns]
    unlike = [judged for _, _, judged in turns if judged]
    return [
        spread([cpu for cpu, _, _ in turns], 0),
        spread([time["p50"] for time in times], 2),
        spread([time["p99"] for time in times], 2),
        sum(report["failed"] for _, report, _ in turns),
        f"**no**: {unlike[0]}" if unlike else "yes",
    ]
