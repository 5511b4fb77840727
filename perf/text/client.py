"""The client of perf/text: one request, each on a connection of its own, and a fixed rate of them. Owns sending and
timing; an answer that is not a whole 200 is an error.
"""

import http.client
import queue
import socket
import threading
import time

CHAT = "/v1/chat/completions"


def send(port, body, path=CHAT, host="127.0.0.1"):
    """One request on a new connection; returns the answer's body."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((host, port), timeout=30) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(head.encode() + body)
        answer = http.client.HTTPResponse(sock)
        answer.begin()
        said = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{host}:{port}{path} answered {answer.status}: {said[:300]!r}")
    return said


class Paced:
    """Sends at a rate whatever the answers do. Times count from when a request was due."""

    def __init__(self, port, rate, workers=24):
        self.port, self.rate = port, rate
        self.due = queue.SimpleQueue()
        self.times, self.faults, self.late = [], [], []
        self.threads = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]

    def run(self, seconds, make):
        """Sends `make(n)` for n = 0, 1, …; returns when all are answered. A body is made before it is due."""
        for thread in self.threads:
            thread.start()
        begun = time.monotonic()
        for number in range(int(seconds * self.rate)):
            due, made = begun + number / self.rate, make(number)
            time.sleep(max(0.0, due - time.monotonic()))
            self.due.put((due, made))
        for _ in self.threads:
            self.due.put(None)
        for thread in self.threads:
            thread.join()
        return time.monotonic() - begun

    def _work(self):
        while (item := self.due.get()) is not None:
            due, body = item
            self.late.append(time.monotonic() - due)
            try:
                send(self.port, body)
                self.times.append(time.monotonic() - due)
            except (OSError, RuntimeError, http.client.HTTPException) as fault:
                self.faults.append(str(fault))
