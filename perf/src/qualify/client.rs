//! A client that sends cases and compares every byte of the answers. Owns one connection; must never count an
//! answer before it was compared.

use super::case::Case;
use super::engine::{Connection, PATIENCE};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// What was compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compared {
    /// Requests answered.
    pub requests: u64,
    /// Bytes of request and answer bodies.
    pub bytes: u64,
    /// The longest that one request took.
    pub slowest: Duration,
}

/// Sends the cases of `seeds` on one kept connection while `goes_on`. The error names the case.
pub fn run(
    target: SocketAddr,
    seeds: impl Iterator<Item = u64>,
    goes_on: impl Fn() -> bool,
) -> Result<Compared, String> {
    let mut compared = Compared::default();
    let mut connection = connect(target)?;
    for seed in seeds.take_while(|_| goes_on()) {
        let (case, begun) = (Case::of(seed), Instant::now());
        exchange(&mut connection, target, &case).map_err(|told| format!("case {seed}: {told}"))?;
        compared.slowest = compared.slowest.max(begun.elapsed());
        compared.requests += 1;
        compared.bytes += (case.up.length + case.down.length) as u64;
    }
    Ok(compared)
}

fn connect(target: SocketAddr) -> Result<Connection, String> {
    let stream = TcpStream::connect(target).map_err(|e| format!("the gateway can't be reached: {e}"))?;
    let set = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(PATIENCE)));
    set.map_err(|e| e.to_string())?;
    Ok(Connection::new(stream))
}

fn exchange(connection: &mut Connection, target: SocketAddr, case: &Case) -> Result<(), String> {
    let head = format!(
        "POST /qualify/{} HTTP/1.1\r\nHost: {target}\r\nContent-Type: application/octet-stream\r\n{}\r\n",
        case.seed,
        case.up.header()
    );
    let send =
        |bytes, connection: &mut Connection| connection.send(bytes).map_err(|e| format!("sending: {e}"));
    send(head.into_bytes(), connection)?;
    for piece in case.up.framed() {
        send(piece, connection)?;
    }
    let head = connection.head().map_err(|e| format!("the answer's head: {e}"))?;
    let head = head.ok_or("the gateway closed without an answer")?;
    let body = connection.body(&head).map_err(|e| format!("the answer's body: {e}"))?;
    if !head.starts_with("http/1.1 200 ") {
        let line = head.lines().next().unwrap_or_default();
        return Err(format!("answered {line}: {}", String::from_utf8_lossy(&body[..body.len().min(200)])));
    }
    case.down.compare(&body).map_err(|told| format!("the client got a wrong answer: {told}"))
}
