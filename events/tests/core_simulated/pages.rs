//! The least of an HTTP server, for tests: a request's path, an answer's bytes.

/// A whole request's path, taken off the front of what came.
pub fn take_request(bytes: &mut Vec<u8>) -> Option<String> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head: Vec<u8> = bytes.drain(..end).collect();
    let text = String::from_utf8(head).expect("text");
    text.split(' ').nth(1).map(str::to_owned)
}

pub fn answer(status: u16, body: &str, is_last: bool) -> Vec<u8> {
    let close = if is_last { "Connection: close\r\n" } else { "" };
    format!("HTTP/1.1 {status} X\r\n{close}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}
