//! A request of one endpoint: what it asks of the engine goes beside it as header lines.

use crate::sim::client::{Ask as Asks, Came};
use crate::sim::http::{self, Message};

/// A request.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    pub id: String,
    /// What the engine shall do.
    pub todo: String,
    /// Bytes of body.
    pub size: usize,
    /// The body goes out in chunks.
    pub chunked: bool,
    pub expect: bool,
    /// HTTP/1.0
    pub old: bool,
    /// Bytes of answer after which the client leaves.
    pub leave_after: Option<usize>,
    /// Half of the body comes 20 seconds late.
    pub stalls: bool,
    /// FIN right after the request.
    pub half_close: bool,
    /// Header lines, each with its end.
    pub lines: String,
    /// A body of its own instead of the pattern.
    pub json: Option<String>,
}

impl Asks for Ask {
    fn judge(&self, message: &Message) -> Came {
        let status: u16 = message.head.start.parse().expect("a status");
        let text = String::from_utf8_lossy(&message.body);
        let own = serde_json::from_str::<serde_json::Value>(&text).ok();
        if let Some(code) = own.as_ref().and_then(|v| v["error"]["code"].as_str()) {
            return Came::Refusal(status, code.to_owned());
        }
        if self.todo.starts_with("die-stream") {
            assert!(text.contains("data: {\"error\":"), "{text}");
            return Came::ErrorEvent;
        }
        if status == 413 {
            assert_eq!(text, "early");
            return Came::Answer(413);
        }
        let size = self.todo.split(' ').nth(1).and_then(|w| w.parse().ok()).unwrap_or(0);
        assert!(message.body == http::pattern(&self.id, size), "another body than the engine's for {self:?}");
        assert_eq!(message.head.get("x-request-id"), Some(self.id.as_str()), "another request's answer");
        Came::Answer(status)
    }

    fn call(&mut self, name: String) {
        self.id = name;
    }

    fn leaves_after(&self) -> Option<usize> {
        self.leave_after
    }

    fn leaves_within(&self) -> Option<u64> {
        (self.leave_after == Some(0)).then_some(4_000_000)
    }

    fn stalls(&self) -> bool {
        self.stalls
    }

    fn half_closes(&self) -> bool {
        self.half_close
    }

    fn expects(&self) -> bool {
        self.expect
    }

    fn bytes(&self) -> Vec<u8> {
        let version = if self.old { "1.0" } else { "1.1" };
        let mut out = format!(
            "POST /v1/completions HTTP/{version}\r\nHost: gw\r\nX-Request-Id: {}\r\nX-Do: {}\r\nX-Size: {}\r\n",
            self.id, self.todo, self.size
        );
        out += "X-Forwarded-For: 6.6.6.6\r\n";
        if !self.old {
            out += "X-Hop: 1\r\nConnection: X-Hop, keep-alive\r\n";
        }
        out += &self.lines;
        if let Some(json) = &self.json {
            return (out + &format!("X-Free: 1\r\nContent-Length: {}\r\n\r\n{json}", json.len()))
                .into_bytes();
        }
        if self.expect {
            out += "Expect: 100-continue\r\n";
        }
        let body = http::pattern(&self.id, self.size);
        let mut out = if self.chunked {
            (out + "Transfer-Encoding: chunked\r\n\r\n").into_bytes()
        } else {
            (out + &format!("Content-Length: {}\r\n\r\n", self.size)).into_bytes()
        };
        out.extend(if self.chunked { http::chunked(&body, 1 + self.size / 3) } else { body });
        out
    }
}
