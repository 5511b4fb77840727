//! The framer against the standard's own examples and a plain reading of its rules, at every split.

use super::*;

/// Events as a buffered reading of the rules gives them: the data, or `None` without a data line.
fn plainly(stream: &[u8]) -> Vec<Option<Vec<u8>>> {
    let text = stream.strip_prefix(MARK.as_slice()).unwrap_or(stream);
    let mut lines: Vec<Vec<u8>> = vec![Vec::new()];
    let mut bytes = text.iter().peekable();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\r' => {
                bytes.next_if(|next| **next == b'\n');
                lines.push(Vec::new());
            }
            b'\n' => lines.push(Vec::new()),
            _ => lines.last_mut().unwrap().push(byte),
        }
    }
    lines.pop();
    let (mut events, mut data, mut open) = (Vec::new(), None::<Vec<u8>>, false);
    for line in lines {
        if line.is_empty() {
            if std::mem::take(&mut open) {
                events.push(data.take());
            }
            continue;
        }
        open = true;
        let value = match line.strip_prefix(b"data") {
            Some([]) => b"".as_slice(),
            Some([b':', b' ', value @ ..] | [b':', value @ ..]) => value,
            _ => continue,
        };
        match &mut data {
            None => data = Some(value.to_vec()),
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
        }
    }
    events
}

fn framed(parts: &[&[u8]], bound: usize) -> (Vec<Option<Vec<u8>>>, u64) {
    let (mut framer, mut kept, mut events) = (Framer::new(bound), Vec::new(), Vec::new());
    for part in parts {
        let mut rest = *part;
        while !rest.is_empty() {
            let step = framer.advance(rest, &mut kept);
            assert!(step.consumed > 0 && kept.len() <= bound);
            if let Some(data) = &step.event {
                events.push(data.bytes(rest, &kept).map(<[u8]>::to_vec));
            }
            rest = &rest[step.consumed..];
        }
    }
    (events, framer.oversized())
}

const STREAMS: &[&str] = &[
    "data: a\n\ndata: b\n\n",
    "data: a\r\n\r\ndata: b\r\n\r\n",
    "data: a\r\rdata: b\r\r",
    "data:a\n\ndata:  two spaces\n\n",
    ": ping\n\n: ping\r\n\r\ndata: x\n\n",
    "event: e\nid: 7\ndata: one\ndata\ndata:\ndata: two\n\n",
    "data\n\ndata:\n\ndatab: no\n\ndat\n\n",
    "\n\n\r\n\rdata: a\n\n\n\n",
    "\u{feff}data: after a mark\n\n",
    "\u{feff}\ndata: x\n\n",
    "\u{feff}\u{feff}data: not a field\n\n",
    "data: {\"choices\":[]}\n\ndata: [DONE]\n\n",
    "data: unfinished",
    "data: mixed\r\ndata: ends\rdata: here\n\r\n",
];

#[test]
fn half_a_mark_is_an_unknown_field() {
    for stream in [b"\xef\n\n".as_slice(), b"\xef\xbb\ndata: a\n\n", b"\xef\xbbdata: a\n\n"] {
        for cut in 0..stream.len() {
            assert_eq!(framed(&[&stream[..cut], &stream[cut..]], 99).0, plainly(stream));
        }
    }
}

#[test]
fn every_two_cuts_frame_the_same_events() {
    for stream in STREAMS {
        let bytes = stream.as_bytes();
        let expected = plainly(bytes);
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(framed(&parts, 99).0, expected, "{stream:?} cut at {first} and {second}");
            }
        }
    }
}

#[test]
fn data_over_the_bound_is_counted_and_not_held() {
    let stream = b"data: 0123456789\n\ndata: 01234\ndata: 5678\n\ndata: ok\n\n";
    for cut in 0..stream.len() {
        let (events, oversized) = framed(&[&stream[..cut], &stream[cut..]], 10);
        assert_eq!(
            events,
            [Some(b"0123456789".to_vec()), Some(b"01234\n5678".to_vec()), Some(b"ok".to_vec())]
        );
        assert_eq!(oversized, 0);
        let (events, oversized) = framed(&[&stream[..cut], &stream[cut..]], 9);
        assert_eq!(events, [None, None, Some(b"ok".to_vec())]);
        assert_eq!(oversized, 2);
    }
}

#[test]
fn one_line_of_data_is_not_copied() {
    let (mut framer, mut kept) = (Framer::new(99), Vec::new());
    let step = framer.advance(b"data: [DONE]\n\n", &mut kept);
    assert_eq!(step, Step { consumed: 14, event: Some(Data::Input(6..12)) });
    assert!(kept.is_empty());
}
