//! `events tail` of engines that publish. Owns the sockets and their dialling, for one engine and one screen;
//! must never order batches itself, which is the feed's work.

use super::line::Line;
use super::print::{Printer, Stop};
use super::watcher::Watcher;
use super::{Extent, HostPort};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use warmpath_core::Nanos;
use warmpath_events::continuity::{Policy, Standing};
use warmpath_events::feed::{Feed, Terms};
use warmpath_events::residency::Removal;
use warmpath_events::wire::HashBytes;
use warmpath_events::zmtp::{DEAD_AFTER, Fault, Limits};

/// What was asked for.
#[derive(Debug)]
pub struct Wanted {
    pub address: HostPort,
    pub replay: Option<HostPort>,
    pub topic: String,
    pub naming: HashBytes,
    pub extent: Extent,
}

/// How long one address may take to answer a dial.
const DIAL: Duration = Duration::from_secs(3);
/// Bytes read at once.
const PIECE: usize = 64 << 10;

/// Prints events until enough are printed.
pub fn run(wanted: &Wanted) -> Result<(), String> {
    let mut tail = Tail::new(wanted);
    loop {
        if let Err(stop) = tail.turn() {
            return stop.verdict();
        }
    }
}

struct Tail<'w> {
    wanted: &'w Wanted,
    feed: Feed,
    /// Lines of the feed's steps.
    told: Receiver<Line>,
    printer: Printer,
    begun: Instant,
    live: Option<TcpStream>,
    replay: Option<(u32, TcpStream)>,
    /// A handshake was done: from then on a lost connection is dialled again.
    was_live: bool,
    standing: Standing,
    piece: Vec<u8>,
}

