//! monoio under the task relay: its connections as [`Wire`], its listener, its setup flags.
//! Must never hold relay logic.

use crate::task_relay::{Pool, Wire, serve};
use io_uring::IoUring;
use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::{TcpListener, TcpStream};
use monoio::{IoUringDriver, RuntimeBuilder};
use std::io;
use std::net::SocketAddr;

impl Wire for TcpStream {
    type Buffer = Vec<u8>;

    async fn dial(to: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_addr(to).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    // A read fills the whole capacity and sets the length to what came; a slice of the vector would also
    // shorten it, and bound the next read.
    async fn read(&mut self, buffer: Vec<u8>) -> io::Result<Vec<u8>> {
        let (result, buffer) = AsyncReadRent::read(self, buffer).await;
        result.map(|_| buffer)
    }

    async fn write(&mut self, buffer: Vec<u8>) -> io::Result<Vec<u8>> {
        let (result, buffer) = self.write_all(buffer).await;
        result.map(|_| buffer)
    }
}

/// Relays to `upstream` until the process ends; `listening` is told the address. `flags`: with the deferring
/// pair, else the ring as monoio sets it up by itself.
pub fn run(upstream: SocketAddr, flags: bool, listening: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let mut builder = RuntimeBuilder::<IoUringDriver>::new();
    if flags {
        let mut ring = IoUring::builder();
        ring.setup_single_issuer().setup_defer_taskrun();
        builder = builder.uring_builder(ring);
    }
    builder.build()?.block_on(async {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        listening(listener.local_addr()?);
        let pool = Pool::new(upstream);
        loop {
            let (client, _) = listener.accept().await?;
            client.set_nodelay(true)?;
            monoio::spawn(serve(client, pool.clone()));
        }
    })
}
