//! The event core's connections. Owns which socket is for what, what of it waits to be read, and whose turn it
//! is; must never look into bytes.
//!
//! Bytes are not worked on as they come: each connection has a turn of one receive buffer in every round, so
//! that one which is flooded delays the others by no more than that. One that is too far behind is paused. Of
//! replays one has a turn in a round: they are long, and when many engines restart at once what the others store
//! must not wait for all of them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;
use warmpath_ring::{Errno, Held, Listener, Payload, Ring, Sock, sock};

/// Buffers that may wait on one connection before it is paused.
const WAITING_MAX: usize = 4;

/// A peer whose kernel is silent for so long is gone; peers that answer heartbeats are found sooner.
const SILENCE: Duration = Duration::from_secs(15);

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// The live events of a rank.
    Live(u8),
    /// A replay of a rank.
    Replay(u8, u32),
    /// Requests to the engine's own port.
    Http,
}

/// Whose connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// The source's number.
    pub source: u32,
    pub what: Use,
}

struct Line {
    sock: Sock,
    owner: Owner,
    waiting: VecDeque<Held>,
    is_ended: bool,
    is_paused: bool,
    is_sending: bool,
    is_queued: bool,
}

/// What a turn brings.
pub(super) enum Turn {
    Bytes(Owner, Held),
    Ended,
}

/// All connections over one ring.
pub(super) struct Net<R: Ring> {
    pub ring: R,
    lines: Vec<Option<Line>>,
    queue: VecDeque<Sock>,
    replays: VecDeque<Sock>,
    listeners: Vec<(SocketAddr, Listener)>,
}

impl<R: Ring> Net<R> {
    pub fn new(ring: R) -> Net<R> {
        let (queue, replays) = (VecDeque::new(), VecDeque::new());
        Net { ring, lines: Vec::new(), queue, replays, listeners: Vec::new() }
    }

    /// Begins a connection.
    pub fn dial(&mut self, to: SocketAddr, owner: Owner) -> Result<Sock, Errno> {
        let sock = self.ring.connect(to)?;
        self.adopt(sock, owner);
        Ok(sock)
    }

    /// Takes an accepted connection in.
    pub fn adopt(&mut self, sock: Sock, owner: Owner) {
        let at = sock.slot as usize;
        if self.lines.len() <= at {
            self.lines.resize_with(at + 1, || None);
        }
        self.lines[at] = Some(Line {
            sock,
            owner,
            waiting: VecDeque::new(),
            is_ended: false,
            is_paused: false,
            is_sending: false,
            is_queued: false,
        });
    }

    /// The connection is there: what it brings is received from now on.
    pub fn opened(&mut self, sock: Sock) {
        self.ring.keep_alive(sock, SILENCE);
        self.ring.receive(sock);
    }

    pub fn owner(&self, sock: Sock) -> Option<Owner> {
        self.line(sock).map(|line| line.owner)
    }

    /// Whether a send is in flight.
    pub fn is_sending(&self, sock: Sock) -> bool {
        self.line(sock).is_some_and(|line| line.is_sending)
    }

    /// Sends bytes; none may be in flight.
    pub fn send(&mut self, sock: Sock, bytes: Vec<u8>) {
        if let Some(line) = self.line_mut(sock)
            && !bytes.is_empty()
        {
            line.is_sending = true;
            self.ring.send(sock, Payload::head(bytes));
        }
    }

    pub fn sent(&mut self, sock: Sock) {
        if let Some(line) = self.line_mut(sock) {
            line.is_sending = false;
        }
    }

    /// A buffer arrived.
    pub fn received(&mut self, sock: Sock, buffer: Held) {
        let Some(line) = self.line_mut(sock) else { return self.ring.release(buffer) };
        line.waiting.push_back(buffer);
        if line.waiting.len() > WAITING_MAX && !line.is_paused {
            line.is_paused = true;
            self.ring.pause(sock);
        }
        self.enqueue(sock);
    }

    /// No more will come; what waits is still to be read.
    pub fn ended(&mut self, sock: Sock) {
        if let Some(line) = self.line_mut(sock) {
            line.is_ended = true;
            self.enqueue(sock);
        }
    }

    /// Whether anything waits for a turn.
    pub fn has_turns(&self) -> bool {
        !self.queue.is_empty() || !self.replays.is_empty()
    }

