//! Those who live in the simulated network beside the shard: clients and engines. Owns what they may do
//! and what they are told.

use super::link::{Link, LinkId, Side};
use super::{Item, Net};
use std::net::SocketAddr;

/// Number of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActorId(pub(crate) usize);

/// A client or an engine.
pub trait Actor {
    /// Something happened to it; it acts through `world`.
    fn react(&mut self, event: PeerEvent, world: &mut World<'_>);

    /// Whether connections to it are accepted now.
    fn accepts(&self) -> bool {
        true
    }
}

/// What an actor is told.
#[derive(Debug)]
pub enum PeerEvent {
    /// It began to live.
    Begun,
    /// Its connection attempt succeeded.
    Connected {
        /// The connection.
        conn: LinkId,
    },
    /// Its connection attempt was refused.
    Refused {
        /// The connection.
        conn: LinkId,
    },
    /// The shard connected to it.
    Accepted {
        /// The connection.
        conn: LinkId,
    },
    /// Bytes came.
    Data {
        /// The connection.
        conn: LinkId,
        /// The bytes, never empty.
        bytes: Vec<u8>,
    },
    /// The shard sent FIN.
    Ended {
        /// The connection.
        conn: LinkId,
    },
    /// The connection was reset.
    Reset {
        /// The connection.
        conn: LinkId,
    },
    /// A timer that it set.
    Timer {
        /// What it called it.
        token: u64,
    },
}

/// What an actor may do.
pub struct World<'a> {
    pub(crate) net: &'a mut Net,
    pub(crate) actor: ActorId,
}

impl World<'_> {
    /// Virtual time, nanoseconds.
    pub fn now(&self) -> u64 {
        self.net.now
    }

    /// A number below `below` from the world's seed.
    pub fn draw(&mut self, below: u64) -> u64 {
        self.net.draw(below)
    }

    /// Connects to a VIP.
    pub fn connect(&mut self, vip: SocketAddr) -> LinkId {
        self.net.links.push(Link::new(self.actor));
        let id = self.net.links.len() - 1;
        self.net.soon(Item::Arrive(id, vip));
        id
    }

    /// Sends bytes; what the shard does not read waits without bound.
    pub fn send(&mut self, conn: LinkId, bytes: &[u8]) {
        let link = &mut self.net.links[conn];
        if link.actor_closed {
            return;
        }
        if link.shard_closed {
            // A closed socket answers with a reset.
            link.to_actor.reset = true;
            return self.net.pull(conn, Side::Actor);
        }
        link.to_shard.bytes.extend(bytes);
        self.net.pull(conn, Side::Shard);
    }

    /// Sends FIN after what was sent.
    pub fn finish(&mut self, conn: LinkId) {
        self.net.links[conn].to_shard.fin = true;
        self.net.pull(conn, Side::Shard);
    }

    /// Closes: FIN, and nothing more is read; what still comes is answered with a reset.
    pub fn close(&mut self, conn: LinkId) {
        let unread = !self.net.links[conn].to_actor.bytes.is_empty();
        if unread {
            return self.reset(conn);
        }
        self.finish(conn);
        self.net.links[conn].actor_closed = true;
        self.net.push_out(conn);
    }

    /// Resets the connection.
    pub fn reset(&mut self, conn: LinkId) {
        let link = &mut self.net.links[conn];
        link.to_shard.bytes.clear();
        link.to_shard.reset = true;
        link.actor_closed = true;
        self.net.push_out(conn);
        self.net.pull(conn, Side::Shard);
    }

    /// Stops reading.
    pub fn pause(&mut self, conn: LinkId) {
        self.net.links[conn].actor_paused = true;
    }

    /// Reads again.
    pub fn resume(&mut self, conn: LinkId) {
        self.net.links[conn].actor_paused = false;
        self.net.pull(conn, Side::Actor);
    }

    /// Is told [`PeerEvent::Timer`] with `token` after so many nanoseconds.
    pub fn timer(&mut self, after: u64, token: u64) {
        self.net.tell(self.actor, PeerEvent::Timer { token }, after);
    }
}
