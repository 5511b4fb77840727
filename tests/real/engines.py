"""The real engines of tests/real: their launch lines. Owns ports and flags; must never know what is tested."""

import json
import os

from processes import Process

# Far from the defaults, so that nothing else is met.
HTTP, EVENTS, REPLAY, LLAMA, SIDE = 18001, 18557, 18657, 18101, 18601
MODEL = "real/tiny"
# The launch line of the starting documents: a seed, sha256_cbor, blocks of 32 (this build takes no 16).
SEEDED = ["--enable-prefix-caching", "--prefix-caching-hash-algo", "sha256_cbor", "--block-size", "32"]
SEED_ENV = {"PYTHONHASHSEED": "0", "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": "1"}


def vllm(folder, number, flags, env, log, adapters=True, events=True):
    """A vLLM with events and replay at ports of its own."""
    published = {
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
        *flags,
    ]  # fmt: skip
    if events:
        command += ["--kv-events-config", json.dumps(published)]
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


def halves(folder, connector, logs):
    """A prefill and a decode engine of this connector, and one engine without; blocks of 32, nothing kept from earlier
    prompts but by the connector."""
    config = {"kv_connector": connector, "kv_role": "kv_both"}
    if connector == "ExampleConnector":
        config["kv_connector_extra_config"] = {"shared_storage_path": str(folder / "handed")}
    flags = ["--block-size", "32", "--no-enable-prefix-caching", "--enable-log-requests"]
    pair = [*flags, "--kv-transfer-config", json.dumps(config | NIXL_BUFFER.get(connector, {}))]
    begin = lambda at, flags, env, name: vllm(folder, at, flags, env, logs / f"{connector}-{name}.log", False, events=False)
    prefill, decode = [begin(at, pair, nixl_env(folder, at), name) for at, name in enumerate(("prefill", "decode"))]
    return prefill, decode, begin(2, flags, {}, "alone")


# Blocks on a CPU can be handed over from nowhere else.
NIXL_BUFFER = {"NixlConnector": {"kv_buffer_device": "cpu"}}


def nixl_env(folder, number):
    """Side channels at ports of their own, over TCP: there is no other way between two processes of this machine's CPU."""
    return {
        "PYTHONPATH": str(folder / "nixl"),
        "UCX_TLS": "tcp",
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(SIDE + number),
    }


def llama_server(folder, number, log):
    command = [
        folder / "llama/bin/llama-server", "-m", folder / "models/tiny.gguf", "--alias", MODEL, "-np", "2",
        "-c", "8192", "-t", "1", "--metrics", "--slots", "--host", "127.0.0.1", "--port", LLAMA + number,
    ]  # fmt: skip
    return Process(f"llama-{number}", command, f"http://127.0.0.1:{LLAMA + number}", "/health", log)
