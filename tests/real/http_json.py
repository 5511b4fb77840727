"""HTTP for the driver of tests/real: one request, its status, headers and JSON. Owns time limits; must never try again."""

import json
import urllib.error
import urllib.request


def ask(url, body=None, headers=None, timeout=120):
    """Status, headers in small letters, and the body as JSON where it is JSON, else as text."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"content-type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            status, fields, raw = answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as refused:
        status, fields, raw = refused.code, refused.headers, refused.read()
    fields = {name.lower(): value for name, value in fields.items()}
    try:
        return status, fields, json.loads(raw)
    except ValueError:
        return status, fields, raw.decode("utf-8", "replace")


def metric(url, name):
    """The sum of a counter's samples; 0 where there is none."""
    _, _, text = ask(f"{url}/metrics", timeout=20)
    samples = [line for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name]
    return sum(float(line.rsplit(" ", 1)[1]) for line in samples)
