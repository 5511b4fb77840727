//! ZeroMQ endpoints of the form `tcp://HOST:PORT`, and the listeners of all ranks: rank r has the port r
//! further. Must never listen on more than was asked: where the engine says `*`, the simulated one takes
//! the address it serves HTTP on.

use std::fmt;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::str::FromStr;

use crate::Error;
use crate::engine::config::Config;

/// Times that a run of free ports is looked for.
const ATTEMPTS: usize = 64;

/// A host and the port of rank 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// As written, `*` for all addresses.
    pub host: String,
    /// The port; 0 takes free ones.
    pub port: u16,
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("\"{text}\" is no endpoint; write tcp://*:5557 or tcp://127.0.0.1:5557");
        let (host, port) =
            text.strip_prefix("tcp://").and_then(|rest| rest.rsplit_once(':')).ok_or_else(form)?;
        match port.parse() {
            Ok(port) if !host.is_empty() => Ok(Endpoint { host: host.into(), port }),
            _ => Err(form()),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tcp://{}:{}", self.host, self.port)
    }
}

/// A rank's endpoints as an engine tells them, with their real ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Live events.
    pub live: Endpoint,
    /// Replay.
    pub replay: Option<Endpoint>,
}

/// One rank's side of the live events.
#[derive(Debug)]
pub enum Live {
    /// The engine binds.
    Bound(TcpListener),
    /// The engine connects to this address, again and again.
    Dials(String),
}

/// One rank's open sockets.
#[derive(Debug)]
pub struct Door {
    /// Live events.
    pub live: Live,
    /// Replay.
    pub replay: Option<TcpListener>,
}

/// The open sockets of all ranks, empty if nothing is published.
#[derive(Debug, Default)]
pub struct Doors {
    /// By rank.
    pub ranks: Vec<Door>,
    /// What is told of them, by rank.
    pub sources: Vec<Source>,
}

impl Doors {
    /// Opens what the configuration asks for.
    pub fn open(config: &Config) -> Result<Doors, Error> {
        let Some(live) = &config.events.live else { return Ok(Doors::default()) };
        let lives: Vec<Live> = match config.kind.binds(&live.host) {
            true => run_of_listeners(config, live, "--kv-events")?.into_iter().map(Live::Bound).collect(),
            false => (0..config.ranks).map(|rank| Live::Dials(dialed(live, rank))).collect(),
        };
        let replays: Vec<Option<TcpListener>> = match &config.events.replay {
            Some(replay) => run_of_listeners(config, replay, "--kv-replay")?.into_iter().map(Some).collect(),
            None => (0..config.ranks).map(|_| None).collect(),
        };
        let mut doors = Doors::default();
        for (rank, (side, replay)) in lives.into_iter().zip(replays).enumerate() {
            let port = match &side {
                Live::Bound(listener) => port_of(listener),
                Live::Dials(_) => live.port.saturating_add(rank as u16),
            };
            let told = |of: &Endpoint, port| Endpoint { host: of.host.clone(), port };
            doors.sources.push(Source {
                live: told(live, port),
                replay: replay
                    .as_ref()
                    .zip(config.events.replay.as_ref())
                    .map(|(l, of)| told(of, port_of(l))),
            });
            doors.ranks.push(Door { live: side, replay });
        }
        Ok(doors)
    }
}

fn dialed(live: &Endpoint, rank: usize) -> String {
    format!("{}:{}", live.host, live.port.saturating_add(rank as u16))
}

fn port_of(listener: &TcpListener) -> u16 {
    listener.local_addr().map_or(0, |addr: SocketAddr| addr.port())
}

/// A listener for each rank on ports that follow each other.
fn run_of_listeners(config: &Config, endpoint: &Endpoint, flag: &str) -> Result<Vec<TcpListener>, Error> {
    let host = match config.kind.binds(&endpoint.host) {
        true => config.host.as_str(),
        false => endpoint.host.as_str(),
    };
    let run = || {
        let first = bind(host, endpoint.port)?;
        let base = port_of(&first);
        let rest = (1..config.ranks).map(|rank| bind(host, base.saturating_add(rank as u16)));
        std::iter::once(Ok(first)).chain(rest).collect::<Result<Vec<_>, std::io::Error>>()
    };
    let attempts = if endpoint.port == 0 { ATTEMPTS } else { 1 };
    let mut outcome = run();
    for _ in 1..attempts {
        if outcome.is_ok() {
            break;
        }
        outcome = run();
    }
    outcome.map_err(|e| {
        Error::new(format!(
            "{flag} {endpoint} cannot be bound for {} rank(s) on {host} ({e}); choose a port that is free \
             with as many after it",
            config.ranks
        ))
    })
}

fn bind(host: &str, port: u16) -> std::io::Result<TcpListener> {
    let addr = (host, port).to_socket_addrs()?.next();
    let listener = TcpListener::bind(addr.ok_or(std::io::ErrorKind::AddrNotAvailable)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_and_written() {
        let endpoint: Endpoint = "tcp://*:5557".parse().unwrap();
        assert_eq!((endpoint.host.as_str(), endpoint.port), ("*", 5557));
        assert_eq!(endpoint.to_string(), "tcp://*:5557");
        for bad in ["ipc:///tmp/x", "tcp://*", "tcp://*:x", "tcp://:1", "*:1"] {
            assert!(bad.parse::<Endpoint>().unwrap_err().contains("tcp://*:5557"), "{bad}");
        }
    }

    #[test]
    fn ranks_have_ports_that_follow_each_other() {
        let free = Some(Endpoint { host: "*".into(), port: 0 });
        let mut config = Config { ranks: 3, ..Config::default() };
        config.events.live = free.clone();
        config.events.replay = free;
        let doors = Doors::open(&config).unwrap();
        let ports: Vec<u16> = doors.sources.iter().map(|source| source.live.port).collect();
        assert_eq!(ports, [ports[0], ports[0] + 1, ports[0] + 2]);
        assert!(doors.ranks.iter().all(|door| door.replay.is_some() && matches!(door.live, Live::Bound(_))));
        config.events.live = Some("tcp://127.0.0.1:9".parse().unwrap());
        assert!(
            matches!(&Doors::open(&config).unwrap().ranks[1].live, Live::Dials(to) if to == "127.0.0.1:10")
        );
    }
}
