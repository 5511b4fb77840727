//! The one HTTP client of a source: one request at a time to the engine's own port. Owns its connection, kept
//! from request to request, and the request's deadline; must never know what an answer means.

use super::net::{Net, Owner, Use};
use crate::http::{Answer, Reading, request};
use std::net::SocketAddr;
use warmpath_core::Nanos;
use warmpath_parser::http1::Method;
use warmpath_ring::{Ring, Sock};

/// What became of a request.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The whole answer.
    Answered(Answer),
    /// No connection: the engine never saw the request.
    Unreached,
    /// The request was on its way, and no whole answer came.
    Lost,
}

/// A request under way.
struct Task {
    bytes: Vec<u8>,
    reading: Reading,
    deadline: Nanos,
    is_sent: bool,
    /// The connection served others before: it may be dead without this request having reached anybody.
    is_reused: bool,
    may_repeat: bool,
}

/// A request.
pub(super) struct Wanted {
    pub method: Method,
    pub path: &'static str,
    /// Bytes that the answer's body may have.
    pub body_max: usize,
    /// How long it may take.
    pub wait: Nanos,
}

/// The client of one source.
pub(super) struct Client {
    endpoint: SocketAddr,
    owner: Owner,
    sock: Option<Sock>,
    is_open: bool,
    task: Option<Task>,
}

impl Client {
    pub fn new(source: u32, endpoint: SocketAddr) -> Client {
        let owner = Owner { source, what: Use::Http };
        Client { endpoint, owner, sock: None, is_open: false, task: None }
    }

    /// Whether a request is under way.
    pub fn is_busy(&self) -> bool {
        self.task.is_some()
    }

    /// When the request under way has failed.
    pub fn deadline(&self) -> Option<Nanos> {
        self.task.as_ref().map(|task| task.deadline)
    }

    /// Begins a request; none may be under way. It may end at once.
    pub fn begin<R: Ring>(&mut self, now: Nanos, wanted: &Wanted, net: &mut Net<R>) -> Option<Outcome> {
        let is_reused = self.sock.is_some() && self.is_open;
        self.task = Some(Task {
            bytes: request(wanted.method, wanted.path, self.endpoint),
            reading: Reading::new(wanted.body_max),
            deadline: now + wanted.wait,
            is_sent: false,
            is_reused,
            may_repeat: wanted.method == Method::Get,
        });
        self.go_on(net)
    }

    /// The connection attempt ended.
    pub fn connected<R: Ring>(&mut self, sock: Sock, is_up: bool, net: &mut Net<R>) -> Option<Outcome> {
        if self.sock != Some(sock) {
            return None;
        }
        if !is_up {
            self.sock = None;
            return self.task.take().map(|_| Outcome::Unreached);
        }
        self.is_open = true;
        self.go_on(net)
    }

    /// Bytes of the connection.
    pub fn bytes(&mut self, bytes: &[u8]) -> Option<Outcome> {
        let Some(task) = &mut self.task else {
            // Nobody asked: the connection is closed by the next call of `tidy`.
            self.is_open = false;
            return None;
        };
        let outcome = match task.reading.receive(bytes) {
            Ok(None) => return None,
            Ok(Some(answer)) => {
                self.is_open = answer.persists;
                Outcome::Answered(answer)
            }
            Err(_) => {
                self.is_open = false;
                Outcome::Lost
            }
        };
        self.task = None;
        Some(outcome)
    }

    /// The connection is gone.
    pub fn lost<R: Ring>(&mut self, sock: Sock, net: &mut Net<R>) -> Option<Outcome> {
        if self.sock != Some(sock) {
            return None;
        }
        self.sock = None;
        self.is_open = false;
        let mut task = self.task.take()?;
        if let Ok(answer) = task.reading.ended() {
            return Some(Outcome::Answered(answer));
        }
        if task.is_reused && task.may_repeat && task.reading.is_fresh() {
            self.task = Some(Task { is_sent: false, is_reused: false, ..task });
            return self.go_on(net);
        }
        Some(if task.is_sent { Outcome::Lost } else { Outcome::Unreached })
    }

    /// Gives a request up that took too long.
    pub fn tick<R: Ring>(&mut self, now: Nanos, net: &mut Net<R>) -> Option<Outcome> {
        let task = self.task.take_if(|task| now >= task.deadline)?;
        self.close(net);
        Some(if task.is_sent { Outcome::Lost } else { Outcome::Unreached })
    }

    /// Closes a connection that no other request may use.
    pub fn tidy<R: Ring>(&mut self, net: &mut Net<R>) {
        if self.task.is_none() && !self.is_open {
            self.close(net);
        }
    }

    /// Closes the connection and forgets the request.
    pub fn close<R: Ring>(&mut self, net: &mut Net<R>) {
        self.task = None;
        self.is_open = false;
        if let Some(sock) = self.sock.take() {
            net.close(sock);
        }
    }

    /// Sends what waits: the socket may be free now.
    pub fn go_on<R: Ring>(&mut self, net: &mut Net<R>) -> Option<Outcome> {
        let task = self.task.as_mut()?;
        match self.sock {
            // The send before may be over for the engine and not yet for the ring.
            Some(sock) if self.is_open && !task.is_sent && !net.is_sending(sock) => {
                task.is_sent = true;
                net.send(sock, task.bytes.clone());
                None
            }
            Some(_) => None,
            None => match net.dial(self.endpoint, self.owner) {
                Ok(sock) => {
                    self.sock = Some(sock);
                    None
                }
                Err(_) => self.task.take().map(|_| Outcome::Unreached),
            },
        }
    }
}
