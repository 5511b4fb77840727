//! Probes each kernel feature that the driver stands on by really using it. Owns the list of probes; must
//! never conclude from a version number or a feature bit.
//!
//! Everything happens on loopback sockets and a ring of the probe's own; nothing is left open.

use super::buffers::{Buffers, GROUP};
use super::queue::{Entered, Queue};
use super::send::{Frames, Sending};
use super::setup::{SetupFault, make_ring};
use crate::wake::Bell;
use crate::{Body, Counters, Payload, Sizes, Wake};
use io_uring::{cqueue, opcode, squeue, types};
use rustix::io::Errno as E;
use rustix::net::addr::SocketAddrArg;
use std::collections::VecDeque;
use std::fmt;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// What one probe found.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The feature, in a few words.
    pub name: &'static str,
    /// Whether it works here.
    pub verdict: Verdict,
    /// What to do where it does not.
    pub cure: &'static str,
}

/// The outcome of a probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It was used, and did what the driver needs.
    Pass,
    /// It was used, and did not; the cause.
    Fail(String),
    /// It could not be tried; why.
    NotRun(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Pass => f.write_str("pass"),
            Verdict::Fail(cause) => write!(f, "fail: {cause}"),
            Verdict::NotRun(why) => write!(f, "not_run: {why}"),
        }
    }
}

type Check = fn(&mut Rig) -> Result<(), String>;

const NEWER: &str = "Use Linux 6.1 or newer, or --driver epoll.";
const SETUP: &str = "ring setup (SINGLE_ISSUER, DEFER_TASKRUN)";

/// Name, check, cure; in the order that a connection meets them.
const CHECKS: [(&str, Check, &str); 9] = [
    ("multishot accept", accepts_many, NEWER),
    ("connect", connects, NEWER),
    ("multishot receive into provided buffers", receives_many, NEWER),
    ("end of a receive without a free buffer", runs_out, NEWER),
    ("send that waits for all", sends_all, "Use Linux 5.19 or newer, or --driver epoll."),
    ("message of two parts", sends_two_parts, NEWER),
    ("cancel of all on a descriptor", cancels, "Use Linux 5.19 or newer, or --driver epoll."),
    ("wait with a timeout", times_out, "Use Linux 5.11 or newer, or --driver epoll."),
    ("wake by eventfd", wakes, NEWER),
];

/// Runs every probe; takes some milliseconds, or a few seconds where features hang.
pub fn probe() -> Vec<Probe> {
    let setup = match Rig::new() {
        Ok(_) => Probe { name: SETUP, verdict: Verdict::Pass, cure: "" },
        Err(fault) => Probe { name: SETUP, verdict: Verdict::Fail(fault.to_string()), cure: fault.cure() },
    };
    let mut probes = vec![setup];
    probes.extend(CHECKS.map(|(name, check, cure)| {
        let verdict = match Rig::new().map(|mut rig| check(&mut rig)) {
            Ok(Ok(())) => Verdict::Pass,
            Ok(Err(cause)) => Verdict::Fail(cause),
            Err(fault) => Verdict::NotRun(fault.to_string()),
        };
        Probe { name, verdict, cure }
    }));
    probes
}

/// More than both socket buffers of a loopback connection hold; static, so that no operation outlives it.
static PLENTY: [u8; 16 << 20] = [0; 16 << 20];

/// A small ring with four buffers.
struct Rig {
    queue: Queue,
    buffers: Buffers,
    counters: Counters,
    seen: VecDeque<cqueue::Entry>,
}

impl Rig {
    fn new() -> Result<Rig, SetupFault> {
        let sizes = Sizes { submissions: 16, completions: 32, buffers: 4, buffer_bytes: 4096 };
        let ring = make_ring(&sizes)?;
        let buffers = Buffers::new(&ring, &sizes).map_err(SetupFault::from_errno)?;
        Ok(Rig { queue: Queue::new(ring), buffers, counters: Counters::default(), seen: VecDeque::new() })
    }

