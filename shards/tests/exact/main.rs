//! Exact routing on one shard over the simulated network: who gets a prompt, by what an index says that the
//! engines hold. Owns whole requests from client to engine; formulas are tested where they are.
#![allow(clippy::unwrap_used, missing_docs)]

mod actors;
mod files;
mod proofs;
mod text;
mod usage;
mod world;

use actors::Asked;
use serde_json::json;
use warmpath_core::decide::exact::Miss;
use warmpath_core::decline::Decline;
use warmpath_core::engine::{self, Extras, Lora, Version};
use warmpath_core::rule::{ExplainHeader, RankMode};
use warmpath_core::shared::{Adapter, Fence, Tier};
use world::{Pool, World};

/// A prompt of so many blocks of 16 tokens that begins like all others of its `family`.
fn prompt(family: u32, blocks: usize) -> Vec<u32> {
    (0..blocks as u32 * 16).map(|at| family * 1_000_000 + at).collect()
}

fn ask(prompt: &[u32]) -> Asked {
    Asked::of(json!({"model": "m", "prompt": prompt}))
}

#[test]
fn a_prompt_goes_to_who_holds_most_of_it() {
    let mut world = World::new(Pool::of(3));
    world.hold(0, 0, Tier::Gpu, &prompt(1, 4));
    world.hold(2, 0, Tier::Gpu, &prompt(1, 9));
    let served = world.ask(ask(&prompt(1, 12)));
    assert_eq!((served.status, served.endpoint), (200, Some(2)));
    let receipt = world.receipts().pop().unwrap();
    let exact = receipt.exact.unwrap();
    assert_eq!((exact.prompt_tokens, exact.predicted_tokens), (192, 144));
    assert_eq!(receipt.reason.unwrap().word(), "exact");
    let shown: Vec<_> = exact.explanation.shown().iter().map(|s| (s.endpoint, s.runs[0])).collect();
    assert_eq!(shown, [(2, 9), (0, 4), (1, 0)], "the last one is there to relieve the others");
    world.assert_settled();
}

#[test]
fn the_last_token_is_always_computed() {
    let mut world = World::new(Pool::of(2));
    world.hold(1, 0, Tier::Gpu, &prompt(1, 4));
    assert_eq!(world.ask(ask(&prompt(1, 4))).endpoint, Some(1));
    assert_eq!(world.receipts()[0].exact.unwrap().predicted_tokens, 48, "not the block of the last token");
}

#[test]
fn holes_end_a_run_whatever_lies_behind_them() {
    let mut world = World::new(Pool::of(2));
    world.hold(0, 0, Tier::Gpu, &prompt(1, 2));
    world.hold(1, 0, Tier::Gpu, &prompt(1, 10));
    world.drop_block(1, 0, Tier::Gpu, &prompt(1, 10), 1);
    assert_eq!(
        world.ask(ask(&prompt(1, 10))).endpoint,
        Some(0),
        "2 leading blocks beat 1 and 8 behind a hole"
    );
}

#[test]
fn without_anything_held_the_selector_serves_and_the_receipt_says_why() {
    let mut world = World::new(Pool::of(2));
    let served: Vec<_> = (0..4).map(|n| world.ask(ask(&prompt(n, 4))).endpoint.unwrap()).collect();
    assert_eq!(served, [0, 1, 0, 1]);
    let misses: Vec<Miss> = world.misses();
    assert_eq!(misses, [Miss::NoSignal; 4]);
    assert_eq!(world.report().exact[0].misses, [(Miss::NoSignal, 4)]);
}

