//! What exact routing of text adds to a request on a shard (rows E1 and E2): from the peeked body to the ranked
//! list, over an index in which one endpoint of four holds the turn before. Every conversation is new to the
//! process; nothing is warmed but code.
//!
//! `cargo bench -p warmpath-shards -- FOLDER` takes a model's files from a folder; without one, the tiny tokenizer
//! of the tests.

use serde_json::json;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use warmpath_core::block::BlockSize;
use warmpath_core::decide::exact::{Question, Ranking, rank};
use warmpath_core::decide::tuning::Tuning;
use warmpath_core::engine::Engine;
use warmpath_core::environment::Environment;
use warmpath_core::fleet::{EndpointView, Excluded};
use warmpath_core::rule::body;
use warmpath_core::shared::{Promises, Tier};
use warmpath_core::table::{Service, Table};
use warmpath_kvindex::{Holder, Plan, Writer, index};
use warmpath_parser::json::{JsonLimits, Members, peek};
use warmpath_prompt::load::Files;
use warmpath_prompt::tokenizer::Choice;
use warmpath_prompt::{Api, Checkpoints, Scheme};
use warmpath_shards::loader;
use warmpath_shards::overlap::{Overlap, Prompt};
use warmpath_shards::prompt::{PromptReader, Terms};

const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}\
                      <|im_start|>assistant\n";

/// Where words come from: prose and code.
const SOURCES: [&str; 2] = [include_str!("../../ARCHITECTURE.md"), include_str!("../src/relay.rs")];

struct Bench {
    terms: Terms,
    service: Arc<Service>,
    writer: Writer,
    holder: Holder,
    overlap: Overlap,
    checkpoints: Checkpoints,
    reader: PromptReader,
    members: Members,
    ranking: Ranking,
    tuning: Tuning,
    view: Vec<EndpointView>,
    words: Vec<&'static str>,
    seed: u64,
}

fn main() {
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let folder = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).map(PathBuf::from);
    let mut bench = Bench::new(folder.filter(|_| measuring));
    let (rounds, kib) = if measuring { (400, 1 << 10) } else { (2, 1 << 7) };
    for (title, bytes) in [("8 KB", 8), ("32 KB", 32)] {
        let (mut cold, mut next) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let mut turns = bench.conversation(bytes * kib);
            cold.push(bench.request(&body_of(&turns)));
            bench.hold();
            turns.push(("assistant", bench.text(600)));
            turns.push(("user", bench.text(200)));
            next.push(bench.request(&body_of(&turns)));
        }
        report(&format!("cold chat, {title}"), &mut cold);
        report(&format!("its next turn, {title}"), &mut next);
        println!("{:24} {} tokens, {} keys", "", bench.reader.keys.tokens, bench.reader.keys.keys.len());
    }
}

impl Bench {
    fn new(folder: Option<PathBuf>) -> Bench {
        let files = match folder {
            Some(folder) => Files::read(&folder).expect("a model's files"),
            None => Files {
                tokenizer: include_bytes!("../../core/prompt/tests/tokenizers/tiny.json").to_vec(),
                template: Some(CHATML.into()),
                ..Files::default()
            },
        };
        let model = files.model(1, loader::policy(Engine::Vllm), Choice::Fast).expect("a model");
        let service = service();
        let exact = service.rule.exact.as_ref().expect("exact routing");
        let scheme = Scheme::new(exact.contract);
        let (mut writer, readers) = index(Plan::for_blocks(1 << 20, 64, 1).expect("a plan"), 7);
        let source = &service.exact.as_ref().expect("sources").sources[2];
        let holder = writer.register(source.holder_name(0, Tier::Gpu)).expect("a holder");
        source.set_bit(0, Tier::Gpu, Some(holder.bit()));
        let reader = readers.reader().expect("a reader");
        let mut view = Vec::new();
        service.view(0, &mut view);
        Bench {
            terms: Terms { scheme, model: Ok(Arc::new(model)), adapter: None, api: Api::Chat, today: None },
            overlap: Overlap::new(reader, Arc::new(Promises::new(1 << 16))),
            service,
            writer,
            holder,
            checkpoints: Checkpoints::new(64 << 20, 1),
            reader: PromptReader::default(),
            members: Members::new(),
            ranking: Ranking::default(),
            tuning: Tuning::default(),
            view,
            words: SOURCES.iter().flat_map(|text| text.split_inclusive(' ')).collect(),
            seed: 1,
        }
    }

    /// The endpoint holds the prompt read last.
    fn hold(&mut self) {
        self.writer.store(self.holder, &self.reader.keys.keys, 0);
        let source = &self.service.exact.as_ref().expect("sources").sources[2];
        source.set_blocks(0, source.blocks(0) + self.reader.keys.keys.len() as u32, true);
    }

    /// Nanoseconds from the body to the ranked list.
    fn request(&mut self, body: &str) -> u64 {
        let begun = Instant::now();
        peek(body.as_bytes(), &mut self.members, JsonLimits::default()).expect("JSON");
        let (reader, body) = (&mut self.reader, body.as_bytes());
        let left = reader.resume(body, &self.members, &self.terms, &self.checkpoints).unwrap_or_else(|| {
            let left = reader.begin(body, &self.members, &self.terms, &self.checkpoints);
            left.expect("a prompt").expect("text")
        });
        self.reader.finish(&left, &self.terms, &self.checkpoints).expect("keys");
        let prompt = Prompt {
            keys: &self.reader.keys.keys,
            terms: self.service.rule.exact.as_ref().expect("exact routing"),
            exact: self.service.exact.as_ref().expect("sources"),
            fleet: &self.view,
            rank: None,
            now: 0,
        };
        let question = Question {
            candidates: self.overlap.candidates(&prompt),
            blocks: prompt.keys.len() as u32,
            block_size: BlockSize::SIXTEEN,
            excluded: Excluded::default(),
            single_pool: true,
            tuning: &self.tuning,
        };
        let _ = black_box(rank(&question, || 0, &mut self.ranking));
        begun.elapsed().as_nanos() as u64
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
        for _ in 0..(bytes / 2048).max(2) - 1 {
            turns.push(("user", self.text(1 << 10)));
            turns.push(("assistant", self.text(1 << 10)));
        }
        turns.push(("user", self.text(200)));
        turns
    }
}

fn service() -> Arc<Service> {
    let endpoint = |at| json!({"endpointIP": format!("127.0.0.{at}"), "targetPort": 9000, "weight": 1});
    let rule = json!({
        "serviceArguments": {
            "externalIP": "127.0.0.1", "port": 8000, "protocol": "tcp", "mode": 4, "kvExactMode": 3,
            "kvHashAlgo": "sha256_cbor", "kvBlockSize": 16, "kvEngineVersion": "0.33.0", "model_name": "m",
        },
        "endpoints": (1..5).map(endpoint).collect::<Vec<_>>(),
    });
    let rule = body::parse(&rule, &Environment::default(), || "id".into()).expect("a rule");
    Table::next(&Table::default(), vec![rule], &mut 0, 0).vips[0].services[0].clone()
}

fn body_of(turns: &[(&str, String)]) -> String {
    let turn = |(role, text): &(&str, String)| json!({"role": role, "content": text});
    json!({"model": "m", "stream": true, "messages": turns.iter().map(turn).collect::<Vec<_>>()}).to_string()
}

fn report(title: &str, nanos: &mut [u64]) {
    nanos.sort_unstable();
    let [p10, p50, p90] = [10, 50, 90].map(|share| nanos[nanos.len() * share / 100]);
    println!("{title:24} {p50:9} ns  p10 {p10:9}  p90 {p90:9}");
}
