//! The task that keeps attesting, on the admin thread. Owns when it looks; must never block, nor decide anything.

use super::ask::ask;
use super::{Attestor, Question};
use crate::gateway::Outside;
use crate::serve::{Shared, ask_kv, reports};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Between two looks at what is due.
const TICK: Duration = Duration::from_millis(100);

/// Between two looks at registry, shards and event core.
const LOOK: Duration = Duration::from_millis(500);

/// The bindings, shared by the tasks of the admin thread. Never borrowed across an await.
pub type SharedAttestor = Rc<RefCell<Attestor>>;

/// Keeps the bindings in step with the tables that are put in force, and asks what is due.
pub async fn watch(gateway: Shared) {
    let attestor = gateway.borrow().attestor.clone();
    let mut tables = gateway.borrow().tables();
    let mut looked: Option<Instant> = None;
    loop {
        let table = tables.borrow_and_update().clone();
        let outside = gateway.borrow().outside.clone();
        let (plane, cadence) = (&*outside.data_plane, outside.environment.attest);
        attestor.borrow_mut().follow(&table, plane, cadence, (outside.now)());
        if attestor.borrow().is_idle() {
            if tables.changed().await.is_err() {
                return;
            }
            continue;
        }
        while !tables.has_changed().unwrap_or(true) {
            if looked.is_none_or(|at| at.elapsed() >= LOOK) {
                look(&gateway, &attestor).await;
                looked = Some(Instant::now());
            }
            let due = attestor.borrow_mut().questions((outside.now)());
            for question in due {
                tokio::task::spawn_local(answered(gateway.clone(), attestor.clone(), question));
            }
            tell(&attestor, &outside);
            sleep(TICK).await;
        }
        if tables.has_changed().is_err() {
            return;
        }
        looked = None;
    }
}

async fn look(gateway: &Shared, attestor: &SharedAttestor) {
    let outside = gateway.borrow().outside.clone();
    let least = reports(gateway).await.iter().map(|report| report.generation).min();
    let report = ask_kv(gateway, |kv| kv.report()).await.flatten();
    let now = (outside.now)();
    attestor.borrow_mut().stand(&*outside.data_plane, least, now);
    attestor.borrow_mut().heard(report.as_ref(), now);
}

async fn answered(gateway: Shared, attestor: SharedAttestor, question: Question) {
    let outside = gateway.borrow().outside.clone();
    let answer = ask(&gateway, &attestor, &question, outside.environment.attest).await;
    attestor.borrow_mut().took(&question, &answer, (outside.now)());
    tell(&attestor, &outside);
}

/// Says what changed, each time that something may have: a state that lasts for a moment is told too.
fn tell(attestor: &SharedAttestor, outside: &Outside) {
    attestor.borrow_mut().news((outside.now)()).iter().for_each(|line| (outside.say)(line));
}
