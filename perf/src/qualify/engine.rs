//! An engine that checks every byte of a request against its case and answers with that case's bytes. Owns
//! its listener and threads; must never import a crate of this workspace.

use super::case::Case;
use crate::wire::Dechunker;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest head.
const HEAD_MAX: usize = 16 * 1024;
/// Longest wait for a byte.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A running engine; stopped when dropped.
pub struct Engine {
    /// Where it listens.
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Listens on a free loopback port.
    pub fn start() -> io::Result<Engine> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        let thread = std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                if stopping.load(Relaxed) {
                    return;
                }
                // A connection that breaks is told by the client, which misses its answer.
                std::thread::spawn(move || drop(serve(connection)));
            }
        });
        Ok(Engine { address, stop, thread: Some(thread) })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        // Wakes the listening thread.
        let woken = TcpStream::connect(self.address).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

fn serve(stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut connection = Connection::new(stream);
    while let Some(head) = connection.head()? {
        let case = request_case(&head)?;
        let body = connection.body(&head)?;
        match case.up.compare(&body) {
            Ok(()) => {
                let head = format!("HTTP/1.1 200 OK\r\n{}\r\n", case.down.header());
                connection.send(head.into_bytes())?;
                case.down.framed().into_iter().try_for_each(|piece| connection.send(piece))?;
            }
            Err(told) => {
                let told = format!("the engine got a wrong request: {told}");
                let length = told.len();
                connection
                    .send(format!("HTTP/1.1 500 No\r\nContent-Length: {length}\r\n\r\n{told}").into())?;
            }
        }
    }
    Ok(())
}

/// `POST /qualify/SEED HTTP/1.1`.
fn request_case(head: &str) -> io::Result<Case> {
    let seed = head.split(' ').nth(1).and_then(|path| path.strip_prefix("/qualify/")?.parse().ok());
    seed.map(Case::of).ok_or_else(|| invalid("a request that no case makes"))
}

/// An error of what came.
pub fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A connection read message by message; either end uses it.
pub struct Connection<S = TcpStream> {
    stream: S,
    held: Vec<u8>,
}

impl<S: Read + Write> Connection<S> {
    /// A connection of which nothing was read.
    pub fn new(stream: S) -> Connection<S> {
        Connection { stream, held: Vec::new() }
    }

    /// Writes all of it.
    pub fn send(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        self.stream.write_all(&bytes)
    }

    /// The next head, in lower case, without its empty line; `None` at the end.
    pub fn head(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.held.windows(4).position(|w| w == b"\r\n\r\n") {
                let rest = self.held.split_off(end + 4);
                let head = std::mem::replace(&mut self.held, rest);
                return Ok(Some(String::from_utf8_lossy(&head[..end]).to_ascii_lowercase()));
            }
            if self.held.len() > HEAD_MAX {
                return Err(invalid("a head without end"));
            }
            if self.more()? == 0 {
                return if self.held.is_empty() { Ok(None) } else { Err(invalid("a head cut short")) };
            }
        }
    }

    /// The body that `head` announces.
    pub fn body(&mut self, head: &str) -> io::Result<Vec<u8>> {
        let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        if value("transfer-encoding:") == Some("chunked") {
            return self.chunked();
        }
        let length =
            value("content-length:").map_or(Ok(0), str::parse).map_err(|_| invalid("a bad length"))?;
        while self.held.len() < length {
            if self.more()? == 0 {
                return Err(invalid("a body cut short"));
            }
        }
        let rest = self.held.split_off(length);
        Ok(std::mem::replace(&mut self.held, rest))
    }

    fn chunked(&mut self) -> io::Result<Vec<u8>> {
        let (mut chunks, mut body) = (Dechunker::default(), Vec::new());
        loop {
            let used = chunks.feed(&self.held, &mut body).map_err(invalid)?;
            self.held.drain(..used);
            if chunks.done() {
                return Ok(body);
            }
            if self.more()? == 0 {
                return Err(invalid("a chunked body cut short"));
            }
        }
    }

    /// Reads on; how much, 0 at the end.
    fn more(&mut self) -> io::Result<usize> {
        let mut part = [0; 64 * 1024];
        let got = loop {
            match self.stream.read(&mut part) {
                // A read with a timeout is not taken up again by the kernel (signal(7)): a process that was
                // stopped and continued sees this.
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.held.extend_from_slice(&part[..got]);
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interrupts each read once; then a few bytes come.
    struct Interrupting {
        incoming: &'static [u8],
        interrupted: bool,
    }

    impl Read for Interrupting {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.interrupted = !self.interrupted;
            if self.interrupted {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let few = into.len().min(7);
            self.incoming.read(&mut into[..few])
        }
    }

    impl Write for Interrupting {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            Ok(from.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_interrupted_read_is_taken_up_again() {
        let incoming = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world";
        let mut connection = Connection::new(Interrupting { incoming, interrupted: false });
        let head = connection.head().unwrap().unwrap();
        assert_eq!(head, "http/1.1 200 ok\r\ncontent-length: 11");
        assert_eq!(connection.body(&head).unwrap(), b"hello world");
        assert_eq!(connection.head().unwrap(), None);
    }
}
