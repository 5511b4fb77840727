"""The part `attest` of tests/real: a profile of the tiny model, staged as an operator would, and the ladder climbed
against a real vLLM. Owns the profile's files; the engine itself is the oracle of the fixtures' tokens, so that what is
proven is that the gateway reads text, and names blocks, as that engine does.
"""

import hashlib
import json
import time

from engines import MODEL
from gateway import VIP
from http_json import ask

PROFILE = "real-tiny"
STATUS = f"/config/loadbalancer/externalipaddress/127.0.0.1/port/{VIP}/protocol/tcp/kvexactstatus?model_name={MODEL}"
TEXTS = ["The harbour lantern burns in winter.", "Ein Übermaß an Größe; naïve café, 日本語、 and two  blanks."]


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_bytes(data)
    draft.rename(path)


def stage(root, model, version):
    """Profile, manifest and template below `root`; the tokenizer is the model's folder's own."""
    config = json.loads((model / "tokenizer_config.json").read_text())
    own = model / "chat_template.jinja"
    template = own.read_bytes() if own.exists() else config["chat_template"].encode()
    write(root / f"kvprofiles/artifacts/sha256/{sha256(template)}", template)
    profile = {
        "profileId": PROFILE, "baseModel": MODEL, "rendererEngine": "vllm", "oracleEngine": "vllm", "oracleVersion": version,
        "templateArtifact": f"sha256/{sha256(template)}", "templateSha256": sha256(template),
    }  # fmt: skip
    write(root / f"kvprofiles/{PROFILE}.yaml", json.dumps(profile).encode())
    manifest = {"profileId": PROFILE, "imageDigest": "sha256:" + "0" * 64, "engineVersion": version}
    write(root / f"kvprofiles/manifests/{PROFILE}.yaml", json.dumps(manifest).encode())


def fixtures(root, engine, flip=False):
    """What the engine makes of texts and chats; with `flip` one token of the first is another."""
    bodies = [("completions", {"model": MODEL, "prompt": text}) for text in TEXTS]
    bodies += [("chat", {"model": MODEL, "messages": [{"role": "user", "content": text}], "add_generation_prompt": True}) for text in TEXTS]
    for number, (api, body) in enumerate(bodies):
        status, _, answer = ask(f"{engine.url}/tokenize", body)
        assert status == 200, (status, answer)
        ids = answer["tokens"]
        if flip and number == 0:
            ids[0] ^= 1
        request = json.dumps(body).encode()
        expect = {"requestSha256": sha256(request), "expectedTokenIds": ids, "api": api}
        folder = root / f"kvprofiles/probefixtures/{PROFILE}"
        write(folder / f"{number}.request.json", request)
        write(folder / f"{number}.expect.json", json.dumps(expect).encode())
    return len(bodies)


def wait(gateway, what, done, seconds=120):
    until = time.monotonic() + seconds
    row = None
    while time.monotonic() < until:
        status, _, answer = ask(gateway.url + STATUS)
        row = answer["kvExactStatusAttr"][0] if status == 200 else None
        if row and done(row):
            return row
        time.sleep(0.2)
    raise AssertionError(f"not in {seconds} s: {what}: {json.dumps(row)}")


def climbs(gateway):
    row = wait(gateway, "READY", lambda row: row["enforcedState"] == "READY")
    endpoint = row["endpoints"][0]
    return f"READY, version {endpoint['version']}, tokens by {endpoint['tokenParity']}, binding {row['bindingDigest'][:12]}"


def flipped(gateway, root, engine):
    fixtures(root, engine, flip=True)
    row = wait(gateway, "token_mismatch", lambda row: "token_mismatch" in row["reasonCodes"])
    assert row["enforcedState"] != "READY", row
    fixtures(root, engine)
    wait(gateway, "READY again", lambda row: row["enforcedState"] == "READY")
    return "one token flipped in a fixture: token_mismatch and fenced; mended: READY again"


def restarts(gateway, engine, again):
    engine.end()
    row = wait(gateway, "the engine is missed", lambda row: row["enforcedState"] == "DEGRADED")
    reasons = row["reasonCodes"]
    again(engine)
    wait(gateway, "READY again", lambda row: row["enforcedState"] == "READY", 300)
    return f"ended: DEGRADED ({', '.join(reasons)}); started again: READY"
