//! The block index beside others on one stream of events: `warmpath-kvindex-peers [ROUNDS] [TRACE]` plays a
//! request trace through simulated engine caches, feeds every index the same events and lookups, each in a
//! process of its own, in turn, and prints a table of medians. Owns the rounds and the table.

mod chain;
mod concurrent_map;
mod dynamo;
mod engines;
mod index;
mod ours;
mod prompts;
mod replay;
mod stream;

use prompts::Prompts;
use replay::{Figures, replay};
use std::process::Command;
use stream::Stream;

/// Name, and how it is replayed.
type Peer = (&'static str, fn(&Stream) -> Result<Figures, String>);

const PEERS: [Peer; 7] = [
    ("warmpath, walk", |stream| replay(stream, || ours::Ours::new(stream.header, false))),
    ("warmpath, jump", |stream| replay(stream, || ours::Ours::new(stream.header, true))),
    ("dashmap", |stream| replay(stream, || Ok(concurrent_map::ConcurrentMap::default()))),
    ("kv-index ChainIndex", |stream| replay(stream, chain::Chain::new)),
    ("dynamo PositionalIndexer", |stream| replay(stream, || Ok(dynamo::Positional::new()))),
    ("dynamo RadixTree", |stream| replay(stream, || Ok(dynamo::Tree::new()))),
    ("dynamo ConcurrentRadixTreeCompressed, 1 thread", |stream| replay(stream, || Ok(dynamo::Pool::new()))),
];

/// Requests of the stream that is made up without a trace.
const MADE_UP: usize = 8_000;

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [verb, peer, file] if verb == "replay" => one(peer, file),
        [] => measure(5, None),
        [rounds] => measure(number(rounds)?, None),
        [rounds, trace] => measure(number(rounds)?, Some(trace)),
        _ => Err("usage: warmpath-kvindex-peers [ROUNDS] [TRACE]".into()),
    }
}

fn number(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|rounds| *rounds > 0)
        .ok_or(format!("ROUNDS is {text:?}; give a number from 1 on"))
}

/// Replays one index in this process.
fn one(name: &str, file: &str) -> Result<(), String> {
    let stream = Stream::read(file).map_err(|fault| format!("{file}: {fault}"))?;
    let (_, run) = PEERS.iter().find(|(peer, _)| *peer == name).ok_or(format!("no peer {name:?}"))?;
    println!("{}", run(&stream)?.print());
    Ok(())
}

fn measure(rounds: usize, trace: Option<&str>) -> Result<(), String> {
    let prompts = trace.map_or_else(|| Ok(Prompts::made_up(MADE_UP)), Prompts::read)?;
    let stream = engines::play(&prompts.pages);
    let blocks =
        |count: fn(&stream::Request<'_>) -> usize| stream.requests().map(|r| count(&r)).sum::<usize>();
    println!("Stream: {}; {} engines; {:?}", prompts.origin, engines::ENGINES, stream.header);
    println!(
        "Blocks: {} asked for, {} stored, {} removed; {rounds} rounds in turn, medians [least to most]\n",
        blocks(|request| request.keys.len()),
        blocks(|request| request.keys.len() - request.from),
        blocks(|request| request.removed.len())
    );
    let file = std::env::temp_dir().join(format!("warmpath-peers-{}", std::process::id()));
    let written = stream.write(&file).map_err(|fault| format!("{}: {fault}", file.display()));
    drop(stream);
    let table = written.and_then(|()| table(rounds, &file));
    std::fs::remove_file(&file).map_err(|fault| format!("{}: {fault}", file.display()))?;
    table
}

fn table(rounds: usize, file: &std::path::Path) -> Result<(), String> {
    let mut all: Vec<Vec<Figures>> = vec![Vec::new(); PEERS.len()];
    for _ in 0..rounds {
        for ((name, _), figures) in PEERS.iter().zip(&mut all) {
            figures.push(child(name, file)?);
        }
    }
    println!(
        "| Index | M blocks stored or removed a CPU second | M blocks looked up | bytes a block | found |"
    );
    println!("|---|---|---|---|---|");
    for ((name, _), figures) in PEERS.iter().zip(&all) {
        let events = spread(figures, |figure| figure.events);
        let lookups = spread(figures, |figure| figure.lookups);
        let bytes = spread(figures, |figure| figure.bytes);
        println!("| {name} | {events} | {lookups} | {bytes} | {} |", figures[0].found);
    }
    Ok(())
}

fn child(name: &str, file: &std::path::Path) -> Result<Figures, String> {
    let program = std::env::current_exe().map_err(|fault| fault.to_string())?;
    let run = Command::new(program).args(["replay", name]).arg(file).output();
    let run = run.map_err(|fault| format!("{name}: {fault}"))?;
    let told = String::from_utf8_lossy(&run.stdout);
    Figures::parse(&told).ok_or_else(|| format!("{name}: {}", String::from_utf8_lossy(&run.stderr)))
}

fn spread(figures: &[Figures], of: fn(&Figures) -> f64) -> String {
    let mut values: Vec<f64> = figures.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    format!("{:.1} [{:.1} to {:.1}]", values[values.len() / 2], values[0], values[values.len() - 1])
}
