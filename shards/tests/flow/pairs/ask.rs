//! A request of two endpoints: what it wishes of each goes within its body.

use crate::pairs::body::Wish;
use crate::sim::client::{Ask as Asks, Came};
use crate::sim::http::{self, Message};

/// A request.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    pub wish: Wish,
    /// The body goes out in chunks.
    pub chunked: bool,
    /// Header lines, each with its end.
    pub lines: String,
    /// It sends an id of its own.
    pub own_id: bool,
    /// When the client leaves, after so many bytes of the answer, or within nanoseconds of the request.
    pub leave_after: Option<usize>,
    pub leave_within: Option<u64>,
}

impl Asks for Ask {
    fn judge(&self, message: &Message) -> Came {
        let status: u16 = message.head.start.parse().expect("a status");
        let text = String::from_utf8_lossy(&message.body);
        let own = serde_json::from_str::<serde_json::Value>(&text).ok();
        if let Some(code) = own.as_ref().and_then(|v| v["error"]["code"].as_str()) {
            return Came::Refusal(status, code.to_owned());
        }
        if status != 200 {
            // From a room that fell apart it may be the other leg's word.
            assert!(text == "refused" || text == "no meeting", "{text}");
            return Came::Answer(status);
        }
        if self.wish.prefill == "final" && text.contains("finish_reason") {
            assert_eq!(text.starts_with("data: "), self.wish.stream, "{text}");
            assert_eq!(text.ends_with("data: [DONE]\n\n"), self.wish.stream, "{text}");
            return Came::Early;
        }
        if !self.wish.stream {
            assert!(
                message.body == http::pattern(&self.wish.tag, self.wish.out),
                "another answer for {self:?}: {text}"
            );
            return Came::Answer(200);
        }
        if text.contains("data: {\"error\":") {
            return Came::ErrorEvent;
        }
        let sent: String = text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
        let all = String::from_utf8(http::pattern(&self.wish.tag, self.wish.out)).expect("ASCII") + "[DONE]";
        assert!(sent == all, "another stream for {self:?}: {text}");
        Came::Answer(200)
    }

    fn call(&mut self, name: String) {
        self.wish.tag = name;
    }

    fn leaves_after(&self) -> Option<usize> {
        self.leave_after
    }

    fn leaves_within(&self) -> Option<u64> {
        self.leave_within
    }

    fn bytes(&self) -> Vec<u8> {
        let body = serde_json::to_vec(&self.wish.body()).expect("JSON");
        let mut out = format!("POST {} HTTP/1.1\r\nHost: gw\r\n", self.wish.path());
        out += "Content-Type: application/json\r\n";
        out += &self.lines;
        out += "X-Hop: 1\r\nConnection: X-Hop, keep-alive\r\n";
        if self.own_id {
            out += &format!("X-Request-Id: client-{}\r\n", self.wish.tag);
        }
        let mut out = if self.chunked {
            (out + "Transfer-Encoding: chunked\r\n\r\n").into_bytes()
        } else {
            (out + &format!("Content-Length: {}\r\n\r\n", body.len())).into_bytes()
        };
        out.extend(if self.chunked { http::chunked(&body, 1 + body.len() / 3) } else { body });
        out
    }
}
