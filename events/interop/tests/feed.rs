//! A whole feed on real sockets, against an engine whose sockets are libzmq's.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use warmpath_events::continuity::{Policy, Reason, Standing};
use warmpath_events::feed::{Feed, Terms};
use warmpath_events::framing;
use warmpath_events::residency::Removal;
use warmpath_events::wire::HashBytes;
use warmpath_events::zmtp::Limits;

const PATIENCE: Duration = Duration::from_secs(20);

/// An engine's publish and replay sockets, and what it has published.
struct Engine {
    publisher: zmq::Socket,
    router: zmq::Socket,
    process: u8,
    published: u64,
}

impl Engine {
    fn start(context: &zmq::Context, process: u8, endpoints: Option<&(String, String)>) -> Engine {
        let any = "tcp://127.0.0.1:*".to_owned();
        let (publish, replay) = endpoints.cloned().unwrap_or((any.clone(), any));
        let bound = |kind, endpoint: &str| {
            let socket = context.socket(kind).expect("a socket");
            socket.set_linger(0).expect("linger");
            let begun = Instant::now();
            while socket.bind(endpoint).is_err() {
                assert!(begun.elapsed() < PATIENCE, "the port stays taken");
                std::thread::yield_now();
            }
            socket
        };
        let (publisher, router) = (bound(zmq::XPUB, &publish), bound(zmq::ROUTER, &replay));
        Engine { publisher, router, process, published: 0 }
    }

    fn endpoints(&self) -> (String, String) {
        let at = |socket: &zmq::Socket| socket.get_last_endpoint().expect("bound").expect("text");
        (at(&self.publisher), at(&self.router))
    }

    /// `[time, [["BlockStored", [hash], nil, [1], 1, nil]], 0]`; the time names the process.
    fn payload(&self, seq: u64) -> Vec<u8> {
        let mut bytes = vec![0x93, 0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, self.process, 0x91, 0x96];
        bytes.extend(b"\xabBlockStored");
        bytes.extend([0x91, seq as u8 + 1, 0xc0, 0x91, 1, 1, 0xc0, 0]);
        bytes
    }

    fn publish(&mut self, batches: u64) {
        for seq in self.published..self.published + batches {
            let frames: [&[u8]; 3] = [b"kv", &seq.to_be_bytes(), &self.payload(seq)];
            self.publisher.send_multipart(frames, 0).expect("sent");
        }
        self.published += batches;
    }

    fn serve(&self) {
        while self.publisher.recv_bytes(zmq::DONTWAIT).is_ok() {}
        while let Ok(asked) = self.router.recv_multipart(zmq::DONTWAIT) {
            let from = u64::from_be_bytes(asked[2].as_slice().try_into().expect("eight bytes"));
            for seq in from..self.published {
                let frames: [&[u8]; 5] = [&asked[0], b"", b"kv", &seq.to_be_bytes(), &self.payload(seq)];
                self.router.send_multipart(frames, 0).expect("sent");
            }
            let end: [&[u8]; 5] = [&asked[0], b"", b"", &framing::END.to_be_bytes(), b""];
            self.router.send_multipart(end, 0).expect("sent");
        }
    }
}

/// The sockets that a feed wants.
struct Driver {
    feed: Feed,
    live: Option<TcpStream>,
    replay: Option<(u32, TcpStream)>,
    begun: Instant,
}

enum Came {
    Bytes(Vec<u8>),
    Nothing,
    End,
}

fn dial(endpoint: &str) -> Option<TcpStream> {
    let socket = TcpStream::connect(endpoint.trim_start_matches("tcp://")).ok()?;
    socket.set_read_timeout(Some(Duration::from_millis(2))).ok()?;
    Some(socket)
}

fn read(socket: &mut TcpStream) -> Came {
    let mut buffer = vec![0; 1 << 16];
    match socket.read(&mut buffer) {
        Ok(0) => Came::End,
        Ok(count) => Came::Bytes(buffer[..count].to_vec()),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Came::Nothing,
        Err(_) => Came::End,
    }
}

