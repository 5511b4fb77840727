//! A tiny harness: rounds of the contenders in turn, the best round of each counts.

use std::hint::black_box;
use std::time::Instant;

/// One way of doing the work: a name and a function whose answer is folded into a check sum.
pub struct Contender<'a> {
    pub name: &'static str,
    pub work: Box<dyn FnMut() -> u64 + 'a>,
}

/// `cargo bench` measures; anything else (`cargo test --benches`) only proves that the contenders run.
pub fn is_measuring() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// Prints nanoseconds a call for each contender, and its ratio to the first. A word on the command line
/// selects the titles that contain it.
pub fn compare(title: &str, bytes: usize, mut contenders: Vec<Contender<'_>>) {
    if std::env::args().skip(1).any(|argument| !argument.starts_with('-') && !title.contains(&argument)) {
        return;
    }
    let (rounds, target_nanos) = if is_measuring() { (200, 400_000) } else { (1, 0) };
    let mut best = vec![f64::INFINITY; contenders.len()];
    for _ in 0..rounds {
        for (best, contender) in best.iter_mut().zip(&mut contenders) {
            *best = best.min(nanos(contender, target_nanos));
        }
    }
    for (nanos, contender) in best.iter().zip(&contenders) {
        let rate = bytes as f64 / nanos;
        let ratio = nanos / best[0];
        println!("{title:<24} {:<14} {nanos:>12.0} ns {rate:>8.2} GB/s {ratio:>6.2}x", contender.name);
    }
}

fn nanos(contender: &mut Contender<'_>, target_nanos: u128) -> f64 {
    let mut calls = 1u64;
    loop {
        let begun = Instant::now();
        for _ in 0..calls {
            black_box((contender.work)());
        }
        let taken = begun.elapsed().as_nanos();
        if taken >= target_nanos {
            return taken as f64 / calls as f64;
        }
        calls *= 2;
    }
}
