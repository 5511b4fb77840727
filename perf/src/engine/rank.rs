//! One data-parallel rank: its cache, what happened in it, and the way that news leaves. Must never tell
//! of what did not happen in its cache.

use serde_json::{Value, json};

use super::blocks::{CacheEvent, Log};
use super::cache::{Cache, Holdings};
use super::config::Config;
use super::kinds::{Kind, Telling, Tongue};
use super::publish::{Drain, Fate, Outlet, Stream};

/// A rank.
#[derive(Debug)]
pub struct Rank {
    /// The cache.
    pub cache: Cache,
    /// What happened since the last step that told.
    pub log: Log,
    /// The way out.
    pub outlet: Outlet,
}

impl Rank {
    /// A rank of a new process.
    pub fn new(config: &Config) -> Self {
        let kind = config.kind;
        let bound = config.events.buffer_steps;
        let outlet = match kind.telling() {
            Telling::Published if config.events.live.is_some() => Outlet::Stream(Stream::new(bound)),
            Telling::Drained => Outlet::Drain(Drain::new(bound, kind.first_drained(config))),
            Telling::Published | Telling::Silent => Outlet::Nowhere,
        };
        let muted = matches!(outlet, Outlet::Nowhere);
        let log = Log { gathers_removals: kind.gathers_removals(), muted, ..Log::default() };
        let mut rank = Rank { cache: kind.cache(config), log, outlet };
        rank.restart(kind);
        rank
    }

    /// A new process: nothing cached, nothing told.
    pub fn restart(&mut self, kind: Kind) {
        self.cache.clear();
        self.outlet.restart();
        self.log.events = if kind.clears_at_start() { vec![CacheEvent::Cleared] } else { Vec::new() };
    }

    /// Empties the cache; told with the next step.
    pub fn clear(&mut self) {
        self.cache.clear();
        self.log.events.push(CacheEvent::Cleared);
    }

    /// Whether a step would tell anything.
    pub fn has_news(&self) -> bool {
        !self.log.events.is_empty()
    }

    /// Tells what happened. `time` is in Unix seconds.
    pub fn tell(&mut self, kind: Kind, tongue: &Tongue, number: usize, time: f64, fate: Fate) {
        let events = std::mem::take(&mut self.log.events);
        match &mut self.outlet {
            Outlet::Nowhere => {}
            Outlet::Stream(stream) => stream.publish(kind.batch(tongue, time, number, &events), fate),
            Outlet::Drain(drain) => {
                for data in events.iter().filter_map(|event| kind.drained(event)) {
                    drain.put(data, fate != Fate::Lost);
                }
            }
        }
    }

    /// The cache as JSON: by medium the 64-bit keys held, ascending, and those held more than once with
    /// their copies.
    pub fn dump(&self, kind: Kind, number: usize) -> Value {
        let (gpu, host) = self.cache.holdings();
        json!({
            "rank": number, "media": {"gpu": medium(kind, &gpu), "host": medium(kind, &host)},
            "untold_events": self.log.events.len(), "next_sequence": self.outlet.next(),
        })
    }
}

fn medium(kind: Kind, holdings: &Holdings) -> Value {
    let mut keys: Vec<(u64, usize)> = holdings.iter().map(|(digest, n)| (kind.key(digest), *n)).collect();
    keys.sort_unstable();
    let copies: usize = keys.iter().map(|(_, n)| n).sum();
    let several: Vec<_> = keys.iter().filter(|(_, n)| *n > 1).collect();
    json!({
        "blocks": keys.len(), "copies": copies, "several": several,
        "keys": keys.iter().map(|(key, _)| key).collect::<Vec<_>>(),
    })
}
