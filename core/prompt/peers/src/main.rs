//! From a chat's body to tokens beside other libraries, on the same conversations: cold, the next turn, and that once
//! more. Owns the conversations and the table; must never show a row whose tokens are not those of the others.
//!
//! `cargo run --release --manifest-path core/prompt/peers/Cargo.toml -- FOLDER` takes `tokenizer.json` and
//! `tokenizer_config.json` from a folder with a chat template.

mod llm_tokenizer;
mod reference;
mod warmpath;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where words come from: prose and code.
const SOURCES: [&str; 3] = [
    include_str!("../../../../ARCHITECTURE.md"),
    include_str!("../../../../README.md"),
    include_str!("../../src/tokenizer/boundary.rs"),
];

const KINDS: [&str; 3] = ["cold", "next turn", "again"];

/// Name, bytes of a conversation, and how many of them.
const SIZES: [(&str, usize, usize); 5] = [
    ("1k tokens", 4 << 10, 160),
    ("8 KB", 8 << 10, 120),
    ("8k tokens", 32 << 10, 60),
    ("32k tokens", 128 << 10, 16),
    ("128k tokens", 512 << 10, 5),
];

/// What cannot be measured, in words.
type Fault = Box<dyn std::error::Error + Send + Sync>;

/// One library, or one way to use it.
trait Peer {
    /// How the table calls it.
    fn name(&self) -> &'static str;

    /// From a body to its tokens, of which it tells how many there are.
    fn tokens(&mut self, body: &str) -> Result<u64, Fault>;
}

fn main() -> ExitCode {
    let Some(folder) = std::env::args().nth(1).map(PathBuf::from) else {
        eprintln!("name a folder with tokenizer.json and tokenizer_config.json");
        return ExitCode::from(2);
    };
    match run(&folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("not measured: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn run(folder: &Path) -> Result<(), Fault> {
    let mut peers: Vec<Box<dyn Peer>> = vec![
        Box::new(warmpath::Warmpath::new(folder)?),
        Box::new(llm_tokenizer::LlmTokenizer::cached(folder)?),
        Box::new(llm_tokenizer::LlmTokenizer::plain(folder)?),
        Box::new(reference::Reference::new(folder)?),
    ];
    println!("CPU µs of the thread from the body to tokens, median [p10]");
    for (title, bytes, many) in SIZES {
        let micros = measure(&mut peers, bytes, many)?;
        for (at, kind) in KINDS.iter().enumerate() {
            println!("{title}, {kind}");
            for (peer, micros) in peers.iter().zip(&micros) {
                println!("    {:38} {}", peer.name(), shown(&micros[at]));
            }
        }
    }
    Ok(())
}

/// Times by peer and kind; whose turn it is changes with each conversation.
fn measure(peers: &mut [Box<dyn Peer>], bytes: usize, many: usize) -> Result<Vec<[Vec<f64>; 3]>, Fault> {
    let (mut writer, many_peers) = (Writer::new(bytes as u64), peers.len());
    let mut micros: Vec<[Vec<f64>; 3]> = peers.iter().map(|_| Default::default()).collect();
    for number in 0..many {
        let mut turns = writer.conversation(bytes);
        let cold = body(&turns);
        turns.push(("assistant", writer.text(600)));
        turns.push(("user", writer.text(200)));
        let next = body(&turns);
        for (kind, body) in [&cold, &next, &next].into_iter().enumerate() {
            let mut counts = Vec::new();
            for at in (0..many_peers).map(|at| (at + number) % many_peers) {
                let begun = cpu_micros();
                counts.push(peers[at].tokens(body)?);
                micros[at][kind].push(cpu_micros() - begun);
            }
            if counts.iter().any(|count| *count != counts[0]) {
                return Err(format!("the tokens differ in number: {counts:?}").into());
            }
        }
    }
    Ok(micros)
}

/// Conversations of words that no other conversation has in this order.
struct Writer {
    words: Vec<&'static str>,
    seed: u64,
}

impl Writer {
    fn new(seed: u64) -> Writer {
        Writer { words: SOURCES.iter().flat_map(|text| text.split_inclusive(' ')).collect(), seed }
    }

    fn text(&mut self, bytes: usize) -> String {
        let mut text = String::with_capacity(bytes + 64);
        while text.len() < bytes {
            self.seed =
                self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (self.seed >> 33) as usize % (self.words.len() - 16);
            text.extend(self.words[at..at + 1 + (self.seed >> 60) as usize].iter().copied());
        }
        // Tokens of the template in a text are cuts, which prose has none of.
        text.replace("<|", "< |")
    }

    /// About `bytes` in turns of a KiB, ending on a question.
    fn conversation(&mut self, bytes: usize) -> Vec<(&'static str, String)> {
        let mut turns = vec![("system", self.text(1 << 10))];
        for _ in 0..(bytes / 2048).max(2) - 1 {
            turns.push(("user", self.text(1 << 10)));
            turns.push(("assistant", self.text(1 << 10)));
        }
        turns.push(("user", self.text(200)));
        turns
    }
}

fn body(turns: &[(&str, String)]) -> String {
    let turn = |(role, text): &(&str, String)| serde_json::json!({"role": role, "content": text});
    serde_json::json!({"model": "m", "messages": turns.iter().map(turn).collect::<Vec<_>>()}).to_string()
}

/// What this thread has computed, in microseconds.
fn cpu_micros() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn shown(micros: &[f64]) -> String {
    let mut sorted = micros.to_vec();
    sorted.sort_by(f64::total_cmp);
    let [p10, p50] = [10, 50].map(|share| sorted[sorted.len() * share / 100]);
    format!("{p50:9.1} [{p10:.1}]")
}
