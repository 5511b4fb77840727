//! One connection's machine. Owns the phases, the reassembly of messages and the bytes to be written; must
//! never know what a message means.

use super::command::{self, Command};
use super::frame::{self, Head, HeadReader};
use super::{DEAD_AFTER, Fault, Limits, Message, PING_EVERY, greeting};
use warmpath_core::{Nanos, SECOND};

/// Capacity that an idle connection may keep from a large message.
const KEPT_BYTES: usize = 1 << 20;

/// The end that we play.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Receives from PUB or XPUB what begins with the prefix; an empty prefix takes everything.
    Sub(Vec<u8>),
    /// Asks a ROUTER and takes any number of answers.
    Dealer,
}

impl Role {
    fn name(&self) -> &'static [u8] {
        match self {
            Role::Sub(_) => b"SUB",
            Role::Dealer => b"DEALER",
        }
    }

    /// Whom RFC 37 lets us talk to.
    fn fits(&self, peer: &[u8]) -> bool {
        match self {
            Role::Sub(_) => matches!(peer, b"PUB" | b"XPUB"),
            Role::Dealer => matches!(peer, b"ROUTER" | b"REP" | b"DEALER"),
        }
    }
}

/// A message was to be sent before [`Connection::is_ready`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotReady;

#[derive(Clone, Copy, Debug)]
enum Phase {
    Greeting { bytes: [u8; greeting::LENGTH], have: usize },
    Handshake,
    Ready,
    Closed(Fault),
}

/// The machine of one connection, from its first byte to its end.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    limits: Limits,
    phase: Phase,
    /// Whether the peer announced 3.1.
    modern: bool,
    head: HeadReader,
    /// The frame under way and what is missing of its body.
    body: Option<(Head, u64)>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    command: Vec<u8>,
    out: Vec<u8>,
    written: usize,
    heard: Nanos,
    next_ping: Nanos,
}

impl Connection {
    /// A connection just opened; its greeting waits in [`Connection::output`].
    pub fn new(role: Role, limits: Limits, now: Nanos) -> Self {
        Connection {
            role,
            limits,
            phase: Phase::Greeting { bytes: [0; greeting::LENGTH], have: 0 },
            modern: false,
            head: HeadReader::default(),
            body: None,
            bytes: Vec::new(),
            ends: Vec::new(),
            command: Vec::new(),
            out: greeting::ours().to_vec(),
            written: 0,
            heard: now,
            next_ping: now,
        }
    }

    /// Takes bytes of the peer and hands over each message that they complete. A fault is final: messages
    /// that were whole before it were handed over, later calls repeat it.
    pub fn receive(
        &mut self,
        now: Nanos,
        input: &[u8],
        sink: &mut dyn FnMut(Message<'_>),
    ) -> Result<(), Fault> {
        self.heard = now;
        let mut rest = input;
        while !rest.is_empty() {
            let taken = self.step(now, rest, sink).inspect_err(|fault| self.phase = Phase::Closed(*fault))?;
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// Sends a heartbeat when one is due and finds a peer that is silent for too long; when to call again.
    /// 3.0 peers answer no heartbeat: their silence after the handshake is the socket's business.
    pub fn tick(&mut self, now: Nanos) -> Result<Option<Nanos>, Fault> {
        let dead = self.heard + DEAD_AFTER;
        match self.phase {
            Phase::Closed(fault) => return Err(fault),
            Phase::Ready if !self.modern => return Ok(None),
            _ if now >= dead => {
                self.phase = Phase::Closed(Fault::Silent);
                return Err(Fault::Silent);
            }
            Phase::Ready => {}
            _ => return Ok(Some(dead)),
        }
        if now >= self.next_ping {
            // The TTL, in tenths of a second, tells the peer when to give us up.
            let ttl = (DEAD_AFTER * 10 / SECOND) as u16;
            frame::push_command(&mut self.out, b"PING", &ttl.to_be_bytes());
            self.next_ping = now + PING_EVERY;
        }
        Ok(Some(self.next_ping.min(dead)))
    }

    /// Nobody listened until now: the peer's silence proves nothing.
    pub fn excuse(&mut self, now: Nanos) {
        self.heard = now;
    }

    /// Whether the handshake is over.
    pub fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready)
    }

    /// Whether the peer announced 3.1 and so answers heartbeats.
    #[cfg(test)]
    pub fn has_heartbeats(&self) -> bool {
        self.modern
    }

    /// Bytes that its buffers hold.
    #[cfg(test)]
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.command.capacity() + self.out.capacity()
    }

    /// Queues a message of one or more frames.
    pub fn send(&mut self, frames: &[&[u8]]) -> Result<(), NotReady> {
        if !self.is_ready() {
            return Err(NotReady);
        }
        for (index, body) in frames.iter().enumerate() {
            frame::push(&mut self.out, index + 1 < frames.len(), body);
        }
        Ok(())
    }

