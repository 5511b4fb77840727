//! What the demo asks of engines, simulated or real. Owns the seam between the two; must never know a gateway.

use std::collections::BTreeSet;
use std::net::SocketAddr;

/// The two sides that the same conversations are sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// In turn.
    Turns,
    /// By blocks.
    Exact,
}

impl Side {
    /// Both, left to right.
    pub const BOTH: [Side; 2] = [Side::Turns, Side::Exact];

    /// What the ids of its requests begin with, up to a dash.
    pub fn word(self) -> &'static str {
        match self {
            Side::Turns => "turns",
            Side::Exact => "exact",
        }
    }
}

/// What one engine counted of prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Their tokens.
    pub prompt: u64,
    /// Of these, found in its prefix cache.
    pub cached: u64,
}

impl Counters {
    /// The sum of some.
    pub fn sum(of: &[Counters]) -> Counters {
        let prompt = of.iter().map(|counters| counters.prompt).sum();
        Counters { prompt, cached: of.iter().map(|counters| counters.cached).sum() }
    }

    /// Tokens that had to be computed.
    pub fn computed(self) -> u64 {
        self.prompt.saturating_sub(self.cached)
    }
}

/// What is told of a pool.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Engines of one side.
    pub engines: usize,
    /// What they are, in words.
    pub kind: String,
    /// The model they serve.
    pub model: String,
    /// Tokens in a block.
    pub block_size: usize,
    /// Blocks in the cache of one.
    pub cache_blocks: usize,
    /// Both sides are the same engines: one is tried after the other, with prompts of its own.
    pub is_shared: bool,
    /// Where those of the exact side publish and replay, if all do at the same ports.
    pub event_ports: Option<(u16, u16)>,
}

/// Engines of both sides. One is named by its place in its side, from 0.
pub trait Pool {
    /// What they are.
    fn facts(&self) -> Facts;

    /// Where the engines of a side listen.
    fn endpoints(&self, side: Side) -> Vec<SocketAddr>;

    /// Requests of this side come from now on.
    fn begin(&mut self, side: Side) -> Result<(), String>;

    /// What the engines of a side have counted for it.
    fn counters(&mut self, side: Side) -> Result<Vec<Counters>, String>;

    /// Ends an engine of the exact side as a crash would: its port closed, its cache gone.
    fn stop(&mut self, engine: usize) -> Result<(), String>;

    /// Starts it anew at the same address.
    fn start(&mut self, engine: usize) -> Result<(), String>;

    /// Whether it serves by now.
    fn serves(&mut self, engine: usize) -> Result<bool, String>;

    /// Makes an engine of the exact side lose its next message of cache events. The error says why it can't.
    fn lose_next(&mut self, engine: usize) -> Result<(), String>;

    /// The keys of the blocks that an engine of the exact side holds, by its own list; `None` if it has none.
    fn held(&self, engine: usize) -> Option<BTreeSet<u64>>;
}
