//! The tasks that ask engines: one for each endpoint, on the admin thread. Own when; must never decide what an answer
//! means.

use super::Scrapers;
use crate::gateway::Outside;
use crate::health::probe;
use crate::health::run::spread;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep};
use warmpath_core::table::Table;
use warmpath_core::{MILLISECOND, Nanos, SECOND};

/// Bytes of a page; vLLM's has some sixty thousand.
const PAGE_MAX: usize = 4 << 20;

/// The longest wait for a page, whatever the interval: the next question waits for it.
const PATIENCE: Nanos = 5 * SECOND;

/// Between two looks, whatever the clocks say.
const LEAST_REST: Nanos = MILLISECOND;

/// The scrapers, shared by the tasks of the admin thread. Never borrowed across an await.
pub type SharedScrapers = Rc<RefCell<Scrapers>>;

/// Keeps the scrapers in step with the tables that are put in force. They are spread in time at random.
pub async fn follow(
    mut tables: Receiver<Arc<Table>>,
    scrapers: SharedScrapers,
    outside: Outside,
    interval: Nanos,
) {
    loop {
        let table = tables.borrow_and_update().clone();
        let fresh = scrapers.borrow_mut().follow(&table);
        for number in fresh {
            tokio::task::spawn_local(scraper(number, scrapers.clone(), outside.clone(), interval));
        }
        if tables.changed().await.is_err() {
            return;
        }
    }
}

async fn scraper(number: u64, scrapers: SharedScrapers, outside: Outside, interval: Nanos) {
    // The first sample soon: before it, decisions know nothing.
    sleep(Duration::from_nanos((outside.random)() % (interval / 10).max(1))).await;
    // What is due when is on a clock of the task's own; loads are stamped by that of the shards.
    let start = Instant::now();
    let elapsed = || start.elapsed().as_nanos() as Nanos;
    loop {
        let now = elapsed();
        let next = now.saturating_add(spread(interval, (outside.random)()).as_nanos() as u64);
        let question = scrapers.borrow_mut().question(number, now, next);
        if let Some(asked) = question {
            let (at, path) = (asked.state.address(), asked.telemetry.path);
            let page = probe::page(at, path, PATIENCE, PAGE_MAX).await.ok();
            let answer = page.as_ref().map(|(status, body)| (*status, body.as_ref()));
            scrapers.borrow_mut().took(number, &asked, answer, (outside.now)());
        }
        let Some(rest) = scrapers.borrow().rest(number, elapsed()) else { return };
        sleep(Duration::from_nanos(rest.max(LEAST_REST))).await;
    }
}