#[test]
fn what_can_not_be_keyed_is_served_by_the_selector_with_its_reason() {
    let mut world = World::new(Pool::of(2));
    world.hold(1, 0, Tier::Gpu, &prompt(1, 4));
    for (body, miss) in [
        (json!({"model": "m", "prompt": "text"}), Miss::Declined(Decline::NoTokenizer)),
        (json!({"prompt": "text"}), Miss::ModelEmpty),
        (json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}), Miss::TextEmpty),
        (json!({"model": "m", "prompt": [[1, 2], [3]]}), Miss::Batch),
        (json!({"model": "m", "prompt": {"a": 1}}), Miss::TextEmpty),
        (json!({"model": "m"}), Miss::TextEmpty),
        (json!({"model": "m", "prompt": [1, 2, 3]}), Miss::Hashes),
        (json!({"model": "m", "prompt": prompt(1, 4), "cache_salt": 7}), Miss::Declined(Decline::MemberType)),
    ] {
        assert_eq!(world.ask(Asked::of(body.clone())).status, 200, "{body}");
        assert_eq!(world.misses().pop(), Some(miss), "{body}");
    }
    assert_eq!(world.ask(Asked::raw("GET /v1/completions HTTP/1.1\r\nHost: a\r\n\r\n")).status, 200);
    assert_eq!(world.misses().pop(), Some(Miss::TextEmpty));
    world.assert_settled();
}

#[test]
fn a_salt_is_part_of_the_name() {
    let mut world = World::new(Pool::of(2).tokens());
    world.hold(1, 0, Tier::Gpu, &prompt(1, 4));
    let salted = Asked::of(json!({"model": "m", "prompt": prompt(1, 4), "cache_salt": "s"}));
    world.ask(salted.clone());
    assert_eq!(world.misses().pop(), Some(Miss::NoWorker));
    world.hold_with(0, &prompt(1, 4), &Extras { salt: Some("s"), ..Extras::default() });
    assert_eq!(world.ask(salted).endpoint, Some(0));
    assert_eq!(world.ask(ask(&prompt(1, 4))).endpoint, Some(1));
}

/// How a salt enters the engine's own names depends on its version.
#[test]
fn a_salt_is_named_as_the_version_that_all_endpoints_tell() {
    let mut world = World::new(Pool::of(2));
    let salted = Asked::of(json!({"model": "m", "prompt": prompt(1, 4), "cache_salt": "s"}));
    let missed = |world: &mut World| {
        world.ask(salted.clone());
        world.misses().pop().map(Miss::word)
    };
    assert_eq!(missed(&mut world), Some("version_unknown"), "nobody told one yet");
    world.source(1).set_version(Some(Version::new(0, 30, 2)));
    assert_eq!(missed(&mut world), Some("no_signal"), "it is named, and nothing is held");
    world.source(0).set_version(Some(Version::new(0, 30, 1)));
    assert_eq!(missed(&mut world), Some("version_unknown"), "two versions, although of one family");
    world.source(0).set_version(Some(Version::new(0, 30, 2)));
    world.hold_salted(0, &prompt(1, 4), "s", Version::new(0, 30, 2));
    world.hold_salted(1, &prompt(1, 4), "s", Version::new(0, 31, 0));
    assert_eq!(world.ask(salted.clone()).endpoint, Some(0));
    [0, 1].into_iter().for_each(|at| world.source(at).set_version(Some(Version::new(0, 31, 0))));
    assert_eq!(world.ask(salted).endpoint, Some(1), "both were upgraded");
}

