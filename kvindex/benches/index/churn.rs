//! I5: resident memory over a long churn of new blocks, repeated ones, removals and clears.

use crate::Size;
use crate::stream::{Random, cpu_seconds, median};
use std::collections::VecDeque;
use warmpath_kvindex::{Plan, index};

/// Blocks of one event.
const EVENT: usize = 32;

pub fn memory(size: Size) {
    let blocks = size.blocks / 8;
    let (mut writer, readers) = index(Plan::for_blocks(blocks, 64, 2).unwrap(), 1);
    let holders: Vec<_> = (0..64).map(|name| writer.register(name).unwrap()).collect();
    let mut reader = readers.reader().unwrap();
    let (mut random, mut held, mut done) = (Random(1), VecDeque::with_capacity(blocks / EVENT), 0_usize);
    let (mut samples, mut refused) = (Vec::new(), 0);
    let start = cpu_seconds();
    while done < size.churn {
        let holder = holders[random.below(64)];
        let seed = random.word();
        let stored = writer.store(holder, &keys_of(seed), 0);
        refused += stored.refused;
        if random.below(16) == 0 {
            writer.store(holder, &keys_of(seed), 0);
            done += EVENT;
        }
        held.push_back((holder, seed));
        if held.len() >= blocks / EVENT {
            let (holder, seed) = held.pop_front().unwrap();
            writer.remove(holder, &keys_of(seed));
            done += EVENT;
        }
        if random.below(20_000) == 0 {
            writer.clear(holders[random.below(64)]);
        }
        writer.sweep(usize::from(random.below(8) == 0));
        assert!(reader.view().partial().is_empty() || refused > 0);
        done += EVENT;
        if done / (size.churn / 50) > samples.len() {
            samples.push(resident_kb());
        }
    }
    let rate = done as f64 / (cpu_seconds() - start) / 1e6;
    // The first tenth fills the table.
    let steady = &samples[samples.len() / 10..];
    let (low, high) =
        steady.iter().fold((f64::MAX, 0.0_f64), |(low, high), kb| (low.min(*kb), high.max(*kb)));
    let middle = median(steady.to_vec());
    println!(
        "I5 resident over {done} operations: {:.1} MB, spread {:.2} %, {refused} refused, {} rebuilds; {rate:.1} M/s",
        middle / 1e3,
        (high - low) / middle * 100.0,
        writer.stats().rebuilds
    );
    writer.check().unwrap();
}

fn keys_of(seed: u64) -> [u64; EVENT] {
    let mut random = Random(seed);
    std::array::from_fn(|_| random.word())
}

/// Resident set of this process; 0 where the kernel does not tell.
fn resident_kb() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|count| count.parse::<f64>().ok()).unwrap_or(0.0) * 4.0
}
