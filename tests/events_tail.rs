//! `events tail` against peers written by hand. Each sends its next message only when the line of the one
//! before is out, so that no assertion depends on time. Must never use a crate of ours for the peer's side.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    (listener, format!("127.0.0.1:{port}"))
}

fn greeting(socket: &str) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    (bytes[0], bytes[9], bytes[10], bytes[11]) = (0xff, 0x7f, 3, 1);
    bytes[12..16].copy_from_slice(b"NULL");
    let body =
        [b"\x05READY\x0bSocket-Type\0\0\0".as_slice(), &[socket.len() as u8], socket.as_bytes()].concat();
    bytes.extend([4, body.len() as u8]);
    bytes.extend(body);
    bytes
}

fn message(frames: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, body) in frames.iter().enumerate() {
        bytes.extend([u8::from(index + 1 < frames.len()), body.len() as u8]);
        bytes.extend_from_slice(body);
    }
    bytes
}

/// `[1700000000.25, [["BlockStored", [hash, 2], 9, [1, 2, 3, 4], 2, null, "CPU", "sql"]], 3]`
fn stored(hash: u8) -> Vec<u8> {
    let mut bytes = vec![0x93, 0xcb, 0x41, 0xd9, 0x54, 0xfc, 0x40, 0x10, 0, 0, 0x91, 0x98, 0xab];
    bytes.extend(b"BlockStored");
    bytes.extend([0x92, hash, 2, 9, 0x94, 1, 2, 3, 4, 2, 0xc0, 0xa3]);
    bytes.extend(b"CPU\xa3sql\x03");
    bytes
}

fn live(seq: u64, payload: &[u8]) -> Vec<u8> {
    message(&[b"kv", &seq.to_be_bytes(), payload])
}

/// The next frame: its flags and body. Short ones are all that a subscriber sends.
fn frame(peer: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 2];
    peer.read_exact(&mut head).expect("a frame");
    let mut body = vec![0; head[1].into()];
    peer.read_exact(&mut body).expect("a body");
    (head[0], body)
}

/// Takes a connection through its handshake.
fn accept(listener: &TcpListener, socket: &str) -> TcpStream {
    let (mut peer, _) = listener.accept().expect("a connection");
    peer.write_all(&greeting(socket)).expect("written");
    peer.read_exact(&mut [0; 64]).expect("a greeting");
    assert!(frame(&mut peer).1.starts_with(b"\x05READY"));
    peer
}

/// The same, and its subscription: a command (3.1) or a message that begins with 1 (3.0).
fn subscriber(listener: &TcpListener, topic: &[u8]) -> TcpStream {
    let mut peer = accept(listener, "XPUB");
    let (_, body) = frame(&mut peer);
    let prefix = body.strip_prefix(b"\x09SUBSCRIBE").or(body.strip_prefix(b"\x01"));
    assert_eq!(prefix, Some(topic));
    peer
}

fn command(flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warmpath"));
    command.args(["events", "tail"]).args(flags).stdin(Stdio::null());
    command
}

