"""The servers of perf/text: simulated engines, the gateway, routers of others. Owns how each is started, what it is
told, and what it has computed; processes are those of tests/real, which end all that they started.
"""

import re
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/real"))

from http_json import ask
from processes import Process

from chats import MODEL
from client import send

ADMIN = 18700
VIP = {"exact": 18711, "blind": 18712}
ENGINE, EVENTS = 18720, 18730
ROUTERS = {"vllm-router": (18741, 18751), "sglang-router": (18742, 18752)}


class Engine(Process):
    """A simulated vLLM. All publish at one port, so each has an address of its own."""

    def __init__(self, binary, number, log, pace):
        self.host = f"127.0.1.{number + 1}"
        command = [
            binary, "engine", "--host", self.host, "--port", ENGINE, "--model", MODEL, "--engine-version", "0.33.0",
            "--kv-events", f"tcp://*:{EVENTS}", "--hash-algo", "sha256_cbor", "--seed", "0", "--cache-blocks", 8_000_000,
            "--prefill-tps", 0, "--keepalive-idle", 60_000, *pace,
        ]  # fmt: skip
        url = f"http://{self.host}:{ENGINE}"
        super().__init__(f"engine-{number}", command, url, "/health", log, niceness=0)

    def hold(self, ids):
        """Puts a prompt into its cache, as token ids, past any gateway."""
        said = b'{"model":"%s","max_tokens":1,"prompt":%s}' % (MODEL.encode(), str(ids).encode())
        send(ENGINE, said, "/v1/completions", self.host)


def rule(name, port, engines, **more):
    service = {"externalIP": "127.0.0.1", "port": port, "protocol": "tcp", "mode": 4, "name": name, "timeoutMemberConnect": 5000, **more}
    ends = [{"endpointIP": engine.host, "targetPort": ENGINE, "weight": 1} for engine in engines]
    return {"serviceArguments": service, "endpoints": ends}


