//! The fuzz corpus as a plain test: each seed whole, at every prefix, and mutated.

#![allow(clippy::unwrap_used)] // A test may stop at the first surprise.

mod seeded;

use seeded::{Random, mutate};
use std::path::Path;
use warmpath_parser::fuzz;

fn run(target: &str, machine: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(target);
    let mut seeds: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    seeds.sort();
    assert!(seeds.len() >= 5, "{target} has only {} seeds", seeds.len());
    let mut random = Random::new(7);
    for seed in seeds {
        let bytes = std::fs::read(seed).unwrap();
        for end in 0..=bytes.len() {
            machine(&bytes[..end]);
        }
        for _ in 0..4_000 {
            let mut bytes = bytes.clone();
            mutate(&mut bytes, b"\r\n: ,;{}[]\"\\0aF\0\xff", &mut random);
            machine(&bytes);
        }
    }
}

#[test]
fn request() {
    run("request", fuzz::request);
}

#[test]
fn response() {
    run("response", fuzz::response);
}

#[test]
fn chunks() {
    run("chunks", fuzz::chunks);
}

#[test]
fn json() {
    run("json", fuzz::json);
}

#[test]
fn events() {
    run("events", fuzz::events);
}
