"""The gateway of tests/real: rules, start, and what it says of requests and of caches. Owns the binary's process; must
never reach into it but by its own interfaces.
"""

import json
import shutil
import time

from engines import HTTP, MODEL, SIDE
from http_json import ask
from processes import Process

ADMIN = 18200
VIP = 18210


def rule(name, port, endpoints, **more):
    service = {
        "externalIP": "127.0.0.1", "port": port, "protocol": "tcp", "mode": 4, "name": name,
        "explain_header": "full", "timeoutMemberConnect": 500, **more,
    }  # fmt: skip
    return {
        "serviceArguments": service,
        "endpoints": [{"endpointIP": "127.0.0.1", "targetPort": at, "weight": 1} for at in endpoints],
    }


def exact(name, port, number, **more):
    """An exact rule over these engines. On one machine each publishes at a port of its own, which no rule can say: the
    gateway has it from the engines (`/kv_event_sources`, from 0.31)."""
    members = {"kvExactMode": 3, "kvEngineType": "vllm", "kvWarmupSec": 0, "model_name": MODEL, **more}
    return rule(name, port, [HTTP + n for n in number], **members)


def pair(name, port):
    """Prefill and decode at the first two places; the ports of their side channels are told too."""
    made = rule(name, port, [HTTP, HTTP + 1], pd_disagg_mode=True, kvEngineType="vllm", model_name=MODEL)
    for number, endpoint in enumerate(made["endpoints"]):
        endpoint |= {"ep_role": number + 1, "nixl_port": SIDE + number}
    return made


class Gateway:
    def __init__(self, binary, folder, rules, env, log):
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "root/tokenizers").mkdir(parents=True)
        (folder / "rules.json").write_text(json.dumps(rules, indent=1))
        command = [
            binary, "serve", "--rules", folder / "rules.json", "--state-dir", folder / "state",
            "--admin", f"127.0.0.1:{ADMIN}", "--shards", "1", "--config-root", folder / "root",
        ]  # fmt: skip
        settings = {"LOXILB_KV_COLDSTART_SEED_N": "0", **env}
        self.url = f"http://127.0.0.1:{ADMIN}/netlox/v1"
        self.folder = folder
        self.process = Process("gateway", command, self.url, "/status/ready", log, settings, niceness=0)

    def give_model(self, files):
        shutil.copytree(files, self.folder / "root/tokenizers" / MODEL.replace("/", "__"))

    def start(self):
        self.process.start().wait(20)
        return self

    def end(self):
        self.process.end()

    def caches(self):
        status, _, answer = ask(f"{self.url}/config/ai/kv/status", timeout=10)
        return answer["endpoints"] if status == 200 else []

    def wait(self, what, done, seconds=60):
        until = time.monotonic() + seconds
        rows = []
        while time.monotonic() < until:
            rows = self.caches()
            if rows and done(rows):
                return rows
            time.sleep(0.2)
        raise RuntimeError(f"not in {seconds} s: {what}: {json.dumps(rows)}")

    def wait_connected(self, seconds=60):
        """Until the events of every engine come and count."""
        live = lambda row: row["fence"] is None and all(rank["connected"] for rank in row["ranks"])
        return self.wait("all events come", lambda rows: all(live(row) for row in rows), seconds)

    def wait_quiet(self):
        """Until no more events come: two looks alike. What was sent before is then applied."""
        last, until = None, time.monotonic() + 10
        while time.monotonic() < until:
            rows = [[rank.get("sequence") for rank in row["ranks"]] for row in self.caches()]
            if rows == last:
                return
            last = rows
            time.sleep(0.06)

    def wait_models(self, seconds=30):
        until = time.monotonic() + seconds
        models = []
        while time.monotonic() < until:
            _, _, answer = ask(f"{self.url}/config/ai/models", timeout=10)
            models = answer["models"] if isinstance(answer, dict) else []
            if models and all(model["state"] == "loaded" for model in models):
                return models
            time.sleep(0.2)
        raise RuntimeError(f"models are not loaded: {json.dumps(models)}")
