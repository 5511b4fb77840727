//! I2: lookups and walks. I3: bytes a block.

use crate::Size;
use crate::stream::{Filled, PROMPT, Random, cpu_seconds, quantile};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;
use warmpath_kvindex::{HolderSet, Reader, View};

/// Blocks of the usual prompt: 8k tokens.
const SHORT: usize = 512;

/// How a prompt is looked up.
type Look = fn(&View<'_>, &[u64], &HolderSet, &mut [u32]);

const WALK: Look = |view, keys, all, out| view.walk(keys, all, out);
const JUMP: Look = |view, keys, all, out| view.jump(keys, all, out);

pub fn rates(size: Size) {
    for holders in [64, 128, 256] {
        let mut filled = Filled::new(size.blocks, holders);
        quiet(&filled, size, holders);
        if holders == 64 && !size.alone {
            let (mut walks, mut jumps) = under_a_writer(&mut filled, size);
            report("I2 walk of 512 under a writer flat out", &mut walks);
            report("I2 jump over 512 under a writer flat out", &mut jumps);
        }
    }
}

fn quiet(filled: &Filled, size: Size, holders: usize) {
    let mut reader = filled.readers.reader().unwrap();
    for blocks in [SHORT, PROMPT] {
        let mut micros = walks(&mut reader, &filled.keys, size.operations / blocks, blocks, WALK);
        let rate = blocks as f64 / quantile(&mut micros, 0.5);
        report(&format!("I2 walk of {blocks}, {holders} holders ({rate:.1} M lookups/s)"), &mut micros);
    }
    let mut micros = walks(&mut reader, &filled.keys, size.operations / SHORT, SHORT, JUMP);
    report(&format!("I2 jump over 512, {holders} holders"), &mut micros);
    let absent: Vec<u64> = filled.keys.iter().map(|key| key ^ 0x5555).collect();
    let start = cpu_seconds();
    let view = reader.view();
    let missed = absent.iter().filter(|key| view.holders(**key).is_empty()).count();
    let rate = absent.len() as f64 / (cpu_seconds() - start) / 1e6;
    assert_eq!(missed, absent.len());
    println!("I2 absent blocks one by one, {holders} holders: {rate:.1} M/s");
}

/// Microseconds of each of so many looks at so many blocks of random prompts.
fn walks(reader: &mut Reader, keys: &[u64], count: usize, blocks: usize, look: Look) -> Vec<f64> {
    let mut out = vec![0; reader.bits()];
    let mut random = Random(3);
    (0..count.max(10))
        .map(|_| {
            let from = random.below(keys.len() / PROMPT) * PROMPT + random.below(PROMPT - blocks + 1);
            out.fill(0);
            let start = Instant::now();
            let view = reader.view();
            look(&view, &keys[from..from + blocks], &view.live(), &mut out);
            let micros = start.elapsed().as_secs_f64() * 1e6;
            assert_eq!(out.iter().max(), Some(&(blocks as u32)));
            micros
        })
        .collect()
}

/// The same while the writer adds and removes a second holder's blocks as fast as it can.
fn under_a_writer(filled: &mut Filled, size: Size) -> (Vec<f64>, Vec<f64>) {
    let done = AtomicBool::new(false);
    let readers = filled.readers.clone();
    let keys = filled.keys.clone();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut reader = readers.reader().unwrap();
            let count = size.operations / SHORT * size.rounds;
            let walked = walks(&mut reader, &keys, count, SHORT, WALK);
            let jumped = walks(&mut reader, &keys, count, SHORT, JUMP);
            done.store(true, Relaxed);
            (walked, jumped)
        });
        let (mut random, mut operations, start) = (Random(8), 0, Instant::now());
        while !done.load(Relaxed) && !reading.is_finished() {
            let run = filled.run(&mut random, 32);
            // The prompt's first holder keeps it; the one after it comes and goes.
            let second = filled.holders[(run.start / PROMPT + 1) % 64];
            filled.writer.store(second, &filled.keys[run.clone()], 0);
            filled.writer.remove(second, &filled.keys[run]);
            operations += 64;
        }
        let rate = f64::from(operations) / start.elapsed().as_secs_f64() / 1e6;
        println!("I2 the writer meanwhile: {rate:.1} M/s");
        reading.join().unwrap()
    })
}

pub fn bytes(size: Size) {
    for holders in [64, 128, 192, 256] {
        let filled = Filled::new(size.blocks, holders);
        let bytes = filled.writer.plan().reader_bytes() as f64 / filled.writer.stats().blocks as f64;
        println!("I3 bytes a block, reader side, {holders} holders: {bytes:.2}");
    }
}

/// With the first hundredth: what a walk takes while nobody else is on the machine's memory.
fn report(what: &str, micros: &mut [f64]) {
    let [p1, p50, p99] = [0.01, 0.5, 0.99].map(|at| quantile(micros, at));
    println!("{what}: p1 {p1:.2} µs, p50 {p50:.2} µs, p99 {p99:.2} µs");
}
