//! Making a ring, and why it can't be made. Owns the setup flags; must never fall back silently.
//! The flags were chosen by measurement: kernel-notes/0001-defer-taskrun.md.

use crate::{Errno, Sizes};
use io_uring::IoUring;
use rustix::io::Errno as E;
use std::fmt;

/// Why io_uring can't serve on this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetupFault {
    /// `kernel.io_uring_disabled` forbids it (value 1: for this user; 2: for all).
    Sysctl(u8),
    /// `EPERM` though the sysctl allows it: a seccomp filter, as container runtimes set it.
    Seccomp,
    /// `ENOSYS`: a kernel built without io_uring, older than 5.1, or a sandbox that hides it.
    Missing,
    /// `EINVAL`: the kernel lacks `DEFER_TASKRUN` (6.1) or another flag that is worth using a ring for.
    TooOld,
    /// `ENOMEM`: `RLIMIT_MEMLOCK`, which ring memory counts against (kernel-notes/0006), or memory itself is
    /// used up.
    LockedMemory,
    /// Out of descriptors, or something not foreseen.
    Other(Errno),
}

impl SetupFault {
    pub(crate) fn from_errno(errno: Errno) -> SetupFault {
        match E::from_raw_os_error(errno.0) {
            E::PERM => match disabled_by_sysctl() {
                0 => SetupFault::Seccomp,
                value => SetupFault::Sysctl(value),
            },
            E::NOSYS => SetupFault::Missing,
            E::INVAL => SetupFault::TooOld,
            E::NOMEM => SetupFault::LockedMemory,
            _ => SetupFault::Other(errno),
        }
    }

    /// What to do about it, in a sentence.
    pub fn cure(&self) -> &'static str {
        match self {
            SetupFault::Sysctl(_) => "Set kernel.io_uring_disabled to 0 with sysctl, or use --driver epoll.",
            SetupFault::Seccomp => {
                "Allow io_uring_setup, io_uring_enter and io_uring_register in the container's seccomp \
                 profile, or use --driver epoll."
            }
            SetupFault::Missing => "Use a kernel built with CONFIG_IO_URING, or --driver epoll.",
            SetupFault::TooOld => "Use Linux 6.1 or newer, or --driver epoll.",
            SetupFault::LockedMemory => {
                "Raise RLIMIT_MEMLOCK (ulimit -l, LimitMEMLOCK= in systemd), start fewer shards, or use \
                 --driver epoll."
            }
            SetupFault::Other(_) => "Remove the cause, or use --driver epoll.",
        }
    }
}

impl fmt::Display for SetupFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupFault::Sysctl(value) => {
                write!(f, "io_uring is disabled: kernel.io_uring_disabled is {value}")
            }
            SetupFault::Seccomp => {
                f.write_str("io_uring is forbidden to this process (EPERM, a seccomp filter)")
            }
            SetupFault::Missing => f.write_str("the kernel has no io_uring (ENOSYS)"),
            SetupFault::TooOld => f.write_str("the kernel's io_uring lacks DEFER_TASKRUN (EINVAL)"),
            SetupFault::LockedMemory => f.write_str("no locked memory is left for a ring (ENOMEM)"),
            SetupFault::Other(errno) => write!(f, "io_uring can't be set up: {errno}"),
        }
    }
}

impl std::error::Error for SetupFault {}

/// The sysctl's value; 0 where it is absent (kernels before 6.6).
fn disabled_by_sysctl() -> u8 {
    let value = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    value.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Makes a ring for the calling thread, which alone may use it. Kernels before 6.6 lack `NO_SQARRAY`
/// and answer `EINVAL`; there the ring is made without.
pub(crate) fn make_ring(sizes: &Sizes) -> Result<IoUring, SetupFault> {
    build(sizes, true)
        .or_else(|error| if error.0 == E::INVAL.raw_os_error() { build(sizes, false) } else { Err(error) })
        .map_err(SetupFault::from_errno)
}

fn build(sizes: &Sizes, no_sqarray: bool) -> Result<IoUring, Errno> {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_single_issuer().setup_defer_taskrun().setup_submit_all().setup_clamp();
    builder.setup_cqsize(sizes.completions);
    if no_sqarray {
        builder.setup_no_sqarray();
    }
    // The kernel refuses a completion queue smaller than the submission queue.
    let submissions = sizes.submissions.min(sizes.completions).max(1);
    builder.build(submissions).map_err(Errno::from)
}

/// Why io_uring can't serve here, with its cure; `None` if it can. Makes a small ring and drops it.
pub fn why_not_uring() -> Option<(SetupFault, &'static str)> {
    let sizes = Sizes { submissions: 8, completions: 16, buffers: 8, buffer_bytes: 4096 };
    let fault = super::Uring::new(sizes).err()?;
    Some((fault, fault.cure()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_errno_has_its_own_cause_and_cure() {
        let of = |e: E| SetupFault::from_errno(Errno(e.raw_os_error()));
        assert_eq!(of(E::NOSYS), SetupFault::Missing);
        assert_eq!(of(E::INVAL), SetupFault::TooOld);
        assert_eq!(of(E::NOMEM), SetupFault::LockedMemory);
        assert!(matches!(of(E::PERM), SetupFault::Seccomp | SetupFault::Sysctl(_)));
        assert!(matches!(of(E::MFILE), SetupFault::Other(_)));
        for fault in [of(E::NOSYS), of(E::INVAL), of(E::NOMEM), of(E::PERM), of(E::MFILE)] {
            assert!(fault.cure().ends_with('.') && fault.cure().contains("epoll"), "{fault}");
        }
    }
}