/// Blocks of an adapter are not those of the model beneath it, although their tokens are the same.
#[test]
fn an_adapter_has_blocks_of_its_own() {
    let adapter = [Adapter { name: "tuned".into(), path: Some("/tuned".into()) }];
    let tuned = || Asked::of(json!({"model": "tuned", "prompt": prompt(1, 4)}));
    let mut world = World::new(Pool::of(2).tokens());
    world.hold(1, 0, Tier::Gpu, &prompt(1, 4));
    assert_eq!(
        world.ask(tuned()).endpoint,
        Some(1),
        "nobody has told of adapters: it is taken for the model"
    );
    let mut world = World::new(Pool::of(2).tokens());
    world.hold(1, 0, Tier::Gpu, &prompt(1, 4));
    world.source(0).set_adapters(&adapter);
    world.ask(tuned());
    assert_eq!(world.misses().pop(), Some(Miss::NoWorker));
    let lora = Some(Lora { name: "tuned", path: Some("/tuned") });
    world.hold_with(0, &prompt(1, 4), &Extras { lora, ..Extras::default() });
    assert_eq!(world.ask(tuned()).endpoint, Some(0));
    assert_eq!(world.ask(ask(&prompt(1, 4))).endpoint, Some(1));
    // Where the version that decides how an adapter is hashed is unknown, nothing is claimed.
    let mut world = World::new(Pool::of(2));
    world.hold(1, 0, Tier::Gpu, &prompt(1, 4));
    world.source(1).set_adapters(&adapter);
    world.ask(tuned());
    let unknown = Decline::Chain(engine::Decline::VersionUnknown);
    assert_eq!(world.misses().pop(), Some(Miss::Declined(unknown)));
}

/// SGLang's requests name an adapter behind the model; what its blocks are called has a random part.
#[test]
fn an_adapter_behind_the_models_name_is_never_taken_for_the_model() {
    let long = format!("{}:tuned", "m".repeat(200));
    for (model, header) in [("m:tuned", ""), ("m:tuned", "m"), (long.as_str(), "")] {
        let mut world = World::new(Pool::of(2).pages(16));
        world.hold(1, 0, Tier::Gpu, &prompt(1, 4));
        let mut asked = Asked::of(json!({"model": model, "prompt": prompt(1, 4)}));
        if !header.is_empty() {
            asked = asked.with(&format!("X-Model: {header}"));
        }
        assert_eq!(world.ask(asked).status, 200);
        let random = Decline::Chain(engine::Decline::LoraRandom);
        assert_eq!(world.misses().pop(), Some(Miss::Declined(random)), "{model} {header}");
        let mut body = json!({"model": model, "prompt": prompt(1, 4), "extra_key": "x"});
        world.ask(Asked::of(body.clone()));
        assert_eq!(world.misses().pop().map(Miss::word), Some("namespace_unseen"));
        body["model"] = "m:".into();
        body["extra_key"] = serde_json::Value::Null;
        assert_eq!(world.ask(Asked::of(body)).endpoint, Some(1), "no adapter is named");
    }
    // By keys of the gateway's own it has blocks of its own, where events tell the adapter's name.
    let mut world = World::new(Pool::of(2).pages(16).tokens());
    world.hold(1, 0, Tier::Gpu, &prompt(1, 4));
    let tuned = || Asked::of(json!({"model": "m:tuned", "prompt": prompt(1, 4)}));
    world.ask(tuned());
    assert_eq!(world.misses().pop(), Some(Miss::NoWorker));
    let lora = Some(Lora { name: "tuned", path: None });
    world.hold_with(0, &prompt(1, 4), &Extras { lora, ..Extras::default() });
    assert_eq!(world.ask(tuned()).endpoint, Some(0));
    assert_eq!(world.ask(ask(&prompt(1, 4))).endpoint, Some(1));
}

/// A namespace that events don't tell is not passed over, nor are members that change the prompt.
#[test]
fn token_ids_with_more_than_a_salt_beside_them_are_declined() {
    let mut world = World::new(Pool::of(2).pages(16));
    world.hold(1, 0, Tier::Gpu, &prompt(1, 4));
    for (member, word) in [
        ("extra_key", "namespace_unseen"),
        ("lora_path", "lora_path"),
        ("prompt_embeds", "prompt_embeds"),
        ("truncate_prompt_tokens", "truncate_prompt_tokens"),
    ] {
        let mut body = json!({"model": "m", "prompt": prompt(1, 4)});
        body[member] = "x".into();
        assert_eq!(world.ask(Asked::of(body)).status, 200);
        assert_eq!(world.misses().pop().map(Miss::word), Some(word));
    }
}

