//! How vLLM is started so that it can be trusted (0.23 to 0.33). Owns its arguments and variables.

use crate::engine::launch::{self, LaunchAsk, LaunchFault, LaunchLine, LaunchRole};
use crate::engine::{Engine, Version};

/// The oldest whose events and hashes were looked at.
const FLOOR: Version = Version::new(0, 23, 0);
/// `--prefix-match-unit`, without which hybrid models are hashed by a unit of their own.
const MATCH_UNIT: Version = Version::new(0, 31, 0);

/// The line of a role.
pub(super) fn line(ask: &LaunchAsk<'_>) -> Result<LaunchLine, LaunchFault> {
    launch::since(Engine::Vllm, ask.version, FLOOR)?;
    let mut line = LaunchLine::default();
    line.env("PYTHONHASHSEED", ask.seed);
    line.env("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", "1");
    line.env("HF_HUB_OFFLINE", "1");
    let (port, block) = (ask.port.to_string(), ask.block_size.to_string());
    line.args(["vllm", "serve", ask.snapshot, "--served-model-name", ask.model]);
    line.args(["--host", "0.0.0.0", "--port", &port, "--enable-prefix-caching"]);
    line.args(["--prefix-caching-hash-algo", "sha256_cbor", "--block-size", &block]);
    if ask.version >= MATCH_UNIT {
        line.args(["--prefix-match-unit", &block]);
    }
    // Answers tell how much was cached: proof after proof that the binding still holds.
    line.args(["--enable-prompt-tokens-details"]);
    if ask.role != LaunchRole::Decode {
        let (events, replay) = (ask.event_port, ask.replay_port);
        let config = format!(
            r#"{{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:{events}","replay_endpoint":"tcp://*:{replay}","topic":""}}"#
        );
        line.args(["--kv-events-config", &config]);
    }
    if ask.role != LaunchRole::Single {
        let side = if ask.role == LaunchRole::Prefill { "kv_producer" } else { "kv_consumer" };
        let config = format!(
            r#"{{"kv_connector":"NixlConnector","kv_role":"{side}","kv_buffer_device":"cpu","kv_load_failure_policy":"fail"}}"#
        );
        line.args(["--kv-transfer-config", &config]);
        line.env("UCX_TLS", "tcp");
        line.env("VLLM_NIXL_SIDE_CHANNEL_HOST", ask.host);
        line.env("VLLM_NIXL_SIDE_CHANNEL_PORT", "5600");
    }
    Ok(line)
}