class Gateway(Process):
    """warmpath with two rules for the same engines: one by blocks, one that looks into no body."""

    def __init__(self, binary, folder, log, shards, engines):
        import json

        shutil.rmtree(folder, ignore_errors=True)
        (folder / "root/tokenizers").mkdir(parents=True)
        exact = {
            "model_name": MODEL, "kvExactMode": 3, "kvHashAlgo": "sha256_cbor", "kvBlockSize": 16, "kvZmqPort": EVENTS,
            "kvEngineVersion": "0.33.0", "kvWarmupSec": 0,
        }  # fmt: skip
        rules = [rule("exact", VIP["exact"], engines, **exact), rule("blind", VIP["blind"], engines)]
        (folder / "rules.json").write_text(json.dumps(rules, indent=1))
        command = [
            binary, "serve", "--rules", folder / "rules.json", "--state-dir", folder / "state",
            "--admin", f"127.0.0.1:{ADMIN}", "--shards", shards, "--config-root", folder / "root",
            "--memory", "4G", "--lame-duck", 0,
        ]  # fmt: skip
        settings = {"LLB_KV_NONE_HASH_SEED": "0", "LOXILB_KV_COLDSTART_SEED_N": "0"}
        url = f"http://127.0.0.1:{ADMIN}/netlox/v1"
        self.folder = folder
        super().__init__("gateway", command, url, "/status/ready", log, settings, niceness=0)

    def give_model(self, files):
        """Gives the model its files, and waits until it is loaded; bytes of memory that it took."""
        before = self.resident()
        shutil.copytree(files, self.folder / "root/tokenizers" / MODEL.replace("/", "__"))
        self._wait("the model is loaded", 60, lambda: [m["state"] for m in self._get("config/ai/models", "models")] == ["loaded"])
        model = self._get("config/ai/models", "models")[0]
        if model.get("fast_refused"):
            raise RuntimeError(f"the fast tokenizer is not in use: {model}")
        return self.resident() - before

    def wait_connected(self):
        def connected():
            rows = self._get("config/ai/kv/status", "endpoints")
            return rows and all(row["fence"] is None and row["ranks"][0]["connected"] for row in rows)

        self._wait("all events come", 60, connected)

    def wait_events(self):
        """Until no more events are applied: six looks alike. A busy machine's engines may pause for longer than one."""
        last, alike, until = None, 0, time.monotonic() + 60
        while alike < 6:
            now = self.samples("warmpath_kv_stored_total")
            alike, last = (alike + 1 if now == last else 0), now
            if time.monotonic() > until:
                raise RuntimeError("events do not come to rest in 60 s")
            time.sleep(0.1)

    def samples(self, name):
        """The samples of a metric, by labels."""
        _, _, text = ask(f"{self.url}/metrics", timeout=20)
        found = re.findall(rf"^{name}(\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
        return {labels: float(value) for labels, value in found}

    def sum(self, name):
        return sum(self.samples(name).values())

    def missed(self):
        """Misses since the start, by reason."""
        counts = self.samples("warmpath_exact_misses_total").items()
        reason = lambda labels: re.search(r'reason="([^"]*)"', labels)[1]
        return ", ".join(f"{reason(labels)} {count:.0f}" for labels, count in counts if count) or "none"

    def resident(self):
        return self.sum("warmpath_resident_memory_bytes")

    def turns(self):
        """Turns of the shards' loops: all, those over 128 and over 256 µs."""
        counts = {"all": 0.0, "128": 0.0, "256": 0.0}
        for labels, below in self.samples("warmpath_shard_turn_seconds_bucket").items():
            bound = re.search(r'le="([^"]+)"', labels)[1]
            if bound == "+Inf":
                counts = {what: count + below for what, count in counts.items()}
            elif (micros := str(round(float(bound) * 1e6))) in counts:
                counts[micros] -= below
        return counts

    def longest_turns(self):
        shards = self._get("shards", "shards")
        return ", ".join(f"{shard['turn_us_max']} µs ({shard['turn_max_stage']})" for shard in shards)

    def _get(self, path, member):
        status, _, answer = ask(f"{self.url}/{path}", timeout=20)
        return answer[member] if status == 200 else []

    def _wait(self, what, seconds, done):
        until = time.monotonic() + seconds
        while not done():
            if time.monotonic() > until:
                raise RuntimeError(f"not in {seconds} s: {what}")
            time.sleep(0.1)


def router(name, binaries, log, engines):
    """Another router in front of the same engines, by its cache-aware policy."""
    port, metrics = ROUTERS[name]
    urls = [engine.url for engine in engines]
    command = [
        binaries / name, *(["launch"] if name == "sglang-router" else []), "--host", "127.0.0.1", "--port", port,
        "--worker-urls", *urls, "--policy", "cache_aware", "--prometheus-port", metrics, "--log-level", "error",
    ]  # fmt: skip
    return Process(name, command, f"http://127.0.0.1:{port}", "/health", log, niceness=0)


def computed(pid):
    """Nanoseconds of CPU time of a process and what it started, by the names of threads."""
    times = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = (thread / "comm").read_text().strip()
            times[name] = times.get(name, 0) + int((thread / "schedstat").read_text().split()[0])
            children = (thread / "children").read_text().split()
        except OSError:
            continue
        for child in children:
            for name, nanos in computed(child).items():
                times[name] = times.get(name, 0) + nanos
    return times


def spent(before, after):
    """What was computed between two looks."""
    return {name: after[name] - before.get(name, 0) for name in after}


def by_part(times):
    """Of a gateway: the request's way, the events', and the rest."""
    parts = {"way": 0, "events": 0, "rest": 0}
    for name, nanos in times.items():
        way = name.startswith(("shard-", "token-"))
        parts["way" if way else "events" if name.startswith("event") else "rest"] += nanos
    return parts
