//! The ways by which cache events leave an engine: a numbered stream with replay (`stream`, over ZeroMQ
//! by `sockets`, whose bytes `zmtp` makes) and a buffer that is drained (`drain`).
//! Must never know what an event means; `kinds` writes them.

pub mod drain;
pub mod endpoint;
pub mod msgpack;
pub mod sockets;
pub mod stream;
pub mod zmtp;

pub use drain::Drain;
pub use endpoint::{Doors, Endpoint, Source};
pub use stream::{Fate, Stream};

/// A rank's way out.
#[derive(Debug)]
pub enum Outlet {
    /// Nobody is told.
    Nowhere,
    /// Published.
    Stream(Stream),
    /// Kept for whoever drains it.
    Drain(Drain),
}

impl Outlet {
    /// A new process: numbers from 0, nothing kept.
    pub fn restart(&mut self) {
        match self {
            Outlet::Nowhere => {}
            Outlet::Stream(stream) => stream.restart(),
            Outlet::Drain(drain) => drain.restart(),
        }
    }

    /// The number that the next batch or event gets.
    pub fn next(&self) -> u64 {
        match self {
            Outlet::Nowhere => 0,
            Outlet::Stream(stream) => stream.next(),
            Outlet::Drain(drain) => drain.next(),
        }
    }
}
