//! Request and response heads beside `httparse`. Ours also classifies fields, checks Host and Connection
//! and decides the framing; `httparse` only splits.

mod measure;

use measure::{Contender, compare};
use std::hint::black_box;
use warmpath_parser::http1::{Headers, Limits, Method, RequestParser, ResponseParser};

fn main() {
    for (title, head) in
        [("small", small()), ("api client", api()), ("browser", browser()), ("60 headers", sixty())]
    {
        request(title, &head);
    }
    response("response", RESPONSE);
}

fn request(title: &str, head: &[u8]) {
    let limits = Limits::default();
    let mut headers = Headers::default();
    let ours = move || {
        let mut parser = RequestParser::new();
        parser.advance(black_box(head), &limits, &mut headers).expect("well-formed");
        u64::from(parser.head().len) + headers.len() as u64
    };
    let theirs = move || {
        let mut headers = [httparse::EMPTY_HEADER; 100];
        let mut request = httparse::Request::new(&mut headers);
        let length = request.parse(black_box(head)).expect("well-formed").unwrap();
        (length + request.headers.len()) as u64
    };
    let lean = move || {
        let mut headers = [const { std::mem::MaybeUninit::uninit() }; 100];
        let mut request = httparse::Request::new(&mut []);
        let length =
            request.parse_with_uninit_headers(black_box(head), &mut headers).expect("well-formed").unwrap();
        (length + request.headers.len()) as u64
    };
    compare(
        title,
        head.len(),
        vec![
            Contender { name: "ours", work: Box::new(ours) },
            Contender { name: "httparse", work: Box::new(theirs) },
            Contender { name: "httparse lean", work: Box::new(lean) },
        ],
    );
}

fn response(title: &str, head: &[u8]) {
    let limits = Limits::default();
    let mut headers = Headers::default();
    let ours = move || {
        let mut parser = ResponseParser::new(Method::Post);
        parser.advance(black_box(head), &limits, &mut headers).expect("well-formed");
        u64::from(parser.head().len)
    };
    let lean = move || {
        let mut headers = [const { std::mem::MaybeUninit::uninit() }; 100];
        let mut response = httparse::Response::new(&mut []);
        let length = httparse::ParserConfig::default()
            .parse_response_with_uninit_headers(&mut response, black_box(head), &mut headers)
            .expect("well-formed")
            .unwrap();
        length as u64
    };
    compare(
        title,
        head.len(),
        vec![
            Contender { name: "ours", work: Box::new(ours) },
            Contender { name: "httparse lean", work: Box::new(lean) },
        ],
    );
}

fn small() -> Vec<u8> {
    b"GET /health HTTP/1.1\r\nHost: localhost:8080\r\nAccept: */*\r\n\r\n".to_vec()
}

/// What the `openai` package sends.
fn api() -> Vec<u8> {
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway.example:8080\r\nAccept-Encoding: gzip, deflate\r\n\
Connection: keep-alive\r\nAccept: application/json\r\nContent-Type: application/json\r\n\
User-Agent: OpenAI/Python 1.109.1\r\nX-Stainless-Lang: python\r\nX-Stainless-Package-Version: 1.109.1\r\n\
X-Stainless-OS: Linux\r\nX-Stainless-Arch: x64\r\nX-Stainless-Runtime: CPython\r\n\
X-Stainless-Runtime-Version: 3.11.2\r\nAuthorization: Bearer sk-0123456789abcdef0123456789abcdef\r\n\
X-Stainless-Async: false\r\nx-stainless-retry-count: 0\r\nx-stainless-read-timeout: 600\r\n\
Content-Length: 1042\r\n\r\n"
        .to_vec()
}

fn browser() -> Vec<u8> {
    b"GET /v1/models?limit=20&after=abc HTTP/1.1\r\nHost: gateway.example\r\nConnection: keep-alive\r\n\
Cache-Control: max-age=0\r\nsec-ch-ua: \"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\", \"Google Chrome\";v=\"140\"\r\n\
sec-ch-ua-mobile: ?0\r\nsec-ch-ua-platform: \"Linux\"\r\nUpgrade-Insecure-Requests: 1\r\n\
User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36\r\n\
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8\r\n\
Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\r\n\
Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-GB,en;q=0.9,de;q=0.8\r\n\
Cookie: session=0123456789abcdef0123456789abcdef; theme=dark; consent=a%3D1%26b%3D2; _ga=GA1.2.1234567890.1700000000\r\n\r\n"
        .to_vec()
}

fn sixty() -> Vec<u8> {
    let mut head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway.example\r\n".to_vec();
    for number in 0..59 {
        head.extend_from_slice(
            format!("X-Custom-Header-{number}: value number {number} of the set\r\n").as_bytes(),
        );
    }
    head.extend_from_slice(b"\r\n");
    head
}

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\ndate: Sat, 01 Aug 2026 12:00:00 GMT\r\nserver: uvicorn\r\n\
x-request-id: 7f9c2ba4e88f827d616045507605853e\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
