//! The connections of a shard by socket: clients and upstreams. Owns the table and the two records; must
//! never decide anything.
//!
//! A handler takes a record out of the table, works on it beside the rest of the shard, and puts it back;
//! a record marked closed is dropped instead.

use crate::exchange::Exchange;
use crate::leg::SideLeg;
use crate::outbox::Outbox;
use crate::pool::PoolId;
use crate::transport::Transport;
use crate::valve::Seat;
use std::net::SocketAddr;
use warmpath_core::Nanos;
use warmpath_parser::http1::RequestParser;
use warmpath_ring::Sock;

/// A connection from a client.
pub struct Client {
    /// Its socket.
    pub sock: Sock,
    /// How its bytes are wrapped.
    pub transport: Transport,
    /// Which VIP it came to: an index into the shard's VIP slots.
    pub vip: usize,
    /// The client's address.
    pub peer: SocketAddr,
    /// Where its present request stands.
    pub stage: Stage,
    /// The parser of the present request head.
    pub parser: RequestParser,
    /// Received bytes from the start of the present request, or of the next one while this one is served.
    pub inbuf: Vec<u8>,
    /// What is on its way to the client.
    pub outbox: Outbox,
    /// What happens if nothing else does until then, by `stage`.
    pub deadline: Deadline,
    /// The request being served, from its first byte on.
    pub exchange: Option<Box<Exchange>>,
    /// Whether receiving is armed.
    pub receiving: bool,
    /// The client sent FIN.
    pub ended: bool,
    /// No further request on this connection.
    pub close_after: bool,
    /// Bytes thrown away since the last answer.
    pub lingered: usize,
    /// Its seat, where those served at once are bounded and it has one.
    pub seat: Option<Seat>,
}

/// Where a client connection stands. The order is that of a request's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Idle, or reading a head.
    Head,
    /// Reading is paused until memory for the body is free.
    Memory,
    /// Reading a body.
    Body,
    /// Waiting for its turn at its service's gate.
    Queued,
    /// Waiting for a token core to make the prompt's keys.
    Tokenizing,
    /// Waiting for encoders, or for the prefill leg of a pair.
    Prefilling,
    /// Waiting for a connection to the endpoint.
    Dialing,
    /// The request is on its way or sent; no final head yet.
    Waiting,
    /// The answer is being relayed.
    Relaying,
    /// The gateway's own answer is being sent.
    Answering,
    /// Answered for the last time; what the client still sends is thrown away so that it can read.
    Lingering,
    /// Closed; the record is dropped when it is put back.
    Closed,
}

/// A deadline and the wheel entry that watches it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deadline {
    /// When it is due.
    pub at: Nanos,
    /// The earliest time at which the wheel will look.
    pub armed: Nanos,
}

/// A connection to an endpoint.
pub struct Upstream {
    /// Its socket.
    pub sock: Sock,
    /// How its bytes are wrapped.
    pub transport: Transport,
    /// The pool of its endpoint.
    pub pool: PoolId,
    /// What it is doing.
    pub state: UpstreamState,
    /// The client whose request it carries.
    pub client: Option<Sock>,
    /// The leg beside an answer's that it carries; else it carries an answer.
    pub leg: Option<Box<SideLeg>>,
    /// The begin of an answer's head, when it came in pieces.
    pub inbuf: Vec<u8>,
    /// What is on its way to the endpoint.
    pub outbox: Outbox,
    /// Bytes given to it to send.
    pub sent: u64,
    /// How many of them were those of earlier requests.
    pub sent_before: u64,
    /// When an idle one is retired, and when a leg beside it must be further.
    pub deadline: Deadline,
    /// When it became idle; of one that is being established, when that began.
    pub idle_since: Nanos,
}

/// What an upstream connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamState {
    /// Being established.
    Connecting,
    /// Carrying a request.
    Busy,
    /// In its pool.
    Idle,
    /// Its answer was whole before the last of the request was told to be sent; pooled once it is.
    Finishing,
    /// Ended while a send still holds the request's bytes; judged when they come back.
    Dying,
    /// Closed; dropped when it is put back.
    Closed,
}

/// The record of a socket.
#[derive(Default)]
pub enum Conn {
    /// Nobody, or taken out by a handler.
    #[default]
    Vacant,
    /// A client.
    Client(Box<Client>),
    /// An upstream.
    Upstream(Box<Upstream>),
}

/// All connections, indexed by the ring's slots.
#[derive(Default)]
pub struct Conns {
    slots: Vec<(u32, Conn)>,
    /// Clients in the table or taken out.
    pub clients: u64,
    /// Upstreams in the table or taken out.
    pub upstreams: u64,
}

impl Conns {
    /// Takes a record out; vacant if the socket is unknown or has another generation.
    pub fn take(&mut self, sock: Sock) -> Conn {
        match self.slots.get_mut(sock.slot as usize) {
            Some((generation, conn)) if *generation == sock.generation => std::mem::take(conn),
            _ => Conn::Vacant,
        }
    }

    /// Takes out a client.
    pub fn take_client(&mut self, sock: Sock) -> Option<Box<Client>> {
        match self.take(sock) {
            Conn::Client(client) => Some(client),
            other => {
                self.restore(sock, other);
                None
            }
        }
    }

    /// Takes out an upstream.
    pub fn take_upstream(&mut self, sock: Sock) -> Option<Box<Upstream>> {
        match self.take(sock) {
            Conn::Upstream(upstream) => Some(upstream),
            other => {
                self.restore(sock, other);
                None
            }
        }
    }

    /// Adds a new client.
    pub fn add_client(&mut self, client: Box<Client>) {
        self.clients += 1;
        self.put_client(client);
    }

    /// Adds a new upstream.
    pub fn add_upstream(&mut self, upstream: Box<Upstream>) {
        self.upstreams += 1;
        self.put_upstream(upstream);
    }

    /// Puts a client back, unless it is closed.
    pub fn put_client(&mut self, client: Box<Client>) {
        if client.stage == Stage::Closed {
            self.clients -= 1;
        } else {
            self.set(client.sock, Conn::Client(client));
        }
    }

    /// Puts an upstream back, unless it is closed.
    pub fn put_upstream(&mut self, upstream: Box<Upstream>) {
        if upstream.state == UpstreamState::Closed {
            self.upstreams -= 1;
        } else {
            self.set(upstream.sock, Conn::Upstream(upstream));
        }
    }

    /// Whether a socket is a client's.
    pub fn is_client(&self, sock: Sock) -> bool {
        let slot = self.slots.get(sock.slot as usize);
        slot.is_some_and(|(generation, conn)| {
            *generation == sock.generation && matches!(conn, Conn::Client(_))
        })
    }

    /// The sockets of all clients, or of all upstreams.
    pub fn socks(&self, wanted: impl Fn(&Conn) -> bool) -> Vec<Sock> {
        let named = |(slot, (generation, conn)): (usize, &(u32, Conn))| {
            wanted(conn).then_some(Sock { slot: slot as u32, generation: *generation })
        };
        self.slots.iter().enumerate().filter_map(named).collect()
    }

    fn restore(&mut self, sock: Sock, conn: Conn) {
        if !matches!(conn, Conn::Vacant) {
            self.set(sock, conn);
        }
    }

    fn set(&mut self, sock: Sock, conn: Conn) {
        let slot = sock.slot as usize;
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, Default::default);
        }
        self.slots[slot] = (sock.generation, conn);
    }
}
