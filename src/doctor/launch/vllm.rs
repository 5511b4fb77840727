//! vLLM's launch settings (0.23 to 0.33) and the seeds it may have been started with. Owns them.

use super::{Guess, Launch};
use warmpath_core::engine::{Algo, Version};

pub(super) const LAUNCH: Launch = Launch {
    oldest: Some(Version::new(0, 23, 0)),
    model: |name| format!("--served-model-name {name}"),
    block_size: |tokens| format!("--block-size {tokens}"),
    algorithm: |word| format!("--prefix-caching-hash-algo {word}"),
    root: |seed| match seed {
        Some(seed) => format!("PYTHONHASHSEED={seed} in its environment"),
        None => "no PYTHONHASHSEED in its environment, from 0.29 on and with a sha256 hash".into(),
    },
    events: |port| {
        format!(
            "--kv-events-config '{{\"enable_kv_cache_events\": true, \"publisher\": \"zmq\", \
             \"endpoint\": \"tcp://*:{port}\"}}'"
        )
    },
    replay: || "\"replay_endpoint\": \"tcp://*:5558\" in --kv-events-config".into(),
    usage: "--enable-prompt-tokens-details",
    rank: |rank| Some(format!("X-data-parallel-rank: {rank}")),
    tells_salt: true,
    guesses,
};

/// Numbers that are tried as seeds, beside words that CPython takes too.
const SEEDS: u32 = 1000;

fn guesses(version: Option<Version>) -> Vec<Guess> {
    let algorithms = [Algo::Sha256Cbor, Algo::Sha256, Algo::XxhashCbor, Algo::Xxhash];
    let words = ["", "random", "00", "042", "4294967295"].map(str::to_owned);
    let seeds: Vec<Option<String>> = std::iter::once(None)
        .chain((0..=SEEDS).map(|number| Some(number.to_string())))
        .chain(words.into_iter().map(Some))
        .collect();
    let known = warmpath_core::engine::Engine::Vllm.algorithms(version);
    let of = |algo| {
        seeds.iter().map(move |seed| Guess { algo: Some(algo), seed: seed.clone(), dynamo: false, own: "" })
    };
    algorithms.into_iter().filter(|algo| known.contains(algo)).flat_map(of).collect()
}
