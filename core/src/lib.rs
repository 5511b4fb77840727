//! The gateway's domain, pure: rules and their validation, which pool serves a request, which endpoint of
//! it, what a fault means to a client, and the messages between the admin thread and the shards.
//!
//! Must never: start a thread, open a socket, read a clock or draw a random number of its own. Time is
//! [`Nanos`] by argument. Atomics live in [`shared`] alone.

pub mod attest;
pub mod block;
pub mod breaker;
pub mod catalog;
pub mod control;
pub mod decide;
pub mod decline;
pub mod engine;
pub mod environment;
pub mod fault;
pub mod fleet;
pub mod gate;
pub mod prefix_path;
pub mod profile;
pub mod receipt;
pub mod rule;
pub mod session;
pub mod shared;
pub mod table;
pub mod trust;

/// Nanoseconds on the process's monotonic clock. Only differences mean anything.
pub type Nanos = u64;

/// One second in [`Nanos`].
pub const SECOND: Nanos = 1_000_000_000;

/// One millisecond in [`Nanos`].
pub const MILLISECOND: Nanos = 1_000_000;

/// One microsecond in [`Nanos`].
pub const MICROSECOND: Nanos = 1_000;
