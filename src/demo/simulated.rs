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
    /// Starts so many for each side, at free ports of the loopback interface.
    pub fn start(engines: usize) -> Result<Simulated, String> {
        let pool = || (0..engines).map(|_| Engine::start()).collect::<Result<Vec<_>, _>>();
        Ok(Simulated { turns: pool()?, exact: pool()? })
    }

    fn running(&self, engine: usize) -> Result<&Handle, String> {
        let found = self.exact.get(engine).and_then(|engine| engine.handle.as_ref());
        found.ok_or_else(|| format!("simulated engine {} does not run", engine + 1))
    }
}

impl Engine {
    fn start() -> Result<Engine, String> {
        let timing = Timing {
            ttft: Duration::from_millis(15),
            itl: Duration::from_millis(6),
            // Slow enough that a cold prompt shows in the first byte.
            prefill_tps: 6000,
        };
        let door = Some(Endpoint { host: "*".into(), port: 0 });
        let events = Events { live: door.clone(), replay: door, ..Events::default() };
        let hashing = Hashing { algo: HashAlgo::Sha256Cbor, seed: Some(SEED.into()), bytes: false };
        let (models, tokens) = (vec![MODEL.to_string()], ANSWER as u64);
        let cache_blocks = CACHE_BLOCKS;
        let config =
            Config { models, timing, tokens, events, hashing, cache_blocks, ..Config::of(Kind::Vllm) };
        let handle = start(config.clone()).map_err(|e| e.to_string())?;
        let address = handle.addr;
        let config = at_the_same_ports(config, &handle)?;
        Ok(Engine { config, address, handle: Some(handle) })
    }
}

/// What starts an engine in the place of this one.
fn at_the_same_ports(config: Config, handle: &Handle) -> Result<Config, String> {
    let source = handle.sources().first().ok_or("a simulated engine tells no events")?;
    let events = Events { live: Some(source.live.clone()), replay: source.replay.clone(), ..config.events };
    Ok(Config { port: handle.addr.port(), events, ..config })
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
