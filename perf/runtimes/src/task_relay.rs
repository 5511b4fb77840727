//! The relay as one task for each client, on a runtime with async and await.
//!
//! Owns the order of an exchange and the pool of idle upstream connections, last used first. An exchange is
//! half duplex, request then response, which spares the runtimes a select that the ring's relay has no need
//! of. Idle upstream connections are not watched. Must never name a runtime: [`Wire`] is all it knows.

use crate::message::{Fed, Scanner, Side};
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

/// Bytes read at once; the same as one of the ring's buffers.
const BUFFER_BYTES: usize = 16 * 1024;

/// A connection of one runtime. Buffers move in and out, as rings demand.
pub trait Wire: Sized {
    /// The kind of buffer that the runtime reads into; made from bytes whose length is its capacity.
    type Buffer: AsRef<[u8]> + From<Vec<u8>>;

    /// Connects, without delay of small segments.
    async fn dial(to: SocketAddr) -> io::Result<Self>;

    /// Reads what is there into the buffer, from its start; empty at the end.
    async fn read(&mut self, buffer: Self::Buffer) -> io::Result<Self::Buffer>;

    /// Writes all bytes of the buffer.
    async fn write(&mut self, buffer: Self::Buffer) -> io::Result<Self::Buffer>;
}

/// Idle connections to the upstream.
pub struct Pool<W> {
    upstream: SocketAddr,
    idle: RefCell<Vec<W>>,
}

impl<W: Wire> Pool<W> {
    /// An empty pool.
    pub fn new(upstream: SocketAddr) -> Rc<Pool<W>> {
        Rc::new(Pool { upstream, idle: RefCell::new(Vec::new()) })
    }

    async fn take(&self) -> io::Result<W> {
        let idle = self.idle.borrow_mut().pop();
        match idle {
            Some(wire) => Ok(wire),
            None => W::dial(self.upstream).await,
        }
    }
}

/// Serves one client until it leaves. An error closes it and the upstream connection of the exchange.
pub async fn serve<W: Wire>(mut client: W, pool: Rc<Pool<W>>) -> io::Result<()> {
    let mut buffer = W::Buffer::from(vec![0; BUFFER_BYTES]);
    let (mut request, mut response) = (Scanner::new(Side::Request), Scanner::new(Side::Response));
    loop {
        buffer = client.read(buffer).await?;
        if buffer.as_ref().is_empty() {
            return Ok(());
        }
        let mut upstream = pool.take().await?;
        buffer = pass(&mut client, &mut upstream, &mut request, buffer).await?;
        buffer = upstream.read(buffer).await?;
        buffer = pass(&mut upstream, &mut client, &mut response, buffer).await?;
        request.reset();
        response.reset();
        pool.idle.borrow_mut().push(upstream);
    }
}

/// Passes one message on, whose first bytes are in the buffer.
async fn pass<W: Wire>(
    from: &mut W,
    to: &mut W,
    scanner: &mut Scanner,
    mut buffer: W::Buffer,
) -> io::Result<W::Buffer> {
    loop {
        if buffer.as_ref().is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Fed::Forward { kept, done } = scanner.feed(buffer.as_ref())? {
            if !kept.is_empty() {
                to.write(kept.into()).await?;
            }
            buffer = to.write(buffer).await?;
            if done {
                return Ok(buffer);
            }
        }
        buffer = from.read(buffer).await?;
    }
}
