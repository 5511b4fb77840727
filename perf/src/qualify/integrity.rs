//! Byte integrity: seeded bodies of all sizes, framings and cuts through a gateway on one driver, compared at
//! both ends. Owns the run; every failure names a case that can be run again.

use super::client::{self, Compared};
use super::engine::Engine;
use super::gateway::Gateway;
use super::{Gate, Verdict};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use warmpath_ring::{Epoll, Ring, Sizes, Uring, why_not_uring};

/// Clients at once.
const CLIENTS: u64 = 8;

/// The gate of io_uring.
pub fn uring(time: Duration) -> Gate {
    const NAME: &str = "byte integrity on io_uring";
    match why_not_uring() {
        Some((fault, cure)) => Gate::not_passed(NAME, Verdict::NotRun, fault.to_string(), cure),
        None => gate(NAME, time, |sizes| Uring::new(sizes).map_err(|e| e.to_string())),
    }
}

/// The gate of epoll.
pub fn epoll(time: Duration) -> Gate {
    gate("byte integrity on epoll", time, |sizes| Epoll::new(sizes).map_err(|e| e.to_string()))
}

fn gate<R, F>(name: &str, time: Duration, make: F) -> Gate
where
    R: Ring + 'static,
    F: Fn(Sizes) -> Result<R, String> + Clone + Send + 'static,
{
    match run(time, make) {
        Ok(compared) if compared.requests > 0 => {
            let (requests, megabytes) = (compared.requests, compared.bytes / 1_000_000);
            let slowest = compared.slowest.as_millis();
            let found =
                format!("{requests} requests, {megabytes} MB, every byte compared, slowest {slowest} ms");
            Gate::pass(name, found)
        }
        Ok(_) => Gate::not_passed(name, Verdict::NotRun, "no request ended in time", "give more --seconds"),
        Err(told) => {
            Gate::not_passed(name, Verdict::Fail, told, "a fault of this gateway or kernel: report the case")
        }
    }
}

fn run<R, F>(time: Duration, make: F) -> Result<Compared, String>
where
    R: Ring + 'static,
    F: Fn(Sizes) -> Result<R, String> + Clone + Send + 'static,
{
    let engine = Engine::start().map_err(|e| format!("the checking engine can't start: {e}"))?;
    let gateway = Gateway::start(engine.address, make)?;
    all_clients(gateway.address, Instant::now() + time)
}

/// Clients at once, each with cases of its own; the first failure ends them all.
fn all_clients(target: SocketAddr, until: Instant) -> Result<Compared, String> {
    let failed = AtomicBool::new(false);
    let one = |number: u64| {
        let seeds = (0..).map(|turn| number + turn * CLIENTS);
        let done = client::run(target, seeds, || Instant::now() < until && !failed.load(Relaxed));
        failed.fetch_or(done.is_err(), Relaxed);
        done
    };
    let ended: Vec<Result<Compared, String>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || one(number))).collect();
        clients
            .into_iter()
            .map(|c| c.join().unwrap_or_else(|_| Err("a client ended by a panic".into())))
            .collect()
    });
    ended.into_iter().try_fold(Compared::default(), |sum, one| {
        let one = one?;
        Ok(Compared {
            requests: sum.requests + one.requests,
            bytes: sum.bytes + one.bytes,
            slowest: sum.slowest.max(one.slowest),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_passes_without_a_gateway_and_tells_a_server_that_answers_wrongly() {
        let engine = Engine::start().unwrap();
        let seeds = || 0..60;
        let direct = client::run(engine.address, seeds(), || true).unwrap();
        assert_eq!(direct.requests, 60);
        let other = crate::engine::start(crate::engine::Config::default()).unwrap();
        let told = client::run(other.addr, seeds(), || true).unwrap_err();
        assert!(told.starts_with("case 0: "), "{told}");
    }

    #[test]
    fn both_drivers_relay_every_byte() {
        for gate in [uring(Duration::from_millis(700)), epoll(Duration::from_millis(700))] {
            assert_ne!(gate.verdict, Verdict::Fail, "{gate}");
        }
    }
}
