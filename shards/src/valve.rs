//! How many client connections all shards serve at once, where the operator bounds them. Owns the count of seats and who
//! waits for one: a connection without a seat is not read until another one closes, as if it were still in the
//! listener's queue. Must never take a seat from one who has it.

use crate::conn::{Client, Stage};
use crate::flow::Flow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use warmpath_core::control::{Count, DrainPhase};
use warmpath_core::{MILLISECOND, Nanos};
use warmpath_ring::{Ring, Sock};

/// How often a shard looks whether another one's client has left its seat.
pub(crate) const LOOK: Nanos = 5 * MILLISECOND;

/// The seats of all shards.
#[derive(Debug)]
pub struct Valve {
    most: u32,
    taken: AtomicU32,
}

/// A seat. Given back when dropped.
#[derive(Debug)]
pub struct Seat(Arc<Valve>);

impl Valve {
    /// As many seats as `most`.
    pub fn new(most: u32) -> Valve {
        Valve { most, taken: AtomicU32::new(0) }
    }

    /// A seat, if one is free.
    fn seat(valve: &Arc<Valve>) -> Option<Seat> {
        let more = |taken: u32| (taken < valve.most).then(|| taken + 1);
        valve.taken.fetch_update(Relaxed, Relaxed, more).ok().map(|_| Seat(valve.clone()))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Relaxed);
    }
}

/// A shard's end of the valve.
#[derive(Debug, Default)]
pub(crate) struct Door {
    valve: Option<Arc<Valve>>,
    /// Clients without a seat, first come first.
    waiting: VecDeque<Sock>,
}

impl Door {
    /// Clients that wait, those that left meanwhile among them.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

impl<R: Ring> Flow<R> {
    /// Serves no more clients from now on, together with the other shards that have this valve, than it has seats.
    pub fn behind(&mut self, valve: Arc<Valve>) {
        self.door.valve = Some(valve);
    }

    /// Begins to read a new client, or lets it wait for a seat.
    pub(crate) fn seat_client(&mut self, client: &mut Client) {
        let Some(valve) = &self.door.valve else { return self.resume_client(client) };
        // Nobody overtakes on this shard.
        client.seat = if self.door.waiting.is_empty() { Valve::seat(valve) } else { None };
        match client.seat {
            Some(_) => self.resume_client(client),
            None => {
                self.tally.count(Count::AcceptsHeld);
                self.door.waiting.push_back(client.sock);
            }
        }
    }

    /// Begins to read those that waited, as far as there are seats; when going down, all of them.
    pub(crate) fn seat_waiting(&mut self) {
        while let Some(sock) = self.door.waiting.front().copied() {
            let Some(mut client) = self.conns.take_client(sock) else {
                self.door.waiting.pop_front();
                continue;
            };
            client.seat = self.door.valve.as_ref().and_then(Valve::seat);
            let stays = client.seat.is_none() && self.phase < DrainPhase::Closing;
            if !stays {
                self.door.waiting.pop_front();
                debug_assert!(client.stage == Stage::Head, "a client that was never read is elsewhere");
                self.resume_client(&mut client);
                let closing = self.phase >= DrainPhase::Closing;
                let within = if closing { self.settings.linger } else { self.settings.client_idle };
                self.expect_client(&mut client, within);
            }
            self.conns.put_client(client);
            if stays {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_threads_never_have_more_seats_than_there_are() {
        let valve = Arc::new(Valve::new(3));
        let seated = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        if let Some(seat) = Valve::seat(&valve) {
                            assert!(seated.fetch_add(1, Relaxed) < 3);
                            seated.fetch_sub(1, Relaxed);
                            drop(seat);
                        }
                    }
                });
            }
        });
        assert_eq!(valve.taken.load(Relaxed), 0);
    }
}
