//! The zero-hit watchdog's voice: a line for the operator when lookups of a rule keep finding nothing in caches
//! that hold something. Owns how often it speaks; must never count (the shards do).

use crate::serve::{Shared, reports};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use warmpath_core::Nanos;
use warmpath_core::control::ShardReport;
use warmpath_core::table::{Service, Table};

/// How often the shards are asked.
const LOOK_EACH: Duration = Duration::from_secs(10);

/// The least time between two lines of one rule.
const SAY_EACH: Nanos = 60_000_000_000;

/// What was counted and said so far.
#[derive(Debug, Default)]
pub struct Watchdog {
    /// The last known counts by shard and service: a shard that stays silent keeps its own.
    counts: BTreeMap<(usize, u32), u64>,
    services: BTreeMap<u32, Told>,
}

/// What was said of one service.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// When; `None`: never.
    at: Option<Nanos>,
    /// Counted since.
    untold: u64,
}

impl Watchdog {
    /// What to say now: a line for each rule with exact routing whose count has grown, within bounds.
    pub fn look(&mut self, table: &Table, reports: &[ShardReport], now: Nanos) -> Vec<String> {
        let services: Vec<&Service> =
            table.services().filter(|s| s.exact.is_some()).map(|s| s.as_ref()).collect();
        let numbers: BTreeSet<u32> = services.iter().map(|s| s.number).collect();
        self.counts.retain(|(_, service), _| numbers.contains(service));
        self.services.retain(|service, _| numbers.contains(service));
        for report in reports {
            for exact in report.exact.iter().filter(|e| numbers.contains(&e.service)) {
                let before = self.counts.insert((report.shard, exact.service), exact.zero_hits).unwrap_or(0);
                self.services.entry(exact.service).or_default().untold +=
                    exact.zero_hits.saturating_sub(before);
            }
        }
        services.into_iter().filter_map(|service| self.line(service, now)).collect()
    }

    fn line(&mut self, service: &Service, now: Nanos) -> Option<String> {
        let told = self.services.get_mut(&service.number)?;
        let due = told.at.is_none_or(|at| now.saturating_sub(at) >= SAY_EACH);
        if told.untold == 0 || !due {
            return None;
        }
        let count = std::mem::take(&mut told.untold);
        told.at = Some(now);
        Some(sentence(service, count))
    }
}

/// Scripts search the log for the tag.
fn sentence(service: &Service, count: u64) -> String {
    format!(
        "[KV_ZEROHIT] rule {} (service {}): {count} more lookups at the end of a long row that found nothing in \
         caches which hold blocks; most often seed, hash, block size or tokenizer of the rule are not the \
         engine's: compare LLB_KV_NONE_HASH_SEED, kvHashAlgo and kvBlockSize with it, and see `warmpath ctl kv` \
         and `warmpath ctl explain`",
        service.rule.name, service.number
    )
}

/// Looks again and again. Asks nothing of the shards while no rule has exact routing.
pub async fn watch(gateway: Shared) {
    let mut watchdog = Watchdog::default();
    let mut next = Instant::now();
    loop {
        next += LOOK_EACH;
        sleep_until(next).await;
        look(&gateway, &mut watchdog).await;
    }
}

async fn look(gateway: &Shared, watchdog: &mut Watchdog) {
    if gateway.borrow().table.services().all(|s| s.exact.is_none()) {
        return;
    }
    let reports = reports(gateway).await;
    let gateway = gateway.borrow();
    let lines = watchdog.look(&gateway.table, &reports, (gateway.outside.now)());
    lines.iter().for_each(|line| (gateway.outside.say)(line));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::kv::exact_table;
    use crate::fake::{FakePlane, block_on, outside};
    use crate::gateway::Gateway;
    use crate::store::Store;
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::{Arc, Mutex};
    use warmpath_core::control::ExactReport;

    const SECOND: Nanos = 1_000_000_000;

    fn report(shard: usize, services: &[(u32, u64)]) -> ShardReport {
        let exact = |(service, zero_hits): &(u32, u64)| ExactReport {
            service: *service,
            zero_hits: *zero_hits,
            ..ExactReport::default()
        };
        ShardReport { shard, exact: services.iter().map(exact).collect(), ..ShardReport::default() }
    }

    #[test]
    fn a_rule_is_told_when_its_count_grows_and_once_a_minute() {
        let (table, mut dog) = (exact_table(), Watchdog::default());
        let mut lines = |at, services: &[(u32, u64)]| dog.look(&table, &[report(0, services)], at * SECOND);
        assert!(lines(0, &[(1, 0), (4, 0)]).is_empty());
        let first = lines(10, &[(1, 3), (4, 0)]);
        assert_eq!(first.len(), 1);
        assert!(first[0].starts_with("[KV_ZEROHIT] rule chat (service 1): 3 more "), "{first:?}");
        assert!(lines(20, &[(1, 3), (4, 0)]).is_empty(), "it did not grow");
        assert!(lines(30, &[(1, 5), (4, 0)]).is_empty(), "it was told a moment ago");
        let both = lines(70, &[(1, 6), (4, 1)]);
        assert!(both[0].contains("rule chat (service 1): 3 more "), "{both:?}");
        assert!(both[1].contains("rule also (service 4): 1 more "), "{both:?}");
        assert!(lines(200, &[(1, 6), (4, 1)]).is_empty());
        assert!(lines(201, &[(5, 9)]).is_empty(), "service 5 does not route by blocks");
    }

    #[test]
    fn a_shard_that_stays_silent_and_comes_back_is_no_growth() {
        let (table, mut dog) = (exact_table(), Watchdog::default());
        let both = [report(0, &[(1, 2)]), report(1, &[(1, 5)])];
        assert!(dog.look(&table, &both, SECOND)[0].contains(": 7 more "));
        assert!(dog.look(&table, &both[..1], 100 * SECOND).is_empty());
        assert!(dog.look(&table, &both, 200 * SECOND).is_empty());
    }

    #[test]
    fn what_is_to_be_said_is_said_to_the_operator() {
        static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let plane = FakePlane::new();
        *plane.reports.lock().unwrap() = vec![report(0, &[(1, 1)])];
        let mut outside = outside(&plane);
        outside.say = |line| SAID.lock().unwrap().push(line.into());
        let store = Store::on(Box::new(crate::fake::disk::MemoryDisk::default()));
        let gateway = Rc::new(RefCell::new(Gateway::new(outside, store, 0)));
        let mut watchdog = Watchdog::default();
        block_on(look(&gateway, &mut watchdog));
        assert!(SAID.lock().unwrap().is_empty(), "no rule, no line");
        gateway.borrow_mut().table = Arc::new(exact_table());
        block_on(look(&gateway, &mut watchdog));
        block_on(look(&gateway, &mut watchdog));
        let said = SAID.lock().unwrap();
        assert!(said.len() == 1 && said[0].starts_with("[KV_ZEROHIT] rule chat"), "{said:?}");
    }
}
