//! Row I5: resident memory of the index over 10^9 operations of new blocks, repeated ones, removals and clears.
//!
//! It can be cut off at any time: every 10^7 operations a line of `tests/long/churn.tsv` (or CHURN_RECORD) says how
//! many there were and what was resident; the next run is a new process that fills a new index and counts on from
//! the last line, up to CHURN_OPERATIONS. Flat is asked of each process by itself.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, OpenOptions};
use std::io::Write;
use warmpath_kvindex::{Holder, Plan, Reader, Writer, index};

/// Blocks that are held once the index is full.
const BLOCKS: usize = 1_000_000;

/// Blocks of one event.
const EVENT: usize = 32;

const HOLDERS: u64 = 64;

/// Operations between two lines.
const LINE: u64 = 10_000_000;

/// Operations of a process after which its index is full and was swept and rebuilt a few times.
const FILLED: u64 = 40_000_000;

/// Resident memory may differ by so much of its least.
const FLAT: f64 = 0.02;

struct Churn {
    writer: Writer,
    reader: Reader,
    holders: Vec<Holder>,
    held: VecDeque<(Holder, u64)>,
    state: u64,
    refused: usize,
}

#[test]
#[ignore = "an hour of one core for 10^9 operations; goes on where it was cut off"]
fn resident_memory_is_flat() {
    let number = |name: &str, or| std::env::var(name).map_or(or, |text| text.parse::<f64>().unwrap() as u64);
    let wanted = number("CHURN_OPERATIONS", 1_000_000_000);
    let path = std::env::var("CHURN_RECORD").unwrap_or_else(|_| "tests/long/churn.tsv".into());
    let lines = fs::read_to_string(&path).unwrap_or_default();
    let last: Vec<u64> = lines
        .lines()
        .last()
        .map_or(Vec::new(), |line| line.split('\t').filter_map(|field| field.parse().ok()).collect());
    let (before, process) =
        (last.first().copied().unwrap_or(0), last.get(1).map_or(1, |process| process + 1));
    let mut record = OpenOptions::new().create(true).append(true).open(&path).unwrap();
    if lines.is_empty() {
        writeln!(record, "operations\tprocess\tresident_kb\trebuilds\trefused").unwrap();
    }
    let (mut churn, mut done) = (Churn::new(process), 0);
    while before + done < wanted {
        let line = (done / LINE + 1) * LINE;
        while done < line {
            done += churn.step();
        }
        let (kb, rebuilds) = (resident_kb(), churn.writer.stats().rebuilds);
        writeln!(record, "{}\t{process}\t{kb}\t{rebuilds}\t{}", before + done, churn.refused).unwrap();
    }
    churn.writer.check().unwrap();
    judge(&fs::read_to_string(&path).unwrap());
}

/// What every process has written down is flat.
fn judge(record: &str) {
    let mut processes: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for line in record.lines().skip(1) {
        let fields: Vec<u64> = line.split('\t').filter_map(|field| field.parse().ok()).collect();
        processes.entry(fields[1]).or_default().push(fields[2]);
    }
    assert!(!processes.is_empty(), "nothing was measured");
    for (process, resident) in processes {
        let full = resident.iter().skip((FILLED / LINE) as usize);
        let (Some(least), Some(most)) = (full.clone().min(), full.max()) else { continue };
        let is_flat = *most as f64 <= *least as f64 * (1.0 + FLAT);
        assert!(is_flat, "process {process}: resident from {least} to {most} kB");
    }
}

#[test]
fn growing_memory_is_not_flat() {
    let record = |kb: u64| {
        format!(
            "head\n{}",
            (0..9).map(|at| format!("{at}\t1\t{}\t0\t0\n", kb * at + 9_999)).collect::<String>()
        )
    };
    judge(&record(20));
    assert!(std::panic::catch_unwind(|| judge(&record(60))).is_err());
}

impl Churn {
    fn new(seed: u64) -> Churn {
        let (mut writer, readers) = index(Plan::for_blocks(BLOCKS, HOLDERS as usize, 2).unwrap(), seed);
        let holders = (0..HOLDERS).map(|name| writer.register(name).unwrap()).collect();
        let held = VecDeque::with_capacity(BLOCKS / EVENT + 1);
        Churn { writer, reader: readers.reader().unwrap(), holders, held, state: seed, refused: 0 }
    }

    /// An event of new blocks, now and then told twice, and the removal of the oldest; how many operations.
    fn step(&mut self) -> u64 {
        let mut done = EVENT as u64;
        let (holder, seed) = (self.holder(), self.word());
        self.refused += self.writer.store(holder, &keys_of(seed), 0).refused;
        if self.below(16) == 0 {
            self.writer.store(holder, &keys_of(seed), 0);
            done += EVENT as u64;
        }
        self.held.push_back((holder, seed));
        if self.held.len() > BLOCKS / EVENT
            && let Some((holder, seed)) = self.held.pop_front()
        {
            self.writer.remove(holder, &keys_of(seed));
            done += EVENT as u64;
        }
        if self.below(20_000) == 0 {
            let cleared = self.holder();
            self.writer.clear(cleared);
        }
        let segments = usize::from(self.below(8) == 0);
        self.writer.sweep(segments);
        assert!(self.reader.view().partial().is_empty() || self.refused > 0);
        done
    }

    fn holder(&mut self) -> Holder {
        let at = self.below(HOLDERS) as usize;
        self.holders[at]
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound
    }

    fn word(&mut self) -> u64 {
        next(&mut self.state)
    }
}

fn keys_of(mut seed: u64) -> [u64; EVENT] {
    std::array::from_fn(|_| next(&mut seed))
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// What the kernel says is resident of this process.
fn resident_kb() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).and_then(|count| count.parse::<u64>().ok()).unwrap() * 4
}
