//! What the contract tests share: a ring that is driven until a condition holds, checks of the contract on
//! every event, and plain blocking clients on threads.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use warmpath_ring::{Event, Held, Listener, Payload, Ring, Sizes, Sock, sock};

/// A hung test fails after this many empty waits of [`PATIENCE`].
const EMPTY_WAITS_MAX: usize = 400;
pub const PATIENCE: Duration = Duration::from_millis(50);

pub fn small() -> Sizes {
    Sizes { submissions: 64, completions: 256, buffers: 64, buffer_bytes: 4096 }
}

/// Bytes that tell their place.
pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31).wrapping_add(i >> 8).wrapping_add(seed * 7)) as u8).collect()
}

/// A ring, what it owns, and the sockets that are open from the shard's point of view.
pub struct Shard<R: Ring> {
    pub ring: R,
    pub open: HashMap<Sock, Peer>,
    pub accepted: usize,
    /// Connections that were reset before they were accepted.
    pub aborted: usize,
    pub closed_listeners: Vec<Listener>,
    pub woken: usize,
    /// Closed while the current batch was handled: later events of that same batch may name them.
    just_closed: Vec<Sock>,
}

/// One open socket.
#[derive(Default)]
pub struct Peer {
    pub got: Vec<u8>,
    pub waiting: VecDeque<Held>,
    pub sending: bool,
    pub ended: bool,
    pub failed: Option<i32>,
    pub connected: Option<Result<(), i32>>,
    pub sent: usize,
}

impl<R: Ring> Shard<R> {
    pub fn new(ring: R) -> Shard<R> {
        Shard {
            ring,
            open: HashMap::new(),
            accepted: 0,
            aborted: 0,
            closed_listeners: Vec::new(),
            woken: 0,
            just_closed: Vec::new(),
        }
    }

    pub fn listen(&mut self) -> (Listener, SocketAddr) {
        let socket = sock::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = sock::local_address(&socket).unwrap();
        (self.ring.listen(socket).unwrap(), address)
    }

    pub fn connect(&mut self, to: SocketAddr) -> Sock {
        let sock = self.ring.connect(to).unwrap();
        self.open.insert(sock, Peer::default());
        sock
    }

    pub fn send(&mut self, sock: Sock, payload: Payload) {
        let peer = self.open.get_mut(&sock).unwrap();
        assert!(!peer.sending);
        peer.sending = true;
        self.ring.send(sock, payload);
    }

    pub fn close(&mut self, sock: Sock) {
        let peer = self.open.remove(&sock).unwrap();
        peer.waiting.into_iter().for_each(|held| self.ring.release(held));
        self.ring.close(sock);
        self.just_closed.push(sock);
    }

    pub fn peer(&self, sock: Sock) -> &Peer {
        &self.open[&sock]
    }

    /// The only open socket.
    pub fn only(&self) -> Sock {
        assert_eq!(self.open.len(), 1);
        *self.open.keys().next().unwrap()
    }

    /// Waits once and books what came; `seen` then handles each event's socket.
    pub fn step(&mut self, timeout: Option<Duration>, seen: &mut impl FnMut(&mut Shard<R>, Seen)) -> usize {
        let mut events = Vec::new();
        self.just_closed.clear();
        self.ring.wait(timeout, &mut events).unwrap();
        let count = events.len();
        for event in events {
            if let Some(what) = self.book(event) {
                seen(self, what);
            }
        }
        count
    }

    /// Steps until `done`, or fails when nothing comes for too long.
    pub fn run(&mut self, mut seen: impl FnMut(&mut Shard<R>, Seen), done: impl Fn(&Shard<R>) -> bool) {
        let mut empty = 0;
        while !done(self) {
            empty = if self.step(Some(PATIENCE), &mut seen) == 0 { empty + 1 } else { 0 };
            assert!(empty < EMPTY_WAITS_MAX, "nothing comes any more");
        }
    }

    /// Keeps the books of one event and checks the contract.
    fn book(&mut self, event: Event) -> Option<Seen> {
        if let Event::Accepted { sock, peer, .. } = event {
            assert!(peer.ip().is_loopback());
            self.accepted += 1;
            assert!(self.open.insert(sock, Peer::default()).is_none(), "a slot served twice");
            return Some(Seen::Accepted(sock));
        }
        let Some(sock) = event.sock() else { return self.book_other(event) };
        let Some(peer) = self.open.get_mut(&sock) else {
            assert!(self.just_closed.contains(&sock), "an event names a closed socket: {event:?}");
            self.drop_late(event);
            return None;
        };
        match event {
            Event::Connected { result, .. } => {
                assert!(peer.connected.is_none(), "connected twice");
                peer.connected = Some(result.map_err(|e| e.0));
                Some(Seen::Connected)
            }
            Event::Received { buffer, .. } => {
                assert!(!peer.ended && buffer.len() > 0, "bytes after the end");
                peer.got.extend_from_slice(self.ring.bytes(&buffer));
                Some(Seen::Received(sock, buffer))
            }
            Event::Ended { .. } => {
                assert!(!peer.ended, "ended twice");
                peer.ended = true;
                Some(Seen::Ended(sock))
            }
            Event::Failed { error, .. } => {
                peer.failed = Some(error.0);
                Some(Seen::Failed(sock))
            }
            Event::Sent { payload, result, .. } => {
                assert!(std::mem::take(&mut peer.sending), "sent without a send");
                peer.sent += 1;
                Some(Seen::Sent(sock, payload, result.is_ok()))
            }
            _ => None,
        }
    }

