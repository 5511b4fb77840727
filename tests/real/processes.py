"""Processes of tests/real: each starts in a session of its own and is ended by its id. Owns starts, logs and ends; must
never end what it did not start, nor leave anything running.
"""

import atexit
import os
import signal
import subprocess
import time

from http_json import ask

_started = []


class Process:
    """A server that answers at `url` once it is up."""

    def __init__(self, name, command, url, ready, log, env=None, niceness=10):
        self.name, self.command, self.url, self.ready, self.log = name, command, url, ready, log
        self.env = {**os.environ, **(env or {})}
        self.niceness = niceness
        self.process = None

    def start(self):
        log = open(self.log, "ab")
        log.write(f"\n== {' '.join(map(str, self.command))}\n".encode())
        log.flush()
        command = ["nice", "-n", str(self.niceness), *map(str, self.command)]
        self.process = subprocess.Popen(
            command, env=self.env, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
        _started.append(self)
        return self

    def wait(self, seconds):
        """Seconds until it answered 200; an error tells the end of its log."""
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self.process.returncode}: {self.tail()}")
            try:
                if ask(self.url + self.ready, timeout=5)[0] == 200:
                    return time.monotonic() - begun
            except OSError:
                pass
            time.sleep(0.5)
        raise RuntimeError(f"{self.name} does not answer after {seconds} s: {self.tail()}")

    def tail(self):
        with open(self.log, "rb") as log:
            return log.read()[-2000:].decode("utf-8", "replace")

    def end(self, kill=False):
        """Ends it and what it started: all of its session. With `kill`, as a crash would."""
        if self.process is None:
            return
        if not kill:
            self._signal(signal.SIGTERM)
            self._await(20)
        self._signal(signal.SIGKILL)
        self._await(10)
        self.process = None

    def _signal(self, which):
        try:
            os.killpg(self.process.pid, which)
        except ProcessLookupError:
            pass

    def _await(self, seconds):
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass


def end_all():
    for process in reversed(_started):
        process.end()


atexit.register(end_all)
signal.signal(signal.SIGTERM, lambda *_: exit(143))
