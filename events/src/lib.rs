//! KV-cache events of engines: bytes to typed events, to an ordered and proven stream, to index changes.
//!
//! Sans-io: every machine here takes bytes and times as arguments and answers with values; none knows a
//! socket, a clock, the index or an engine's policy.
//!
//! - [`zmtp`]: the protocol of the engines' sockets (SUB, DEALER)
//! - [`msgpack`]: a reader of what they carry
//! - [`wire`], [`decode`]: typed events and how payloads become them
//! - [`framing`], [`continuity`]: frames, and batches in proven order

pub mod continuity;
pub mod decode;
pub mod framing;
pub mod msgpack;
pub mod wire;
pub mod zmtp;
