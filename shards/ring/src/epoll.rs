//! The epoll driver: the same contract where io_uring is missing or forbidden. Owns readiness; must never
//! block but in [`Ring::wait`].
//!
//! Chosen for the fewest system calls: a connection is added once, edge-triggered for both directions, and
//! never modified; readiness is remembered. Sends are attempted at once and their ends reported by the
//! next wait. One socket reads at most [`READS_A_TURN`] buffers a turn, so that none starves the others.

pub(crate) mod conn;
pub(crate) mod pool;

use crate::slots::Slots;
use crate::sock::{ACCEPT_PAUSE_NS, accept_needs_pause, accept_now, keep_alive, stream_socket};
use crate::tcp_info::bytes_acknowledged;
use crate::wake::Bell;
use crate::{Body, Counters, Errno, Event, Held, Listener, Payload, Ring, Sizes, Sock, Wake, clock};
use conn::{Conn, write_all};
use pool::Pool;
use rustix::event::epoll;
use rustix::io::Errno as E;
use rustix::net::{Shutdown, connect, shutdown, sockopt};
use rustix::time::Timespec;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Buffers that one socket may fill in one turn.
pub const READS_A_TURN: usize = 8;

/// Connections that one listener may accept in one turn.
const ACCEPTS_A_TURN: usize = 64;

/// Readiness reports taken from the kernel at once.
const REPORTS_A_TURN: usize = 256;

/// The key of the bell, and the flag of a listener's key; a connection's key is its generation and slot.
const BELL: u64 = u64::MAX;
const LISTENER: u64 = 1 << 31;

/// The epoll driver, see the file's head.
pub struct Epoll {
    epoll: OwnedFd,
    conns: Slots<Conn>,
    listeners: Vec<Option<Listening>>,
    pool: Pool,
    /// Sockets with something to read, in turn.
    to_read: VecDeque<Sock>,
    /// Sockets with something to read and no buffer to read it into.
    starved: VecDeque<Sock>,
    /// Events for the next wait to hand over.
    ready: Vec<Event>,
    reports: Vec<epoll::Event>,
    bell: Arc<Bell>,
    counters: Counters,
}

struct Listening {
    fd: OwnedFd,
    /// When to accept again after descriptors ran out, in the clock's nanoseconds.
    retry_at: Option<u64>,
}

fn key_of(sock: Sock) -> u64 {
    u64::from(sock.generation) << 32 | u64::from(sock.slot)
}

impl Epoll {
    /// A driver. Errors are the kernel's: out of descriptors or memory.
    pub fn new(sizes: Sizes) -> Result<Epoll, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = Bell::new()?;
        epoll::add(&epoll, bell.as_fd(), epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        Ok(Epoll {
            epoll,
            conns: Slots::new(),
            listeners: Vec::new(),
            pool: Pool::new(&sizes),
            to_read: VecDeque::new(),
            starved: VecDeque::new(),
            ready: Vec::new(),
            reports: Vec::with_capacity(REPORTS_A_TURN),
            bell,
            counters: Counters::default(),
        })
    }

    /// Takes a socket in and tells epoll of it, once for its life.
    fn adopt(&mut self, conn: Conn) -> Result<Sock, Errno> {
        let sock = self.conns.insert(conn).ok_or(Errno(E::MFILE.raw_os_error()))?;
        let Some(conn) = self.conns.get_mut(sock) else { return Err(Errno(E::BADF.raw_os_error())) };
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let added = epoll::add(&self.epoll, &conn.fd, epoll::EventData::new_u64(key_of(sock)), flags);
        if let Err(error) = added {
            self.conns.remove(sock);
            return Err(Errno::from(error));
        }
        Ok(sock)
    }

    fn queue_read(&mut self, sock: Sock) {
        if let Some(conn) = self.conns.get_mut(sock).filter(|conn| conn.may_queue()) {
            conn.queued = true;
            self.to_read.push_back(sock);
        }
    }

