"""What a chat costs a gateway: cold, its next turn, and that once more, by blocks and by a rule that looks into no body,
beside other routers on the same conversations. Owns what is sent in which order and what is read beside it; must never
show a cell whose next turns did not hit.
"""

import statistics
import time

from chats import Tokens, Writer, body
from client import send
from servers import VIP, Engine, Gateway, by_part, computed, router, spent

# Name, bytes of the conversation, conversations a round.
SIZES = [("1k tokens", 4 << 10, 60), ("8 KB", 8 << 10, 60), ("8k tokens", 32 << 10, 40), ("32k tokens", 128 << 10, 12), ("128k tokens", 512 << 10, 4)]  # fmt: skip
KINDS = ["cold", "next turn", "again"]
BLOCK = 16
AT_ONCE = ["--ttft", 0, "--itl", 0, "--tokens", 1]


class World:
    """Two engines, a gateway with its model, and routers, for as long as it is entered."""

    def __init__(self, run, shards, pace=AT_ONCE, routers=()):
        log = run.logs
        self.engines = [Engine(run.binary, at, log / f"engine-{at}.log", pace) for at in (0, 1)]
        self.gateway = Gateway(run.binary, run.folder / "gateway", log / "gateway.log", shards, self.engines)
        self.routers = {name: router(name, run.folder / "venv/bin", log / f"{name}.log", self.engines) for name in routers}
        self.model, self.model_bytes = run.folder / "model", 0

    def __enter__(self):
        try:
            for engine in self.engines:
                engine.start().wait(20)
            self.gateway.start().wait(20)
            self.model_bytes = self.gateway.give_model(self.model)
            self.gateway.wait_connected()
            for process in self.routers.values():
                process.start().wait(60)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in [*self.routers.values(), self.gateway, *self.engines]:
            process.end()


class Cells:
    """Microseconds of CPU a request, by server, size, kind and round."""

    def __init__(self, run, world, seed):
        self.world, self.writer, self.tokens = world, Writer(seed), Tokens(run.folder / "model")
        self.micros, self.told = {}, {}
        gateway = world.gateway.process.pid
        self.servers = [("exact", VIP["exact"], gateway), ("blind", VIP["blind"], gateway)]
        for name, process in world.routers.items():
            self.servers.append((name, int(process.url.rsplit(":", 1)[1]), process.process.pid))

    def round(self, number, title, size, count):
        chats = [self.writer.conversation(size) for _ in range(count)]
        later = [self.writer.next_turn(turns) for turns in chats]
        bodies = {"cold": [body(turns) for turns in chats], "next turn": [body(turns) for turns in later]}
        bodies["again"] = bodies["next turn"]
        # Who comes first has colder caches: each in turn.
        servers = self.servers[number % len(self.servers) :] + self.servers[: number % len(self.servers)]
        held = 0
        for kind in KINDS:
            for server, port, pid in servers:
                self._batch((title, kind, server), port, pid, bodies[kind], held)
            if kind == "cold":
                held = self._hold(chats)

    def _hold(self, chats):
        """What the engines have cached by the next turn, in the tokens of the real model; tokens in full blocks."""
        held = 0
        for turns in chats:
            ids = self.tokens.of(turns)
            self.world.engines[0].hold(ids)
            held += len(ids) // BLOCK * BLOCK
        self.world.gateway.wait_events()
        return held

    def _batch(self, cell, port, pid, bodies, held):
        exact = self._exact() if cell[2] == "exact" else None
        before = computed(pid)
        for said in bodies:
            send(port, said)
        # What a request leaves behind is its own.
        time.sleep(0.02)
        times = spent(before, computed(pid))
        parts = by_part(times) if cell[2] in ("exact", "blind") else {"way": sum(times.values())}
        for part, nanos in parts.items():
            self.micros.setdefault((*cell, part), []).append(nanos / 1000 / len(bodies))
        if exact is not None:
            told = [now - was for now, was in zip(self._exact(), exact)]
            self.told.setdefault(cell[:2], []).append([held, len(bodies), *told])

    def _exact(self):
        """Tokens that were expected in a cache, and misses, until now."""
        return [self.world.gateway.sum(f"warmpath_exact_{what}_total") for what in ("predicted_tokens", "misses")]

    def row(self, title, kind, routers):
        of = lambda server, part="way": self.micros[title, kind, server, part]
        added = [one - other for one, other in zip(of("exact"), of("blind"))]
        held, requests, predicted, misses = (sum(column) for column in zip(*self.told[title, kind]))
        # Whoever missed, as on a machine where a token core comes too late, was not expected to find anything.
        if predicted < 0.98 * held * (1 - misses / requests):
            raise RuntimeError(f"{title}, {kind}: {predicted:.0f} of {held} tokens were found; misses: {self.world.gateway.missed()}")
        cells = [shown(of("exact")), shown(of("blind")), shown(added), f"{statistics.median(of('exact', 'events')):.0f}"]
        cells += [shown(of(name)) for name in routers]
        return [f"{title}, {kind}", *cells, f"{100 * predicted / held:.0f} %" if held else "–", f"{misses:.0f}"]


def shown(values):
    """Median and range."""
    return f"{statistics.median(values):.0f} [{min(values):.0f}–{max(values):.0f}]"


def cells(run, shards, rounds):
    """The table at so many shards."""
    routers = [name for name in run.routers if shards == 1]
    with World(run, shards, routers=routers) as world:
        resident = world.gateway.resident()
        measured = Cells(run, world, seed=shards)
        for title, size, count in SIZES:
            measured.round(0, "warm-up", size, max(2, count // 4))
            for number in range(rounds):
                measured.round(number, title, size, count)
        idle = {name: idle_share(process.process.pid) for name, process in [("warmpath", world.gateway), *world.routers.items()]}
        grown = world.gateway.resident() - resident
        rows = [measured.row(title, kind, routers) for title, _, _ in SIZES for kind in KINDS]
        missed = world.gateway.missed()
    head = ["CPU µs a request", "by blocks", "blind", "added", "events beside", *routers, "found of what is held", "misses"]
    requests = sum(count for _, _, count in SIZES) * rounds
    return {
        "head": head,
        "rows": rows,
        "notes": [
            f"Each cell: {rounds} rounds, median [least–most]; {requests} conversations, a new connection for each request; "
            "by blocks and blind in turn. *Added* is the median of the rounds' differences, on the threads of the "
            "request's way (shards, token cores); *events beside* is the event core's thread.",
            f"Misses by reason, first requests included: {missed}.",
            f"Resident memory: the model {world.model_bytes / 2**20:.0f} MiB; all of this load {grown / 2**20:.0f} MiB more.",
            "Idle, share of a core: " + ", ".join(f"{name} {share:.4f}" for name, share in idle.items()) + ".",
        ],
    }


def idle_share(pid, seconds=2):
    before = computed(pid)
    time.sleep(seconds)
    return sum(spent(before, computed(pid)).values()) / 1e9 / seconds
