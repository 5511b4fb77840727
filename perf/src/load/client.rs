//! One keep-alive connection of the load generator. Must never send a request twice: a failure is
//! recorded, not hidden by a retry.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::answer::Answer;
use super::record::Failure;
use crate::Error;

/// When the parts of a good answer came.
#[derive(Debug, Clone)]
pub struct Timed {
    /// The first event of a stream, or the last byte of a whole answer.
    pub first: Instant,
    /// The last byte.
    pub end: Instant,
    /// Times between events of a stream.
    pub gaps: Vec<Duration>,
    /// Bytes of head and body.
    pub bytes: u64,
}

/// A connection made on first use and again after a failure or an announced close.
#[derive(Debug)]
pub struct Client {
    target: SocketAddr,
    stream: Option<TcpStream>,
    used: Instant,
}

impl Client {
    /// A client that has not connected yet.
    pub fn new(target: SocketAddr) -> Self {
        Client { target, stream: None, used: Instant::now() }
    }

    /// Connects, so that an absent server is told before any load.
    pub async fn reach(&mut self) -> Result<(), Error> {
        let told = |e: std::io::Error| {
            Error::new(format!("nothing answers at {} ({e}); start the server or correct --url", self.target))
        };
        self.stream = Some(TcpStream::connect(self.target).await.map_err(told)?);
        Ok(())
    }

    /// Time since the last answer.
    pub fn idle(&self) -> Duration {
        self.used.elapsed()
    }

    /// Forgets the connection, for a request whose answer is not awaited to its end.
    pub fn drop_connection(&mut self) {
        self.stream = None;
    }

    /// Sends a request and checks its answer to the last byte.
    pub async fn exchange(&mut self, request: &[u8], stream: bool) -> Result<Timed, Failure> {
        let mut socket = match self.stream.take() {
            Some(socket) => socket,
            None => connect(self.target).await?,
        };
        if socket.write_all(request).await.is_err() {
            return Err(Failure::Closed);
        }
        let mut answer = Answer::new(stream);
        let mut part = vec![0; 16 * 1024];
        while !answer.done() {
            let got = socket.read(&mut part).await.map_err(|_| answer.cut())?;
            match got {
                0 => answer.end_of_input(Instant::now())?,
                _ => answer.feed(&part[..got], Instant::now())?,
            }
        }
        if answer.keep_alive() {
            self.stream = Some(socket);
        }
        self.used = Instant::now();
        answer.timed()
    }
}

async fn connect(target: SocketAddr) -> Result<TcpStream, Failure> {
    let stream = TcpStream::connect(target).await.map_err(|_| Failure::Connect)?;
    stream.set_nodelay(true).map_err(|_| Failure::Connect)?;
    Ok(stream)
}
