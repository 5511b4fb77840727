//! What waits to be sent on one socket: one send in flight, the rest in order behind it. Owns the count of
//! receive buffers held that way; must never reorder.

use std::collections::VecDeque;
use warmpath_ring::{Body, Payload};

/// Receive buffers that may wait behind the send in flight; more is copied and the source paused.
pub const HELD_MAX: usize = 2;

/// The sends of one socket.
#[derive(Debug, Default)]
pub struct Outbox {
    /// A send is in the ring's hands.
    pub in_flight: bool,
    /// No memory is left for what this client does not read.
    pub over_budget: bool,
    /// The source of these bytes was told to stop.
    pub source_paused: bool,
    queue: VecDeque<Payload>,
    held: usize,
}

impl Outbox {
    /// Whether nothing is in flight or waiting.
    pub fn is_idle(&self) -> bool {
        !self.in_flight && self.queue.is_empty()
    }

    /// Puts a payload behind the others.
    pub fn push(&mut self, payload: Payload) {
        self.held += usize::from(matches!(payload.body, Body::Held { .. }));
        self.queue.push_back(payload);
    }

    /// The next payload to send.
    pub fn pop(&mut self) -> Option<Payload> {
        let payload = self.queue.pop_front()?;
        self.held -= usize::from(matches!(payload.body, Body::Held { .. }));
        Some(payload)
    }

    /// Whether another receive buffer may wait here.
    pub fn has_room(&self) -> bool {
        self.held < HELD_MAX && self.queue.len() < 2 * HELD_MAX
    }

    /// Whether nothing waits behind the send in flight.
    pub fn is_drained(&self) -> bool {
        self.queue.is_empty()
    }
}
