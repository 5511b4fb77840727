//! Requests to an engine's own port. Owns the socket and its time limits; the answer's bytes are read by the crate
//! `events`. Must never try again.

use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use warmpath_events::http::{Answer, Reading};

/// How long an engine may take to accept.
const CONNECT: Duration = Duration::from_secs(3);
/// Bytes of an answer: metrics of a large engine take some 200 KiB.
const ANSWER_MAX: usize = 64 << 20;
/// Bytes read at once.
const PIECE: usize = 64 << 10;

/// An engine's HTTP port.
#[derive(Clone, Copy, Debug)]
pub struct Http {
    /// Where it is.
    pub address: SocketAddr,
    /// How long an answer may take.
    pub patience: Duration,
}

impl Http {
    /// A GET; an error is a sentence without the address.
    pub fn get(&self, path: &str) -> Result<Answer, String> {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address), b"")
    }

    /// A POST of JSON, with header lines of its own.
    pub fn post(&self, path: &str, body: &[u8], lines: &[String]) -> Result<Answer, String> {
        let more: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n{more}\r\n",
            self.address,
            body.len()
        );
        self.ask(&head, body)
    }

    fn ask(&self, head: &str, body: &[u8]) -> Result<Answer, String> {
        let until = Instant::now() + self.patience;
        let mut stream =
            TcpStream::connect_timeout(&self.address, CONNECT.min(self.patience)).map_err(told)?;
        stream.set_write_timeout(Some(self.patience)).map_err(told)?;
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).map_err(told)?;
        let (mut reading, mut piece) = (Reading::new(ANSWER_MAX), vec![0; PIECE]);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("no whole answer in {} s", self.patience.as_secs_f64()));
            }
            stream.set_read_timeout(Some(left)).map_err(told)?;
            let broken = |fault| format!("its answer can't be read: {fault:?}");
            match stream.read(&mut piece) {
                Ok(0) => return reading.ended().map_err(broken),
                Ok(got) => {
                    if let Some(answer) = reading.receive(&piece[..got]).map_err(broken)? {
                        return Ok(answer);
                    }
                }
                Err(fault) if waits(&fault) => {}
                Err(fault) => return Err(told(fault)),
            }
        }
    }
}

fn told(fault: io::Error) -> String {
    fault.to_string()
}

/// Whether a socket had nothing for now.
pub fn waits(fault: &io::Error) -> bool {
    matches!(fault.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// An answer's JSON; null where it is none.
pub fn json(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

/// What an engine said in place of doing what it was asked: its own sentence, as far as one is found.
pub fn refusal(answer: &Answer) -> String {
    let json = json(answer);
    let said = [&json["error"]["message"], &json["message"], &json["detail"], &json["error"]];
    let said = said.into_iter().find_map(Value::as_str).unwrap_or("without a reason");
    format!("answered {}: {}", answer.status, said.chars().take(200).collect::<String>())
}