    /// What waits to be written to the socket.
    pub fn output(&self) -> &[u8] {
        &self.out[self.written..]
    }

    /// Takes the first `count` bytes of [`Connection::output`] as written.
    pub fn wrote(&mut self, count: usize) {
        self.written = self.out.len().min(self.written + count);
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
        }
    }

    fn step(&mut self, now: Nanos, rest: &[u8], sink: &mut dyn FnMut(Message<'_>)) -> Result<usize, Fault> {
        match self.phase {
            Phase::Closed(fault) => Err(fault),
            Phase::Greeting { .. } => self.greet(rest),
            Phase::Handshake | Phase::Ready => match self.body {
                None => self.begin(now, rest, sink),
                Some((head, left)) => self.fill(now, rest, head, left, sink),
            },
        }
    }

    /// One byte of the peer's greeting; the whole of it is answered by READY.
    fn greet(&mut self, rest: &[u8]) -> Result<usize, Fault> {
        let Phase::Greeting { bytes, have } = &mut self.phase else { return Ok(0) };
        bytes[*have] = rest[0];
        *have += 1;
        greeting::check(bytes, *have)?;
        if *have == greeting::LENGTH {
            self.modern = greeting::is_3_1(bytes);
            self.phase = Phase::Handshake;
            frame::push_command(&mut self.out, b"READY", &command::ready(self.role.name()));
        }
        Ok(1)
    }

    fn begin(&mut self, now: Nanos, rest: &[u8], sink: &mut dyn FnMut(Message<'_>)) -> Result<usize, Fault> {
        let (taken, head) = self.head.take(rest)?;
        let Some(head) = head else { return Ok(taken) };
        self.admit(head)?;
        self.body = Some((head, head.length));
        if head.length == 0 {
            self.end_frame(now, head, sink)?;
        }
        Ok(taken)
    }

    /// Whether a frame may come now and is within the bounds.
    fn admit(&self, head: Head) -> Result<(), Fault> {
        let limits = &self.limits;
        if head.command {
            return if head.length > limits.command_bytes { Err(Fault::TooLong) } else { Ok(()) };
        }
        if !self.is_ready() {
            return Err(Fault::Early);
        }
        if head.length > limits.frame_bytes {
            return Err(Fault::TooLong);
        }
        let total = self.bytes.len() as u64 + head.length;
        if self.ends.len() >= limits.frames || total > limits.message_bytes {
            return Err(Fault::TooLarge);
        }
        Ok(())
    }

    fn fill(
        &mut self,
        now: Nanos,
        rest: &[u8],
        head: Head,
        left: u64,
        sink: &mut dyn FnMut(Message<'_>),
    ) -> Result<usize, Fault> {
        let count = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let target = if head.command { &mut self.command } else { &mut self.bytes };
        target.extend_from_slice(&rest[..count]);
        let left = left - count as u64;
        self.body = Some((head, left));
        if left == 0 {
            self.end_frame(now, head, sink)?;
        }
        Ok(count)
    }

    fn end_frame(&mut self, now: Nanos, head: Head, sink: &mut dyn FnMut(Message<'_>)) -> Result<(), Fault> {
        self.body = None;
        if head.command {
            let body = std::mem::take(&mut self.command);
            return self.obey(now, command::parse(&body)?);
        }
        self.ends.push(self.bytes.len());
        if !head.more {
            sink(Message::new(&mut self.bytes, &self.ends));
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES);
            self.ends.clear();
        }
        Ok(())
    }

    fn obey(&mut self, now: Nanos, command: Command<'_>) -> Result<(), Fault> {
        match (self.is_ready(), command) {
            (false, Command::Ready(peer)) if self.role.fits(peer) => {
                self.phase = Phase::Ready;
                self.next_ping = now + PING_EVERY;
                self.subscribe();
                Ok(())
            }
            (false, Command::Ready(_)) => Err(Fault::SocketType),
            (false, Command::Error) => Err(Fault::Refused),
            (true, Command::Ping(context)) => self.pong(context),
            (true, Command::Pong | Command::Other | Command::Error) => Ok(()),
            (true, Command::Ready(_)) | (false, _) => Err(Fault::Command),
        }
    }

    /// The subscription: a command since 3.1, a message that begins with 1 before.
    fn subscribe(&mut self) {
        let Role::Sub(prefix) = &self.role else { return };
        if self.modern {
            frame::push_command(&mut self.out, b"SUBSCRIBE", prefix);
        } else {
            frame::push(&mut self.out, false, &[&[1], prefix.as_slice()].concat());
        }
    }

    fn pong(&mut self, context: &[u8]) -> Result<(), Fault> {
        if self.output().len() > self.limits.output_bytes {
            return Err(Fault::Flood);
        }
        frame::push_command(&mut self.out, b"PONG", context);
        Ok(())
    }
}
