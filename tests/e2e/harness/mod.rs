//! What the tests stand on: the gateway's process, raw clients, scripted engines, rule bodies. Owns starting
//! and ending them; must never assert anything about the gateway itself.

#![allow(dead_code, unused_imports, unused_macros)]

mod client;
mod gateway;
mod model;
mod origin;
mod rules;

pub use client::{Client, Reply, body_of, get, post};
pub use gateway::{Driver, Gateway, binary};
pub use model::{TEMPLATE, write_byte_model};
pub use origin::{Origin, OriginConn, SEPARATE_HEAD};
pub use rules::{chat, chat_stream, free_address, free_address_v6, rule, rule_with, weighted_rule};

use std::time::{Duration, Instant};
use warmpath_perf::engine::{Config, Handle, start};

/// How long anything may take before a test gives up. Generous: the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Runs each of the functions on both drivers, as tests of their own.
macro_rules! on_both_drivers {
    ($($name:ident),+ $(,)?) => {
        mod uring {
            $(#[test] fn $name() { $crate::harness::Driver::Uring.run(super::$name) })+
        }
        mod epoll {
            $(#[test] fn $name() { $crate::harness::Driver::Epoll.run(super::$name) })+
        }
    };
}
pub(crate) use on_both_drivers;

/// A simulated engine with default timing.
pub fn engine() -> Handle {
    start(Config::default()).unwrap()
}

/// A simulated engine changed by `change`.
pub fn engine_with(change: impl FnOnce(&mut Config)) -> Handle {
    let mut config = Config::default();
    change(&mut config);
    start(config).unwrap()
}

/// Waits until `done` holds.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
