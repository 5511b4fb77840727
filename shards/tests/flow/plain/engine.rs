//! An engine in the simulated network. It does what the request's `x-do` asks, and writes down what it
//! executed.

use crate::sim::Shared;
use crate::sim::engine::{Serves, Step as AnyStep};
use crate::sim::http::{self, Head, Message};
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use warmpath_ring::sim::World;

/// What engines wrote down.
#[derive(Default, Debug)]
pub struct Ledger {
    /// Executions begun, by request id.
    pub executions: HashMap<String, u32>,
    /// Bodies that were not what the client had sent.
    pub wrong_bodies: u32,
    /// Connections accepted.
    pub connections: u32,
}

/// The address of an engine in a scene.
pub fn engine_at(index: usize) -> SocketAddr {
    ([10, 1, 0, index as u8 + 1], 8000).into()
}

/// An engine of plain requests.
#[derive(Default)]
pub struct Plain {
    pub ledger: Shared<Ledger>,
}

type Step = AnyStep<Infallible>;

impl Serves for Plain {
    type Note = Infallible;

    fn serve(&mut self, _: usize, message: &Message, _: &mut World<'_>) -> Vec<Step> {
        self.check(message);
        Plain::execute(&message.head)
    }

    fn serve_early(&mut self, head: &Head) -> Option<Vec<Step>> {
        let early = head.get("x-do").is_some_and(|todo| todo == "early");
        early.then(|| vec![Step::Send(answer(413, head, b"early", true)), Step::Close])
    }

    fn accepted(&mut self) {
        self.ledger.borrow_mut().connections += 1;
    }

    fn executions(&self) -> u32 {
        self.ledger.borrow().executions.values().sum()
    }
}

impl Plain {
    fn check(&mut self, message: &Message) {
        let head = &message.head;
        let id = head.get("x-request-id").expect("every request has an id").to_owned();
        let size: usize = head.get("x-size").map_or(0, |v| v.parse().expect("a size"));
        let mut ledger = self.ledger.borrow_mut();
        *ledger.executions.entry(id.clone()).or_default() += 1;
        if head.get("x-free").is_none() && message.body != http::pattern(&id, size) {
            ledger.wrong_bodies += 1;
        }
        for hop in ["connection", "keep-alive", "te", "expect", "x-hop"] {
            assert!(head.get(hop).is_none(), "{hop} was forwarded");
        }
        assert_eq!(head.get("x-forwarded-proto"), Some("http"));
        assert!(head.get("x-forwarded-for").is_some_and(|v| v.starts_with("10.9.")), "{head:?}");
    }

    fn execute(head: &Head) -> Vec<Step> {
        let todo = head.get("x-do").unwrap_or("length 5").to_owned();
        let id = head.get("x-request-id").unwrap_or_default();
        let words: Vec<&str> = todo.split(' ').collect();
        let number = |place: usize| words.get(place).and_then(|w| w.parse::<usize>().ok()).unwrap_or(0);
        let body = http::pattern(id, number(1));
        match words[0] {
            "length" => vec![Step::Send(answer(200, head, &body, false)), Step::Idle],
            "chunked" => {
                let mut steps = vec![Step::Send(answer_head(head, "transfer-encoding: chunked\r\n"))];
                let framed = http::chunked(&body, number(2));
                steps.extend(framed.chunks(number(3).max(1)).map(|piece| Step::Send(piece.to_vec())));
                steps.push(Step::Idle);
                steps
            }
            "status" => {
                let status = number(1) as u16;
                vec![Step::Send(answer(status, head, &body, false)), Step::Idle]
            }
            "until-close" => {
                vec![Step::Send(answer_head(head, "")), Step::Send(body), Step::Close]
            }
            "interim" => {
                let interim = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n".to_vec();
                vec![Step::Send(interim), Step::Send(answer(200, head, &body, false)), Step::Idle]
            }
            "closing" => vec![Step::Send(answer(200, head, &body, true)), Step::Close],
            "die-before" => vec![Step::Close],
            "reset-before" => vec![Step::Reset],
            "half-head" => vec![Step::Send(b"HTTP/1.1 200 OK\r\nconte".to_vec()), Step::Close],
            "garbage" => vec![Step::Send(b"SSH-2.0-OpenSSH\r\n\r\n".to_vec()), Step::Close],
            "bad-framing" => {
                let head =
                    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
                vec![Step::Send(head), Step::Close]
            }
            "die-mid" => {
                let mut whole = answer(200, head, &body, false);
                whole.truncate(whole.len() - body.len().min(3));
                vec![Step::Send(whole), Step::Close]
            }
            "die-stream" => {
                let events = b"data: {}\n\n";
                let mut piece = format!("{:x}\r\n", events.len()).into_bytes();
                piece.extend_from_slice(events);
                piece.extend_from_slice(b"\r\n");
                let head =
                    answer_head(head, "content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n");
                vec![Step::Send(head), Step::Send(piece), Step::Close]
            }
            "hang" | "early" => vec![],
            other => panic!("x-do: {other}"),
        }
    }
}

fn answer(status: u16, head: &Head, body: &[u8], close: bool) -> Vec<u8> {
    let id = head.get("x-request-id").unwrap_or_default();
    let close = if close { "connection: close\r\n" } else { "" };
    let mut out =
        format!("HTTP/1.1 {status} X\r\nx-request-id: {id}\r\n{close}content-length: {}\r\n\r\n", body.len())
            .into_bytes();
    out.extend_from_slice(body);
    out
}

fn answer_head(head: &Head, lines: &str) -> Vec<u8> {
    let id = head.get("x-request-id").unwrap_or_default();
    format!("HTTP/1.1 200 OK\r\nx-request-id: {id}\r\n{lines}\r\n").into_bytes()
}