impl<'w> Tail<'w> {
    fn new(wanted: &'w Wanted) -> Tail<'w> {
        let mut feed = Feed::new(Terms {
            topic: wanted.topic.clone().into_bytes(),
            limits: Limits::default(),
            policy: Policy { replay: wanted.replay.is_some(), ..Policy::default() },
            naming: wanted.naming,
            removal: Removal::One,
            blocks: usize::MAX,
            rank: None,
            slice: 1 << 20,
            seed: u64::from(std::process::id()),
        });
        let (tell, told) = channel();
        let mut watcher = Watcher::default();
        // The receiver lives as long as the feed.
        feed.watch(Box::new(move |step| watcher.step(step, &mut |line| drop(tell.send(line)))));
        Tail {
            wanted,
            feed,
            told,
            printer: Printer::new(wanted.extent),
            begun: Instant::now(),
            live: None,
            replay: None,
            was_live: false,
            standing: Standing::Empty,
            piece: vec![0; PIECE],
        }
    }

    /// Dials what is wanted, writes what waits, sleeps until something comes, reads it.
    fn turn(&mut self) -> Result<(), Stop> {
        let now = self.now();
        let next = self.feed.tick(now, &mut |_| ());
        self.hang_up(now)?;
        self.dial_live(now)?;
        self.dial_replay(now)?;
        if self.feed.wants_identity() {
            self.feed.identified(now, None, &mut |_| ());
        }
        self.write();
        self.tell()?;
        self.wait(Duration::from_nanos(next.saturating_sub(now)))?;
        self.read_live()?;
        self.read_replay();
        self.tell()
    }

    fn now(&self) -> Nanos {
        self.begun.elapsed().as_nanos() as Nanos
    }

    /// Prints what was told since, and what the state is now worth.
    fn tell(&mut self) -> Result<(), Stop> {
        while let Ok(line) = self.told.try_recv() {
            if matches!(line, Line::Event(_)) && self.printer.is_enough() {
                return Err(Stop::Enough);
            }
            self.printer.print(&line)?;
        }
        let standing = self.feed.standing();
        if standing != self.standing {
            self.standing = standing;
            self.printer.print(&Line::Standing(standing, self.feed.reason()))?;
        }
        Ok(())
    }

    fn dial_live(&mut self, now: Nanos) -> Result<(), Stop> {
        if self.live.is_some() || !self.feed.wants_live(now) {
            return Ok(());
        }
        match dial(&self.wanted.address) {
            Ok(stream) => {
                self.live = Some(stream);
                self.feed.live_opened(now);
                Ok(())
            }
            Err(fault) => {
                self.feed.live_closed(now);
                self.lost(&format!("can't be reached ({fault}); is the engine up, with --kv-events-config?"))
            }
        }
    }

    fn dial_replay(&mut self, now: Nanos) -> Result<(), Stop> {
        let wanted = self.feed.wants_replay(now);
        if self.replay.as_ref().is_some_and(|(attempt, _)| Some(*attempt) != wanted) {
            self.replay = None;
        }
        let (Some(attempt), Some(address), None) = (wanted, &self.wanted.replay, &self.replay) else {
            return Ok(());
        };
        match dial(address) {
            Ok(stream) => {
                self.replay = Some((attempt, stream));
                self.feed.replay_opened(now, attempt);
                Ok(())
            }
            Err(fault) => {
                self.feed.replay_closed(now, attempt, &mut |_| ());
                self.printer
                    .print(&Line::Note(format!("the replay socket {address} can't be reached: {fault}")))
            }
        }
    }

    fn write(&mut self) {
        if let Some(stream) = &self.live {
            let written = write(stream, self.feed.live_output());
            self.feed.live_wrote(written);
        }
        if let Some((attempt, stream)) = &self.replay {
            let written = write(stream, self.feed.replay_output(*attempt));
            self.feed.replay_wrote(*attempt, written);
        }
    }

    fn wait(&self, most: Duration) -> Result<(), Stop> {
        let wait = self.printer.wait(most)?;
        let replay = self.replay.as_ref();
        let waiting =
            |is_waiting: bool| if is_waiting { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let live = self.live.iter().map(|stream| (stream, !self.feed.live_output().is_empty()));
        let replay = replay.iter().map(|(at, stream)| (stream, !self.feed.replay_output(*at).is_empty()));
        let mut polled: Vec<PollFd<'_>> =
            live.chain(replay).map(|(stream, writes)| PollFd::new(stream, waiting(writes))).collect();
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(fault) => Err(Stop::Failed(format!("poll: {fault}"))),
        }
    }

    fn read_live(&mut self) -> Result<(), Stop> {
        let Some(stream) = &self.live else { return Ok(()) };
        let got = read(stream, &mut self.piece);
        let now = self.now();
        match got {
            Got::Nothing => Ok(()),
            Got::Bytes(count) => {
                self.feed.live_bytes(now, &self.piece[..count], &mut |_| ());
                self.work_off(now);
                if self.feed.is_live() && !self.was_live {
                    self.was_live = true;
                    self.printer.print(&Line::Note(format!("connected to {}", self.wanted.address)))?;
                }
                self.hang_up(now)
            }
            Got::End(cause) => {
                self.live = None;
                self.feed.live_closed(now);
                self.lost(&format!("closed the connection{cause}"))
            }
        }
    }

    /// There is no other stream that would have to wait.
    fn work_off(&mut self, now: Nanos) {
        while self.feed.is_busy() {
            self.feed.work(now, &mut |_| ());
        }
    }

    fn read_replay(&mut self) {
        let Some((attempt, stream)) = &self.replay else { return };
        let (attempt, got) = (*attempt, read(stream, &mut self.piece));
        let now = self.now();
        match got {
            Got::Nothing => {}
            Got::Bytes(count) => {
                self.feed.replay_bytes(now, attempt, &self.piece[..count], &mut |_| ());
                self.work_off(now);
            }
            Got::End(_) => {
                self.replay = None;
                self.feed.replay_closed(now, attempt, &mut |_| ());
            }
        }
    }

    /// Closes the live socket if the feed gave it up at this very moment.
    fn hang_up(&mut self, now: Nanos) -> Result<(), Stop> {
        if self.live.is_none() || self.feed.wants_live(now) {
            return Ok(());
        }
        self.live = None;
        match self.feed.fault() {
            Some(fault) => self.lost(&cause(fault)),
            None => self.lost("sent what is no message of events, or reaches another process now"),
        }
    }

    /// Before the first handshake that is the end; afterwards the feed has it dialled again.
    fn lost(&mut self, cause: &str) -> Result<(), Stop> {
        self.tell()?;
        let sentence = format!("{} {cause}", self.wanted.address);
        if self.was_live { self.printer.print(&Line::Note(sentence)) } else { Err(Stop::Failed(sentence)) }
    }
}

/// What a peer did that breaks ZMTP, and the cure.
fn cause(fault: Fault) -> String {
    let publisher = "give the port of the engine's event publisher, the endpoint of its --kv-events-config";
    match fault {
        Fault::Signature => format!("does not speak ZMTP: its first bytes are no greeting; {publisher}"),
        Fault::Version(major) => format!("speaks ZMTP {major}, not 3; {publisher}"),
        Fault::SocketType => {
            "is no publisher; if it is the replay socket, give it with --replay, and the publisher first"
                .into()
        }
        Fault::Mechanism => "asks for a login; engines publish without (mechanism NULL)".into(),
        Fault::Silent => format!("was silent for {} s; {publisher}", DEAD_AFTER / warmpath_core::SECOND),
        fault => format!("breaks ZMTP ({fault:?}); {publisher}"),
    }
}

fn dial(address: &HostPort) -> io::Result<TcpStream> {
    let stream = address.dial(DIAL)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// What a read brought.
enum Got {
    Nothing,
    Bytes(usize),
    /// The end, with its cause to be put after "closed".
    End(String),
}

fn read(mut stream: &TcpStream, piece: &mut [u8]) -> Got {
    match stream.read(piece) {
        Ok(0) => Got::End(String::new()),
        Ok(count) => Got::Bytes(count),
        Err(fault) if matches!(fault.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Got::Nothing
        }
        Err(fault) => Got::End(format!(" ({fault})")),
    }
}

/// How much went out. A broken socket shows at the next read.
fn write(mut stream: &TcpStream, output: &[u8]) -> usize {
    if output.is_empty() { 0 } else { stream.write(output).unwrap_or(0) }
}
