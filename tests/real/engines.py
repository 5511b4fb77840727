"""The real engines of tests/real: their launch lines. Owns ports and flags; must never know what is tested."""

import json
import os

from processes import Process

# Far from the defaults, so that nothing else is met.
HTTP, EVENTS, REPLAY, LLAMA = 18001, 18557, 18657, 18101
MODEL = "real/tiny"
# The launch line of the starting documents: a seed, sha256_cbor, blocks of 32 (this build takes no 16).
SEEDED = ["--enable-prefix-caching", "--prefix-caching-hash-algo", "sha256_cbor", "--block-size", "32"]
SEED_ENV = {"PYTHONHASHSEED": "0", "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": "1"}


def vllm(folder, number, flags, env, log, adapters=True):
    """A vLLM with events and replay at ports of its own."""
    events = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://*:{EVENTS + number}",
        "replay_endpoint": f"tcp://*:{REPLAY + number}",
    }
    models = folder / "models"
    command = [
        folder / "vllm/bin/vllm", "serve", models / "model", "--served-model-name", MODEL,
        "--host", "127.0.0.1", "--port", HTTP + number, "--max-model-len", "2048", "--enforce-eager",
        "--dtype", "float32", "--max-num-seqs", "4", "--enable-prompt-tokens-details",
        "--kv-events-config", json.dumps(events), *flags,
    ]  # fmt: skip
    if adapters:
        command += ["--enable-lora", "--lora-modules", f"lora-a={models / 'lora-a'}", f"lora-b={models / 'lora-b'}"]
    settings = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "PATH": f"{folder / 'vllm/bin'}:{os.environ['PATH']}",
        **env,
    }
    return Process(f"vllm-{number}", command, f"http://127.0.0.1:{HTTP + number}", "/health", log, settings)


def llama_server(folder, number, log):
    command = [
        folder / "llama/bin/llama-server", "-m", folder / "models/tiny.gguf", "--alias", MODEL, "-np", "2",
        "-c", "8192", "-t", "1", "--metrics", "--slots", "--host", "127.0.0.1", "--port", LLAMA + number,
    ]  # fmt: skip
    return Process(f"llama-{number}", command, f"http://127.0.0.1:{LLAMA + number}", "/health", log)
