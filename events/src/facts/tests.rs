//! Each difference between an engine and its rule, one at a time.

use super::*;
use warmpath_core::block::BlockSize;
use warmpath_core::engine::{Algo, Engine, Terms};
use warmpath_core::rule::KvPorts;

fn spec(engine: Engine, algo: Algo) -> SourceSpec {
    let block_size = engine.rule_block_size();
    let terms = Terms { seed: warmpath_core::engine::Seed::Given("0"), ..Terms::plain(algo, block_size) };
    SourceSpec {
        endpoint: "10.0.0.1:8000".parse().expect("an address"),
        contract: engine.contract(&terms).expect("a contract"),
        version: None,
        ports: KvPorts::default(),
        ranks: 1,
        model: "m".into(),
    }
}

fn facts() -> Facts {
    let source = |rank| Source {
        rank,
        publish: crate::sources::Address::Dial { host: None, port: 5557 },
        replay: None,
        topic: String::new(),
        block_size: None,
    };
    Facts {
        answered: true,
        version: Some("0.30.1".into()),
        models: Some(vec!["m".into()]),
        block_size: Some(16),
        algorithm: Some("sha256_cbor".into()),
        publishers: Some(Ok(vec![source(0)])),
        ..Facts::default()
    }
}

fn fence_of(facts: &Facts, spec: &SourceSpec, first: Option<&str>) -> Option<Fence> {
    let verdict = facts.judge(spec);
    assert!(verdict.fence.is_none() || !verdict.findings.is_empty(), "a fence without a finding");
    let differs = first.and_then(Version::read).and_then(|first| facts.differs(spec, first));
    verdict.fence.or(differs.map(|_| Fence::Version))
}

#[test]
fn what_agrees_is_let_in_without_a_word() {
    let verdict = facts().judge(&spec(Engine::Vllm, Algo::Sha256Cbor));
    assert_eq!(verdict, Verdict::default());
}

#[test]
fn each_difference_has_its_fence() {
    let rule = spec(Engine::Vllm, Algo::Sha256Cbor);
    type Differ = fn(&mut Facts);
    let differing: [(Fence, Differ); 6] = [
        (Fence::BlockSize, |facts| facts.block_size = Some(32)),
        (Fence::Algorithm, |facts| facts.algorithm = Some("sha256".into())),
        (Fence::Model, |facts| facts.models = Some(vec!["other".into()])),
        (Fence::Version, |facts| facts.version = Some("0.31.0".into())),
        (Fence::Ranks, |facts| facts.publishers = Some(Ok(Vec::new()))),
        (Fence::NoEvents, |facts| facts.publishers = Some(Err(Unusable::Off))),
    ];
    for (fence, differ) in differing {
        let mut facts = facts();
        differ(&mut facts);
        assert_eq!(fence_of(&facts, &rule, Some("0.30.0")), Some(fence));
    }
}

#[test]
fn the_rules_version_counts_before_the_first_endpoints() {
    let rule = SourceSpec { version: Version::read("0.30.0"), ..spec(Engine::Vllm, Algo::Sha256Cbor) };
    assert_eq!(fence_of(&facts(), &rule, Some("0.33.0")), None);
    let by_tokens = spec(Engine::Vllm, Algo::Tokens);
    assert_eq!(fence_of(&facts(), &by_tokens, Some("0.33.0")), None, "tokens name blocks alike everywhere");
}

#[test]
fn what_is_not_told_is_no_fault() {
    let rule = spec(Engine::Vllm, Algo::Sha256Cbor);
    let silent = Facts::default().judge(&rule);
    assert_eq!((silent.fence, silent.findings.len()), (None, 1));
    let old = Facts { answered: true, ..Facts::default() }.judge(&rule);
    assert_eq!((old.fence, old.findings.len()), (None, 1), "{:?}", old.findings);
}

#[test]
fn a_rules_block_of_several_of_the_engines_is_left_to_the_events() {
    let mut rule = spec(Engine::Vllm, Algo::Sha256Cbor);
    let size = BlockSize::THIRTY_TWO;
    let terms =
        Terms { seed: warmpath_core::engine::Seed::Given("0"), ..Terms::plain(Algo::Sha256Cbor, size) };
    rule.contract = Engine::Vllm.contract(&terms).expect("a contract");
    let verdict = facts().judge(&rule);
    assert_eq!((verdict.fence, verdict.findings.len()), (None, 1));
}