    /// What epoll said about a socket.
    fn report(&mut self, sock: Sock, flags: epoll::EventFlags) {
        use epoll::EventFlags as F;
        let Some(conn) = self.conns.get_mut(sock) else { return };
        if conn.connecting && flags.intersects(F::OUT | F::ERR | F::HUP) {
            self.finish_connect(sock);
        }
        let Some(conn) = self.conns.get_mut(sock) else { return };
        conn.hung_up |= flags.intersects(F::RDHUP | F::HUP | F::ERR);
        conn.readable |= flags.intersects(F::IN | F::RDHUP | F::HUP | F::ERR);
        self.queue_read(sock);
        if flags.intersects(F::OUT | F::ERR | F::HUP) {
            self.go_on_sending(sock);
        }
    }

    fn finish_connect(&mut self, sock: Sock) {
        let Some(conn) = self.conns.get_mut(sock) else { return };
        conn.connecting = false;
        let result = match sockopt::socket_error(&conn.fd) {
            Ok(result) => result.map_err(Errno::from),
            Err(error) => Err(Errno::from(error)),
        };
        // Nothing can be received from a connection that never was.
        conn.ended |= result.is_err();
        self.ready.push(Event::Connected { sock, result });
    }

    fn go_on_sending(&mut self, sock: Sock) {
        let Some(conn) = self.conns.get_mut(sock) else { return };
        let Some((payload, mut done)) = conn.sending.take() else { return };
        let parts = payload.parts(|held| self.pool.bytes(held.id, held.len));
        match write_all(&conn.fd, parts, &mut done) {
            None => conn.sending = Some((payload, done)),
            Some(result) => {
                if conn.shutdown_due {
                    let _ = shutdown(&conn.fd, Shutdown::Write);
                }
                self.ready.push(Event::Sent { sock, payload, result });
            }
        }
    }

    /// Reads from every socket that was ready at the start of the turn, each within its budget.
    fn read_all(&mut self) {
        for _ in 0..self.to_read.len() {
            let Some(sock) = self.to_read.pop_front() else { break };
            let Some(conn) = self.conns.get_mut(sock) else { continue };
            conn.queued = false;
            for _ in 0..READS_A_TURN {
                if !self.read_one(sock) {
                    break;
                }
            }
            self.queue_read(sock);
        }
    }

    /// One read; whether another may follow.
    fn read_one(&mut self, sock: Sock) -> bool {
        let Some(conn) = self.conns.get_mut(sock).filter(|conn| conn.may_queue()) else { return false };
        let Some(id) = self.pool.take() else {
            conn.starved = true;
            self.starved.push_back(sock);
            self.counters.starved += 1;
            return false;
        };
        let result = conn.read(self.pool.whole_mut(id));
        if let Ok(len) = result
            && len > 0
        {
            self.ready.push(Event::Received { sock, buffer: Held { id, len: len as u32 } });
            return true;
        }
        self.pool.give(id);
        match result {
            Err(E::AGAIN) => return false,
            Err(error) => self.ready.push(Event::Failed { sock, error: Errno::from(error) }),
            Ok(_) => self.ready.push(Event::Ended { sock }),
        }
        conn.ended = true;
        false
    }

    /// Moves sockets off the wait list while buffers are free.
    fn serve_starved(&mut self) {
        let mut budget = self.pool.free();
        while budget > 0 {
            let Some(sock) = self.starved.pop_front() else { break };
            let Some(conn) = self.conns.get_mut(sock) else { continue };
            conn.starved = false;
            if conn.may_queue() {
                budget -= 1;
                self.counters.rearmed += 1;
                self.queue_read(sock);
            }
        }
    }

    fn accept_some(&mut self, index: usize, at_most: usize) {
        for _ in 0..at_most {
            let Some(Some(listening)) = self.listeners.get(index) else { return };
            let listener = Listener(index as u32);
            match accept_now(&listening.fd) {
                Ok((fd, peer)) => self.welcome(listener, fd, peer),
                Err(error) if error == Errno::from(E::AGAIN) => return,
                Err(error) => {
                    self.ready.push(Event::AcceptFailed { listener, error });
                    if accept_needs_pause(error) {
                        return self.rest_listener(index);
                    }
                }
            }
        }
    }