    fn push(&mut self, entry: squeue::Entry, user_data: u64) {
        self.queue.push(entry.user_data(user_data), &mut self.counters);
    }

    fn submit(&mut self) -> Result<(), String> {
        self.queue.enter(Some(Duration::ZERO), &mut self.counters).map(drop).map_err(|e| e.to_string())
    }

    /// The next completion, which must be of operation `user_data`: its result and flags.
    fn next(&mut self, user_data: u64) -> Result<(i32, u32), String> {
        let mut reaped = Vec::new();
        while self.seen.is_empty() {
            let entered = self.queue.enter(Some(Duration::from_secs(2)), &mut self.counters);
            self.queue.reap(&mut reaped);
            self.seen.extend(reaped.drain(..));
            match entered {
                Err(error) => return Err(error.to_string()),
                Ok(Entered::TimedOut) if self.seen.is_empty() => return Err("no completion in 2 s".into()),
                Ok(_) => {}
            }
        }
        let next = self.seen.pop_front().ok_or("no completion")?;
        match next.user_data() == user_data {
            true => Ok((next.result(), next.flags())),
            false => Err(format!("operation {} completed before {user_data}", next.user_data())),
        }
    }
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

fn expect(what: &str, got: i32, wanted: i32) -> Result<(), String> {
    if got == wanted { Ok(()) } else { Err(format!("{what}: {got} instead of {wanted}")) }
}

fn pair() -> Result<(TcpStream, TcpStream), String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(text)?;
    let near = TcpStream::connect(listener.local_addr().map_err(text)?).map_err(text)?;
    Ok((near, listener.accept().map_err(text)?.0))
}

fn fd_of(of: &impl AsFd) -> types::Fd {
    types::Fd(of.as_fd().as_raw_fd())
}

fn accepts_many(rig: &mut Rig) -> Result<(), String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(text)?;
    let address = listener.local_addr().map_err(text)?;
    rig.push(opcode::AcceptMulti::new(fd_of(&listener)).build(), 1);
    rig.submit()?;
    for _ in 0..3 {
        let _client = TcpStream::connect(address).map_err(text)?;
        let (fd, flags) = rig.next(1)?;
        if fd < 0 {
            return Err(text(crate::Errno(-fd)));
        }
        rig.push(opcode::Close::new(types::Fd(fd)).build(), 2);
        rig.next(2)?;
        if !cqueue::more(flags) {
            return Err("it ended after one connection".into());
        }
    }
    Ok(())
}

fn connects(rig: &mut Rig) -> Result<(), String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(text)?;
    let address = listener.local_addr().map_err(text)?;
    let socket = crate::sock::stream_socket(address).map_err(text)?;
    let to = Box::new(address.as_any());
    rig.push(opcode::Connect::new(fd_of(&socket), to.as_ptr().cast(), to.addr_len()).build(), 1);
    expect("connect", rig.next(1)?.0, 0)
}

fn receives_many(rig: &mut Rig) -> Result<(), String> {
    let (near, mut far) = pair()?;
    rig.push(opcode::RecvMulti::new(fd_of(&near), GROUP).build(), 1);
    rig.submit()?;
    for bytes in [&b"first"[..], b"second"] {
        far.write_all(bytes).map_err(text)?;
        let (len, flags) = rig.next(1)?;
        expect("received", len, bytes.len() as i32)?;
        let id = cqueue::buffer_select(flags).ok_or("a receive named no buffer")?;
        if rig.buffers.bytes(id, len as u32) != bytes || !cqueue::more(flags) {
            return Err("wrong bytes, or it ended after one receive".into());
        }
    }
    drop(far);
    let (len, flags) = rig.next(1)?;
    expect("end", len, 0)?;
    if cqueue::more(flags) { Err("it goes on after the end".into()) } else { Ok(()) }
}

