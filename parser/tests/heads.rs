//! What accepted heads say: spans, facts, framing, hop-by-hop fields.

#![allow(clippy::unwrap_used)] // A test may stop at the first surprise.

use warmpath_parser::http1::*;

fn request(bytes: &[u8]) -> (RequestHead, Headers) {
    let (mut parser, mut headers) = (RequestParser::new(), Headers::default());
    assert_eq!(parser.advance(bytes, &Limits::default(), &mut headers), Ok(Progress::Done));
    (parser.head(), headers)
}

fn response(method: Method, bytes: &[u8]) -> ResponseHead {
    let (mut parser, mut headers) = (ResponseParser::new(method), Headers::default());
    assert_eq!(parser.advance(bytes, &Limits::default(), &mut headers), Ok(Progress::Done));
    parser.head()
}

#[test]
fn parts_of_a_request() {
    let bytes =
        b"POST /v1/chat?a=b?c HTTP/1.1\r\nHost: h:80\r\nContent-Length:  3 \r\nX-Model-Foo: y\r\n\r\nabc";
    let (head, headers) = request(bytes);
    assert_eq!((head.method, head.version, head.body), (Method::Post, Version::Http11, Framing::Length(3)));
    assert_eq!(head.method_span.of(bytes), b"POST");
    assert_eq!(head.target.of(bytes), b"/v1/chat?a=b?c");
    assert_eq!(head.path.of(bytes), b"/v1/chat");
    assert_eq!(head.query.of(bytes), b"a=b?c");
    assert_eq!(head.authority.of(bytes), b"h:80");
    assert_eq!(&bytes[head.len as usize..], b"abc");
    let length = headers.first(Field::ContentLength).unwrap();
    assert_eq!(length.name.of(bytes), b"Content-Length");
    assert_eq!(length.value.of(bytes), b"3");
    assert_eq!(length.line.of(bytes), b"Content-Length:  3 \r\n");
    assert_eq!(headers.named(bytes, b"x-MODEL-foo").unwrap().field, Field::Other);
    assert!(!headers.has(Field::XModel) && headers.first(Field::XModel).is_none());
}

#[test]
fn the_authority_of_the_target_overrides_host() {
    for (target, path, query, authority) in [
        ("http://b:1/p?q", "/p", "q", "b:1"),
        ("HTTPS://b", "", "", "b"),
        ("http://[::1]?q", "", "q", "[::1]"),
        ("/", "/", "", "a"),
        ("/?", "/", "", "a"),
        ("//x/y", "//x/y", "", "a"),
    ] {
        let bytes = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let (head, _) = request(bytes.as_bytes());
        let parts = [head.path, head.query, head.authority].map(|span| span.of(bytes.as_bytes()).to_vec());
        assert_eq!(parts, [path, query, authority].map(|part| part.as_bytes().to_vec()), "{target}");
    }
    assert!(request(b"GET / HTTP/1.0\r\n\r\n").0.authority.is_empty());
}

#[test]
fn each_method_and_only_in_capitals() {
    for (name, method) in [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("POST", Method::Post),
        ("PUT", Method::Put),
        ("DELETE", Method::Delete),
        ("OPTIONS", Method::Options),
        ("PATCH", Method::Patch),
        ("get", Method::Other),
        ("GETS", Method::Other),
    ] {
        assert_eq!(request(format!("{name} / HTTP/1.0\r\n\r\n").as_bytes()).0.method, method);
    }
}

#[test]
fn persistence() {
    for (version, connection, persists) in [
        ("1.1", "", true),
        ("1.1", "Connection: keep-alive\r\n", true),
        ("1.1", "Connection: Close\r\n", false),
        ("1.1", "Connection: x, close\r\nConnection: keep-alive\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: x,Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
        ("1.1", "Proxy-Connection: close\r\n", true),
    ] {
        let (head, _) = request(format!("GET / HTTP/{version}\r\nHost: a\r\n{connection}\r\n").as_bytes());
        assert_eq!(head.connection.persists(head.version), persists, "{version} {connection}");
    }
}

#[test]
fn expectations_do_not_exist_in_http_10() {
    let expect = |version| {
        let bytes = format!("POST / HTTP/{version}\r\nHost: a\r\nExpect: 100-continue\r\n\r\n");
        request(bytes.as_bytes()).0.expect_continue
    };
    assert!(expect("1.1"));
    assert!(!expect("1.0"));
}

#[test]
fn hop_by_hop_fields_are_told_from_the_rest() {
    let bytes = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Keep-Alive, X-One\r\nX-One: 1\r\nX-Two: 2\r\n\
        Connection: upgrade ,, x-three\r\nX-Three: 3\r\nX-Threefold: 3\r\nKeep-Alive: timeout=5\r\nTE: trailers\r\n\
        Upgrade: websocket\r\nTrailer: x\r\nProxy-Connection: close\r\nProxy-Authorization: b\r\n\
        Transfer-Encoding: chunked\r\nAuthorization: c\r\n\r\n";
    let (head, headers) = request(bytes);
    assert!(head.connection.upgrade && head.connection.keep_alive && head.connection.names_fields);
    let kept: Vec<_> = headers
        .iter()
        .filter(|header| !headers.is_hop_by_hop(bytes, header, head.connection))
        .map(|header| std::str::from_utf8(header.name.of(bytes)).unwrap())
        .collect();
    assert_eq!(kept, ["Host", "X-Two", "X-Threefold", "Authorization"]);
}

#[test]
fn responses_without_a_body_whatever_they_say() {
    for status in ["100 x", "103 x", "199 x", "204 x", "304 x"] {
        for fields in ["", "Content-Length: 9\r\n", "Transfer-Encoding: chunked\r\n"] {
            let bytes = format!("HTTP/1.1 {status}\r\n{fields}\r\n");
            assert_eq!(response(Method::Get, bytes.as_bytes()).body, Framing::None, "{bytes}");
        }
    }
    let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";
    assert_eq!(response(Method::Head, ok).body, Framing::None);
    assert_eq!(response(Method::Post, ok).body, Framing::Length(9));
    assert_eq!(response(Method::Head, b"HTTP/1.1 200 OK\r\n\r\n").body, Framing::None);
}

#[test]
fn parts_of_a_response() {
    let bytes = b"HTTP/1.1 404 Not  Found\r\nConnection: close\r\n\r\nbody";
    let head = response(Method::Get, bytes);
    assert_eq!((head.status, head.version, head.body), (404, Version::Http11, Framing::UntilClose));
    assert_eq!(head.reason.of(bytes), b"Not  Found");
    assert_eq!(&bytes[head.len as usize..], b"body");
    assert!(!head.connection.persists(head.version));
}

#[test]
fn headers_are_reused_and_a_pipelined_head_is_not_touched() {
    let bytes = b"\r\nGET /1 HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\nGET /2 HTTP/1.1\r\nHost: b\r\n\r\n";
    let mut headers = Headers::with_capacity(8);
    let mut parser = RequestParser::new();
    assert_eq!(parser.advance(bytes, &Limits::default(), &mut headers), Ok(Progress::Done));
    assert_eq!(headers.len(), 2);
    let rest = &bytes[parser.head().len as usize..];
    let mut parser = RequestParser::new();
    assert_eq!(parser.advance(rest, &Limits::default(), &mut headers), Ok(Progress::Done));
    assert_eq!(headers.len(), 1);
    assert_eq!(parser.head().authority.of(rest), b"b");
    assert_eq!(parser.head().len as usize, rest.len());
    assert_eq!(parser.advance(rest, &Limits::default(), &mut headers), Ok(Progress::Done), "done stays done");
}