    fn book_other(&mut self, event: Event) -> Option<Seen> {
        match event {
            Event::ListenerClosed { listener } => self.closed_listeners.push(listener),
            Event::Woken => self.woken += 1,
            Event::AcceptFailed { error, .. } => {
                assert_eq!(error, rustix::io::Errno::CONNABORTED.into());
                self.aborted += 1;
            }
            other => panic!("{other:?}"),
        }
        None
    }

    fn drop_late(&mut self, event: Event) {
        match event {
            Event::Received { buffer, .. } => self.ring.release(buffer),
            Event::Sent { payload, .. } => self.release(payload),
            _ => {}
        }
    }

    /// Releases the buffer in a payload that came back.
    pub fn release(&mut self, payload: Payload) {
        if let warmpath_ring::Body::Held { buffer, .. } = payload.body {
            self.ring.release(buffer);
        }
    }

    /// Waits until the driver has let go of every closed socket and every buffer is free again.
    pub fn settle(&mut self, sizes: &Sizes) {
        let open = self.open.len() as u64;
        let all = u64::from(sizes.buffers);
        self.run(discard, |shard| {
            let counters = shard.ring.counters();
            counters.sockets == open && counters.buffers_free == all
        });
    }
}

/// What an event was about, after the books were kept.
pub enum Seen {
    Accepted(Sock),
    Connected,
    Received(Sock, Held),
    Ended(Sock),
    Failed(Sock),
    Sent(Sock, Payload, bool),
}

/// Receives, keeps nothing.
pub fn discard<R: Ring>(shard: &mut Shard<R>, seen: Seen) {
    match seen {
        Seen::Accepted(sock) => shard.ring.receive(sock),
        Seen::Received(_, held) => shard.ring.release(held),
        Seen::Sent(_, payload, _) => shard.release(payload),
        _ => {}
    }
}

/// Sends back what came, one send in flight, at most two buffers kept; closes when the client has ended.
pub fn echo<R: Ring>(shard: &mut Shard<R>, seen: Seen) {
    let sock = match seen {
        Seen::Accepted(sock) => return shard.ring.receive(sock),
        Seen::Received(sock, held) => {
            let peer = shard.open.get_mut(&sock).unwrap();
            peer.got.clear();
            peer.waiting.push_back(held);
            if peer.waiting.len() >= 2 {
                shard.ring.pause(sock);
            }
            sock
        }
        Seen::Sent(sock, payload, ok) => {
            assert!(ok);
            shard.release(payload);
            sock
        }
        Seen::Ended(sock) => sock,
        Seen::Failed(sock) => panic!("failed: {:?}", shard.peer(sock).failed),
        Seen::Connected => return,
    };
    pump(shard, sock);
}

fn pump<R: Ring>(shard: &mut Shard<R>, sock: Sock) {
    let peer = shard.open.get_mut(&sock).unwrap();
    if peer.sending {
        return;
    }
    if let Some(held) = peer.waiting.pop_front() {
        let few = peer.waiting.is_empty();
        let len = held.len();
        shard.send(sock, Payload::held(held, 0..len));
        if few {
            shard.ring.receive(sock);
        }
    } else if peer.ended {
        shard.close(sock);
    }
}

/// A client that writes `bytes`, ends its side, and gives back all it reads; a slow one reads little at once.
pub fn client(to: SocketAddr, bytes: Vec<u8>, slow: bool) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut stream = TcpStream::connect(to).unwrap();
        let mut writer = stream.try_clone().unwrap();
        let writing = std::thread::spawn(move || {
            writer.write_all(&bytes).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let got = read_all(&mut stream, slow);
        writing.join().unwrap();
        got
    })
}

/// Reads until the end; slowly means in small pieces, giving way in between.
pub fn read_all(stream: &mut TcpStream, slow: bool) -> Vec<u8> {
    let mut got = Vec::new();
    let mut piece = vec![0; if slow { 1500 } else { 65536 }];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return got,
            Ok(len) => got.extend_from_slice(&piece[..len]),
            Err(error) => panic!("after {} bytes: {error}", got.len()),
        }
        if slow {
            std::thread::yield_now();
        }
    }
}
