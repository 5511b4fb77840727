"""The servers of perf/pairs: simulated engines in pairs, the gateway, routers of others. Owns how each is started and what
is read of it; processes are those of tests/real, which end all that they started.
"""

import json
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/real"))

from http_json import ask
from processes import Process

ADMIN = 18800
VIP = 18801
ROUTER, METRICS = 18830, 18840
ENGINES = {"vllm": 18810, "sglang": 18820}


class Pair:
    """A prefill and a decode engine of one kind; decode finds prefill's door at `door`."""

    def __init__(self, binary, kind, log, pace=("--ttft", 0, "--itl", 0), decode=()):
        self.kind, at = kind, ENGINES[kind]
        self.door = at + 5
        common = ["--kind", kind, "--prefill-tps", 0, "--tokens", 16, "--keepalive-idle", 60_000, *pace]

        def half(role, port, more):
            command = [binary, "engine", "--port", port, "--role", role, *common, *more]
            return Process(f"{kind}-{role}", command, f"http://127.0.0.1:{port}", "/health", log, niceness=0)

        self.prefill = half("prefill", at, ["--pair-port", self.door])
        self.decode = half("decode", at + 1, decode)
        self.halves = [self.prefill, self.decode]

    def start(self):
        for half in self.halves:
            half.start()
        for half in self.halves:
            half.wait(20)

    def end(self):
        for half in self.halves:
            half.end()

    def reset(self):
        for half in self.halves:
            ask(f"{half.url}/sim/reset", {})

    def stats(self):
        return [ask(f"{half.url}/sim/stats")[2] for half in self.halves]

    def judged(self, requests):
        """Whether blocks were handed over for each request; else what happened instead."""
        prefill, decode = (side["pair"] for side in self.stats())
        faults = {name: count for side in (prefill, decode) for name, count in side["violations"].items()}
        if decode["decodes"] == requests and decode["blocks_received"] and not decode["recomputes"] and not faults:
            return ""
        return f"{decode['decodes']} of {requests} handed over, {decode['recomputes']} computed again by decode; {faults or 'no violation'}"


def gateway(binary, folder, log, pair, more):
    """warmpath with one rule for the pair."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    service = {
        "externalIP": "127.0.0.1", "port": VIP, "protocol": "tcp", "mode": 4, "name": "pairs", "model_name": "sim",
        "pd_disagg_mode": True, "kvEngineType": pair.kind, **more,
    }  # fmt: skip
    if pair.kind == "sglang":
        service["pdBootstrapPort"] = pair.door
    end = lambda half, role: {"endpointIP": "127.0.0.1", "targetPort": int(half.url.rsplit(":", 1)[1]), "weight": 1, "ep_role": role}
    ends = [{**end(pair.prefill, 1), "nixl_port": pair.door}, end(pair.decode, 2)]
    (folder / "rules.json").write_text(json.dumps([{"serviceArguments": service, "endpoints": ends}], indent=1))
    command = [
        binary, "serve", "--rules", folder / "rules.json", "--state-dir", folder / "state",
        "--admin", f"127.0.0.1:{ADMIN}", "--shards", 1, "--lame-duck", 0,
    ]  # fmt: skip
    return Process("warmpath", command, f"http://127.0.0.1:{ADMIN}/netlox/v1", "/status/ready", log, niceness=0)


def router(name, program, log, pair):
    """Another router before the same pair, in its mode for prefill and decode."""
    mode = "--vllm-pd-disaggregation" if name == "vllm-router" else "--pd-disaggregation"
    door = [] if name == "vllm-router" else [pair.door]
    command = [
        program, *([] if name == "vllm-router" else ["launch"]), "--host", "127.0.0.1", "--port", ROUTER, mode,
        "--prefill", pair.prefill.url, *door, "--decode", pair.decode.url, "--prometheus-host", "127.0.0.1",
        "--prometheus-port", METRICS, "--log-level", "error",
    ]  # fmt: skip
    return Process(name, command, f"http://127.0.0.1:{ROUTER}", "/health", log, niceness=0)


def bench(binary, port, *more):
    """A load of `warmpath bench`, as its report."""
    command = [binary, "bench", "--url", f"http://127.0.0.1:{port}", "--json", *more]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise RuntimeError(f"bench ended with {done.returncode}: {done.stderr[-500:]}") from None


def computed(pid):
    """Nanoseconds of CPU time of a process and all that it started, by the scheduler's count for each thread."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((thread / "schedstat").read_text().split()[0])
            children = (thread / "children").read_text().split()
        except OSError:
            continue
        total += sum(computed(child) for child in children)
    return total


def counted(server, event):
    """How often something happened on the way of a gateway's requests, over its shards."""
    page = urllib.request.urlopen(f"{server.url}/metrics", timeout=10).read().decode()
    found = re.findall(rf'^warmpath_shard_events_total\{{[^}}]*event="{event}"[^}}]*\}} (\d+)', page, re.MULTILINE)
    return sum(map(int, found))


def resident(pid):
    """Resident memory in MB."""
    kilobytes = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]
    return int(kilobytes) / 1024


def sockets(pid):
    """Open sockets, those to clients and to engines with the rest."""
    count = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            count += str(entry.readlink()).startswith("socket:")
        except OSError:  # closed meanwhile
            continue
    return count
