//! The whole flow in the simulated network: over seeds, and in scenes of a few requests. Every request is answered exactly
//! once or ends in a known way, bytes are equal, charges and memory balance, nothing stays open.
//!
//! `FLOW_SEEDS=100000 cargo test --release -p warmpath-shards --test flow plain` runs more (`FLOW_FROM=n` begins there); a
//! failure names its seed, `FLOW_SEED=n` runs that one alone. `PAIR_SEEDS` and its kin do so for `pairs`.
//! `tests/long/run` goes on for ever.

mod pairs;
mod plain;
mod sim;
mod table;
