//! What the operator set for the whole data plane. Owns the defaults and their reasons; must never hold a
//! rule (rules change while these do not).

use crate::transport::Transport;
use warmpath_core::{Nanos, SECOND};
use warmpath_parser::http1::Limits;

/// Bounds and times that hold for every client connection, whatever rule its requests meet.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bounds of heads, chunk lines and trailers.
    pub limits: Limits,
    /// Bytes of a body that are held to be inspected; larger ones are streamed uninspected.
    pub max_inspect_body: u64,
    /// Bytes of a body beyond which a request is refused, counted as they are read.
    pub max_body: u64,
    /// How long a kept-alive client connection may idle between requests.
    pub client_idle: Nanos,
    /// How long a request head may take from its first byte; also the longest wait for memory.
    pub head: Nanos,
    /// How long a body may take before it must flow at [`BODY_RATE`] at least.
    pub body: Nanos,
    /// How long a client may leave sent bytes unread.
    pub client_write: Nanos,
    /// How long a refused client may keep sending before it is cut.
    pub linger: Nanos,
    /// How long a request waits for a token core.
    pub token_wait: Nanos,
    /// How long prefill of a pair may take, and then decode to its first event.
    pub pair_phase: Nanos,
    /// A replay needs the close to come within this after the last write.
    pub replay_window: Nanos,
    /// Pooled upstream connections a shard keeps per endpoint.
    pub pool_max: usize,
    /// How bytes of client connections are wrapped.
    pub client_transport: Transport,
    /// How bytes of upstream connections are wrapped.
    pub upstream_transport: Transport,
    /// Default features that a measurement may switch off one by one; all on in production.
    pub features: Features,
}

/// Bytes a second that a body must average once `Settings::body` is over.
pub const BODY_RATE: u64 = 16 * 1024;

/// What every request pays for, so that each cost can be measured by leaving it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// `X-Forwarded-*` towards the engine.
    pub forwarded: bool,
    /// A made `X-Request-Id` where the client sent none.
    pub request_id: bool,
    /// The look at the top-level members of a JSON body.
    pub peek: bool,
    /// A receipt for each request.
    pub receipts: bool,
    /// What answers prove of engines' caches.
    pub learn: bool,
}

impl Default for Features {
    fn default() -> Self {
        Features { forwarded: true, request_id: true, peek: true, receipts: true, learn: true }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            limits: Limits::default(),
            max_inspect_body: 16 << 20,
            max_body: 256 << 20,
            client_idle: 75 * SECOND,
            head: 15 * SECOND,
            body: 30 * SECOND,
            client_write: 60 * SECOND,
            linger: 2 * SECOND,
            token_wait: SECOND / 20,
            pair_phase: 30 * SECOND,
            replay_window: SECOND / 10,
            pool_max: 256,
            client_transport: Transport::Plain,
            upstream_transport: Transport::Plain,
            features: Features::default(),
        }
    }
}
