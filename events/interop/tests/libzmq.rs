//! Our ends of ZMTP against libzmq's PUB, XPUB and ROUTER over loopback.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use warmpath_events::framing::{self, Reply};
use warmpath_events::zmtp::{Connection, DEAD_AFTER, Limits, PING_EVERY, Role};

type Frames = Vec<Vec<u8>>;

/// How long anything on loopback may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Our machine on a socket.
struct Ours {
    socket: TcpStream,
    machine: Connection,
    begun: Instant,
    got: Vec<Frames>,
    received: usize,
    closed: bool,
}

impl Ours {
    fn dial(endpoint: &str, role: Role) -> Ours {
        let address = endpoint.trim_start_matches("tcp://");
        Ours::on(TcpStream::connect(address).expect("a listener"), role)
    }

    fn on(socket: TcpStream, role: Role) -> Ours {
        socket.set_read_timeout(Some(Duration::from_millis(5))).expect("a timeout");
        let machine = Connection::new(role, Limits::default(), 0);
        Ours { socket, machine, begun: Instant::now(), got: Vec::new(), received: 0, closed: false }
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// Writes what waits, reads what is there.
    fn turn(&mut self) {
        let count = self.machine.output().len();
        if self.socket.write_all(self.machine.output()).is_err() {
            self.closed = true;
        }
        self.machine.wrote(count);
        let mut buffer = vec![0; 1 << 16];
        match self.socket.read(&mut buffer) {
            Ok(0) => self.closed = true,
            Ok(count) => {
                self.received += count;
                let (now, got) = (self.now(), &mut self.got);
                self.machine
                    .receive(now, &buffer[..count], &mut |message| {
                        got.push(message.frames().map(<[u8]>::to_vec).collect());
                    })
                    .expect("libzmq speaks ZMTP");
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => self.closed = true,
        }
    }

    fn until(&mut self, what: &str, done: impl Fn(&Ours) -> bool) {
        while !done(self) {
            assert!(self.begun.elapsed() < PATIENCE, "no {what}");
            self.turn();
        }
    }
}

/// A bound XPUB; it tells when a subscription has come.
fn xpub(context: &zmq::Context) -> (zmq::Socket, String) {
    let socket = context.socket(zmq::XPUB).expect("a socket");
    socket.set_linger(0).expect("linger");
    socket.set_sndhwm(100_000).expect("hwm");
    socket.bind("tcp://127.0.0.1:*").expect("a port");
    let endpoint = socket.get_last_endpoint().expect("bound").expect("text");
    (socket, endpoint)
}

fn subscribed(publisher: &zmq::Socket, ours: &mut Ours, prefix: &[u8]) {
    let begun = Instant::now();
    loop {
        ours.turn();
        match publisher.recv_bytes(zmq::DONTWAIT) {
            Ok(subscription) => {
                assert_eq!(subscription, [&[1], prefix].concat());
                return;
            }
            Err(_) => assert!(begun.elapsed() < PATIENCE, "no subscription"),
        }
    }
}

fn publish(publisher: &zmq::Socket, topic: &str, seq: u64, payload: &[u8]) {
    publisher.send_multipart([topic.as_bytes(), &seq.to_be_bytes(), payload], 0).expect("sent");
}

#[test]
fn a_subscription_takes_its_topics_in_order() {
    let context = zmq::Context::new();
    let (publisher, endpoint) = xpub(&context);
    let mut ours = Ours::dial(&endpoint, Role::Sub(b"kv".to_vec()));
    subscribed(&publisher, &mut ours, b"kv");
    assert!(ours.machine.is_ready());
    for seq in 0..5_000_u64 {
        publish(&publisher, "kv", seq, &vec![seq as u8; seq as usize % 700]);
        publish(&publisher, "other", seq, b"not for us");
    }
    ours.until("5,000 messages", |ours| ours.got.len() == 5_000);
    for (seq, frames) in ours.got.iter().enumerate() {
        assert_eq!(frames[1], (seq as u64).to_be_bytes());
        assert_eq!(frames[2], vec![seq as u8; seq % 700]);
    }
}

#[test]
fn a_plain_pub_serves_too() {
    let context = zmq::Context::new();
    let publisher = context.socket(zmq::PUB).expect("a socket");
    publisher.set_linger(0).expect("linger");
    publisher.bind("tcp://127.0.0.1:*").expect("a port");
    let endpoint = publisher.get_last_endpoint().expect("bound").expect("text");
    let mut ours = Ours::dial(&endpoint, Role::Sub(Vec::new()));
    while ours.got.is_empty() {
        assert!(ours.begun.elapsed() < PATIENCE);
        publish(&publisher, "kv", 7, b"payload");
        ours.turn();
    }
    assert_eq!(ours.got[0], [b"kv".to_vec(), 7_u64.to_be_bytes().to_vec(), b"payload".to_vec()]);
}

#[test]
fn an_engine_that_connects_is_served_by_our_listener() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let context = zmq::Context::new();
    let publisher = context.socket(zmq::XPUB).expect("a socket");
    publisher.set_linger(0).expect("linger");
    publisher.connect(&format!("tcp://{}", listener.local_addr().expect("bound"))).expect("connecting");
    let mut ours = Ours::on(listener.accept().expect("a peer").0, Role::Sub(Vec::new()));
    subscribed(&publisher, &mut ours, b"");
    publish(&publisher, "", 0, b"x");
    ours.until("a message", |ours| ours.got.len() == 1);
}

#[test]
fn ten_megabytes_come_whole() {
    let context = zmq::Context::new();
    let (publisher, endpoint) = xpub(&context);
    let mut ours = Ours::dial(&endpoint, Role::Sub(Vec::new()));
    subscribed(&publisher, &mut ours, b"");
    let payload: Vec<u8> = (0..10_u32 << 20).map(|at| (at ^ at >> 8) as u8).collect();
    publish(&publisher, "kv", 1, &payload);
    ours.until("10 MB", |ours| ours.got.len() == 1);
    assert!(ours.got[0][2] == payload);
}

#[test]
fn a_killed_publisher_is_noticed_and_its_successor_served() {
    let context = zmq::Context::new();
    let (publisher, endpoint) = xpub(&context);
    let mut ours = Ours::dial(&endpoint, Role::Sub(Vec::new()));
    subscribed(&publisher, &mut ours, b"");
    publish(&publisher, "kv", 0, b"first");
    ours.until("a message", |ours| ours.got.len() == 1);
    drop(publisher);
    drop(context);
    ours.until("an end", |ours| ours.closed);

    let context = zmq::Context::new();
    let (publisher, endpoint) = xpub(&context);
    let mut ours = Ours::dial(&endpoint, Role::Sub(Vec::new()));
    subscribed(&publisher, &mut ours, b"");
    publish(&publisher, "kv", 0, b"second");
    ours.until("a message", |ours| ours.got.len() == 1);
    assert_eq!(ours.got[0][2], b"second");
}

#[test]
fn libzmq_answers_our_heartbeats() {
    let context = zmq::Context::new();
    let (publisher, endpoint) = xpub(&context);
    let mut ours = Ours::dial(&endpoint, Role::Sub(Vec::new()));
    subscribed(&publisher, &mut ours, b"");
    // Time is an argument: the heartbeat is due as soon as we say so.
    let later = ours.now() + PING_EVERY;
    ours.machine.tick(later).expect("alive");
    assert!(!ours.machine.output().is_empty());
    ours.begun -= Duration::from_nanos(PING_EVERY);
    let before = ours.received;
    ours.until("an answer", |ours| ours.received > before);
    assert!(ours.machine.tick(later + DEAD_AFTER - PING_EVERY / 2).is_ok(), "an answer came");
}

#[test]
fn our_answers_keep_a_connection_that_libzmq_watches() {
    let context = zmq::Context::new();
    let publisher = context.socket(zmq::XPUB).expect("a socket");
    publisher.set_linger(0).expect("linger");
    publisher.set_heartbeat_ivl(50).expect("interval");
    publisher.set_heartbeat_timeout(500).expect("timeout");
    publisher.bind("tcp://127.0.0.1:*").expect("a port");
    let endpoint = publisher.get_last_endpoint().expect("bound").expect("text");
    let mut ours = Ours::dial(&endpoint, Role::Sub(Vec::new()));
    subscribed(&publisher, &mut ours, b"");
    let watched = Instant::now();
    while watched.elapsed() < Duration::from_millis(1_500) {
        ours.turn();
        assert!(!ours.closed, "libzmq gave us up");
    }
    publish(&publisher, "kv", 0, b"still here");
    ours.until("a message", |ours| ours.got.len() == 1);
}

#[test]
fn a_router_answers_a_replay_in_both_framings() {
    let context = zmq::Context::new();
    let router = context.socket(zmq::ROUTER).expect("a socket");
    router.set_linger(0).expect("linger");
    router.bind("tcp://127.0.0.1:*").expect("a port");
    router.set_rcvtimeo(20_000).expect("timeout");
    let endpoint = router.get_last_endpoint().expect("bound").expect("text");
    for topic in [None, Some(b"kv".as_slice())] {
        let mut ours = Ours::dial(&endpoint, Role::Dealer);
        ours.until("handshake", |ours| ours.machine.is_ready());
        ours.machine.send(&[b"", &framing::ask(3)]).expect("ready");
        ours.turn();
        let asked = router.recv_multipart(0).expect("a request");
        assert_eq!(&asked[1..], [Vec::new(), 3_u64.to_be_bytes().to_vec()]);
        for seq in [3, 4, framing::END] {
            let mut reply = vec![asked[0].clone(), Vec::new()];
            reply.extend(topic.map(<[u8]>::to_vec));
            reply.push(seq.to_be_bytes().to_vec());
            reply.push(if seq == framing::END { Vec::new() } else { b"payload".to_vec() });
            router.send_multipart(reply, 0).expect("sent");
        }
        ours.until("three answers", |ours| ours.got.len() == 3);
        let has_topic = topic.is_some();
        assert!(ours.got.iter().all(|frames| frames.len() == 3 + usize::from(has_topic)));
    }
}

/// [`framing::reply`] takes the machine's own messages: read again here as they come.
#[test]
fn answers_are_read_as_they_come() {
    let context = zmq::Context::new();
    let router = context.socket(zmq::ROUTER).expect("a socket");
    router.set_linger(0).expect("linger");
    router.bind("tcp://127.0.0.1:*").expect("a port");
    router.set_rcvtimeo(20_000).expect("timeout");
    let endpoint = router.get_last_endpoint().expect("bound").expect("text");
    let mut ours = Ours::dial(&endpoint, Role::Dealer);
    ours.until("handshake", |ours| ours.machine.is_ready());
    ours.machine.send(&[b"", &framing::ask(0)]).expect("ready");
    ours.turn();
    let identity = router.recv_multipart(0).expect("a request").swap_remove(0);
    let batch: [&[u8]; 4] = [&identity, b"", &9_u64.to_be_bytes(), b"p"];
    let end: [&[u8]; 4] = [&identity, b"", &framing::END.to_be_bytes(), b""];
    router.send_multipart(batch, 0).expect("sent");
    router.send_multipart(end, 0).expect("sent");
    let (mut seqs, mut ended) = (Vec::new(), false);
    let mut buffer = [0; 4_096];
    while !ended {
        assert!(ours.begun.elapsed() < PATIENCE, "no end marker");
        let Ok(count) = ours.socket.read(&mut buffer) else { continue };
        ours.machine
            .receive(0, &buffer[..count], &mut |message| match framing::reply(&message).expect("a reply") {
                Reply::Batch(live) => seqs.push(live.seq),
                Reply::End => ended = true,
            })
            .expect("ZMTP");
    }
    assert_eq!(seqs, [9]);
}