fn runs_out(rig: &mut Rig) -> Result<(), String> {
    let (near, mut far) = pair()?;
    far.write_all(&PLENTY[..5 * 4096]).map_err(text)?;
    rig.push(opcode::RecvMulti::new(fd_of(&near), GROUP).build(), 1);
    for _ in 0..4 {
        expect("received", rig.next(1)?.0, 4096)?;
    }
    expect("without a buffer", rig.next(1)?.0, -E::NOBUFS.raw_os_error())
}

/// Sends `payload` to a reader that begins only when the send has filled both socket buffers.
fn send_whole(rig: &mut Rig, payload: Payload) -> Result<(), String> {
    let (near, mut far) = pair()?;
    let len = payload.len();
    let mut sending = Sending::new(payload);
    let entry = sending.entry(fd_of(&near), &rig.buffers, &mut Frames::new());
    rig.push(entry, 1);
    rig.submit()?;
    let reading = std::thread::spawn(move || far.read_exact(&mut vec![0; len]));
    let sent = rig.next(1);
    drop(near);
    if sent.is_err() {
        // The operation may still be running: what it reads must stay.
        std::mem::forget(sending);
    }
    let read = reading.join().map_err(|_| "the reader failed")?;
    expect("bytes sent", sent?.0, len as i32)?;
    read.map_err(text)
}

fn sends_all(rig: &mut Rig) -> Result<(), String> {
    send_whole(rig, Payload { head: Vec::new(), body: Body::Static(&PLENTY) })
}

fn sends_two_parts(rig: &mut Rig) -> Result<(), String> {
    send_whole(rig, Payload { head: b"head".to_vec(), body: Body::Static(&PLENTY) })
}

fn cancels(rig: &mut Rig) -> Result<(), String> {
    let (near, _far) = pair()?;
    rig.push(opcode::RecvMulti::new(fd_of(&near), GROUP).build(), 1);
    rig.push(
        opcode::Send::new(fd_of(&near), PLENTY.as_ptr(), PLENTY.len() as u32)
            .flags(libc::MSG_WAITALL)
            .build(),
        1,
    );
    rig.submit()?;
    rig.push(opcode::AsyncCancel2::new(types::CancelBuilder::fd(fd_of(&near)).all()).build(), 2);
    rig.submit()?;
    let mut reaped = Vec::new();
    while rig.seen.len() < 3 {
        let entered = rig.queue.enter(Some(Duration::from_secs(2)), &mut rig.counters).map_err(text)?;
        rig.queue.reap(&mut reaped);
        rig.seen.extend(reaped.drain(..));
        if entered == Entered::TimedOut {
            return Err(format!("{} of 3 operations ended", rig.seen.len()));
        }
    }
    let cancel = rig.seen.iter().find(|entry| entry.user_data() == 2).ok_or("the cancel did not end")?;
    expect("cancelled operations", cancel.result(), 2)
}

fn times_out(rig: &mut Rig) -> Result<(), String> {
    match rig.queue.enter(Some(Duration::from_millis(2)), &mut rig.counters) {
        Ok(Entered::TimedOut) => Ok(()),
        Ok(Entered::Some) => Err("it returned before its time".into()),
        Err(error) => Err(text(error)),
    }
}

fn wakes(rig: &mut Rig) -> Result<(), String> {
    static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let bell = Bell::new().map_err(text)?;
    rig.push(opcode::Read::new(fd_of(&bell), COUNT.as_ptr().cast(), 8).build(), 1);
    rig.submit()?;
    let waking = std::thread::spawn({
        let bell = bell.clone();
        move || bell.wake()
    });
    let woken = rig.next(1);
    waking.join().map_err(|_| "the waking thread failed")?;
    expect("bytes of the count", woken?.0, 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_passes_where_a_ring_can_be_made() {
        let probes = probe();
        assert_eq!(probes.len(), CHECKS.len() + 1);
        if probes[0].verdict != Verdict::Pass {
            assert!(probes[1..].iter().all(|probe| matches!(probe.verdict, Verdict::NotRun(_))));
            return eprintln!("not_run: {}", probes[0].verdict);
        }
        for probe in probes {
            assert_eq!(probe.verdict, Verdict::Pass, "{}", probe.name);
        }
    }
}
