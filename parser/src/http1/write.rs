//! Encoders: what the gateway writes itself.
//!
//! Owns numbers, chunk-size lines and reason phrases. They only push into the caller's buffer; they must
//! never allocate otherwise.

/// Pushes `number` in decimal.
pub fn decimal(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0u8; 20];
    let mut rest = number;
    let mut at = digits.len();
    for slot in digits.iter_mut().rev() {
        *slot = b'0' + (rest % 10) as u8;
        rest /= 10;
        at -= 1;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(at..).unwrap_or_default());
}

/// Pushes the line that opens a chunk of `bytes` data bytes. A size of zero would end the body, so nothing
/// is pushed for it; see [`LAST_CHUNK`].
pub fn chunk_open(out: &mut Vec<u8>, bytes: u64) {
    if bytes == 0 {
        return;
    }
    let digits = (64 - bytes.leading_zeros()).div_ceil(4);
    for digit in (0..digits).rev() {
        out.push(HEX[(bytes >> (4 * digit) & 15) as usize]);
    }
    out.extend_from_slice(b"\r\n");
}

/// What follows the data of each chunk.
pub const CHUNK_CLOSE: &[u8] = b"\r\n";

/// What ends a chunked body without trailers, after the last [`CHUNK_CLOSE`].
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Pushes a status line with its CRLF.
pub fn status_line(out: &mut Vec<u8>, status: u16) {
    out.extend_from_slice(b"HTTP/1.1 ");
    decimal(out, u64::from(status));
    out.push(b' ');
    out.extend_from_slice(reason(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Pushes a header line. The caller answers for the bytes: a token, and a value without CR, LF and NUL.
pub fn header(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The reason phrase that RFC 9110 15 (or the registry) gives a status code; empty for unknown ones.
pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        499 => "Client Closed Request",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "",
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_written_as_the_standard_library_does() {
        let edges = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit]).chain([u64::MAX]);
        for number in edges.chain((0..20).map(|power| 10u64.pow(power))) {
            assert_eq!(written(|out| decimal(out, number)), number.to_string());
            let open = if number == 0 { String::new() } else { format!("{number:x}\r\n") };
            assert_eq!(written(|out| chunk_open(out, number)), open);
        }
    }

    #[test]
    fn lines() {
        assert_eq!(written(|out| status_line(out, 431)), "HTTP/1.1 431 Request Header Fields Too Large\r\n");
        assert_eq!(written(|out| status_line(out, 599)), "HTTP/1.1 599 \r\n");
        assert_eq!(written(|out| header(out, b"A", b"b")), "A: b\r\n");
    }

    #[test]
    fn each_fault_has_a_reason_phrase() {
        for fault in crate::Malformed::ALL {
            assert!(!reason(fault.status()).is_empty(), "{fault:?}");
        }
    }
}
