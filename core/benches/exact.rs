//! What an exact decision costs without the look into the index: ranking 8, 64 and 256 endpoints of one rank,
//! and promises made, found and ended for a prompt of 512 blocks. The median of short slices counts, beside the
//! quiet and the disturbed end. That nothing is allocated is a test's.

use std::hint::black_box;
use std::time::Instant;
use warmpath_core::block::BlockSize;
use warmpath_core::decide::exact::{Candidate, Question, Ranking, rank};
use warmpath_core::decide::tuning::{LbMode, Tuning};
use warmpath_core::fleet::Excluded;
use warmpath_core::shared::{Destination, Promises, promised_keys};

/// Decisions in a slice.
const TIMES: u64 = 16;

fn main() {
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let slices = if measuring { 4_000 } else { 1 };
    for endpoints in [8, 64, 256] {
        let few = candidates(endpoints, 4);
        let all = candidates(endpoints, 1);
        let relieved: Vec<Candidate> =
            few.iter().map(|c| Candidate { load: c.load + 90 * u32::from(c.runs[0] > 0), ..*c }).collect();
        ranked("hard, a quarter holds", &few, LbMode::Hard, slices);
        ranked("hard, all hold", &all, LbMode::Hard, slices);
        ranked("hard, relieved", &relieved, LbMode::Hard, slices);
        ranked("soft, all hold", &all, LbMode::Soft, slices);
    }
    promises(slices);
}

/// One in `every` holds a part of the prompt; loads are a few requests.
fn candidates(endpoints: u16, every: u32) -> Vec<Candidate> {
    let one = |endpoint: u16| {
        let drawn = u32::from(endpoint).wrapping_mul(2_654_435_761) >> 8;
        let run = if drawn.is_multiple_of(every) { 1 + drawn % 500 } else { 0 };
        Candidate {
            endpoint,
            runs: [run; 3],
            promised: run,
            load: drawn % 7,
            capacity: 8_000,
            held: 5_000,
            available: true,
            ..Candidate::default()
        }
    };
    (0..endpoints).map(one).collect()
}

fn ranked(title: &str, candidates: &[Candidate], mode: LbMode, slices: usize) {
    let tuning = Tuning { mode, ..Tuning::default() };
    let (block_size, excluded) = (BlockSize::SIXTEEN, Excluded::default());
    let question =
        Question { candidates, blocks: 512, block_size, excluded, single_pool: true, tuning: &tuning };
    let mut ranking = Ranking::default();
    let mut hit = 0;
    let title = format!("{:>3} endpoints: {title}", candidates.len());
    measure(&title, slices, || {
        hit += 1;
        let _ = black_box(rank(black_box(&question), || hit, &mut ranking));
        black_box(ranking.choices().len() as u64);
    });
}

fn promises(slices: usize) {
    let table = Promises::new(1 << 20);
    let keys: Vec<u64> = (1..=512u64).map(|k| k.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    let to = Destination { source: 1, rank: 0 };
    measure("512 blocks: nothing promised", slices, || {
        black_box(table.look(&keys, 0, 0).is_empty());
    });
    measure("512 blocks: promised", slices, || table.make(promised_keys(&keys, 0), to, 0));
    measure("512 blocks: found", slices, || {
        black_box(table.look(&keys, 0, 0).run(to, 0));
    });
    measure("512 blocks: answered", slices, || table.answered(promised_keys(&keys, 0), to, 0));
}

fn measure(title: &str, slices: usize, mut run: impl FnMut()) {
    let mut nanos: Vec<f64> = Vec::with_capacity(slices);
    for _ in 0..slices {
        let begun = Instant::now();
        (0..TIMES).for_each(|_| run());
        nanos.push(begun.elapsed().as_nanos() as f64 / TIMES as f64);
    }
    nanos.sort_by(f64::total_cmp);
    let at = |share: usize| nanos[nanos.len() * share / 100];
    println!("{title:<42} {:>8.1} ns  p10 {:>8.1}  p90 {:>8.1}", at(50), at(10), at(90));
}
