//! The event core over loopback sockets, on a thread and a core of its own. Owns pacing and looking, both on
//! another core; must never look into the event core.

use crate::publisher::Publisher;
use crate::template::STORED;
use crate::{Load, MEASURED, RESTARTING, WARMUP, plan, rule, tell};
use std::sync::Arc;
use std::time::{Duration, Instant};
use warmpath_core::control::KvPlane;
use warmpath_core::shared::{Source, Tier};
use warmpath_core::table::Table;
use warmpath_events::thread::{EventCoreHandle, Plan, start};
use warmpath_kvindex::{Reader, index};
use warmpath_ring::{Epoll, Sizes};

struct Bench {
    handle: EventCoreHandle,
    publisher: Publisher,
    sources: Vec<Arc<Source>>,
    reader: Reader,
}

/// Measures a load.
pub fn run(seconds: u64, load: Load) {
    // Where there are two, publishers have one core, and the event core another.
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let own = (cores.len() > 1).then(|| cores[1].id);
    if own.is_some() {
        core_affinity::set_for_current(cores[0]);
    }
    let mut bench = Bench::new(load, own);
    if load.is_storm {
        bench.publisher.fill(MEASURED..MEASURED + RESTARTING);
    }
    bench.measure(seconds, load);
    bench.handle.stop();
}

impl Bench {
    fn new(load: Load, core: Option<usize>) -> Bench {
        let publisher = Publisher::new(load.endpoints(), load.blocks_an_event);
        let rule = rule(load.endpoints(), publisher.ports());
        let table = Arc::new(Table::next(&Table::default(), vec![rule], &mut 0, 0));
        let (writer, readers) = index(plan(load.endpoints()), 1);
        let make = |sizes: Sizes| Epoll::new(sizes).map_err(|error| error.to_string());
        let (handle, _thread) = start(Plan { core, ..Plan::default() }, writer, make).expect("started");
        handle.follow(table.clone());
        let reader = readers.reader().expect("a reader");
        let mut bench = Bench { handle, publisher, sources: table.sources(), reader };
        bench.publisher.wait_for(load.endpoints());
        bench
    }

    /// Publishes over the first endpoints, and looks for every 50th batch.
    fn measure(&mut self, seconds: u64, load: Load) {
        let (begun, mut lags, mut waiting) = (Instant::now(), Vec::new(), Vec::new());
        let (mut sent, mut before, mut late) = (0, None, 0);
        let end = Duration::from_secs(seconds);
        while begun.elapsed() < end || !waiting.is_empty() {
            let elapsed = begun.elapsed();
            let due = load.rate * elapsed.as_micros() as u64 / 1_000_000 / STORED as u64;
            if elapsed > WARMUP && before.is_none() {
                before = Some((elapsed, self.cpu()));
                if load.is_storm {
                    self.publisher.restart(MEASURED..MEASURED + RESTARTING);
                }
            }
            if sent < due && elapsed < end {
                let endpoint = (sent % MEASURED as u64) as usize;
                let key = self.publisher.publish(endpoint);
                if sent % 50 == 0 && elapsed > WARMUP {
                    waiting.push((endpoint, key, Instant::now()));
                }
                sent += 1;
                late = late.max(due - sent);
            } else if !self.publisher.replay() {
                std::thread::sleep(Duration::from_micros(50));
            }
            self.look(&mut waiting, &mut lags);
        }
        let (from, before) = before.expect("it lasts longer than its warm-up");
        lags.sort_unstable();
        let share = (self.cpu() - before) as f64 / (begun.elapsed() - from).as_nanos() as f64;
        tell("sockets", load, &lags, share);
        println!(
            "    {} blocks stored a second; the publisher was up to {} batches late",
            sent * STORED as u64 / seconds,
            late
        );
    }

    fn look(&mut self, waiting: &mut Vec<(usize, u64, Instant)>, lags: &mut Vec<Duration>) {
        let view = self.reader.view();
        waiting.retain(|(endpoint, key, since)| {
            let bit = self.sources[*endpoint].bit(0, Tier::Gpu);
            let is_seen = bit.is_some_and(|bit| view.holders(*key).contains(bit));
            if is_seen {
                lags.push(since.elapsed());
            }
            !is_seen && since.elapsed() < Duration::from_secs(10)
        });
    }

    fn cpu(&self) -> u64 {
        self.handle.report().map_or(0, |report| report.cpu)
    }
}
