//! The relay on a driver of ours, io_uring or epoll: a state machine over [`Ring`]'s events.
//!
//! Owns the connections and the pool of idle upstream ones, last used first. Receiving stays armed on idle
//! ones, so that the upstream's close is seen at once. Must never block but in [`Ring::wait`].

use crate::message::{Fed, Scanner, Side};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use warmpath_ring::{Body, Errno, Event, Held, Payload, Ring, Sock, sock};

/// Payloads that may wait behind one in flight before the other side is no longer read.
const QUEUED_MAX: usize = 2;

struct Peer {
    sock: Sock,
    side: Side,
    scanner: Scanner,
    partner: Option<Sock>,
    /// A send is in flight, or the connection is not yet established.
    busy: bool,
    queue: VecDeque<Payload>,
}

/// Connections by slot; a slot's earlier tenants are not found.
#[derive(Default)]
struct Peers(Vec<Option<Peer>>);

impl Peers {
    fn get(&mut self, sock: Sock) -> Option<&mut Peer> {
        self.0.get_mut(sock.slot as usize)?.as_mut().filter(|peer| peer.sock == sock)
    }

    fn add(&mut self, sock: Sock, side: Side) {
        let slot = sock.slot as usize;
        if self.0.len() <= slot {
            self.0.resize_with(slot + 1, || None);
        }
        let busy = side == Side::Response;
        let scanner = Scanner::new(side);
        self.0[slot] = Some(Peer { sock, side, scanner, partner: None, busy, queue: VecDeque::new() });
    }

    fn remove(&mut self, sock: Sock) -> Option<Peer> {
        self.get(sock)?;
        self.0[sock.slot as usize].take()
    }
}

struct Relay<R: Ring> {
    ring: R,
    upstream: SocketAddr,
    peers: Peers,
    idle: Vec<Sock>,
}

/// Relays to `upstream` until the process ends; `listening` is told the address. Errors: the ring's own.
pub fn run<R: Ring>(
    mut ring: R,
    upstream: SocketAddr,
    listening: impl FnOnce(SocketAddr),
) -> Result<(), Errno> {
    let socket = sock::listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = sock::local_address(&socket)?;
    ring.listen(socket)?;
    listening(address);
    let mut relay = Relay { ring, upstream, peers: Peers::default(), idle: Vec::new() };
    let mut events = Vec::new();
    loop {
        relay.ring.wait(None, &mut events)?;
        for event in events.drain(..) {
            relay.on(event);
        }
    }
}

impl<R: Ring> Relay<R> {
    fn on(&mut self, event: Event) {
        match event {
            Event::Accepted { sock, .. } => {
                self.peers.add(sock, Side::Request);
                self.ring.receive(sock);
            }
            Event::Connected { sock, result } => self.sent(sock, result),
            Event::Sent { sock, payload, result } => {
                self.give_back(payload);
                self.sent(sock, result);
            }
            Event::Received { sock, buffer } => self.received(sock, buffer),
            Event::Ended { sock } | Event::Failed { sock, .. } => self.part(sock),
            Event::AcceptFailed { .. } | Event::ListenerClosed { .. } | Event::Woken => {}
        }
    }

    fn received(&mut self, sock: Sock, buffer: Held) {
        let Some(peer) = self.peers.get(sock) else { return self.ring.release(buffer) };
        match peer.scanner.feed(self.ring.bytes(&buffer)) {
            Ok(Fed::More) => self.ring.release(buffer),
            Ok(Fed::Forward { kept, done }) => match self.partner(sock) {
                Ok(partner) => self.forward(sock, partner, kept, buffer, done),
                Err(_) => self.refuse(sock, buffer),
            },
            Err(_) => self.refuse(sock, buffer),
        }
    }

    fn forward(&mut self, sock: Sock, partner: Sock, kept: Vec<u8>, buffer: Held, done: bool) {
        let all = 0..buffer.len();
        let payload = match kept.is_empty() {
            true => Payload::held(buffer, all),
            false => self.ring.join(kept, buffer, all),
        };
        self.send(partner, payload);
        if done && self.peers.get(sock).is_some_and(|peer| peer.side == Side::Response) {
            self.finish(partner, sock);
        }
    }

    fn refuse(&mut self, sock: Sock, buffer: Held) {
        self.ring.release(buffer);
        self.part(sock);
    }

    /// The other connection of the exchange; a client without one gets it from the pool or a new one.
    fn partner(&mut self, sock: Sock) -> io::Result<Sock> {
        let gone = || io::Error::other("bytes on an idle connection");
        let peer = self.peers.get(sock).ok_or_else(gone)?;
        if let Some(partner) = peer.partner {
            return Ok(partner);
        }
        if peer.side == Side::Response {
            return Err(gone());
        }
        let upstream = match self.idle.pop() {
            Some(upstream) => upstream,
            None => self.connect()?,
        };
        self.pair(sock, Some(upstream));
        self.pair(upstream, Some(sock));
        Ok(upstream)
    }

    fn connect(&mut self) -> io::Result<Sock> {
        let sock = self.ring.connect(self.upstream).map_err(|e| io::Error::from_raw_os_error(e.0))?;
        self.peers.add(sock, Side::Response);
        self.ring.receive(sock);
        Ok(sock)
    }

    fn pair(&mut self, sock: Sock, partner: Option<Sock>) {
        if let Some(peer) = self.peers.get(sock) {
            peer.partner = partner;
        }
    }

    /// The response is whole: the upstream goes back to the pool, unless the request is not.
    fn finish(&mut self, client: Sock, upstream: Sock) {
        if !self.peers.get(client).is_some_and(|peer| peer.scanner.is_done()) {
            return self.part(client);
        }
        for sock in [client, upstream] {
            let Some(peer) = self.peers.get(sock) else { continue };
            peer.partner = None;
            peer.scanner.reset();
            // It may have been paused for a queue whose emptying will no longer find it.
            self.ring.receive(sock);
        }
        self.idle.push(upstream);
    }

    /// Sends, or queues behind the send in flight; a long queue stops the reading of its source.
    fn send(&mut self, sock: Sock, payload: Payload) {
        let Some(peer) = self.peers.get(sock) else { return self.give_back(payload) };
        if !peer.busy {
            peer.busy = true;
            return self.ring.send(sock, payload);
        }
        peer.queue.push_back(payload);
        if let (true, Some(source)) = (peer.queue.len() == QUEUED_MAX, peer.partner) {
            self.ring.pause(source);
        }
    }

    /// A send, or the connecting, has ended: the next payload goes out.
    fn sent(&mut self, sock: Sock, result: Result<(), Errno>) {
        let Some(peer) = self.peers.get(sock) else { return };
        if result.is_err() {
            return self.part(sock);
        }
        let Some(payload) = peer.queue.pop_front() else {
            peer.busy = false;
            return;
        };
        if let (true, Some(source)) = (peer.queue.is_empty(), peer.partner) {
            self.ring.receive(source);
        }
        self.ring.send(sock, payload);
    }

    /// Closes a connection and its partner.
    fn part(&mut self, sock: Sock) {
        let partner = self.peers.get(sock).and_then(|peer| peer.partner);
        for sock in [Some(sock), partner].into_iter().flatten() {
            let Some(peer) = self.peers.remove(sock) else { continue };
            peer.queue.into_iter().for_each(|payload| self.give_back(payload));
            self.ring.close(sock);
            self.idle.retain(|&idle| idle != sock);
        }
    }

    fn give_back(&mut self, payload: Payload) {
        if let Body::Held { buffer, .. } = payload.body {
            self.ring.release(buffer);
        }
    }
}
