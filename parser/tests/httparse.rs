//! Heads beside `httparse`, on random and mutated input.
//!
//! Whatever ours accepts, `httparse` accepts with the same method, target, status, names and values. Ours
//! is stricter in what `STRICTER` names; on all else the two agree.

#![allow(clippy::unwrap_used)] // A test may stop at the first surprise.

mod seeded;

use seeded::{Random, mutate};
use warmpath_parser::Malformed::{self, *};
use warmpath_parser::http1::{Headers, Limits, Method, Progress, RequestParser, ResponseParser};

/// Rules that `httparse` does not have: it leaves them to its caller or is lenient.
const STRICTER: &[Malformed] = &[
    BareLf,     // takes LF as a line end
    EmptyLines, // skips any number of them
    MethodTooLong,
    MethodConnect,
    MethodTrace,
    TargetByte, // takes bytes outside ASCII
    TargetFragment,
    TargetForm,
    TargetAuthority,
    NameInDisguise,
    HostMissing,
    HostTwice,
    HostInvalid,
    LengthNotDigits,
    LengthOverflow,
    LengthTwice,
    CodingSyntax,
    CodingNotChunked,
    ChunkedNotLast,
    CodingUnknown,
    LengthAndCoding,
    CodingInHttp10,
    ConnectionSyntax,
    ConnectionNamesEndToEnd,
    ExpectUnknown,
    StatusOutOfRange,
    SwitchingProtocols,
    VersionMalformed, // skips empty lines before a status line too
];

const SPECIAL: &[u8] = b"\r\n: \t,;/?#%\0\x7f\x80aHT10.";

const REQUESTS: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: gateway.example:8080\r\nContent-Length: 17\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n",
    "PUT http://b/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close, x-y\r\nX-Y:\t\tz \t \r\n\r\n",
    "OPTIONS * HTTP/1.0\r\nEmpty:\r\nExpect: 100-continue\r\nA-Rather-Long-Header-Name-Indeed: \"quoted; text\" with \x09 tab\r\n\r\n",
];

const RESPONSES: &[&str] = &[
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nDate: Sat, 01 Aug 2026 12:00:00 GMT\r\n\r\n",
    "HTTP/1.0 404\r\nServer: x\r\n\r\n",
    "HTTP/1.1 503 Service Unavailable\r\ntransfer-encoding: chunked\r\nretry-after:\t1\r\nx: \r\n\r\n",
];

type Lines = Vec<(Vec<u8>, Vec<u8>)>;

/// What a head says, in terms that both parsers share.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    NeedMore,
    Head { first: Vec<u8>, second: Vec<u8>, length: usize, lines: Lines },
}

fn lines(bytes: &[u8], headers: &Headers) -> Lines {
    headers.iter().map(|line| (line.name.of(bytes).to_vec(), line.value.of(bytes).to_vec())).collect()
}