fn run(flags: &[&str]) -> Output {
    command(flags).output().expect("the binary runs")
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A running verb that prints JSON, killed when the test is over.
struct Tail {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Tail {
    fn start(flags: &[&str]) -> Tail {
        let mut child = command(flags).arg("--json").stdout(Stdio::piped()).spawn().expect("the binary runs");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Tail { child, lines }
    }

    fn line(&mut self) -> Value {
        let line = self.lines.next().expect("one more line").expect("text");
        serde_json::from_str(&line).expect("JSON")
    }

    /// The next lines that are no notes: what, and kind, standing or sequence.
    fn expect(&mut self, expected: &[Value]) {
        for expected in expected {
            let line = std::iter::repeat_with(|| self.line()).find(|line| line["what"] != "note");
            let line = line.expect("a line");
            let detail = if line["what"] == "standing" { &line["standing"] } else { &line["kind"] };
            let number = if line["what"] == "standing" { &line["since"] } else { &line["seq"] };
            assert_eq!(json!([line["what"], detail, number]), *expected, "{line}");
        }
    }

    fn end(mut self) -> Option<i32> {
        assert!(self.lines.next().is_none());
        self.child.wait().expect("an end").code()
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        drop((self.child.kill(), self.child.wait()));
    }
}

#[test]
fn a_stream_with_a_gap_and_an_undecodable_batch_is_shown_as_it_is() {
    let (listener, at) = listener();
    let mut tail = Tail::start(&[&format!("tcp://{at}"), "--topic", "k", "--count", "4"]);
    let mut engine = subscriber(&listener, b"k");
    let mut send = |seq: u64, payload: &[u8]| engine.write_all(&live(seq, payload)).expect("written");

    send(0, &stored(1));
    let first = std::iter::repeat_with(|| tail.line()).find(|line| line["what"] == "event");
    let expected = json!({
        "what": "event", "time": 1700000000.25, "seq": 0, "rank": 3, "kind": "stored", "blocks": 2,
        "keys": ["0000000000000001", "0000000000000002"], "parent": "0000000000000009", "medium": "CPU",
        "to": null, "group": null, "tokens": 4, "block_size": 2, "lora": "sql", "salt": null,
    });
    assert_eq!(first, Some(expected));
    tail.expect(&[json!(["standing", "complete", null])]);
    send(1, &stored(4));
    tail.expect(&[json!(["event", "stored", 1]), json!(["anomaly", "stored_twice", 1])]);
    send(5, &stored(5));
    let gap = [json!(["anomaly", "gap", 5]), json!(["event", "stored", 5]), json!(["standing", "since", 5])];
    tail.expect(&gap);
    send(6, b"\xc1");
    tail.expect(&[json!(["anomaly", "undecodable", 6]), json!(["standing", "since", 7])]);
    send(7, &stored(6));
    tail.expect(&[json!(["event", "stored", 7])]);
    assert_eq!(tail.end(), Some(0), "four events were wanted");
}

#[test]
fn people_get_the_same_in_words() {
    let (listener, at) = listener();
    let mut child =
        command(&[&format!("tcp://{at}"), "--count", "1"]).stdout(Stdio::piped()).spawn().expect("runs");
    let mut engine = subscriber(&listener, b"");
    engine.write_all(&live(7, &stored(1))).expect("written");
    let mut out = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut out).expect("text");
    assert_eq!(child.wait().expect("an end").code(), Some(0));
    let event = "22:13:20.250  seq 7  rank 3  stored  blocks 2: 0000000000000001 …  \
                 parent 0000000000000009  on CPU  \
                 tokens 4  block size 2  lora \"sql\"";
    let standing = "standing  a part: what happened from batch 7 on";
    assert_eq!(out, format!("note  connected to {at}\n{event}\n{standing}\n"));
}

#[test]
fn a_lost_engine_is_dialled_again() {
    let (listener, at) = listener();
    let mut tail = Tail::start(&[&format!("tcp://{at}"), "--count", "2"]);
    let mut engine = subscriber(&listener, b"");
    engine.write_all(&live(0, &stored(1))).expect("written");
    tail.expect(&[json!(["event", "stored", 0]), json!(["standing", "complete", null])]);
    drop(engine);
    let mut engine = subscriber(&listener, b"");
    tail.expect(&[json!(["standing", "unproven", null]), json!(["anomaly", "reconnected", null])]);
    tail.expect(&[json!(["standing", "empty", null])]);
    engine.write_all(&live(1, &stored(1))).expect("written");
    tail.expect(&[json!(["event", "stored", 1]), json!(["standing", "since", 1])]);
    assert_eq!(tail.end(), Some(0));
}

type History = Arc<Mutex<Vec<Vec<u8>>>>;

/// A ROUTER that gives the history from the wanted batch on, to one connection after another.
fn serve_replays(listener: TcpListener, history: History) {
    std::thread::spawn(move || {
        loop {
            let mut peer = accept(&listener, "ROUTER");
            assert_eq!(frame(&mut peer).1, b"", "the delimiter");
            let from = u64::from_be_bytes(frame(&mut peer).1.try_into().expect("8 bytes"));
            let history = history.lock().expect("whole").clone();
            let mut answers = Vec::new();
            for (seq, payload) in history.iter().enumerate().skip(from as usize) {
                answers.extend(message(&[b"", b"kv", &(seq as u64).to_be_bytes(), payload]));
            }
            answers.extend(message(&[b"", b"", &[255; 8], b""]));
            peer.write_all(&answers).expect("written");
            // It hangs up when it has the end marker.
            drop(peer.read(&mut [0; 64]));
        }
    });
}

#[test]
fn with_a_replay_socket_the_history_comes_first_and_gaps_are_filled() {
    let history: History = Arc::new(Mutex::new(vec![stored(1), stored(3)]));
    let (router, replay) = listener();
    let (listener, at) = listener();
    serve_replays(router, history.clone());
    let flags = [&format!("tcp://{at}"), "--replay", &format!("tcp://{replay}"), "--count", "5"];
    let mut tail = Tail::start(&flags);
    let mut engine = subscriber(&listener, b"");
    let known = [
        json!(["event", "stored", 0]),
        json!(["event", "stored", 1]),
        json!(["anomaly", "stored_twice", 1]),
        json!(["standing", "complete", null]),
    ];
    tail.expect(&known);
    history.lock().expect("whole").extend([stored(4), stored(5), stored(6)]);
    engine.write_all(&live(4, &stored(6))).expect("written");
    for seq in [2, 3, 4] {
        tail.expect(&[json!(["event", "stored", seq]), json!(["anomaly", "stored_twice", seq])]);
    }
    assert_eq!(tail.end(), Some(0));
}

#[test]
fn a_peer_that_is_no_publisher_is_one_sentence_and_exit_code_1() {
    let cases: [(&[u8], &str); 4] = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak ZMTP: its first bytes are no greeting"),
        (b"\xff\0\0\0\0\0\0\0\x01\x7f\x02", "speaks ZMTP 2, not 3"),
        (&greeting("ROUTER"), "if it is the replay socket, give it with --replay"),
        (b"", "closed the connection"),
    ];
    for (bytes, part) in cases {
        let (listener, at) = listener();
        let bytes = bytes.to_vec();
        let peer = std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().expect("a connection");
            peer.read_exact(&mut [0; 64]).expect("a greeting");
            peer.write_all(&bytes).expect("written");
            // Whoever has said something waits for the other to hang up.
            while !bytes.is_empty() && peer.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
        });
        let failed = run(&[&format!("tcp://{at}"), "--for", "60"]);
        peer.join().expect("no panic");
        let told = told(&failed);
        assert_eq!((failed.status.code(), failed.stdout.len()), (Some(1), 0), "{told}");
        assert!(told.contains(part) && told.contains(&at) && told.lines().count() == 1, "{told}");
    }
    let (listener, at) = listener();
    drop(listener);
    let failed = run(&[&format!("tcp://{at}")]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(told(&failed).contains("can't be reached"), "{}", told(&failed));
}

