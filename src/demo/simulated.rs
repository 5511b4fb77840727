//! Simulated vLLM engines in this process: a pool of its own for each side, so that their caches don't mix. Owns their
//! settings and how they are ended and started again.

use super::conversation::ANSWER;
use super::pool::{Counters, Facts, Pool, Side};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;
use warmpath_perf::engine::faults::Faults;
use warmpath_perf::engine::kinds::HashAlgo;
use warmpath_perf::engine::publish::Endpoint;
use warmpath_perf::engine::{Config, Events, Handle, Hashing, Kind, Timing, start};

/// Their PYTHONHASHSEED, which the gateway's rule must know.
pub const SEED: &str = "0";
/// The model's name.
const MODEL: &str = "small";
/// Blocks of a cache: too few for the instructions of all tenants and the conversations under way, enough for the part
/// of them that one of four engines has when each stays where it is warm.
const CACHE_BLOCKS: usize = 320;

/// Times that free ports are looked for.
const ATTEMPTS: usize = 4;

/// An engine and what it was started with. `None`: it was ended.
struct Engine {
    config: Config,
    address: SocketAddr,
    handle: Option<Handle>,
}

/// The engines of both sides.
pub struct Simulated {
    turns: Vec<Engine>,
    exact: Vec<Engine>,
}

impl Simulated {
    /// Starts so many for each side. Those of the exact side have loopback addresses of their own, since a rule names one
    /// port for the events of all.
    pub fn start(engines: usize) -> Result<Simulated, String> {
        let turns =
            (0..engines).map(|_| Engine::start(config("127.0.0.1", None))).collect::<Result<Vec<_>, _>>()?;
        // Ports that are free at the first address may be taken at another.
        let exact =
            (1..ATTEMPTS).find_map(|_| exact_side(engines).ok()).map_or_else(|| exact_side(engines), Ok)?;
        Ok(Simulated { turns, exact })
    }

    fn running(&self, engine: usize) -> Result<&Handle, String> {
        let found = self.exact.get(engine).and_then(|engine| engine.handle.as_ref());
        found.ok_or_else(|| format!("simulated engine {} does not run", engine + 1))
    }
}

fn exact_side(engines: usize) -> Result<Vec<Engine>, String> {
    let first = Engine::start(config("127.0.0.1", Some((0, 0))))?;
    let ports = first.event_ports();
    let others = (1..engines).map(|place| Engine::start(config(&format!("127.0.0.{}", place + 1), ports)));
    std::iter::once(Ok(first)).chain(others).collect()
}

/// Of an engine that publishes at the first port and replays at the second, where it is to; 0 is a free one.
fn config(host: &str, events: Option<(u16, u16)>) -> Config {
    let timing = Timing {
        ttft: Duration::from_millis(15),
        itl: Duration::from_millis(6),
        // Slow enough that a cold prompt shows in the first byte.
        prefill_tps: 6000,
    };
    let door = |port| Some(Endpoint { host: "*".into(), port });
    let (live, replay) = events.map_or((None, None), |(live, replay)| (door(live), door(replay)));
    Config {
        host: host.into(),
        models: vec![MODEL.into()],
        timing,
        tokens: ANSWER as u64,
        events: Events { live, replay, ..Events::default() },
        hashing: Hashing { algo: HashAlgo::Sha256Cbor, seed: Some(SEED.into()), bytes: false },
        cache_blocks: CACHE_BLOCKS,
        ..Config::of(Kind::Vllm)
    }
}

impl Engine {
    fn start(config: Config) -> Result<Engine, String> {
        let handle = start(config.clone()).map_err(|e| e.to_string())?;
        let (address, config) = (handle.addr, at_the_same_ports(config, &handle));
        Ok(Engine { config, address, handle: Some(handle) })
    }

    /// Where it publishes and where it replays.
    fn event_ports(&self) -> Option<(u16, u16)> {
        let port = |door: &Option<Endpoint>| door.as_ref().map(|door| door.port);
        port(&self.config.events.live).zip(port(&self.config.events.replay))
    }
}

/// What starts an engine in the place of this one.
fn at_the_same_ports(config: Config, handle: &Handle) -> Config {
    let source = handle.sources().first();
    let (live, replay) = (source.map(|s| s.live.clone()), source.and_then(|s| s.replay.clone()));
    Config { port: handle.addr.port(), events: Events { live, replay, ..config.events }, ..config }
}

impl Pool for Simulated {
    fn facts(&self) -> Facts {
        Facts {
            engines: self.exact.len(),
            kind: format!("simulated vLLM {}", Kind::Vllm.default_version().text),
            model: MODEL.into(),
            block_size: Kind::Vllm.block_size(),
            cache_blocks: CACHE_BLOCKS,
            is_shared: false,
            event_ports: self.exact.first().and_then(Engine::event_ports),
        }
    }

    fn endpoints(&self, side: Side) -> Vec<SocketAddr> {
        let engines = if side == Side::Turns { &self.turns } else { &self.exact };
        engines.iter().map(|engine| engine.address).collect()
    }

    fn begin(&mut self, _: Side) -> Result<(), String> {
        Ok(())
    }

    fn counters(&mut self, side: Side) -> Result<Vec<Counters>, String> {
        let engines = if side == Side::Turns { &self.turns } else { &self.exact };
        let counters = |engine: &Engine| {
            let tokens = engine.handle.as_ref().map(|handle| handle.stats().tokens).unwrap_or_default();
            Counters { prompt: tokens.prompt, cached: tokens.cached }
        };
        Ok(engines.iter().map(counters).collect())
    }

    fn stop(&mut self, engine: usize) -> Result<(), String> {
        self.running(engine)?;
        if let Some(handle) = self.exact[engine].handle.take() {
            handle.stop();
        }
        Ok(())
    }

    fn start(&mut self, engine: usize) -> Result<(), String> {
        let place = self.exact.get_mut(engine).ok_or_else(|| format!("there is no engine {}", engine + 1))?;
        place.handle = Some(start(place.config.clone()).map_err(|e| e.to_string())?);
        Ok(())
    }

    fn serves(&mut self, engine: usize) -> Result<bool, String> {
        self.running(engine).map(|_| true)
    }

    fn lose_next(&mut self, engine: usize) -> Result<(), String> {
        self.running(engine)?.set_faults(Faults { kv_lose_next: Some(1), ..Faults::default() });
        Ok(())
    }

    fn held(&self, engine: usize) -> Option<BTreeSet<u64>> {
        let caches = self.running(engine).ok()?.caches();
        let keys = caches["ranks"][0]["media"]["gpu"]["keys"].as_array()?;
        Some(keys.iter().filter_map(Value::as_u64).collect())
    }
}
