//! Going down in order: readiness off and lame duck, then no new connections, then the end of what runs. Owns
//! the times of the steps; must never cut a request before `drain_timeout` unless told twice.

use crate::run::Options;
use crate::serve::{Shared, reports};
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, sleep, timeout};
use warmpath_core::control::DrainPhase;

/// How often the shards are asked whether anything still runs.
const ASK_EACH: Duration = Duration::from_millis(100);

/// Waits for the first word on `stop`, then goes down step by step; a second word cuts at once.
pub async fn on_signal(options: &Options, gateway: &Shared, mut stop: Receiver<()>) {
    // A closed channel can't tell to stop any more: that is a reason to stop, not to run for ever.
    let _ = stop.recv().await;
    tokio::select! {
        () = in_order(options, gateway) => {}
        Some(()) = stop.recv() => {}
    }
    gateway.borrow_mut().drain(DrainPhase::Cutting);
}

async fn in_order(options: &Options, gateway: &Shared) {
    gateway.borrow_mut().drain(DrainPhase::LameDuck);
    sleep(options.lame_duck).await;
    gateway.borrow_mut().drain(DrainPhase::Closing);
    let _ = timeout(options.drain_timeout, quiet(gateway)).await;
}

/// Returns when no shard has a request in flight, nor a client that may be sending one.
async fn quiet(gateway: &Shared) {
    let mut next = Instant::now();
    while reports(gateway).await.iter().any(|r| r.active > 0 || r.clients > 0) {
        next += ASK_EACH;
        tokio::time::sleep_until(next).await;
    }
}
