//! The ring without a time limit: what takes minutes. All ignored by default; run with
//! `cargo test --release --test long -- --ignored --test-threads 1`.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../e2e/harness/mod.rs"]
mod harness;

mod churn;
mod kills;
mod restart;
mod slow;

#[path = "../e2e/crowd.rs"]
mod crowd;

use harness::Driver;

/// 500 clients with 16 MiB each never take the gateway past its memory.
#[test]
#[ignore = "sends 8 GiB a driver; minutes"]
fn five_hundred_bodies_against_a_gigabyte() {
    for driver in [Driver::Uring, Driver::Epoll] {
        driver.run(|driver| crowd::crowd_of_bodies(driver, 500, "1G", 1 << 30));
    }
}
