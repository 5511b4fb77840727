//! The tasks that probe: one for each prober, on the admin thread. Own when; must never decide what a result
//! means.

use super::{Probers, probe};
use crate::gateway::Outside;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep, sleep_until};
use warmpath_core::Nanos;
use warmpath_core::table::Table;

/// The probers, shared by the tasks of the admin thread. Never borrowed across an await.
pub type SharedProbers = Rc<RefCell<Probers>>;

/// Keeps the probers in step with the tables that are put in force. They are spread in time at random.
pub async fn follow(mut tables: Receiver<Arc<Table>>, probers: SharedProbers, outside: Outside) {
    loop {
        let table = tables.borrow_and_update().clone();
        let fresh = probers.borrow_mut().follow(&table);
        for number in fresh {
            tokio::task::spawn_local(prober(number, probers.clone(), outside.clone()));
        }
        if tables.changed().await.is_err() {
            return;
        }
    }
}

async fn prober(number: u64, probers: SharedProbers, outside: Outside) {
    let Some(pace) = probers.borrow().work(number).map(|(_, pace)| pace) else { return };
    sleep(Duration::from_nanos((outside.random)() % pace.timeout.max(1))).await;
    loop {
        let start = Instant::now();
        let Some((target, pace)) = probers.borrow().work(number).map(|(t, p)| (t.clone(), p)) else { return };
        let result = probe::once(&target, pace.timeout).await;
        let why = result.clone().err();
        if probers.borrow_mut().took(number, result) {
            (outside.say)(&change(target.endpoint, why));
        }
        sleep_until(start + spread(pace.timeout, (outside.random)())).await;
    }
}

fn change(endpoint: SocketAddr, fault: Option<String>) -> String {
    match fault {
        Some(fault) => format!("endpoint {endpoint} is taken out by its probe: {fault}"),
        None => format!("endpoint {endpoint} is back: its probe succeeds"),
    }
}

/// From the start of one probe to the start of the next: `interval`, up to a tenth more or less, so that
/// probers that fell into step fall out of it again.
pub(crate) fn spread(interval: Nanos, random: u64) -> Duration {
    let tenth = (interval / 10).max(1);
    Duration::from_nanos(interval - tenth + random % (2 * tenth))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_within_a_tenth_of_the_interval() {
        assert_eq!(spread(1_000, 0), Duration::from_nanos(900));
        assert_eq!(spread(1_000, 199), Duration::from_nanos(1_099));
        assert_eq!(spread(1_000, u64::MAX), Duration::from_nanos(900 + u64::MAX % 200));
    }
}
