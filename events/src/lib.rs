//! KV-cache events of engines: bytes to typed events, to an ordered and proven stream, to index changes.
//!
//! Sans-io: every machine here takes bytes and times as arguments and answers with values; none knows a
//! socket, a clock, the index or an engine's policy.
//!
//! - [`zmtp`]: the protocol of the engines' sockets (SUB, DEALER)
//! - [`msgpack`]: a reader of what they carry
//! - [`wire`], [`decode`]: typed events and how payloads become them
//! - [`framing`], [`continuity`]: frames, and batches in proven order
//! - [`residency`]: which blocks a rank holds
//! - [`trtllm_json`], [`drain`]: the same for engines whose events are drained over HTTP
//! - [`feed`]: all of it for one publisher, for a driver that has the sockets
//! - [`sources`]: where an engine says that it publishes

mod backoff;
pub mod continuity;
pub mod decode;
pub mod drain;
pub mod feed;
pub mod framing;
#[doc(hidden)]
pub mod fuzz;
pub mod msgpack;
pub mod residency;
pub mod sources;
pub mod trtllm_json;
pub mod wire;
pub mod zmtp;