/// Versions that name blocks otherwise than the first endpoint's are left out; before any told one, nobody is.
#[test]
fn a_version_of_another_family_is_left_out() {
    let mut world = World::new(Pool::of(3));
    for endpoint in [1, 2] {
        world.hold(endpoint, 0, Tier::Gpu, &prompt(1, 4));
    }
    let (older, newer) = (Some(Version::new(0, 30, 2)), Some(Version::new(0, 31, 0)));
    world.source(0).set_version(newer);
    world.source(1).set_version(older);
    assert_eq!(world.ask(ask(&prompt(1, 4))).endpoint, Some(2));
    world.source(2).set_version(older);
    world.ask(ask(&prompt(1, 4)));
    assert_eq!(world.misses().pop(), Some(Miss::NoSignal), "the others are left out");
    world.source(0).set_version(older);
    assert!(world.ask(ask(&prompt(1, 4))).endpoint.is_some_and(|endpoint| endpoint > 0));
}

#[test]
fn warm_up_fences_and_lost_sources_leave_it_to_the_selector() {
    let mut world = World::new(Pool::of(2).warming());
    world.hold(1, 0, Tier::Gpu, &prompt(1, 4));
    world.ask(ask(&prompt(1, 4)));
    assert_eq!(world.misses().pop(), Some(Miss::Warmup));
    let mut world = World::new(Pool::of(2));
    world.hold(1, 0, Tier::Gpu, &prompt(1, 4));
    world.source(1).set_fence(Some(Fence::BlockSize));
    world.ask(ask(&prompt(1, 4)));
    assert_ne!(world.receipts().pop().unwrap().reason.unwrap().tier(), "tier15");
    world.source(1).set_fence(None);
    assert_eq!(world.ask(ask(&prompt(1, 4))).endpoint, Some(1));
    world.clear(1, 0, Tier::Gpu);
    world.ask(ask(&prompt(1, 4)));
    assert_eq!(world.misses().pop(), Some(Miss::NoSignal));
}

#[test]
fn when_the_best_is_down_the_second_best_serves_and_nothing_stays_charged() {
    let mut world = World::new(Pool::of(3).refusing(2));
    world.hold(1, 0, Tier::Gpu, &prompt(1, 3));
    world.hold(2, 0, Tier::Gpu, &prompt(1, 8));
    let served = world.ask(ask(&prompt(1, 8)));
    assert_eq!((served.status, served.endpoint), (200, Some(1)));
    let receipt = world.receipts().pop().unwrap();
    assert_eq!(receipt.retries, 1);
    assert_eq!(receipt.exact.unwrap().explanation.shown()[0].endpoint, 1);
    world.assert_settled();
}

#[test]
fn blocks_off_the_gpu_count_less() {
    let mut world = World::new(Pool::of(2));
    world.hold(0, 0, Tier::Gpu, &prompt(1, 6));
    world.hold(1, 0, Tier::Host, &prompt(1, 10));
    assert_eq!(world.ask(ask(&prompt(1, 12))).endpoint, Some(0), "6 at hand beat 10 that must be fetched");
    world.hold(0, 0, Tier::Gpu, &prompt(2, 6));
    world.hold(1, 0, Tier::Host, &prompt(2, 13));
    assert_eq!(world.ask(ask(&prompt(2, 13))).endpoint, Some(1), "13 at half their worth beat 6");
}

#[test]
fn ranks_are_told_apart_and_exactly_one_pin_leaves() {
    let mut world = World::new(Pool::of(2).ranks(2));
    world.hold(0, 0, Tier::Gpu, &prompt(1, 2));
    world.hold(1, 1, Tier::Gpu, &prompt(1, 5));
    let served = world.ask(ask(&prompt(1, 6)));
    assert_eq!((served.endpoint, served.ranks.as_slice()), (Some(1), &["1".to_string()][..]));
    assert_eq!(world.receipts()[0].exact.unwrap().rank, Some(1));
    let own = ask(&prompt(1, 6)).with("x-data-parallel-rank: 0");
    let served = world.ask(own);
    assert_eq!((served.endpoint, served.ranks.as_slice()), (Some(0), &["0".to_string()][..]));
    let body = json!({"model": "m", "prompt": prompt(1, 6), "data_parallel_rank": 0});
    let served = world.ask(Asked::of(body));
    assert_eq!(
        (served.endpoint, served.ranks.len()),
        (Some(0), 0),
        "the client's own words go out, and no more"
    );
    world.assert_settled();
}