fn their_lines(headers: &[httparse::Header<'_>]) -> Lines {
    headers.iter().map(|line| (line.name.as_bytes().to_vec(), line.value.trim_ascii().to_vec())).collect()
}

fn our_request(bytes: &[u8]) -> Result<Seen, Malformed> {
    let (mut parser, mut headers) = (RequestParser::new(), Headers::default());
    Ok(match parser.advance(bytes, &Limits::default(), &mut headers)? {
        Progress::NeedMore => Seen::NeedMore,
        Progress::Done => Seen::Head {
            first: parser.head().method_span.of(bytes).to_vec(),
            second: parser.head().target.of(bytes).to_vec(),
            length: parser.head().len as usize,
            lines: lines(bytes, &headers),
        },
    })
}

fn their_request(bytes: &[u8]) -> Result<Seen, httparse::Error> {
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut request = httparse::Request::new(&mut headers);
    Ok(match request.parse(bytes)? {
        httparse::Status::Partial => Seen::NeedMore,
        httparse::Status::Complete(length) => Seen::Head {
            first: request.method.unwrap_or_default().into(),
            second: request.path.unwrap_or_default().into(),
            length,
            lines: their_lines(request.headers),
        },
    })
}

fn our_response(bytes: &[u8]) -> Result<Seen, Malformed> {
    let (mut parser, mut headers) = (ResponseParser::new(Method::Get), Headers::default());
    Ok(match parser.advance(bytes, &Limits::default(), &mut headers)? {
        Progress::NeedMore => Seen::NeedMore,
        Progress::Done => Seen::Head {
            first: parser.head().status.to_string().into_bytes(),
            second: parser.head().reason.of(bytes).to_vec(),
            length: parser.head().len as usize,
            lines: lines(bytes, &headers),
        },
    })
}

fn their_response(bytes: &[u8]) -> Result<Seen, httparse::Error> {
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut response = httparse::Response::new(&mut headers);
    Ok(match response.parse(bytes)? {
        httparse::Status::Partial => Seen::NeedMore,
        httparse::Status::Complete(length) => Seen::Head {
            first: response.code.unwrap_or_default().to_string().into_bytes(),
            second: response.reason.unwrap_or_default().into(),
            length,
            lines: their_lines(response.headers),
        },
    })
}

fn compare(bytes: &[u8], ours: Result<Seen, Malformed>, theirs: Result<Seen, httparse::Error>) {
    let shown = || String::from_utf8_lossy(bytes).into_owned();
    match (ours, theirs) {
        (Err(fault), Ok(_)) => assert!(STRICTER.contains(&fault), "{fault:?} on {:?}", shown()),
        (Err(_), Err(_)) => {}
        // An obs-text reason is the one thing that they hide.
        (Ok(Seen::Head { second, .. }), Ok(Seen::Head { second: hidden, .. }))
            if hidden.is_empty() && !second.is_ascii() => {}
        (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs, "{:?}", shown()),
        // We judge a line at its end; they judge what they have not needed yet.
        (Ok(Seen::NeedMore), Err(_)) => {}
        (Ok(ours), Err(fault)) => panic!("we accept {ours:?}, httparse says {fault}: {:?}", shown()),
    }
}

#[test]
fn mutated_requests() {
    let mut random = Random::new(1);
    for _ in 0..200_000 {
        let mut bytes = random.pick(REQUESTS).as_bytes().to_vec();
        mutate(&mut bytes, SPECIAL, &mut random);
        compare(&bytes, our_request(&bytes), their_request(&bytes));
    }
}

#[test]
fn mutated_responses() {
    let mut random = Random::new(2);
    for _ in 0..200_000 {
        let mut bytes = random.pick(RESPONSES).as_bytes().to_vec();
        mutate(&mut bytes, SPECIAL, &mut random);
        compare(&bytes, our_response(&bytes), their_response(&bytes));
    }
}

#[test]
fn random_lines() {
    let mut random = Random::new(3);
    for _ in 0..50_000 {
        let mut bytes = b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec();
        for _ in 0..random.below(5) {
            let name: String = (0..1 + random.below(40))
                .map(|_| *b"abcXYZ-09_!~".get(random.below(12)).unwrap() as char)
                .collect();
            let value: Vec<u8> =
                (0..random.below(60)).map(|_| b" \t~!aZ09\x80\xff,;"[random.below(12)]).collect();
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(&value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        let ours = our_request(&bytes);
        assert!(matches!(ours, Ok(Seen::Head { .. }) | Err(HostTwice)), "{ours:?}");
        compare(&bytes, ours, their_request(&bytes));
    }
}

#[test]
fn every_prefix_of_every_seed() {
    for seed in REQUESTS {
        for end in 0..=seed.len() {
            compare(
                &seed.as_bytes()[..end],
                our_request(&seed.as_bytes()[..end]),
                their_request(&seed.as_bytes()[..end]),
            );
        }
    }
    for seed in RESPONSES {
        for end in 0..=seed.len() {
            compare(
                &seed.as_bytes()[..end],
                our_response(&seed.as_bytes()[..end]),
                their_response(&seed.as_bytes()[..end]),
            );
        }
    }
}

/// A verdict must not depend on the split, nor on how far ahead the bytes go.
#[test]
fn mutated_heads_give_one_verdict_at_any_split() {
    let mut random = Random::new(4);
    for _ in 0..30_000 {
        let mut bytes = random.pick(REQUESTS).as_bytes().to_vec();
        mutate(&mut bytes, SPECIAL, &mut random);
        let whole = our_request(&bytes);
        let (mut parser, mut headers) = (RequestParser::new(), Headers::default());
        let mut end = 0;
        let fed = loop {
            match parser.advance(&bytes[..end], &Limits::default(), &mut headers) {
                Ok(Progress::NeedMore) if end == bytes.len() => break Ok(None),
                Ok(Progress::NeedMore) => end = (end + 1 + random.below(9)).min(bytes.len()),
                Ok(Progress::Done) => break Ok(Some((parser.head().len as usize, lines(&bytes, &headers)))),
                Err(fault) => break Err(fault),
            }
        };
        match (whole, fed) {
            (Ok(Seen::NeedMore), Ok(None)) => {}
            (Ok(Seen::Head { length, lines, .. }), Ok(Some(fed))) => assert_eq!((length, lines), fed),
            (Err(whole), Err(fed)) => assert_eq!(whole, fed),
            (whole, fed) => {
                panic!("{whole:?} at once, {fed:?} in parts: {:?}", String::from_utf8_lossy(&bytes))
            }
        }
    }
}