#[test]
fn time_over_is_a_good_end() {
    let (listener, at) = listener();
    let engine = std::thread::spawn(move || subscriber(&listener, b""));
    let done = run(&[&format!("tcp://{at}"), "--for", "0.2"]);
    assert_eq!(done.status.code(), Some(0), "{}", told(&done));
    drop(engine.join());
}

#[test]
fn events_are_taken_away_only_from_who_is_said_to_lose_them() {
    let (listener, at) = listener();
    let endpoint = format!("http://{at}");
    let flags = ["--kind", "trtllm", "--endpoint", &endpoint];
    let refused = run(&flags);
    assert_eq!(refused.status.code(), Some(2));
    assert!(told(&refused).contains("destructive read"), "{}", told(&refused));
    listener.set_nonblocking(true).expect("a socket");
    assert!(listener.accept().is_err(), "nobody asked");
    listener.set_nonblocking(false).expect("a socket");

    let engine = std::thread::spawn(move || {
        let event = |id: u64, data: &str| format!(r#"{{"event_id":{id},"window_size":8,"data":{data}}}"#);
        let stored = r#"{"type":"stored","parent_hash":null,"blocks":[{"block_hash":18446744073709551615}]}"#;
        let bodies = [
            format!("[{},{}]", event(0, r#"{"type":"created"}"#), event(1, stored)),
            "[]".into(),
            format!(
                "[{},{}]",
                event(3, r#"{"type":"removed","block_hashes":[18446744073709551615]}"#),
                event(4, stored)
            ),
        ];
        for body in bodies {
            let (mut peer, _) = listener.accept().expect("a connection");
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                peer.read_exact(&mut byte).expect("a request");
                head.extend(byte);
            }
            assert!(head.starts_with(b"POST /kv_cache_events HTTP/1.0\r\n"));
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            peer.write_all(answer.as_bytes()).expect("written");
        }
    });
    let done = run(&[flags.as_slice(), &["--destructive", "--json", "--count", "3"]].concat());
    engine.join().expect("no panic");
    assert_eq!(done.status.code(), Some(0), "{}", told(&done));
    assert!(told(&done).contains("whoever else drains this engine loses them"), "{}", told(&done));
    let lines = String::from_utf8(done.stdout).expect("text");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let shown: Vec<Value> =
        lines.iter().map(|line| json!([line["kind"], line["seq"], line["keys"]])).collect();
    let key = ["ffffffffffffffff"];
    let expected = [
        json!(["created", 0, []]),
        json!(["stored", 1, key]),
        json!(["removed", 3, key]),
        json!(["gap", 3, []]),
        json!(["stored", 4, key]),
    ];
    assert_eq!(shown, expected, "the fourth was taken, too, so it is shown");
}
