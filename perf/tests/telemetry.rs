//! The gateway's reading of load against the pages of simulated engines, which share no code with it.

mod peer;

use peer::{Peer, post, until};
use warmpath_core::engine::Engine;
use warmpath_core::engine::telemetry::Load;
use warmpath_perf::engine::faults::{Faults, Stall};
use warmpath_perf::engine::{self, Config, Kind};

#[test]
fn what_runs_and_what_waits_is_read_of_every_engine() {
    for (kind, engine) in [
        (Kind::Vllm, Engine::Vllm),
        (Kind::Sglang, Engine::Sglang),
        (Kind::Trtllm, Engine::Trtllm),
        (Kind::Llamacpp, Engine::Llamacpp),
    ] {
        let simulated = engine::start(Config {
            max_running: 1,
            cache_blocks: 1_000,
            ranks: if kind == Kind::Llamacpp { 1 } else { 2 },
            faults: Faults { stall: Some(Stall::BeforeHead), ..Faults::default() },
            ..Config::of(kind)
        })
        .expect("an engine");
        let telemetry = engine.telemetry().expect("a page");
        let read =
            || telemetry.read(&Peer::connect(simulated.addr).get(telemetry.path).body).expect("a load");
        assert_eq!((read().running, read().waiting), (0, 0), "{kind:?}");
        let body = r#"{"prompt":"one two three"}"#;
        let clients: Vec<Peer> = (0..3)
            .map(|_| {
                let mut peer = Peer::connect(simulated.addr);
                peer.send(post("/v1/completions", "", body).as_bytes());
                peer
            })
            .collect();
        until("all are there", || simulated.stats().running == 3 && simulated.stats().waiting == 2);
        let Load { running, waiting, kv_use_permille, capacity_blocks } = read();
        assert_eq!((running, waiting), (1, 2), "{kind:?}");
        let told = kind != Kind::Llamacpp;
        assert_eq!(kv_use_permille, told.then_some(0), "{kind:?}");
        assert_eq!(capacity_blocks, told.then_some(2_000), "{kind:?}");
        drop(clients);
    }
}