    fn welcome(&mut self, listener: Listener, fd: OwnedFd, peer: SocketAddr) {
        match self.adopt(Conn::new(fd)) {
            Ok(sock) => self.ready.push(Event::Accepted { listener, sock, peer }),
            Err(error) => self.ready.push(Event::AcceptFailed { listener, error }),
        }
    }

    /// Stops watching a listener for a while: its queue is level-triggered and would spin.
    fn rest_listener(&mut self, index: usize) {
        if let Some(Some(listening)) = self.listeners.get_mut(index) {
            listening.retry_at = Some(clock::now() + ACCEPT_PAUSE_NS);
            let key = epoll::EventData::new_u64(LISTENER | index as u64);
            let _ = epoll::modify(&self.epoll, &listening.fd, key, epoll::EventFlags::empty());
        }
    }

    /// Watches again the listeners whose rest is over; tells when the next one's is.
    fn wake_listeners(&mut self) -> Option<u64> {
        let resting = self.listeners.iter().flatten().any(|listening| listening.retry_at.is_some());
        if !resting {
            return None;
        }
        let now = clock::now();
        for (index, listening) in self.listeners.iter_mut().enumerate() {
            let Some(listening) = listening else { continue };
            if listening.retry_at.is_some_and(|at| at <= now) {
                listening.retry_at = None;
                let key = epoll::EventData::new_u64(LISTENER | index as u64);
                let _ = epoll::modify(&self.epoll, &listening.fd, key, epoll::EventFlags::IN);
            }
        }
        self.listeners.iter().flatten().filter_map(|listening| listening.retry_at).min()
    }

    fn discard(&mut self, payload: Payload) {
        if let Body::Held { buffer, .. } = payload.body {
            self.pool.give(buffer.id);
        }
    }

    /// Takes back events that name a socket just closed.
    fn withdraw(&mut self, sock: Sock) {
        let names = |event: &mut Event| event.sock() == Some(sock);
        let withdrawn: Vec<Event> = self.ready.extract_if(.., names).collect();
        for event in withdrawn {
            match event {
                Event::Sent { payload, .. } => self.discard(payload),
                Event::Received { buffer, .. } => self.release(buffer),
                _ => {}
            }
        }
    }

    fn rang(&mut self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(self.bell.as_fd(), &mut count);
        self.bell.silence();
        self.ready.push(Event::Woken);
    }

    /// Asks the kernel what is ready, waiting at most `limit`, then reads and writes.
    fn turn(&mut self, limit: Option<Duration>) -> Result<(), Errno> {
        self.serve_starved();
        let busy = !self.ready.is_empty() || !self.to_read.is_empty();
        let limit = if busy { Some(Duration::ZERO) } else { limit };
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        self.counters.enters += 1;
        let mut reports = std::mem::take(&mut self.reports);
        reports.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut reports), limit.as_ref()) {
            Ok(_) | Err(E::INTR) => {}
            Err(error) => return Err(Errno::from(error)),
        }
        for report in reports.drain(..) {
            let (key, flags) = (report.data.u64(), report.flags);
            if key == BELL {
                self.rang();
            } else if key & LISTENER != 0 {
                self.accept_some((key & (LISTENER - 1)) as usize, ACCEPTS_A_TURN);
            } else {
                self.report(Sock { slot: key as u32, generation: (key >> 32) as u32 }, flags);
            }
        }
        self.reports = reports;
        self.read_all();
        Ok(())
    }
}

