//! What a request's keys cost (rows E1 to E3): chats of 1k to 128k tokens, cold, their next turn and that once more,
//! SGLang's pages, texts that are hard to read, and the reference tokenizer alone on the same text. Every text is new
//! to the process but for what the earlier turn left at its checkpoint. Times are the thread's CPU time, which a busy machine disturbs
//! least.
//!
//! `cargo bench -p warmpath-prompt -- FOLDER` takes `tokenizer.json` and `tokenizer_config.json` from a folder with a
//! chat template; without one, the tiny tokenizer of the tests, whose tokens are short.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;
use warmpath_core::block::BlockSize;
use warmpath_core::engine::{Algo, Contract, Engine, Extras, Seed, Terms, Version};
use warmpath_parser::json::{JsonLimits, Members, peek};
use warmpath_prompt::load::Files;
use warmpath_prompt::tokenizer::Choice;
use warmpath_prompt::{Api, Checkpoints, Desk, Model, Policy, Request, Scheme};

const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}\
                      <|im_start|>assistant\n";

/// Where words come from: prose and code.
const SOURCES: [&str; 3] = [
    include_str!("../../../ARCHITECTURE.md"),
    include_str!("../../../README.md"),
    include_str!("../src/tokenizer/boundary.rs"),
];

struct Bench {
    model: Model,
    reference: tokenizers::Tokenizer,
    scheme: Scheme,
    words: Vec<&'static str>,
    seed: u64,
}

/// Microseconds of the parts of one request.
#[derive(Clone, Copy, Default)]
struct Spent {
    peek: f64,
    resume: f64,
    render: f64,
    plan: f64,
    keys: f64,
}

impl Spent {
    fn all(&self) -> f64 {
        self.peek + self.resume + self.render + self.plan + self.keys
    }
}

fn main() {
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let folder = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).map(PathBuf::from);
    let mut bench = Bench::new(folder.filter(|_| measuring));
    let rounds = |many: usize| if measuring { many } else { 1 };
    let kib = |many: usize| if measuring { many << 10 } else { many << 7 };
    println!(
        "fast tokenizer: {}",
        bench.model.tokenizer().refusal().map_or("in use".into(), |r| r.to_string())
    );
    for (title, size, many) in [
        ("8 KB", 8, 300),
        ("1k tokens", 4, 300),
        ("8k tokens", 32, 200),
        ("32k tokens", 128, 60),
        ("128k tokens", 512, 20),
    ] {
        bench.turns(title, kib(size), rounds(many));
    }
    for page in [1, 16, 64] {
        bench.scheme = Scheme::new(sglang(page));
        for (title, size, many) in [("8k tokens", 32, 100), ("128k tokens", 512, 12)] {
            bench.turns(&format!("SGLang, page {page}, {title}"), kib(size), rounds(many));
        }
    }
    bench.scheme = Scheme::new(vllm());
    bench.hard(kib(1024));
    for letters in [8, 16, 32, 64, 128, 256, 1024, 4096, 16_384] {
        bench.words(kib(16), letters, rounds(20));
    }
    for (title, size, many) in [("8 KB", 8, 40), ("32 KB", 32, 20), ("512 KB", 512, 3)] {
        bench.alone(&format!("reference alone, {title}"), kib(size), rounds(many));
    }
    bench.first_texts(rounds(20));
    if measuring {
        bench.contended(rounds(3_000));
    }
}

fn vllm() -> Contract {
    let terms = Terms {
        version: Some(Version::new(0, 33, 0)),
        seed: Seed::Given("0"),
        ..Terms::plain(Algo::Sha256Cbor, BlockSize::SIXTEEN)
    };
    Engine::Vllm.contract(&terms).expect("a contract")
}

fn sglang(page: u64) -> Contract {
    let size = BlockSize::new(page).expect("a size");
    Engine::Sglang.contract(&Terms::plain(Algo::Sha256Sglang, size)).expect("a contract")
}

impl Bench {
    fn new(folder: Option<PathBuf>) -> Bench {
        let files = match folder {
            Some(folder) => Files::read(&folder).expect("a model's files"),
            None => Files {
                tokenizer: include_bytes!("../tests/tokenizers/tiny.json").to_vec(),
                template: Some(CHATML.into()),
                ..Files::default()
            },
        };
        let begun = Instant::now();
        let model = files.model(1, Policy::plain(), Choice::Fast).expect("a model");
        println!("load and verify: {} ms", begun.elapsed().as_millis());
        Bench {
            model,
            reference: tokenizers::Tokenizer::from_bytes(&files.tokenizer).expect("a tokenizer"),
            scheme: Scheme::new(vllm()),
            words: SOURCES.iter().flat_map(|text| text.split_inclusive(' ')).collect(),
            seed: 1,
        }
    }

    /// Text of some `bytes`, in runs of words that no other text has.
    fn text(&mut self, bytes: usize) -> String {
        let mut text = String::with_capacity(bytes + 64);
        while text.len() < bytes {
            self.seed =
                self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (self.seed >> 33) as usize % (self.words.len() - 16);
            text.extend(self.words[at..at + 1 + (self.seed >> 60) as usize].iter().copied());
        }
        text
    }

