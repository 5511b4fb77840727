//! What the kernel knows of a connection's progress. Owns the one reading of `TCP_INFO`; must never be
//! asked on the way of an ordinary request: it is a system call. See kernel-notes/0012-acknowledged-before-replay.md.
#![allow(unsafe_code)] // getsockopt of an option that rustix does not offer.

use std::os::fd::{AsRawFd, BorrowedFd};

/// Where `tcpi_bytes_acked` lies in `struct tcp_info` (Linux 4.1 and later): 8 bytes of small fields, 24
/// words of 4 bytes, two of 8.
const BYTES_ACKED: usize = 8 + 24 * 4 + 2 * 8;

/// Bytes of this connection that the other side's kernel acknowledged so far, its SYN counted as one.
/// `None` where the kernel does not say.
pub fn bytes_acknowledged(fd: BorrowedFd<'_>) -> Option<u64> {
    let mut info = [0u8; 256];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: `info` and `length` live through the call, and `length` says how many bytes `info` has.
    let result = unsafe {
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
        libc::getsockopt(fd.as_raw_fd(), level, name, info.as_mut_ptr().cast(), &mut length)
    };
    let bytes = info.get(BYTES_ACKED..BYTES_ACKED + 8)?;
    if result != 0 || (length as usize) < BYTES_ACKED + 8 {
        return None;
    }
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn counts_what_the_other_kernel_took() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let (mut server, _) = listener.accept().expect("accepts");
        client.write_all(&[1; 1000]).expect("writes");
        server.read_exact(&mut [0; 1000]).expect("reads");
        server.write_all(&[2; 7]).expect("writes");
        client.read_exact(&mut [0; 7]).expect("reads");
        assert_eq!(bytes_acknowledged(client.as_fd()), Some(1001));
    }

    #[test]
    fn a_request_to_a_closed_socket_is_not_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let (server, _) = listener.accept().expect("accepts");
        drop(server);
        client.write_all(&[1; 1000]).expect("the first write after the close is taken");
        while client.read(&mut [0; 1]).is_ok_and(|n| n > 0) {}
        assert_eq!(bytes_acknowledged(client.as_fd()), Some(1));
    }
}