#[test]
fn a_union_of_ranks_pins_none() {
    let mut world = World::new(Pool::of(2).ranks(2).rank_mode(RankMode::Union));
    world.hold(1, 1, Tier::Gpu, &prompt(1, 5));
    let served = world.ask(ask(&prompt(1, 6)));
    assert_eq!((served.endpoint, served.ranks.len()), (Some(1), 0));
    assert_eq!(world.receipts()[0].exact.unwrap().rank, None);
}

#[test]
fn a_burst_on_a_new_prefix_pays_for_few_prefills() {
    let mut world = World::new(Pool::of(8).slow());
    let shared = prompt(5, 40);
    let burst = (0..64u32).map(|tail| {
        let mut tokens = shared.clone();
        tokens.extend((0..32).map(|at| 900_000 + tail * 100 + at));
        ask(&tokens)
    });
    let served = world.ask_all(burst.collect());
    assert!(served.iter().all(|s| s.status == 200));
    let mut used: Vec<usize> = served.iter().filter_map(|s| s.endpoint).collect();
    used.sort_unstable();
    let most = used.chunk_by(|a, b| a == b).map(<[usize]>::len).max().unwrap();
    used.dedup();
    assert!(most <= 64 * 175 / 100 / 8 + 2, "bounded by load: {most} on one");
    assert!(world.report().exact[0].endpoints.iter().map(|e| e.promised).sum::<u64>() > 0);
    world.assert_settled();
    // The same again, one after another: all follow the first.
    let mut world = World::new(Pool::of(8));
    let first = world.ask(ask(&prompt(6, 20))).endpoint;
    assert_eq!(world.ask(ask(&prompt(6, 20))).endpoint, first, "promised, although no event has come");
}

#[test]
fn what_failed_is_no_longer_promised() {
    let mut world = World::new(Pool::of(2).failing(0));
    assert_eq!(world.ask(ask(&prompt(7, 20))).status, 500);
    assert_eq!(world.ask(ask(&prompt(7, 20))).endpoint, Some(1), "the next in turn, not the one that failed");
}

#[test]
fn short_pages_are_looked_up_every_sixteen_tokens() {
    let mut world = World::new(Pool::of(2).pages(4));
    world.hold(1, 0, Tier::Gpu, &prompt(1, 3));
    assert_eq!(world.ask(ask(&prompt(1, 5))).endpoint, Some(1));
    let exact = world.receipts()[0].exact.unwrap();
    assert_eq!((exact.explanation.blocks, exact.predicted_tokens), (5, 48));
}

#[test]
fn receipts_in_answers_are_the_rules_to_ask_for() {
    for (asked, expected) in [
        (ExplainHeader::Off, None),
        (ExplainHeader::Id, Some("id=r1".to_string())),
        (
            ExplainHeader::Full,
            Some(
                "id=r1, endpoint=10.0.0.2:8000, rank=0, tier=tier15, overlap_blocks=3, predicted_tokens=48, \
                 reason=exact"
                    .to_string(),
            ),
        ),
    ] {
        let mut world = World::new(Pool::of(2).explain(asked));
        world.hold(1, 0, Tier::Gpu, &prompt(1, 3));
        let served = world.ask(ask(&prompt(1, 4)).with("X-Request-Id: r1").with("X-Warmpath-Receipt: full"));
        assert_eq!(served.receipt, expected);
    }
}