    /// A conversation of `bytes` in turns of a KiB, ending on a question.
    fn conversation(&mut self, bytes: usize) -> Vec<(&'static str, String)> {
        let mut turns = vec![("system", self.text(1 << 10))];
        let pairs = (bytes / 2048).max(2) - 1;
        for _ in 0..pairs {
            turns.push(("user", self.text(1 << 10)));
            turns.push(("assistant", self.text(1 << 10)));
        }
        turns.push(("user", self.text(200)));
        turns
    }

    fn request(&self, body: &str, checkpoints: &Checkpoints, desk: &mut Desk) -> Spent {
        let mut members = Members::new();
        let extras = Extras::default();
        let mut clock = cpu_micros();
        let mut lap = || {
            let now = cpu_micros();
            now - std::mem::replace(&mut clock, now)
        };
        peek(body.as_bytes(), &mut members, JsonLimits::default()).expect("JSON");
        let peek = lap();
        let request = Request { body: body.as_bytes(), members: &members, today: None, tools: None };
        let resumed = self.model.resume(request, &self.scheme, &extras, checkpoints, desk);
        let resume = lap();
        let prompt = || self.model.read_for(checkpoints, Api::Chat, request);
        let prompt = resumed.is_none().then(|| prompt().expect("a prompt"));
        let render = lap();
        let mut whole =
            |prompt| self.model.plan(prompt, &self.scheme, &extras, checkpoints, desk).expect("a plan");
        let plan = resumed.unwrap_or_else(|| whole(prompt.expect("a prompt")));
        let planned = lap();
        self.model.keys(&plan, &self.scheme, &extras, checkpoints, desk).expect("keys");
        black_box(&desk.keys);
        Spent { peek, resume, render, plan: planned, keys: lap() }
    }

    /// Conversations of `bytes`, each cold, its next turn, and that once more.
    fn turns(&mut self, title: &str, bytes: usize, rounds: usize) {
        let checkpoints = Checkpoints::new(256 << 20, 1);
        let mut desk = Desk::default();
        let mut spent = [(); 3].map(|()| Vec::new());
        let mut told = [(0, 0); 3];
        for _ in 0..rounds {
            let mut turns = self.conversation(bytes);
            let cold = body(&turns);
            turns.push(("assistant", self.text(600)));
            turns.push(("user", self.text(200)));
            let next = body(&turns);
            for (at, body) in [&cold, &next, &next].into_iter().enumerate() {
                spent[at].push(self.request(body, &checkpoints, &mut desk));
                told[at] = (desk.tokens, desk.reused);
            }
        }
        for ((what, spent), (tokens, reused)) in ["cold", "next turn", "repeated"].iter().zip(spent).zip(told)
        {
            report(&format!("{title}, {what}"), tokens, reused, spent);
        }
        let (many, bytes) = (checkpoints.len().max(1), checkpoints.bytes());
        println!("{:34} {many} checkpoints of {} bytes each", "", bytes / many);
    }

    /// One message of `bytes` that is hard to read.
    fn hard(&mut self, bytes: usize) {
        let token = self.model.tokenizer().boundaries().tokens().find(|(_, why)| why.is_none());
        let token = token.map_or("x", |(token, _)| token).to_string();
        let cases = [
            ("no blanks", "x".repeat(bytes)),
            (
                "no blanks, all letters",
                (0..bytes).map(|at| char::from(b'a' + (at * at % 23) as u8)).collect(),
            ),
            ("blanks alone", " ".repeat(bytes)),
            ("combining marks", "e\u{301}\u{323}\u{302}".repeat(bytes / 7)),
            ("safe tokens alone", token.repeat(bytes / token.len())),
        ];
        for (what, text) in cases {
            let checkpoints = Checkpoints::new(256 << 20, 1);
            let spent = self.request(&body(&[("user", text)]), &checkpoints, &mut Desk::default());
            report(&format!("{} KiB, {what}", bytes >> 10), 0, 0, vec![spent]);
        }
    }

