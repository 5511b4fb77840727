//! Many vLLM publishers on one thread: canned batches to whoever subscribed, and replays in pieces between them, so
//! that what many engines send at once keeps no batch of another back. Owns their sockets and sequences.

use crate::KEPT;
use crate::peer::{Ear, Heard, greeting, message, pong, ready};
use crate::template::{NEVER_HELD, STORED, Template, key};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The empty frame before each answer of a replay.
const DELIMITER: [u8; 9] = [3, 0, 0, 0, 0, 0, 0, 0, 0];

/// One engine process as its sockets show it.
#[derive(Default)]
struct Process {
    seq: u64,
    held: VecDeque<u64>,
    live: Option<TcpStream>,
    /// What a replay gives: sequences, and the first number of each batch.
    buffer: Vec<(u64, u64)>,
}

/// What a replay has yet to send.
struct Replay {
    stream: TcpStream,
    batches: VecDeque<(u64, u64)>,
    is_ending: bool,
    bytes: Vec<u8>,
    sent: usize,
}

impl Replay {
    /// Has bytes of the next batch to send, or of the end; false if all is sent.
    fn go_on(&mut self, template: &mut Template) -> bool {
        if self.sent < self.bytes.len() {
            return true;
        }
        (self.bytes, self.sent) = (DELIMITER.to_vec(), 0);
        match self.batches.pop_front() {
            Some((seq, first)) => self.bytes.extend(template.fill(seq, first, NEVER_HELD)),
            None if self.is_ending => return false,
            None => {
                self.is_ending = true;
                self.bytes.extend(message(&[b"", &[0xff; 8], b""]));
            }
        }
        true
    }
}

pub struct Publisher {
    processes: Vec<Arc<Mutex<Process>>>,
    replays: Arc<Mutex<VecDeque<Replay>>>,
    ports: (u16, u16),
    next: Arc<AtomicU64>,
    template: Template,
}

impl Publisher {
    pub fn new(endpoints: usize, blocks_an_event: usize) -> Publisher {
        let processes: Vec<Arc<Mutex<Process>>> = (0..endpoints).map(|_| Arc::default()).collect();
        let replays: Arc<Mutex<VecDeque<Replay>>> = Arc::default();
        let listen = |socket: &'static str| {
            let listener = TcpListener::bind("0.0.0.0:0").expect("a free port");
            let (port, processes) = (listener.local_addr().expect("bound").port(), processes.clone());
            let replays = replays.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let octets = match stream.local_addr().expect("connected").ip() {
                        std::net::IpAddr::V4(ip) => ip.octets(),
                        std::net::IpAddr::V6(_) => continue,
                    };
                    let endpoint = usize::from(octets[2] - 1) * 200 + usize::from(octets[3] - 1);
                    let (process, replays) = (processes[endpoint].clone(), replays.clone());
                    std::thread::spawn(move || converse(stream, socket, &process, &replays));
                }
            });
            port
        };
        let ports = (listen("PUB"), listen("ROUTER"));
        let next = Arc::new(AtomicU64::new(NEVER_HELD + STORED as u64));
        Publisher { processes, replays, ports, next, template: Template::new(blocks_an_event) }
    }

    /// Where they publish and replay.
    pub fn ports(&self) -> (u16, u16) {
        self.ports
    }

    /// Waits until so many are subscribed to.
    pub fn wait_for(&mut self, count: usize) {
        let is_live = |process: &Arc<Mutex<Process>>| process.lock().expect("a process").live.is_some();
        while self.processes.iter().filter(|process| is_live(process)).count() < count {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// One batch of an endpoint; the last key that it stores.
    pub fn publish(&mut self, endpoint: usize) -> u64 {
        let first = self.next.fetch_add(STORED as u64, Relaxed);
        let mut process = self.processes[endpoint].lock().expect("a process");
        process.held.push_back(first);
        let old = (process.held.len() > KEPT).then(|| process.held.pop_front()).flatten();
        let bytes = self.template.fill(process.seq, first, old.unwrap_or(NEVER_HELD));
        process.seq += 1;
        if let Some(live) = &mut process.live {
            // A subscriber that is gone comes again.
            let _ = live.write_all(bytes);
        }
        key(first + STORED as u64 - 1)
    }

    /// Writes a batch of a replay, to the next one that takes any; whether there was one.
    pub fn replay(&mut self) -> bool {
        let mut replays = self.replays.lock().expect("replays");
        for _ in 0..replays.len() {
            let Some(mut first) = replays.pop_front() else { break };
            if !first.go_on(&mut self.template) {
                continue;
            }
            let wrote = match first.stream.write(&first.bytes[first.sent..]) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(_) => continue,
            };
            first.sent += wrote;
            replays.push_back(first);
            if wrote > 0 {
                return true;
            }
        }
        false
    }

    /// Gives endpoints a history of full caches.
    pub fn fill(&mut self, endpoints: Range<usize>) {
        for endpoint in endpoints {
            for _ in 0..KEPT {
                self.publish(endpoint);
            }
        }
        std::thread::sleep(Duration::from_millis(500));
    }

    /// Other processes at these endpoints, with full caches to replay.
    pub fn restart(&mut self, endpoints: Range<usize>) {
        for endpoint in endpoints {
            let mut process = self.processes[endpoint].lock().expect("a process");
            let live = process.live.take();
            *process = Process::default();
            for seq in 0..KEPT as u64 {
                process.buffer.push((seq, self.next.fetch_add(STORED as u64, Relaxed)));
            }
            process.seq = KEPT as u64;
            if let Some(live) = live {
                let _ = live.shutdown(std::net::Shutdown::Both);
            }
        }
    }
}

/// The other side of one connection, until it ends or has a replay to be sent.
fn converse(
    mut stream: TcpStream,
    socket: &str,
    process: &Mutex<Process>,
    replays: &Mutex<VecDeque<Replay>>,
) {
    let (mut ear, mut buffer) = (Ear::default(), [0; 4_096]);
    let _ = stream.set_nodelay(true);
    if stream.write_all(&greeting()).is_err() {
        return;
    }
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        for heard in ear.hear(&buffer[..count]) {
            let bytes = match heard {
                Heard::Greeting => ready(socket),
                Heard::Ping(context) => pong(&context),
                Heard::Subscribe => {
                    let live = stream.try_clone().expect("a copy");
                    process.lock().expect("a process").live = Some(live);
                    continue;
                }
                Heard::Message(frames) => {
                    let from = u64::from_be_bytes(frames[1].as_slice().try_into().expect("eight bytes"));
                    let process = process.lock().expect("a process");
                    let wanted = process.buffer.iter().filter(|(seq, _)| *seq >= from);
                    let (batches, bytes) = (wanted.copied().collect(), Vec::new());
                    stream.set_nonblocking(true).expect("a socket");
                    let replay = Replay { stream, batches, is_ending: false, bytes, sent: 0 };
                    return replays.lock().expect("replays").push_back(replay);
                }
                Heard::Ready => continue,
            };
            // One writer a stream at a time: the publisher holds the same lock.
            let _lock = process.lock().expect("a process");
            if stream.write_all(&bytes).is_err() {
                return;
            }
        }
    }
}
