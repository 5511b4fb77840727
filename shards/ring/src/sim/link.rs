//! A simulated TCP connection between the shard and an actor. Owns what is under way in both directions.

use super::ActorId;
use crate::Sock;
use std::collections::VecDeque;

/// Number of a link; also an actor's name for its connection.
pub type LinkId = usize;

/// Who is to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Shard,
    Actor,
}

/// A connection.
pub(crate) struct Link {
    pub actor: ActorId,
    pub sock: Option<Sock>,
    pub to_shard: Pipe,
    pub to_actor: Pipe,
    pub actor_paused: bool,
    pub actor_closed: bool,
    pub shard_closed: bool,
}

/// One direction.
#[derive(Default)]
pub(crate) struct Pipe {
    pub bytes: VecDeque<u8>,
    /// Bytes that the receiver took so far.
    pub taken: u64,
    pub fin: bool,
    pub fin_told: bool,
    pub reset: bool,
    pub under_way: bool,
}

impl Link {
    pub(crate) fn new(actor: ActorId) -> Link {
        Link {
            actor,
            sock: None,
            to_shard: Pipe::default(),
            to_actor: Pipe::default(),
            actor_paused: false,
            actor_closed: false,
            shard_closed: false,
        }
    }

    pub(crate) fn pipe_to(&mut self, side: Side) -> &mut Pipe {
        match side {
            Side::Shard => &mut self.to_shard,
            Side::Actor => &mut self.to_actor,
        }
    }
}

impl Pipe {
    pub(crate) fn has_news(&self) -> bool {
        self.reset || !self.bytes.is_empty() || (self.fin && !self.fin_told)
    }

    pub(crate) fn take(&mut self, most: usize) -> Vec<u8> {
        let many = self.bytes.len().min(most);
        self.taken += many as u64;
        self.bytes.drain(..many).collect()
    }
}