    /// Texts of `bytes` in words of so many letters: of a few letters of the alphabet, one letter, and ideographs.
    fn words(&mut self, bytes: usize, letters: usize, rounds: usize) {
        let mut seed = letters as u64;
        let mut letter = |from: u32, many: u32| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from_u32(from + (seed >> 33) as u32 % many).unwrap_or('x')
        };
        for (what, from, many) in
            [("letters", 'a', 26), ("the letter x", 'x', 1), ("ideographs", '一', 3_000)]
        {
            let mut spent = Vec::new();
            for _ in 0..rounds {
                let mut text = String::new();
                while text.len() < bytes {
                    text.extend((0..letters / from.len_utf8()).map(|_| letter(from as u32, many)));
                    text.push(' ');
                }
                let checkpoints = Checkpoints::new(1 << 20, 1);
                spent.push(self.request(&body(&[("user", text)]), &checkpoints, &mut Desk::default()));
            }
            report(&format!("{} KiB in words of {letters} bytes, {what}", bytes >> 10), 0, 0, spent);
        }
    }

    fn alone(&mut self, title: &str, bytes: usize, rounds: usize) {
        let mut micros: Vec<f64> = (0..rounds)
            .map(|_| {
                let text = self.text(bytes);
                let begun = cpu_micros();
                black_box(self.reference.encode_fast(text.as_str(), false).expect("ids"));
                cpu_micros() - begun
            })
            .collect();
        let [p10, p50, p90] = quantiles(&mut micros);
        println!("{title:34} {p50:9.1} µs  p10 {p10:9.1}  p90 {p90:9.1}");
    }

    /// The first two chats of new threads, of which half are warmed before.
    fn first_texts(&mut self, threads: usize) {
        let chats: Vec<String> = (0..2).map(|_| body(&self.conversation(2 << 10))).collect();
        let this = &*self;
        let thread = |warmed: bool| {
            let mut desk = Desk::default();
            let checkpoints = Checkpoints::new(1 << 20, 1);
            let begun = cpu_micros();
            if warmed {
                this.model.tokenizer().warm();
            }
            let warming = cpu_micros() - begun;
            let mut request = |chat: &String| this.request(chat, &checkpoints, &mut desk).all();
            [warming, request(&chats[0]), request(&chats[1])]
        };
        for (title, warmed) in [("new thread", false), ("new thread, warmed", true)] {
            let run =
                |_| std::thread::scope(|scope| scope.spawn(|| thread(warmed)).join().expect("a thread"));
            let spent: Vec<[f64; 3]> = (0..threads).map(run).collect();
            for (at, what) in ["warming", "first chat", "second chat"].iter().enumerate() {
                let [p10, p50, p90] = quantiles(&mut spent.iter().map(|spent| spent[at]).collect::<Vec<_>>());
                println!("{:34} {p50:9.1} µs  p10 {p10:9.1}  p90 {p90:9.1}", format!("{title}, {what}"));
            }
        }
    }

    /// Finding a prompt's checkpoint while another thread keeps inserting.
    fn contended(&mut self, rounds: usize) {
        let checkpoints = Checkpoints::new(32 << 20, 1);
        let turns = self.conversation(8 << 10);
        let (known, others) =
            (body(&turns), (0..300).map(|_| body(&self.conversation(4 << 10))).collect::<Vec<_>>());
        self.request(&known, &checkpoints, &mut Desk::default());
        let (this, checkpoints, others) = (&*self, &checkpoints, &others);
        let measure = |desk: &mut Desk| -> Vec<f64> {
            (0..rounds).map(|_| this.request(&known, checkpoints, desk).plan).collect()
        };
        let mut alone = measure(&mut Desk::default());
        let mut beside = std::thread::scope(|scope| {
            let (begun, ended) = std::sync::mpsc::channel::<()>();
            let churn = move || {
                let mut desk = Desk::default();
                while ended.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected) {
                    others.iter().for_each(|other| {
                        this.request(other, checkpoints, &mut desk);
                    });
                }
            };
            scope.spawn(churn);
            let measured = measure(&mut Desk::default());
            drop(begun);
            measured
        });
        for (title, micros) in [("plan alone", &mut alone), ("plan, another inserting", &mut beside)] {
            let [p10, p50, p90] = quantiles(micros);
            let p99 = micros[micros.len() * 99 / 100];
            println!("{title:34} {p50:9.1} µs  p10 {p10:9.1}  p90 {p90:9.1}  p99 {p99:9.1}");
        }
    }
}

/// What this thread has computed, in microseconds.
fn cpu_micros() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn body(turns: &[(&str, String)]) -> String {
    let turn = |(role, text): &(&str, String)| serde_json::json!({"role": role, "content": text});
    let messages: Vec<_> = turns.iter().map(turn).collect();
    serde_json::json!({"model": "m", "stream": true, "messages": messages}).to_string()
}

fn quantiles(micros: &mut [f64]) -> [f64; 3] {
    micros.sort_by(f64::total_cmp);
    [10, 50, 90].map(|share| micros[micros.len() * share / 100])
}

fn report(title: &str, tokens: u64, reused: u64, spent: Vec<Spent>) {
    let [p10, p50, p90] = quantiles(&mut spent.iter().map(Spent::all).collect::<Vec<_>>());
    let median = |part: fn(&Spent) -> f64| quantiles(&mut spent.iter().map(part).collect::<Vec<_>>())[1];
    println!(
        "{title:34} {p50:9.1} µs  p10 {p10:9.1}  p90 {p90:9.1}  (json {:.1}, resume {:.1}, template {:.1}, lookup {:.1}, \
         tokens and keys {:.1}; {tokens} tokens, {reused} reused)",
        median(|s| s.peek),
        median(|s| s.resume),
        median(|s| s.render),
        median(|s| s.plan),
        median(|s| s.keys),
    );
}
