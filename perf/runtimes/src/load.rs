//! Clients and upstream in one thread, around the relay under measurement.
//!
//! Owns the closed loop, the pace of streams and the comparison of each byte with what is due. Must never
//! parse, and never go on after a fault: a figure from a run with failures is none.

use crate::workload::Workload;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use warmpath_ring::{Body, Epoll, Event, Held, Payload, Ring, Sizes, Sock, clock, sock};

/// No unit for so long is a fault.
const STALLED_NS: u64 = 3_000_000_000;
/// How soon a piece is tried again whose forerunner is still being sent.
const RETRY_NS: u64 = 50_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Client,
    Upstream,
}

struct Conn {
    sock: Sock,
    role: Role,
    /// Bytes of the awaited message that came.
    seen: usize,
    /// The next piece to send; upstream only.
    piece: usize,
    sending: bool,
}

/// Clients and upstream of one run.
pub struct Load<'a> {
    workload: &'a Workload,
    ring: Epoll,
    conns: Vec<Option<Conn>>,
    due: BinaryHeap<Reverse<(u64, Sock)>>,
    /// Where the upstream listens.
    pub upstream: SocketAddr,
    /// Pieces that the upstream sent.
    pub units: u64,
    /// Whole responses that clients compared.
    pub responses: u64,
}

fn fault(text: String) -> io::Error {
    io::Error::other(text)
}

fn os(error: warmpath_ring::Errno) -> io::Error {
    io::Error::from_raw_os_error(error.0)
}

impl<'a> Load<'a> {
    /// Opens the upstream's listener. Errors: the kernel's.
    pub fn new(workload: &'a Workload) -> io::Result<Load<'a>> {
        let mut ring = Epoll::new(Sizes::default()).map_err(os)?;
        let socket = sock::listen(SocketAddr::from(([127, 0, 0, 1], 0))).map_err(os)?;
        let upstream = sock::local_address(&socket).map_err(os)?;
        ring.listen(socket).map_err(os)?;
        let (conns, due) = (Vec::new(), BinaryHeap::new());
        Ok(Load { workload, ring, conns, due, upstream, units: 0, responses: 0 })
    }

    /// Connects the clients to `relay`; they begin by themselves. Errors: the kernel's.
    pub fn connect(&mut self, relay: SocketAddr) -> io::Result<()> {
        for _ in 0..self.workload.clients {
            let sock = self.ring.connect(relay).map_err(os)?;
            self.add(sock, Role::Client);
        }
        Ok(())
    }

    /// Runs until `enough` says so. Errors: any byte, connection or pause that is not as it must be.
    pub fn run(&mut self, mut enough: impl FnMut(&Load) -> bool) -> io::Result<()> {
        let (mut units, mut since) = (self.units, clock::now());
        let mut events = Vec::new();
        while !enough(self) {
            self.ring.wait(Some(self.patience()), &mut events).map_err(os)?;
            for event in events.drain(..) {
                self.on(event)?;
            }
            self.send_due();
            let now = clock::now();
            if self.units != units {
                (units, since) = (self.units, now);
            } else if now - since > STALLED_NS {
                return Err(fault(format!("no {} for 3 s", self.workload.unit)));
            }
        }
        Ok(())
    }

    fn patience(&self) -> Duration {
        let limit = Duration::from_millis(10);
        self.due.peek().map_or(limit, |Reverse((due, _))| {
            Duration::from_nanos(due.saturating_sub(clock::now())).min(limit)
        })
    }

    fn add(&mut self, sock: Sock, role: Role) {
        let slot = sock.slot as usize;
        if self.conns.len() <= slot {
            self.conns.resize_with(slot + 1, || None);
        }
        self.conns[slot] = Some(Conn { sock, role, seen: 0, piece: 0, sending: false });
        self.ring.receive(sock);
    }

    fn conn(&mut self, sock: Sock) -> io::Result<&mut Conn> {
        let conn = self.conns.get_mut(sock.slot as usize).and_then(Option::as_mut);
        conn.filter(|conn| conn.sock == sock).ok_or_else(|| fault(format!("unknown {sock:?}")))
    }

    fn on(&mut self, event: Event) -> io::Result<()> {
        match event {
            Event::Accepted { sock, .. } => self.add(sock, Role::Upstream),
            Event::Connected { sock, result } => {
                result.map_err(os)?;
                self.request(sock)?;
            }
            Event::Received { sock, buffer } => self.received(sock, buffer)?,
            Event::Sent { sock, result, .. } => {
                result.map_err(os)?;
                self.conn(sock)?.sending = false;
            }
            Event::Ended { sock } => return Err(fault(format!("{sock:?} was closed"))),
            Event::Failed { error, .. } | Event::AcceptFailed { error, .. } => return Err(os(error)),
            Event::ListenerClosed { .. } | Event::Woken => {}
        }
        Ok(())
    }

    fn received(&mut self, sock: Sock, buffer: Held) -> io::Result<()> {
        let workload = self.workload;
        let role = self.conn(sock)?.role;
        let awaited = if role == Role::Client { workload.response } else { workload.request };
        let from = self.conn(sock)?.seen;
        let to = from + buffer.len() as usize;
        let same = awaited.get(from..to) == Some(self.ring.bytes(&buffer));
        self.ring.release(buffer);
        if !same {
            return Err(fault(format!("{}: bytes {from} to {to} differ", workload.name)));
        }
        let whole = to == awaited.len();
        self.conn(sock)?.seen = if whole { 0 } else { to };
        match role {
            Role::Client if whole => {
                self.responses += 1;
                self.request(sock)
            }
            Role::Upstream if whole => self.respond(sock),
            Role::Client | Role::Upstream => Ok(()),
        }
    }

    fn request(&mut self, sock: Sock) -> io::Result<()> {
        let body = Body::Static(self.workload.request);
        self.conn(sock)?.sending = true;
        self.ring.send(sock, Payload { head: Vec::new(), body });
        Ok(())
    }

    /// Sends the first piece at once; the streams' later ones are spread over the gap.
    fn respond(&mut self, sock: Sock) -> io::Result<()> {
        self.conn(sock)?.piece = 0;
        let gap = self.workload.gap_ns;
        let spread = if gap == 0 { 0 } else { u64::from(sock.slot) * (gap / 100) % gap };
        self.piece(sock, clock::now() + spread);
        Ok(())
    }

    fn send_due(&mut self) {
        let now = clock::now();
        while let Some(&Reverse((due, sock))) = self.due.peek().filter(|Reverse((due, _))| *due <= now) {
            self.due.pop();
            self.piece(sock, due);
        }
    }

    fn piece(&mut self, sock: Sock, due: u64) {
        let Some(conn) = self.conns.get_mut(sock.slot as usize).and_then(Option::as_mut) else { return };
        if conn.sending {
            return self.due.push(Reverse((clock::now() + RETRY_NS, sock)));
        }
        let Some(range) = self.workload.pieces.get(conn.piece) else { return };
        conn.piece += 1;
        conn.sending = true;
        self.units += 1;
        let body = Body::Static(&self.workload.response[range.clone()]);
        self.ring.send(sock, Payload { head: Vec::new(), body });
        if conn.piece < self.workload.pieces.len() {
            self.due.push(Reverse((self.workload.next_due(due), sock)));
        }
    }
}
