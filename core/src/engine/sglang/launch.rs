//! How SGLang is started so that it can be trusted (0.5.18 to 0.5.23). Owns its arguments.

use crate::engine::launch::{self, LaunchAsk, LaunchFault, LaunchLine, LaunchRole};
use crate::engine::{Engine, Version};

/// The oldest whose events and hashes were looked at.
const FLOOR: Version = Version::new(0, 5, 18);

/// The line of a role.
pub(super) fn line(ask: &LaunchAsk<'_>) -> Result<LaunchLine, LaunchFault> {
    launch::since(Engine::Sglang, ask.version, FLOOR)?;
    // It tells the revision back, and the gateway compares it.
    let revision = ask.revision.ok_or(LaunchFault::NoRevision(Engine::Sglang))?;
    let mut line = LaunchLine::default();
    line.env("HF_HUB_OFFLINE", "1");
    let (port, page) = (ask.port.to_string(), ask.block_size.to_string());
    line.args(["python3", "-m", "sglang.launch_server", "--model-path", ask.snapshot, "--revision", revision]);
    line.args(["--served-model-name", ask.model, "--host", "0.0.0.0", "--port", &port]);
    // Answers tell how much was cached: proof after proof that the binding still holds.
    line.args(["--page-size", &page, "--enable-metrics", "--enable-cache-report"]);
    if ask.role != LaunchRole::Decode {
        let (events, replay) = (ask.event_port, ask.replay_port);
        let config =
            format!(r#"{{"publisher":"zmq","endpoint":"tcp://*:{events}","replay_endpoint":"tcp://*:{replay}"}}"#);
        line.args(["--kv-events-config", &config]);
    }
    match ask.role {
        LaunchRole::Single => {}
        LaunchRole::Prefill => {
            line.args(["--disaggregation-mode", "prefill", "--disaggregation-transfer-backend", "mooncake"]);
            line.args(["--disaggregation-bootstrap-port", "8998"]);
        }
        LaunchRole::Decode => {
            line.args(["--disaggregation-mode", "decode", "--disaggregation-transfer-backend", "mooncake"]);
        }
    }
    Ok(line)
}
