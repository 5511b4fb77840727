//! I1: the writer's rate a second of its CPU time, alone and under a reader. I4: when an event and a clear are
//! seen.

use crate::Size;
use crate::stream::{Filled, PROMPT, Random, cpu_seconds, median, quantile};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use warmpath_kvindex::Readers;

/// Blocks of one event.
const EVENT: usize = 32;

pub fn rates(size: Size) {
    let mut filled = Filled::new(size.blocks, 64);
    println!("I1 fill: {:.1} M/s", size.blocks as f64 / filled.seconds / 1e6);
    for (name, phase) in [("shared blocks", shared as fn(&mut Filled, usize) -> f64), ("new blocks", fresh)] {
        let alone = (0..size.rounds).map(|_| phase(&mut filled, size.operations)).collect();
        println!("I1 {name}, alone: {:.1} M/s", median(alone));
        if size.alone {
            continue;
        }
        let (rates, looked) = under_a_reader(&mut filled, |filled| {
            (0..size.rounds).map(|_| phase(filled, size.operations)).collect::<Vec<_>>()
        });
        println!("I1 {name}, a reader flat out: {:.1} M/s (reader {looked:.1} M/s)", median(rates));
    }
    println!("I1 segments rebuilt: {}", filled.writer.stats().rebuilds);
    filled.writer.check().unwrap();
}

/// Stores and removals of blocks that other holders have too; M operations/s.
fn shared(filled: &mut Filled, operations: usize) -> f64 {
    let mut random = Random(filled.writer.stats().blocks as u64);
    let mut last = Vec::new();
    let start = cpu_seconds();
    for _ in 0..operations / EVENT / 2 {
        let (run, holder) = (filled.run(&mut random, EVENT), filled.holders[random.below(64)]);
        filled.writer.store(holder, &filled.keys[run.clone()], 0);
        last.push((holder, run));
        if last.len() > 1_000 {
            let (holder, run) = last.swap_remove(random.below(1_000));
            filled.writer.remove(holder, &filled.keys[run]);
        }
    }
    for (holder, run) in last {
        filled.writer.remove(holder, &filled.keys[run]);
    }
    operations as f64 / (cpu_seconds() - start) / 1e6
}

/// Blocks removed from all and replaced by new ones, so that keys die and segments are rebuilt; M operations/s.
fn fresh(filled: &mut Filled, operations: usize) -> f64 {
    // Going on where the last phase ended: the same seed again would bring back the same keys.
    let mut random = Random(filled.next);
    let (mut done, mut refused) = (0, 0);
    let start = cpu_seconds();
    while done < operations {
        let run = filled.run(&mut random, EVENT);
        let holder = filled.holders[run.start / PROMPT % 64];
        filled.writer.remove(holder, &filled.keys[run.clone()]);
        filled.keys[run.clone()].iter_mut().for_each(|key| *key = random.word());
        let stored = filled.writer.store(holder, &filled.keys[run], 0);
        refused += stored.refused;
        done += 2 * EVENT;
    }
    filled.next = random.0;
    let rate = done as f64 / (cpu_seconds() - start) / 1e6;
    if refused > 0 {
        println!("I1 {refused} blocks refused: a reader off its core held back the spare segments");
    }
    rate
}

/// Runs `work` while another thread walks prompts without a pause; also the reader's M lookups/s.
fn under_a_reader<T>(filled: &mut Filled, work: impl FnOnce(&mut Filled) -> T) -> (T, f64) {
    let (done, looked) = (AtomicBool::new(false), AtomicU64::new(0));
    let keys = filled.keys.clone();
    let readers = filled.readers.clone();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read_on(&readers, &keys, &done, &looked));
        let result = work(filled);
        done.store(true, Relaxed);
        let seconds = reading.join().unwrap();
        (result, looked.load(Relaxed) as f64 / seconds / 1e6)
    })
}

/// The CPU seconds it took.
fn read_on(readers: &Readers, keys: &[u64], done: &AtomicBool, looked: &AtomicU64) -> f64 {
    let start = cpu_seconds();
    let mut reader = readers.reader().unwrap();
    let mut out = vec![0; reader.bits()];
    let mut random = Random(5);
    while !done.load(Relaxed) {
        let from = random.below(keys.len() / 512) * 512;
        let view = reader.view();
        view.walk(&keys[from..from + 512], &view.live(), &mut out);
        let run = out.iter().max().copied().unwrap_or(0);
        looked.fetch_add(u64::from(run) + 1, Relaxed);
    }
    cpu_seconds() - start
}

pub fn visibility(size: Size) {
    let mut filled = Filled::new(size.blocks, 64);
    let mut lags = paced(&mut filled, size.operations / 4, |_| {});
    report("I4 event to visible at 1 M/s", &mut lags);
    let mut lags = under_a_reader(&mut filled, |filled| paced(filled, size.operations / 4, |_| {})).0;
    report("I4 the same under a reader flat out", &mut lags);
    let mut clears: Vec<f64> = filled.holders[..32]
        .iter()
        .map(|holder| {
            let start = Instant::now();
            filled.writer.clear(*holder);
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    report("I4 clear visible", &mut clears);
    let mut lags = paced(&mut filled, size.operations / 2, |filled| {
        filled.holders.clone().into_iter().for_each(|holder| filled.writer.clear(holder));
    });
    report("I4 lag of others, 64 restarts at once, 1 M/s", &mut lags);
    filled.writer.check().unwrap();
}

/// Events due at 1 M blocks/s, sweeping in slices while none is due; the lag of each in µs from due to
/// visible. `restart` happens after a tenth of them.
fn paced(filled: &mut Filled, blocks: usize, restart: impl Fn(&mut Filled)) -> Vec<f64> {
    let mut random = Random(77);
    let mut lags = Vec::with_capacity(blocks / EVENT);
    let start = Instant::now();
    for event in 0..blocks / EVENT {
        let due = Duration::from_micros((event * EVENT) as u64);
        if event == blocks / EVENT / 10 {
            restart(filled);
        }
        while start.elapsed() < due {
            filled.writer.sweep(1);
        }
        let run = filled.run(&mut random, EVENT);
        let holder = filled.holders[random.below(64)];
        filled.writer.store(holder, &filled.keys[run], 0);
        lags.push((start.elapsed() - due).as_secs_f64() * 1e6);
    }
    lags
}

fn report(what: &str, micros: &mut [f64]) {
    let (p50, p99, worst) = (quantile(micros, 0.5), quantile(micros, 0.99), quantile(micros, 1.0));
    println!("{what}: p50 {p50:.1} µs, p99 {p99:.1} µs, worst {worst:.1} µs");
}
