//! The rules of RFC 9110 and RFC 9112, one case each, at every split.

#![allow(clippy::unwrap_used)] // A test may stop at the first surprise.

mod cases;
mod oracle;
mod table;

use cases::{CASES, Side, Verdict};
use warmpath_parser::Malformed;
use warmpath_parser::http1::{
    ChunkDecoder, Framing, Headers, Limits, Method, Progress, RequestParser, ResponseParser,
};

/// What comes out when the bytes arrive in parts that end at `cuts` and at the end; `None`: need more.
fn fed(side: Side, bytes: &[u8], cuts: &[usize], limits: &Limits) -> Option<Verdict> {
    let ends = cuts.iter().copied().chain([bytes.len()]);
    match side {
        Side::Chunks => chunks(bytes, ends, limits),
        Side::Request => {
            let (mut parser, mut headers) = (RequestParser::new(), Headers::default());
            head(ends, |end| parser.advance(&bytes[..end], limits, &mut headers))
                .map(|done| done.map_or_else(Verdict::Refuse, |()| Verdict::Accept(parser.head().body)))
        }
        Side::Response => {
            let (mut parser, mut headers) = (ResponseParser::new(Method::Get), Headers::default());
            head(ends, |end| parser.advance(&bytes[..end], limits, &mut headers))
                .map(|done| done.map_or_else(Verdict::Refuse, |()| Verdict::Accept(parser.head().body)))
        }
    }
}

fn head(
    ends: impl Iterator<Item = usize>,
    mut advance: impl FnMut(usize) -> Result<Progress, Malformed>,
) -> Option<Result<(), Malformed>> {
    for end in ends {
        match advance(end) {
            Ok(Progress::NeedMore) => {}
            Ok(Progress::Done) => return Some(Ok(())),
            Err(fault) => return Some(Err(fault)),
        }
    }
    None
}

fn chunks(bytes: &[u8], ends: impl Iterator<Item = usize>, limits: &Limits) -> Option<Verdict> {
    let mut decoder = ChunkDecoder::new();
    let mut at = 0;
    for end in ends {
        while at < end {
            match decoder.advance(&bytes[at..end], limits) {
                Err(fault) => return Some(Verdict::Refuse(fault)),
                Ok(piece) if piece.done => return Some(Verdict::Accept(Framing::Chunked)),
                Ok(piece) => {
                    assert!(piece.consumed > 0 && piece.data.end <= piece.consumed);
                    at += piece.consumed;
                }
            }
        }
    }
    None
}

fn verdict(side: Side, bytes: &[u8]) -> Verdict {
    fed(side, bytes, &[], &Limits::default()).expect("the case is complete")
}

#[test]
fn every_two_cuts_give_the_same_verdict() {
    for case in CASES {
        for first in 0..=case.bytes.len() {
            for second in first..=case.bytes.len() {
                let verdict = fed(case.side, case.bytes, &[first, second], &Limits::default());
                assert_eq!(verdict, Some(case.expected), "{} cut at {first} and {second}", case.name);
            }
        }
    }
}

#[test]
fn every_prefix_needs_more_or_gives_the_final_verdict() {
    for case in CASES {
        for end in 0..case.bytes.len() {
            let verdict = fed(case.side, &case.bytes[..end], &[], &Limits::default());
            assert!(verdict.is_none_or(|verdict| verdict == case.expected), "{} to {end}", case.name);
            if matches!(case.expected, Verdict::Accept(_)) {
                assert_eq!(verdict, None, "{} is accepted at {end} already", case.name);
            }
        }
    }
}

#[test]
fn byte_by_byte_gives_the_same_verdict() {
    for case in CASES {
        let cuts: Vec<_> = (0..case.bytes.len()).collect();
        assert_eq!(
            fed(case.side, case.bytes, &cuts, &Limits::default()),
            Some(case.expected),
            "{}",
            case.name
        );
    }
}

#[test]
fn every_rule_has_a_case() {
    let elsewhere = [
        Malformed::TargetTooLong,
        Malformed::HeadTooLarge,
        Malformed::TooManyHeaders,
        Malformed::ChunkLineTooLong,
        Malformed::ChunkExtensionsTooLong,
        Malformed::TrailerTooLarge,
        Malformed::BodyTooLarge,
    ];
    for fault in Malformed::ALL {
        let here = CASES.iter().any(|case| case.expected == Verdict::Refuse(*fault));
        assert!(here != elsewhere.contains(fault), "{fault:?}");
    }
}
