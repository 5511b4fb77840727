//! Bounds and times of the event core. Owns the defaults; must never read the environment.

use super::drained::Pace;
use crate::continuity::Policy;
use crate::zmtp::Limits;

/// How the event core runs.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bounds of each connection to a publisher.
    pub limits: Limits,
    /// Bounds and times of each stream; whether there is a replay is not taken from here.
    pub policy: Policy,
    /// Blocks that one rank may hold over all groups and media (`LOXILB_KV_MAX_BLOCKS`); more are refused and
    /// counted.
    pub blocks_per_rank: usize,
    /// Bytes of batches that one rank works off in a turn, about; others have their turns before it goes on.
    pub slice: usize,
    /// How often drained engines are asked.
    pub pace: Pace,
    /// Tells its waits from those of other gateways.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            limits: Limits::default(),
            policy: Policy::default(),
            blocks_per_rank: 1_000_000,
            slice: 32 << 10,
            pace: Pace::default(),
            seed: 0,
        }
    }
}
