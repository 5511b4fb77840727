//! Names of sockets, and how sockets are made. Owns the socket options; must never read or write one.

use crate::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A connection known to a driver: a slot, and the generation that tells its tenants apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Sock {
    /// Index into the driver's table; small and dense, so a shard may index a table of its own by it.
    pub slot: u32,
    /// Grows each time the slot gets a new tenant.
    pub generation: u32,
}

/// A listener known to a driver.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Listener(pub u32);

/// Connections that may wait in a listener's queue.
const BACKLOG: i32 = 4096;

/// Opens a listening socket on `at`, one of several on the same address (`SO_REUSEPORT`), so that each
/// shard has a queue of its own; how even their shares are: kernel-notes/0009. Errors are the kernel's: address in use, not available, forbidden.
pub fn listen(at: SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = stream_socket(at)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    if at.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    // Accepted sockets inherit it. Before listening: a connection made before it is set would wait for
    // delayed acknowledgements, 40 ms each, for all its life.
    sockopt::set_tcp_nodelay(&socket, true)?;
    net::bind(&socket, &at)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// The address a listening socket is bound to (tells the port when 0 was asked for).
pub fn local_address(socket: &OwnedFd) -> Result<SocketAddr, Errno> {
    let any = net::getsockname(socket)?;
    SocketAddr::try_from(any).map_err(Errno::from)
}

/// A non-blocking TCP socket of the family of `like`.
pub fn stream_socket(like: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if like.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(family, SocketType::STREAM, flags, None)?)
}

/// Probes and a bound on unacknowledged bytes: see [`crate::Ring::keep_alive`].
pub(crate) fn keep_alive(socket: &OwnedFd, silence: Duration) -> Result<(), Errno> {
    let silence = silence.max(Duration::from_secs(3));
    let third = Duration::from_secs(silence.as_secs() / 3);
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, third)?;
    sockopt::set_tcp_keepintvl(socket, third)?;
    sockopt::set_tcp_keepcnt(socket, 2)?;
    let millis = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(socket, millis)?)
}

/// Whether a failed accept should be tried again only after a pause: the machine or process is out of
/// descriptors or memory, and the connection still waits in the queue, so trying at once would spin.
pub(crate) fn accept_needs_pause(error: Errno) -> bool {
    use rustix::io::Errno as E;
    [E::MFILE, E::NFILE, E::NOBUFS, E::NOMEM].iter().any(|e| e.raw_os_error() == error.0)
}

/// How long accepting rests after such a failure, in nanoseconds.
pub(crate) const ACCEPT_PAUSE_NS: u64 = 100_000_000;

/// Accepts one waiting connection at once; `EAGAIN` if none waits.
pub(crate) fn accept_now(listener: &OwnedFd) -> Result<(OwnedFd, SocketAddr), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (socket, peer) = net::acceptfrom_with(listener, flags)?;
    let peer = match peer {
        Some(any) => SocketAddr::try_from(any)?,
        None => peer_address(&socket)?,
    };
    Ok((socket, peer))
}

/// The address of the other side; `ECONNABORTED` if it has reset the connection before it was asked for.
pub(crate) fn peer_address(socket: &OwnedFd) -> Result<SocketAddr, Errno> {
    match net::getpeername(socket) {
        Ok(Some(any)) => Ok(SocketAddr::try_from(any)?),
        Ok(None) | Err(rustix::io::Errno::NOTCONN) => Err(rustix::io::Errno::CONNABORTED.into()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_watched_by_the_kernel_after_that() {
        let socket = stream_socket(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a socket");
        keep_alive(&socket, Duration::from_secs(15)).expect("set");
        assert!(sockopt::socket_keepalive(&socket).expect("asked"));
        assert_eq!(sockopt::tcp_keepidle(&socket).expect("asked"), Duration::from_secs(5));
        assert_eq!(sockopt::tcp_user_timeout(&socket).expect("asked"), 15_000);
    }

    #[test]
    fn a_connection_made_before_anybody_accepts_has_no_delay() {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        let at = local_address(&listener).expect("bound");
        let _client = std::net::TcpStream::connect(at).expect("connects");
        let accepted = std::net::TcpListener::from(listener);
        accepted.set_nonblocking(false).expect("blocking");
        let (socket, _) = accepted.accept().expect("accepts");
        assert!(sockopt::tcp_nodelay(&socket).expect("asked"));
    }
}
