//! glommio under the task relay: its connections as [`Wire`], its listener. glommio chooses its rings' flags
//! itself. Must never hold relay logic.

use crate::task_relay::{Pool, Wire, serve};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::net::{TcpListener, TcpStream};
use glommio::{LocalExecutorBuilder, Placement};
use std::io;
use std::net::SocketAddr;

/// A buffer of fixed size of which the first bytes are filled.
pub struct Filled {
    bytes: Vec<u8>,
    len: usize,
}

impl From<Vec<u8>> for Filled {
    fn from(bytes: Vec<u8>) -> Filled {
        Filled { len: bytes.len(), bytes }
    }
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Wire for TcpStream {
    type Buffer = Filled;

    async fn dial(to: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    async fn read(&mut self, mut buffer: Filled) -> io::Result<Filled> {
        buffer.len = AsyncReadExt::read(self, &mut buffer.bytes).await?;
        Ok(buffer)
    }

    async fn write(&mut self, buffer: Filled) -> io::Result<Filled> {
        self.write_all(buffer.as_ref()).await?;
        Ok(buffer)
    }
}

/// Relays to `upstream` until the process ends, on `core`; `listening` is told the address.
pub fn run(upstream: SocketAddr, core: usize, listening: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let executor = LocalExecutorBuilder::new(Placement::Fixed(core)).make()?;
    executor.run(async {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        listening(listener.local_addr()?);
        let pool = Pool::new(upstream);
        loop {
            let client = listener.accept().await?;
            client.set_nodelay(true)?;
            glommio::spawn_local(serve(client, pool.clone())).detach();
        }
    })
}
