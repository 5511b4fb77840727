//! One socket of an engine that speaks ZMTP: its events, or the answers of its replay. Owns the connection and its
//! time limits; the protocol is the crate `events`'. Must never decode a payload.

use super::ask::waits;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use warmpath_core::Nanos;
use warmpath_events::framing::{self, Reply};
use warmpath_events::zmtp::{Connection, Limits, Message, Role};

/// One batch as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Its sequence.
    pub seq: u64,
    /// MessagePack.
    pub bytes: Vec<u8>,
}

/// How long one read waits.
const TURN: Duration = Duration::from_millis(20);
/// Bytes read at once.
const PIECE: usize = 64 << 10;
/// Replayed batches that are read: enough to find one, without holding the engine up for long.
const REPLAYED_MAX: usize = 20_000;

struct Link {
    stream: TcpStream,
    connection: Connection,
    begun: Instant,
    piece: Vec<u8>,
}

impl Link {
    fn new(stream: TcpStream, role: Role) -> Result<Link, String> {
        let told = |fault: std::io::Error| fault.to_string();
        stream.set_read_timeout(Some(TURN)).map_err(told)?;
        stream.set_write_timeout(Some(Duration::from_secs(3))).map_err(told)?;
        let connection = Connection::new(role, Limits::default(), 0);
        Ok(Link { stream, connection, begun: Instant::now(), piece: vec![0; PIECE] })
    }

    /// Writes what waits, reads what comes within a turn.
    fn turn(&mut self, sink: &mut dyn FnMut(Message<'_>)) -> Result<(), String> {
        let now = self.begun.elapsed().as_nanos() as Nanos;
        let output = self.connection.output();
        self.stream.write_all(output).map_err(|fault| fault.to_string())?;
        let written = output.len();
        self.connection.wrote(written);
        match self.stream.read(&mut self.piece) {
            Ok(0) => Err("it closed the connection".into()),
            Ok(got) => self.connection.receive(now, &self.piece[..got], sink).map_err(broken),
            Err(fault) if waits(&fault) => self.connection.tick(now).map(drop).map_err(broken),
            Err(fault) => Err(fault.to_string()),
        }
    }

    fn shake_hands(&mut self, until: Instant) -> Result<(), String> {
        while !self.connection.is_ready() {
            if Instant::now() >= until {
                return Err("it accepts, but says nothing that ZMTP begins with".into());
            }
            self.turn(&mut |_| ())?;
        }
        // What was queued by the handshake, so that the engine knows of the subscription.
        self.turn(&mut |_| ())
    }
}

fn broken(fault: warmpath_events::zmtp::Fault) -> String {
    format!("it breaks ZMTP ({fault:?})")
}

/// A rank's publisher.
pub struct Publisher {
    link: Link,
    heard: Vec<Payload>,
    misframed: bool,
}

impl Publisher {
    /// Connects to where the engine publishes.
    pub fn dial(address: SocketAddr, patience: Duration) -> Result<Publisher, String> {
        let stream = TcpStream::connect_timeout(&address, patience).map_err(|fault| fault.to_string())?;
        Publisher::of(stream, patience)
    }

    /// Waits until the engine at `peer` connects to `port`.
    pub fn accept(port: u16, peer: IpAddr, patience: Duration) -> Result<Publisher, String> {
        let until = Instant::now() + patience;
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).map_err(|fault| {
            format!("port {port} can't be listened on ({fault}); a running gateway has it: stop that first")
        })?;
        listener.set_nonblocking(true).map_err(|fault| fault.to_string())?;
        while Instant::now() < until {
            match listener.accept() {
                Ok((stream, from)) if from.ip() == peer => {
                    stream.set_nonblocking(false).map_err(|fault| fault.to_string())?;
                    return Publisher::of(stream, patience);
                }
                Ok(_) => {}
                Err(_) => std::thread::sleep(TURN),
            }
        }
        Err(format!("nobody connected from {peer} to port {port}"))
    }

    fn of(stream: TcpStream, patience: Duration) -> Result<Publisher, String> {
        let mut link = Link::new(stream, Role::Sub(Vec::new()))?;
        link.shake_hands(Instant::now() + patience)?;
        Ok(Publisher { link, heard: Vec::new(), misframed: false })
    }

    /// What came since it was last asked, after a turn of waiting.
    pub fn hear(&mut self) -> Result<Vec<Payload>, String> {
        let Publisher { link, heard, misframed } = self;
        link.turn(&mut |message| match framing::live(&message) {
            Ok(live) => heard.push(Payload { seq: live.seq, bytes: live.payload.to_vec() }),
            Err(_) => *misframed = true,
        })?;
        if self.misframed {
            return Err("its messages are no topic, sequence and payload".into());
        }
        Ok(std::mem::take(&mut self.heard))
    }
}

/// The batches that an engine still has from `from` on.
pub fn replay(address: SocketAddr, from: u64, patience: Duration) -> Result<Vec<Payload>, String> {
    let until = Instant::now() + patience;
    let stream = TcpStream::connect_timeout(&address, patience).map_err(|fault| fault.to_string())?;
    let mut link = Link::new(stream, Role::Dealer)?;
    link.shake_hands(until)?;
    link.connection
        .send(&[b"", &framing::ask(from)])
        .map_err(|_| "it was not ready for a question".to_owned())?;
    let (mut batches, mut ended, mut misframed) = (Vec::new(), false, false);
    while !ended && batches.len() < REPLAYED_MAX {
        if Instant::now() >= until {
            return Err(format!("no end of its answers in {} s", patience.as_secs_f64()));
        }
        link.turn(&mut |message| match framing::reply(&message) {
            Ok(Reply::Batch(live)) => batches.push(Payload { seq: live.seq, bytes: live.payload.to_vec() }),
            Ok(Reply::End) => ended = true,
            Err(_) => misframed = true,
        })?;
        if misframed {
            return Err("its answers are framed otherwise than those of a replay socket".into());
        }
    }
    Ok(batches)
}