impl Driver {
    fn new() -> Driver {
        let terms = Terms {
            topic: Vec::new(),
            limits: Limits::default(),
            policy: Policy::default(),
            naming: HashBytes::Last,
            removal: Removal::One,
            blocks: 1_000,
            rank: None,
            slice: 1 << 15,
            seed: 1,
        };
        Driver { feed: Feed::new(terms), live: None, replay: None, begun: Instant::now() }
    }

    fn turn(&mut self, endpoints: &(String, String)) {
        let now = self.begun.elapsed().as_nanos() as u64;
        self.feed.tick(now, &mut |_| ());
        self.turn_live(now, &endpoints.0);
        self.turn_replay(now, &endpoints.1);
    }

    fn turn_live(&mut self, now: u64, endpoint: &str) {
        if !self.feed.wants_live(now) {
            self.live = None;
            return;
        }
        if self.live.is_none() {
            self.live = dial(endpoint);
            match self.live {
                Some(_) => self.feed.live_opened(now),
                None => return self.feed.live_closed(now),
            }
        }
        let Some(socket) = &mut self.live else { return };
        let written = socket.write(self.feed.live_output()).unwrap_or(0);
        self.feed.live_wrote(written);
        match read(socket) {
            Came::Bytes(bytes) => {
                self.feed.live_bytes(now, &bytes, &mut |_| ());
                self.work_off(now);
            }
            Came::Nothing => {}
            Came::End => {
                self.live = None;
                self.feed.live_closed(now);
            }
        }
    }

    fn work_off(&mut self, now: u64) {
        while self.feed.is_busy() {
            self.feed.work(now, &mut |_| ());
        }
    }

    fn turn_replay(&mut self, now: u64, endpoint: &str) {
        let wanted = self.feed.wants_replay(now);
        if self.replay.as_ref().map(|(attempt, _)| *attempt) != wanted {
            self.replay = None;
        }
        let Some(attempt) = wanted else { return };
        if self.replay.is_none() {
            match dial(endpoint) {
                Some(socket) => self.replay = Some((attempt, socket)),
                None => return self.feed.replay_closed(now, attempt, &mut |_| ()),
            }
            self.feed.replay_opened(now, attempt);
        }
        let Some((_, socket)) = &mut self.replay else { return };
        let written = socket.write(self.feed.replay_output(attempt)).unwrap_or(0);
        self.feed.replay_wrote(attempt, written);
        match read(socket) {
            Came::Bytes(bytes) => {
                self.feed.replay_bytes(now, attempt, &bytes, &mut |_| ());
                self.work_off(now);
            }
            Came::Nothing => {}
            Came::End => self.feed.replay_closed(now, attempt, &mut |_| ()),
        }
    }

    fn until(&mut self, engine: &Engine, applied: u64) {
        let (begun, endpoints) = (Instant::now(), engine.endpoints());
        while self.feed.last_applied() != Some(applied) || self.feed.standing() != Standing::Complete {
            assert!(begun.elapsed() < PATIENCE, "{:?}", (self.feed.last_applied(), self.feed.counts()));
            self.turn(&endpoints);
            engine.serve();
        }
    }
}

#[test]
fn a_feed_fills_follows_and_survives_a_restart_that_overtakes() {
    let context = zmq::Context::new();
    let mut engine = Engine::start(&context, 1, None);
    engine.publish(3);
    let mut driver = Driver::new();
    driver.until(&engine, 2);
    engine.publish(2);
    driver.until(&engine, 4);
    assert_eq!((driver.feed.residency().len(), driver.feed.reason()), (5, None));

    let endpoints = engine.endpoints();
    drop(engine);
    drop(context);
    let context = zmq::Context::new();
    let mut engine = Engine::start(&context, 2, Some(&endpoints));
    engine.publish(8);
    driver.until(&engine, 7);
    assert_eq!((driver.feed.residency().len(), driver.feed.reason()), (8, Some(Reason::Restarted)));
    assert_eq!(driver.feed.counts().malformed, 0);
}