impl Ring for Epoll {
    fn listen(&mut self, socket: OwnedFd) -> Result<Listener, Errno> {
        // Accepted sockets inherit it, which saves a call for each.
        sockopt::set_tcp_nodelay(&socket, true)?;
        let index = match self.listeners.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                self.listeners.push(None);
                self.listeners.len() - 1
            }
        };
        let key = epoll::EventData::new_u64(LISTENER | index as u64);
        epoll::add(&self.epoll, &socket, key, epoll::EventFlags::IN)?;
        self.listeners[index] = Some(Listening { fd: socket, retry_at: None });
        Ok(Listener(index as u32))
    }

    fn close_listener(&mut self, listener: Listener) {
        let index = listener.0 as usize;
        let Some(Some(listening)) = self.listeners.get_mut(index) else { return };
        // Closing would reset what waits in the queue: kernel-notes/0010.
        let resting = listening.retry_at.is_some();
        if !resting {
            self.accept_some(index, usize::MAX);
        }
        self.listeners[index] = None;
        self.ready.push(Event::ListenerClosed { listener });
    }

    fn connect(&mut self, to: SocketAddr) -> Result<Sock, Errno> {
        let fd = stream_socket(to)?;
        sockopt::set_tcp_nodelay(&fd, true)?;
        let begun = connect(&fd, &to);
        let mut conn = Conn::new(fd);
        conn.connecting = begun == Err(E::INPROGRESS);
        conn.ended = !conn.connecting && begun.is_err();
        let ended = !conn.connecting;
        let sock = self.adopt(conn)?;
        if ended {
            self.ready.push(Event::Connected { sock, result: begun.map_err(Errno::from) });
        }
        Ok(sock)
    }

    fn receive(&mut self, sock: Sock) {
        let Some(conn) = self.conns.get_mut(sock) else { return };
        conn.wanted = true;
        self.queue_read(sock);
    }

    fn pause(&mut self, sock: Sock) {
        if let Some(conn) = self.conns.get_mut(sock) {
            conn.wanted = false;
        }
    }

    fn send(&mut self, sock: Sock, payload: Payload) {
        let Some(conn) = self.conns.get_mut(sock) else { return self.discard(payload) };
        assert!(conn.sending.is_none(), "one send in flight a socket");
        conn.sending = Some((payload, 0));
        self.go_on_sending(sock);
    }

    fn shutdown_write(&mut self, sock: Sock) {
        let Some(conn) = self.conns.get_mut(sock) else { return };
        conn.shutdown_due = true;
        if conn.sending.is_none() {
            // A failure means that the connection is gone, which receiving reports.
            let _ = shutdown(&conn.fd, Shutdown::Write);
        }
    }

    fn keep_alive(&mut self, sock: Sock, silence: Duration) {
        if let Some(conn) = self.conns.get_mut(sock) {
            // A socket that refuses is dead, which receiving reports.
            let _ = keep_alive(&conn.fd, silence);
        }
    }

    fn acknowledged(&mut self, sock: Sock) -> Option<u64> {
        bytes_acknowledged(self.conns.get_mut(sock)?.fd.as_fd())
    }

    fn close(&mut self, sock: Sock) {
        // Closing the descriptor takes it out of epoll; reports already fetched name the old generation.
        let Some(conn) = self.conns.remove(sock) else { return };
        if let Some((payload, _)) = conn.sending {
            self.discard(payload);
        }
        self.withdraw(sock);
    }

    fn bytes(&self, held: &Held) -> &[u8] {
        self.pool.bytes(held.id, held.len)
    }

    fn bytes_mut(&mut self, held: &Held) -> &mut [u8] {
        self.pool.bytes_mut(held.id, held.len)
    }

    fn release(&mut self, held: Held) {
        self.pool.give(held.id);
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> Result<(), Errno> {
        let deadline = timeout.map(clock::deadline);
        loop {
            let until = match (deadline, self.wake_listeners()) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            self.turn(until.map(clock::until))?;
            if !self.ready.is_empty() {
                events.append(&mut self.ready);
                return Ok(());
            }
            if deadline.is_some_and(|at| at <= clock::now()) {
                return Ok(());
            }
        }
    }

    fn now(&self) -> u64 {
        clock::now()
    }

    fn cpu_time(&self) -> u64 {
        clock::cpu_time()
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.bell.clone()
    }

    fn counters(&self) -> Counters {
        let sockets = self.conns.len() as u64;
        Counters { sockets, buffers_free: self.pool.free() as u64, ..self.counters }
    }
}