    /// The connections that have a turn in the round that begins now, replays apart.
    pub fn round(&mut self) -> VecDeque<Sock> {
        std::mem::take(&mut self.queue)
    }

    /// Replays that wait for a turn.
    pub fn replays(&self) -> usize {
        self.replays.len()
    }

    /// The replay whose turn is next.
    pub fn next_replay(&mut self) -> Option<Sock> {
        self.replays.pop_front()
    }

    /// A connection passes its turn on to the next round.
    pub fn pass(&mut self, sock: Sock) {
        if let Some(line) = self.line_mut(sock) {
            line.is_queued = false;
            self.enqueue(sock);
        }
    }

    /// A connection's turn.
    pub fn turn(&mut self, sock: Sock) -> Option<Turn> {
        let line = self.line_mut(sock)?;
        line.is_queued = false;
        let owner = line.owner;
        let Some(buffer) = line.waiting.pop_front() else {
            return line.is_ended.then_some(Turn::Ended);
        };
        let is_more = !line.waiting.is_empty() || line.is_ended;
        if line.is_paused && line.waiting.len() <= WAITING_MAX / 2 {
            line.is_paused = false;
            self.ring.receive(sock);
        }
        if is_more {
            self.enqueue(sock);
        }
        Some(Turn::Bytes(owner, buffer))
    }

    /// Closes a connection; what waits on it is dropped.
    pub fn close(&mut self, sock: Sock) {
        if self.line(sock).is_none() {
            return;
        }
        if let Some(line) = self.lines[sock.slot as usize].take() {
            line.waiting.into_iter().for_each(|buffer| self.ring.release(buffer));
            self.ring.close(sock);
        }
    }

    /// Listens on exactly these addresses; those that can't be, and why.
    pub fn listen_on(&mut self, wanted: &[SocketAddr]) -> Vec<(SocketAddr, Errno)> {
        let (kept, gone) = self.listeners.drain(..).partition(|(at, _)| wanted.contains(at));
        self.listeners = kept;
        gone.into_iter().for_each(|(_, listener)| self.ring.close_listener(listener));
        let mut faults = Vec::new();
        for at in wanted {
            if self.listeners.iter().any(|(own, _)| own == at) {
                continue;
            }
            match sock::listen(*at).and_then(|socket| self.ring.listen(socket)) {
                Ok(listener) => self.listeners.push((*at, listener)),
                Err(error) => faults.push((*at, error)),
            }
        }
        faults
    }

    /// Where a listener listens.
    pub fn listened(&self, listener: Listener) -> Option<SocketAddr> {
        self.listeners.iter().find(|(_, own)| *own == listener).map(|(at, _)| *at)
    }

    fn enqueue(&mut self, sock: Sock) {
        if let Some(line) = self.line_mut(sock)
            && !line.is_queued
        {
            line.is_queued = true;
            match line.owner.what {
                Use::Replay(..) => self.replays.push_back(sock),
                Use::Live(_) | Use::Http => self.queue.push_back(sock),
            }
        }
    }

    fn line(&self, sock: Sock) -> Option<&Line> {
        self.lines.get(sock.slot as usize)?.as_ref().filter(|line| line.sock == sock)
    }

    fn line_mut(&mut self, sock: Sock) -> Option<&mut Line> {
        self.lines.get_mut(sock.slot as usize)?.as_mut().filter(|line| line.sock == sock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmpath_ring::Sizes;
    use warmpath_ring::sim::{Sim, Weather};

    #[test]
    fn replays_queue_by_themselves() {
        let mut net = Net::new(Sim::new(1, Sizes::default(), Weather::default()));
        let mut dial = |what| {
            let sock = net.dial(SocketAddr::from(([127, 0, 0, 1], 9)), Owner { source: 0, what });
            let sock = sock.expect("a socket");
            net.ended(sock);
            sock
        };
        let replays: Vec<Sock> = (0..3).map(|attempt| dial(Use::Replay(0, attempt))).collect();
        let live = dial(Use::Live(0));
        assert_eq!(net.round(), [live]);
        assert_eq!((net.replays(), net.next_replay()), (3, Some(replays[0])));
        net.pass(live);
        net.pass(replays[0]);
        assert_eq!(net.round(), [live]);
        let left: Vec<Sock> = std::iter::from_fn(|| net.next_replay()).collect();
        assert_eq!(left, [replays[1], replays[2], replays[0]]);
        assert!(!net.has_turns());
    }
}
