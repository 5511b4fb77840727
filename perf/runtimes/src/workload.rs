//! The exchanges that are measured, as the exact bytes of both directions.
//!
//! Owns sizes, pace and counts. Must never depend on the relay: peers compare byte for byte, they don't parse.

use std::ops::Range;
use warmpath_ring::clock;

const GAP_NS: u64 = 4_000_000;
const CHUNKS: usize = 200;
const CHUNK_BYTES: usize = 120;

/// One kind of exchange.
pub struct Workload {
    /// As in tables.
    pub name: &'static str,
    /// What is counted: requests or chunks.
    pub unit: &'static str,
    /// Clients, each in a closed loop.
    pub clients: usize,
    /// What each client sends.
    pub request: &'static [u8],
    /// What each gets.
    pub response: &'static [u8],
    /// How the upstream cuts the response; each piece counts as one unit.
    pub pieces: Vec<Range<usize>>,
    /// Nanoseconds from one piece to the next.
    pub gap_ns: u64,
}

/// All of them.
pub fn all() -> [Workload; 3] {
    [plain("64 B / 64 B", 64, 64), plain("8 KiB / 2 KiB", 8192, 2048), events()]
}

impl Workload {
    /// When the piece after one sent at its time `due` is due. A late one moves those after it.
    pub fn next_due(&self, due: u64) -> u64 {
        (due + self.gap_ns).max(clock::now())
    }
}

fn leak(bytes: Vec<u8>) -> &'static [u8] {
    Box::leak(bytes.into_boxed_slice())
}

/// Bytes that don't repeat within a socket buffer, so that lost or doubled ones are seen.
fn body(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| b'!' + ((at / 89 + at) % 89) as u8).collect()
}

fn request(bytes: usize) -> &'static [u8] {
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: upstream.test\r\nUser-Agent: study\r\nAccept: */*\r\n\
         Content-Type: application/json\r\nContent-Length: {bytes}\r\n\r\n"
    );
    leak([head.as_bytes(), &body(bytes)].concat())
}

fn plain(name: &'static str, sent: usize, returned: usize) -> Workload {
    let head = format!(
        "HTTP/1.1 200 OK\r\nServer: study\r\nContent-Type: application/json\r\nContent-Length: {returned}\r\n\r\n"
    );
    let response = leak([head.as_bytes(), &body(returned)].concat());
    let pieces = std::iter::once(0..response.len()).collect();
    Workload { name, unit: "request", clients: 50, request: request(sent), response, pieces, gap_ns: 0 }
}

/// A stream of server-sent events: the head comes with the first, the last chunk with the last.
fn events() -> Workload {
    let mut response =
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    let mut pieces = Vec::new();
    let mut start = 0;
    for chunk in 1..=CHUNKS {
        let text = String::from_utf8_lossy(&body(CHUNK_BYTES - 8)).into_owned();
        response.extend_from_slice(format!("{CHUNK_BYTES:x}\r\ndata: {text}\n\n\r\n").as_bytes());
        if chunk == CHUNKS {
            response.extend_from_slice(b"0\r\n\r\n");
        }
        pieces.push(start..response.len());
        start = response.len();
    }
    let (response, gap_ns) = (leak(response), GAP_NS);
    let (name, unit) = ("SSE, 120 B each 4 ms", "chunk");
    Workload { name, unit, clients: 100, request: request(64), response, pieces, gap_ns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Fed, Scanner, Side};

    #[test]
    fn each_message_is_one_whole_http_message_and_the_pieces_are_all_of_it() {
        for workload in all() {
            for (side, bytes) in [(Side::Request, workload.request), (Side::Response, workload.response)] {
                let fed = Scanner::new(side).feed(bytes).unwrap();
                assert_eq!(fed, Fed::Forward { kept: Vec::new(), done: true }, "{}", workload.name);
            }
            let joined = workload.pieces.iter().flat_map(|piece| &workload.response[piece.clone()]);
            assert!(joined.eq(workload.response));
        }
    }
}
