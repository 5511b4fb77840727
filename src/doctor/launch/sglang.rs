//! SGLang's launch settings (0.5.18 to 0.5.23) and the forms of events it may have been started with. Owns them.

use super::{Guess, Launch};
use warmpath_core::engine::{Algo, Version};

pub(super) const LAUNCH: Launch = Launch {
    oldest: Some(Version::new(0, 5, 18)),
    model: |name| format!("--served-model-name {name}"),
    block_size: |tokens| format!("--page-size {tokens}"),
    algorithm: |_| "\"format\": \"default\" in --kv-events-config, and no EAGLE speculation".into(),
    root: |_| String::new(),
    events: |port| {
        format!("--kv-events-config '{{\"publisher\": \"zmq\", \"endpoint\": \"tcp://*:{port}\"}}'")
    },
    replay: || "\"replay_endpoint\": \"tcp://*:5558\" in --kv-events-config".into(),
    usage: "--enable-cache-report",
    rank: |rank| Some(format!("X-Data-Parallel-Rank: {rank}")),
    tells_salt: true,
    guesses: |_| {
        [false, true]
            .map(|dynamo| Guess { algo: Some(Algo::Sha256Sglang), seed: None, dynamo, own: "" })
            .to_vec()
    },
};
