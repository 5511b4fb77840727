"""The driver of perf/pairs: runs the parts one by one and writes the record.

Usage: main.py FOLDER BINARY RECORD VENVS [PART]... (parts: beside, overload). Owns the order and the record.
"""

import os
import platform
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

from beside import beside
from overload import overload

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = int(os.environ.get("ROUNDS", 5))
REQUESTS = int(os.environ.get("REQUESTS", 400))
SECONDS = int(os.environ.get("SECONDS_OVER", 60))


class Run:
    def __init__(self, folder, binary, venvs):
        self.folder, self.binary = folder, binary
        self.logs = folder / "logs"
        self.venvs = [Path(venv) for venv in venvs.split(":") if venv]

    def program(self, name):
        """A router's program. sglang-router's package has one named smg, which is not that of the package smg."""
        for venv in self.venvs:
            other = name == "smg" and (venv / "bin/sglang-router").exists()
            if (venv / "bin" / name).exists() and not other:
                return venv / "bin" / name
        return None

    def missing(self, name):
        return "" if name == "warmpath" or self.program(name) else "not installed"

    def version(self, name):
        if not (program := self.program(name)):
            return f"{name} not_run: not installed"
        ask = [program.parent / "python", "-c", f"import importlib.metadata as m; print(m.version('{name}'))"]
        return f"{name} {subprocess.run(ask, capture_output=True, text=True).stdout.strip()}"


PARTS = {
    "beside": ("Beside other routers", lambda run: beside(run, ROUNDS, REQUESTS)),
    "overload": ("Twice the capacity", lambda run: overload(run, SECONDS)),
}


def table(made):
    row = lambda cells: "| " + " | ".join(str(cell) for cell in cells) + " |"
    notes = [line for note in made["notes"] for line in (note, "")]
    return [row(made["head"]), row(["---"] * len(made["head"])), *map(row, made["rows"]), "", *notes]


def busy():
    return f"load average {os.getloadavg()[0]:.1f}"


def main():
    folder, binary, record, venvs, *parts = sys.argv[1:]
    if unknown := [part for part in parts if part not in PARTS]:
        sys.exit(f"no part {unknown[0]}; there are {' and '.join(PARTS)}")
    run = Run(Path(folder).resolve(), str(Path(binary).resolve()), venvs)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    versions = ", ".join(run.version(name) for name in ("vllm-router", "sglang-router", "smg"))
    lines = [
        "# Prefill and decode apart: beside other routers, and at twice the capacity",
        "",
        f"`perf/pairs/run`, {datetime.now(timezone.utc):%F %H:%M} UTC, commit {commit}. {os.cpu_count()} cores ({model}), Linux {platform.release()}, {busy()} before. "
        f"Client, router and simulated engines share the cores; warmpath with one shard. {versions}.",
    ]
    for part in parts or PARTS:
        title, measure = PARTS[part]
        begun, load = time.monotonic(), busy()
        made = table(measure(run))
        lines += ["", f"## {title}", "", *made, f"{load} before, {busy()} after; {time.monotonic() - begun:.0f} s."]
    Path(record).write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


main()
