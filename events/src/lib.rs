//! KV-cache events of engines: bytes to typed events, to an ordered and proven stream, to index changes.
//!
//! The machines are sans-io: each takes bytes and times as arguments and answers with values; none knows a
//! socket, a clock or the index. [`eventcore`] drives them over a ring and writes the index; [`thread`] gives it
//! a thread.
//!
//! - [`zmtp`]: the protocol of the engines' sockets (SUB, DEALER)
//! - [`msgpack`]: a reader of what they carry
//! - [`wire`], [`decode`]: typed events and how payloads become them
//! - [`framing`], [`continuity`]: frames, and batches in proven order
//! - [`residency`]: which blocks a rank holds
//! - [`trtllm_json`], [`drain`]: the same for engines whose events are drained over HTTP
//! - [`feed`]: all of it for one publisher, for a driver that has the sockets
//! - [`sources`]: where an engine says that it publishes
//! - [`engines`]: what is particular to one engine; [`facts`]: what it says of itself, against its rule
//! - [`http`]: one request to an engine's own port

mod backoff;
#[doc(hidden)]
pub mod chain;
pub mod continuity;
pub mod decode;
pub mod drain;
pub(crate) mod ear;
pub mod engines;
pub mod eventcore;
pub mod facts;
pub mod feed;
pub mod framing;
#[doc(hidden)]
pub mod fuzz;
mod holdings;
pub mod http;
mod index;
pub mod msgpack;
mod names;
mod naming;
mod observed;
mod questions;
pub mod residency;
pub mod sources;
pub mod thread;
pub mod trtllm_json;
pub mod wire;
pub mod zmtp;
