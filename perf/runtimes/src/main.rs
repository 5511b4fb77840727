//! The runtime study: one minimal relay on our ring, on our epoll driver, on monoio and on glommio, and what
//! each costs. Read README.md beside it, and kernel-notes/0013-runtime-choice.md for what was found.
//!
//! Owns the command line and the choice of cores. Must never be built with the workspace.

mod child;
mod load;
mod measure;
mod message;
mod on_glommio;
mod on_monoio;
mod ring_relay;
mod task_relay;
mod workload;

use measure::{Plan, measure};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;
use warmpath_ring::{Epoll, Sizes, Uring, why_not_uring};

/// The relay's core.
const RELAY_CORE: usize = 0;
/// The core of clients and upstream.
pub(crate) const LOAD_CORE: usize = 1;

const USAGE: &str = "warmpath-runtimes measure [ROUNDS [SECONDS [JSON_FILE]]]   (default 5 rounds of 2 s)
warmpath-runtimes relay RELAY UPSTREAM                     RELAY: uring, epoll, monoio-flags, monoio, glommio";

/// A relay under study.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Variant {
    Uring,
    Epoll,
    /// monoio with `SINGLE_ISSUER | DEFER_TASKRUN`.
    MonoioFlags,
    /// monoio as it comes.
    Monoio,
    Glommio,
}

impl Variant {
    /// In the order of tables; all is compared with the first.
    pub(crate) const ALL: [Variant; 5] =
        [Variant::Uring, Variant::Epoll, Variant::MonoioFlags, Variant::Monoio, Variant::Glommio];

    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Variant::Uring => "uring",
            Variant::Epoll => "epoll",
            Variant::MonoioFlags => "monoio-flags",
            Variant::Monoio => "monoio",
            Variant::Glommio => "glommio",
        }
    }
}

/// Keeps this thread, and those it starts, on one core. On a machine with fewer, the kernel's choice stands.
pub(crate) fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    let _ = sched_setaffinity(None, &cores);
}

fn relay(variant: Variant, upstream: SocketAddr) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    pin(RELAY_CORE);
    let listening = |address: SocketAddr| println!("{address}");
    let os = |error: warmpath_ring::Errno| io::Error::from_raw_os_error(error.0);
    match variant {
        Variant::Uring => {
            let ring = Uring::new(Sizes::default()).map_err(|fault| io::Error::other(fault.to_string()))?;
            ring_relay::run(ring, upstream, listening).map_err(os)
        }
        Variant::Epoll => {
            let ring = Epoll::new(Sizes::default()).map_err(os)?;
            ring_relay::run(ring, upstream, listening).map_err(os)
        }
        Variant::MonoioFlags => on_monoio::run(upstream, true, listening),
        Variant::Monoio => on_monoio::run(upstream, false, listening),
        Variant::Glommio => on_glommio::run(upstream, RELAY_CORE, listening),
    }
}

fn plan(arguments: &[String]) -> Option<Plan> {
    let rounds = arguments.first().map_or(Some(5), |text| text.parse().ok())?;
    let seconds = arguments.get(1).map_or(Some(2.0), |text| text.parse().ok())?;
    let bounded = (1..=50).contains(&rounds) && (0.1..=60.0).contains(&seconds);
    bounded.then(|| Plan { rounds, length: Duration::from_secs_f64(seconds) })
}

fn command(arguments: &[String]) -> io::Result<()> {
    let usage = || io::Error::other(USAGE);
    let (verb, rest) = arguments.split_first().ok_or_else(usage)?;
    match (verb.as_str(), rest) {
        ("relay", [name, upstream]) => {
            let variant = Variant::ALL.into_iter().find(|variant| variant.name() == name);
            relay(variant.ok_or_else(usage)?, upstream.parse().map_err(io::Error::other)?)
        }
        ("measure", rest) => {
            if let Some((fault, cure)) = why_not_uring() {
                return Err(io::Error::other(format!("not_run: {fault}. {cure}")));
            }
            let figures = measure(&plan(rest).ok_or_else(usage)?)?;
            match rest.get(2) {
                Some(file) => std::fs::write(file, format!("{figures:#}\n")),
                None => Ok(()),
            }
        }
        _ => Err(usage()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match command(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
