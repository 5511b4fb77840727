//! The closed loop: a task for each connection, one request in flight on each.
//! Must never pause between requests.

use std::rc::Rc;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Run;
use super::client::Client;

/// Runs all connections until the plan starts no more requests.
pub async fn run(run: &Rc<Run>, connections: usize) {
    let mut tasks = JoinSet::new();
    for slot in 0..connections as u64 {
        tasks.spawn_local(connection(run.clone(), slot));
    }
    while tasks.join_next().await.is_some() {}
}

async fn connection(run: Rc<Run>, slot: u64) {
    let mut client = Client::new(run.plan.target);
    let mut turn = 0;
    while let Some(number) = run.next() {
        let body = run.plan.bodies.body(slot, turn);
        run.exchange(&mut client, number, &body, Instant::now()).await;
        turn += 1;
    }
}
