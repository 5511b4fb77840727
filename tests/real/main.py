"""The driver of tests/real: starts engines and gateways, runs the parts one by one and writes down how each ended.

Usage: main.py FOLDER BINARY RECORD PART... (parts: seeds, defaults, attest, llama, pair). Owns the order and the record; what is
claimed stands in parts.py.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import time
import traceback
from datetime import datetime, timezone
from pathlib import Path

import attest as attests
import pair as pairs
import parts
from capture import capture
from engines import EVENTS, HTTP, LLAMA, SEED_ENV, SEEDED, halves, llama_server, vllm
from gateway import VIP, Gateway, exact, rule
from gateway import pair as pair_rule
from http_json import ask

START_SECONDS = 900


class Run:
    def __init__(self, folder, binary):
        self.folder, self.binary, self.rows, self.outcomes, self.facts = folder, binary, [], [], {}
        # Before anything runs: the tree may go on while engines start.
        self.commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
        self.logs = folder / "logs"
        self.logs.mkdir(exist_ok=True)

    def part(self, name, claim, *args, **more):
        begun = time.monotonic()
        try:
            verdict, said = "pass", claim(*args, **more)
        except parts.NotRun as why:
            verdict, said = "not_run", str(why)
        except Exception as fault:
            verdict, said = "fail", f"{type(fault).__name__}: {fault}"
            traceback.print_exc()
        seconds = time.monotonic() - begun
        self.rows.append((verdict, name, said, seconds))
        print(f"{verdict:8} {name}: {said} [{seconds:.0f} s]", flush=True)
        return verdict == "pass"

    def doctor(self, what, arguments, env=None):
        """The verb `doctor` on a real engine: its whole table goes into the record."""
        command = [str(self.binary), "doctor", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})}, timeout=180)
        self.facts.setdefault("doctor", []).append([what, " ".join(map(str, arguments)), done.returncode, done.stdout + done.stderr])
        return done


def started(run, engines):
    """Starts all at once, and waits for each."""
    begun = time.monotonic()
    for engine in engines:
        engine.start()
    for engine in engines:
        engine.wait(START_SECONDS)
    seconds = time.monotonic() - begun
    run.facts.setdefault("starts", []).append(seconds)
    return f"{len(engines)} engines up after {seconds:.0f} s, {ask(engines[0].url + '/version')[2]}"


def again(victim):
    victim.start()
    return victim.wait(START_SECONDS)


def with_vllm(run, name, flags, env, rules, gateway_env, trial):
    """Two engines and a gateway, for as long as `trial` runs."""
    engines = [vllm(run.folder, at, flags, env, run.logs / f"{name}-{at}.log") for at in (0, 1)]
    gateway = Gateway(run.binary, run.folder / "gateway", rules, gateway_env, run.logs / f"{name}-gateway.log")
    gateway.give_model(run.folder / "models/model")
    try:
        if not run.part(f"{name}: engines start", started, run, engines):
            return
        gateway.start()
        run.part(f"{name}: events of both come", lambda: connected(gateway))
        trial(parts.Pool(engines, gateway, None, run.outcomes))
        run.facts.setdefault("caches", []).append([name, gateway.caches()])
    finally:
        gateway.end()
        for engine in engines:
            engine.end()


def connected(gateway):
    rows = gateway.wait_connected(90)
    models = gateway.wait_models()
    versions = sorted({row["version"] for row in rows})
    findings = sorted({finding for row in rows for finding in row["findings"]})
    return f"version {', '.join(versions)}; findings: {findings or 'none'}; model {models[0]['state']}"


def url(offset):
    return f"http://127.0.0.1:{VIP + offset}"


def seeds(run):
    """The launch line of the starting documents: a seed, sha256_cbor, blocks of 32 (this build takes no 16)."""
    named = {"kvHashAlgo": "sha256_cbor", "kvBlockSize": 32, "kvEngineVersion": "0.32.0"}
    rules = [
        rule("turns", VIP, [HTTP, HTTP + 1]),
        exact("exact", VIP + 1, (0, 1), **named),
        # For adapters, which are models of their own.
        exact("any model", VIP + 2, (0, 1), **named, model_name=""),
    ]

    def trial(pool):
        run.part("seeds: doctor", doctor_seeds, run)
        run.part("seeds: conversations", parts.conversations, pool, url(0), url(1))
        run.part("seeds: completions", parts.completions, pool, url(1), 32)
        run.part("seeds: streams", parts.streams, pool, pool.engines[0].url, url(1))
        run.part("seeds: cache_salt", parts.salt, pool, url(1), 32)
        run.part("seeds: lora", parts.lora, pool, url(2), 32)
        run.part("seeds: gateway restarts", parts.gateway_restart, pool, url(1), 32)
        run.part("seeds: kill and restart", parts.restart, pool, url(1), again)

    with_vllm(run, "seeds", SEEDED, SEED_ENV, rules, {"LLB_KV_NONE_HASH_SEED": "0"}, trial)


def doctor_seeds(run):
    files = run.folder / "models/model/tokenizer.json"
    base = ["--endpoint", f"http://127.0.0.1:{HTTP}", "--kind", "vllm", "--model", "real/tiny"]
    good = run.doctor("as it is", [*base, "--tokenizer", files, "--block-size", 32, "--engine-version", "0.32.0"], {"LLB_KV_NONE_HASH_SEED": "0"})
    wrong = run.doctor("a rule's defaults, another seed", [*base, "--tokenizer", files], {"LLB_KV_NONE_HASH_SEED": "7"})
    both = run.doctor("the rule", ["--rule", run.folder / "gateway/rules.json", "--config-root", run.folder / "gateway/root"], {"LLB_KV_NONE_HASH_SEED": "0"})
    assert good.returncode == 0, good.stdout + good.stderr
    assert wrong.returncode == 1 and "PYTHONHASHSEED=0" in wrong.stdout, wrong.stdout + wrong.stderr
    assert both.returncode == 0, both.stdout + both.stderr
    return "0 where it fits, 1 with the seed and block size it found where not, 0 for the rule of two"


def defaults(run):
    """vLLM's own defaults: no seed, its own hash and block size, here with a cache of few blocks; named by tokens, and by
    the pickled sha256 that 0.29 and later have without a seed."""
    block, blocks = 128, 40
    rules = [
        rule("turns", VIP, [HTTP, HTTP + 1]),
        exact("tokens", VIP + 1, (0, 1), kvHashAlgo="tokens", kvBlockSize=block),
        exact("sha256", VIP + 2, (0, 1), kvHashAlgo="sha256", kvBlockSize=block, kvEngineVersion="0.32.0"),
        exact("any model", VIP + 3, (0, 1), kvHashAlgo="tokens", kvBlockSize=block, model_name=""),
    ]

    def trial(pool):
        run.part("defaults: doctor", doctor_defaults, run, block)
        run.part("defaults: conversations", parts.conversations, pool, url(0), url(1), 170)
        run.part("defaults: completions", parts.completions, pool, url(1), block)
        run.part("defaults: completions, sha256 without a seed", parts.completions_again, pool, url(2), block)
        run.part("defaults: cache_salt", parts.salt, pool, url(1), block)
        run.part("defaults: lora", parts.lora, pool, url(3), block)
        run.part("defaults: eviction", parts.eviction, pool, url(1), blocks, block)
        path = run.folder / "capture.jsonl"
        run.part("defaults: capture", capture, pool.engines[0].url, EVENTS, path, 36, block)

    with_vllm(run, "defaults", ["--num-gpu-blocks-override", blocks], {}, rules, {}, trial)


def doctor_defaults(run, block):
    base = ["--endpoint", f"http://127.0.0.1:{HTTP}", "--kind", "vllm", "--model", "real/tiny"]
    files = run.folder / "models/model/tokenizer.json"
    good = run.doctor("by tokens", [*base, "--tokenizer", files, "--block-size", block, "--algo", "tokens"])
    wrong = run.doctor("a rule's defaults", [*base, "--tokenizer", files])
    assert good.returncode == 0, good.stdout + good.stderr
    assert wrong.returncode == 1 and "sha256" in wrong.stdout, wrong.stdout + wrong.stderr
    return "0 by tokens, 1 with block size and hash that it found for a rule's defaults"


def attest(run):
    """A rule with a model profile: the ladder of attestation against a real engine."""
    members = {"kvHashAlgo": "sha256_cbor", "kvBlockSize": 32, "kvModelProfile": attests.PROFILE}
    engine = vllm(run.folder, 0, SEEDED, SEED_ENV, run.logs / "attest-0.log", adapters=False)
    gateway = Gateway(run.binary, run.folder / "gateway", [], {"LLB_KV_NONE_HASH_SEED": "0"}, run.logs / "attest-gateway.log")
    gateway.give_model(run.folder / "models/model")
    root = run.folder / "gateway/root"
    try:
        if not run.part("attest: the engine starts", started, run, [engine]):
            return
        version = ask(engine.url + "/version")[2]["version"]
        attests.stage(root, run.folder / "models/model", version)
        attests.fixtures(root, engine)
        gateway.start()
        status, _, answer = ask(f"{gateway.url}/config/loadbalancer", exact("attested", VIP, (0,), **members))
        run.part("attest: the rule is admitted", admitted, status, answer)
        run.part("attest: the ladder is climbed", attests.climbs, gateway)
        run.part("attest: one token flipped fails", attests.flipped, gateway, root, engine)
        run.part("attest: a restart is proven anew", attests.restarts, gateway, engine, again)
    finally:
        gateway.end()
        engine.end()


def admitted(status, answer):
    assert status == 200, (status, answer)
    return "200"


def llama(run):
    if not (run.folder / "llama/bin/llama-server").exists():
        run.part("llama.cpp", not_run, "llama-server is not built: tests/real/install llama")
        return
    servers = [llama_server(run.folder, at, run.logs / f"llama-{at}.log") for at in (0, 1)]
    places = [LLAMA, LLAMA + 1]
    rules = [
        rule("one", VIP, places[:1], kvEngineType="llamacpp"),
        rule("chwbl", VIP + 1, places, kvEngineType="llamacpp", sel=8),
    ]
    gateway = Gateway(run.binary, run.folder / "gateway", rules, {}, run.logs / "llama-gateway.log")
    try:
        for server in servers:
            server.start().wait(120)
        gateway.start()
        run.part("llama.cpp: relay and CHWBL", parts.llama, servers[0].url, url(0), url(1), servers)
        run.part("llama.cpp: doctor", doctor_llama, run)
    finally:
        gateway.end()
        for server in servers:
            server.end()


def doctor_llama(run):
    done = run.doctor("llama.cpp", ["--endpoint", f"http://127.0.0.1:{LLAMA}", "--kind", "llamacpp", "--model", "real/tiny"])
    assert done.returncode == 1 and "publishes no cache events" in done.stdout, done.stdout + done.stderr
    return "1, and says why no exact routing is possible"


def pair(run):
    """Prefill and decode apart, by both connectors that a CPU has."""
    handed_on = {"ExampleConnector": pairs.told_nothing, "NixlConnector": pairs.told_blocks}
    for connector, told in handed_on.items():
        if connector == "NixlConnector" and not (run.folder / "nixl/nixl").exists():
            run.part(f"pair, {connector}", not_run, "nixl is not installed: tests/real/install nixl")
            continue
        shutil.rmtree(run.folder / "handed", ignore_errors=True)
        prefill, decode, alone = halves(run.folder, connector, run.logs)
        gateway = Gateway(run.binary, run.folder / "gateway", [pair_rule("pair", VIP)], {}, run.logs / f"{connector}-gateway.log")
        legs = pairs.Legs(prefill, decode, alone, url(0), gateway)
        try:
            if run.part(f"pair, {connector}: engines start", started, run, [prefill, decode, alone]):
                gateway.start()
                trial_of_pair(run, f"pair, {connector}", legs, told)
        finally:
            for process in (gateway, prefill, decode, alone):
                process.end()


def trial_of_pair(run, name, legs, told):
    run.facts.setdefault("launches", []).extend(" ".join(map(str, engine.command)) for engine in (legs.prefill, legs.alone))
    run.part(f"{name}: texts", pairs.texts, legs, 1000)
    run.part(f"{name}: receipts", pairs.receipts, legs, 2000)
    run.part(f"{name}: order of legs", pairs.order, legs, 3000)
    run.part(f"{name}: parameters", told, legs, 4000)
    run.part(f"{name}: refusals", pairs.refusals, legs, 5000)
    run.part(f"{name}: prefill is killed", pairs.prefill_dies, legs, 6000)


def not_run(why):
    raise parts.NotRun(why)


def record(run, path):
    lines = [
        f"# Real engines, {datetime.now(timezone.utc):%Y-%m-%d}",
        "",
        f"- Written by `tests/real/run`; warmpath {run.commit}; vLLM 0.32.0 (PyPI's CPU build), llama.cpp b11434; tiny random Llama",
        f"- Machine: {platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}; load average at the end "
        f"{os.getloadavg()[0]:.1f} (**busy** where over the number of CPUs): times mean nothing, counts do",
        "- Engines at nice 10 with one OpenMP thread each; conversations one request at a time, each after the events of "
        "the one before came to rest",
        "",
        "| Part | Verdict | What came of it | s |",
        "|---|---|---|---|",
    ]
    lines += [f"| {name} | {verdict} | {said.replace('|', '/')[:600]} | {seconds:.0f} |" for verdict, name, said, seconds in run.rows]
    lines += ["", *(f"- `{line.replace(str(run.folder), 'FOLDER')}`" for line in run.facts.get("launches", []))]
    for what, arguments, code, text in run.facts.get("doctor", []):
        shown = arguments.replace(str(run.folder), "FOLDER")
        lines += ["", f"## doctor: {what}", "", f"`warmpath doctor {shown}` (exit {code})", "", "```text"]
        lines += [line.rstrip() for line in text.replace(str(run.folder), "FOLDER").splitlines()] + ["```"]
    path.write_text("\n".join(lines) + "\n")
    outcomes = [[part, vars(outcome)] for part, outcome in run.outcomes]
    (run.folder / "outcomes.json").write_text(json.dumps({"facts": run.facts, "outcomes": outcomes}, indent=1))


def main():
    folder, binary, path = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), Path(sys.argv[3])
    run = Run(folder, binary)
    wanted = sys.argv[4:] or ["seeds", "defaults", "attest", "llama", "pair"]
    for trial in (seeds, defaults, attest, llama, pair):
        if trial.__name__ in wanted:
            trial(run)
    record(run, path)
    failed = sum(verdict == "fail" for verdict, *_ in run.rows)
    print(f"{sum(v == 'pass' for v, *_ in run.rows)} passed, {failed} failed, "
          f"{sum(v == 'not_run' for v, *_ in run.rows)} not run; record: {path}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
