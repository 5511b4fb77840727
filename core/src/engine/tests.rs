//! Which contracts there are, which are refused, and that a chain is the same however it is fed. The bytes
//! themselves are held to the engines' vectors in `tests/keys`.

use super::*;
use crate::block::{BlockKey, BlockSize};
use proptest::prelude::*;

fn size(tokens: u64) -> BlockSize {
    BlockSize::new(tokens).unwrap()
}

fn terms(algo: Algo, version: &str) -> Terms<'static> {
    Terms { version: Version::read(version), ..Terms::plain(algo, size(16)) }
}

fn refused(engine: Engine, terms: &Terms<'_>) -> ContractFault {
    engine.contract(terms).map(|contract| contract.algo()).unwrap_err()
}

fn keys(contract: &Contract, extras: &Extras<'_>, tokens: &[u32]) -> Vec<BlockKey> {
    let (mut keys, mut scratch) = (Vec::new(), Scratch::default());
    contract.chain(extras, &mut scratch).unwrap().feed(tokens, |key, _| keys.push(key));
    keys
}

#[test]
fn words_of_rules_are_matched_to_the_letter() {
    for engine in Engine::ALL {
        assert_eq!(Engine::from_name(engine.name()), Some(*engine));
    }
    for algo in Algo::ALL {
        assert_eq!(Algo::from_name(algo.name()), Some(algo));
    }
    assert_eq!((Engine::from_name("vLLM"), Algo::from_name("sha256-cbor")), (None, None));
}

#[test]
fn each_engine_names_blocks_by_its_own_hashes_and_by_tokens() {
    let own: Vec<_> =
        Engine::ALL.iter().map(|engine| (engine.rule_default(), engine.own_default())).collect();
    assert_eq!(own[0], (Some(Algo::Sha256Cbor), Some(Algo::Sha256)));
    assert_eq!(own[1], (Some(Algo::Sha256Sglang), Some(Algo::Sha256Sglang)));
    assert_eq!(own[2], (Some(Algo::BlockhashTrtllm), Some(Algo::BlockhashTrtllm)));
    assert_eq!(own[3], (None, None));
    assert_eq!(
        Engine::ALL.iter().map(|engine| engine.rule_block_size().tokens()).collect::<Vec<_>>(),
        [16, 16, 32, 16]
    );
    for engine in [Engine::Vllm, Engine::Sglang, Engine::Trtllm] {
        assert!(engine.algorithms(None).contains(&Algo::Tokens));
    }
    assert!(!Engine::Vllm.algorithms(Version::read("0.17.0")).contains(&Algo::Sha256));
    for (engine, algo) in [
        (Engine::Vllm, Algo::Sha256Sglang),
        (Engine::Sglang, Algo::Sha256Cbor),
        (Engine::Trtllm, Algo::Sha256Sglang),
        (Engine::Llamacpp, Algo::Tokens),
    ] {
        let fault = refused(engine, &terms(algo, "0.28.0"));
        assert_eq!(fault, ContractFault::AlgorithmUnknown { engine, algo });
        assert_eq!(fault.status(), 400);
    }
}

#[test]
fn an_unset_seed_is_enough_only_where_the_root_does_not_depend_on_it() {
    use Algo::{Sha256, Sha256Cbor, Xxhash, XxhashCbor};
    for (algo, version, enough) in [
        (Sha256Cbor, "0.28.9", false),
        (Sha256Cbor, "0.29.0", true),
        (Sha256, "0.29.0", true),
        (Sha256, "0.28.0", false),
        (XxhashCbor, "0.33.0", false),
        (Xxhash, "0.33.0", false),
        (Sha256Cbor, "unknown", false),
        (Algo::Tokens, "0.23.0", true),
        (Algo::Tokens, "unknown", true),
    ] {
        let contract = Engine::Vllm.contract(&terms(algo, version));
        assert_eq!(contract.is_ok(), enough, "{algo:?} {version}");
        if let Err(fault) = contract {
            assert_eq!(
                (fault, fault.status(), fault.code()),
                (ContractFault::SeedUnset, 412, "KV_EXACT_SEED_UNSET")
            );
        }
    }
    assert!(Engine::Sglang.contract(&terms(Algo::Sha256Sglang, "0.5.23")).is_ok());
}

#[test]
fn a_seed_has_at_most_23_bytes_unless_allowed() {
    let with = |seed, long_seed| Terms { seed, long_seed, ..terms(Algo::Sha256Cbor, "0.33.0") };
    let (fits, over, wide) = ("0".repeat(23), "0".repeat(24), "é".repeat(12));
    assert!(Engine::Vllm.contract(&with(Seed::Given(&fits), false)).is_ok());
    for seed in [&over, &wide] {
        let fault = refused(Engine::Vllm, &with(Seed::Given(seed), false));
        assert_eq!(fault, ContractFault::SeedTooLong { bytes: 24 });
        assert_eq!((fault.status(), fault.code()), (412, "KV_EXACT_SEED_TOO_LONG"));
        assert!(Engine::Vllm.contract(&with(Seed::Given(seed), true)).is_ok());
    }
    assert_eq!(Seed::from_environment(Some("")), Seed::Unset);
    assert_eq!(Seed::from_environment(None), Seed::Unset);
    assert_eq!(Seed::from_environment(Some("0")), Seed::Given("0"));
}

#[test]
fn sizes_and_features_that_an_engine_lacks_are_refused() {
    let of = |algo, tokens| Terms { block_size: size(tokens), ..terms(algo, "0.5.23") };
    assert!(Engine::Sglang.contract(&of(Algo::Sha256Sglang, 1)).is_ok());
    assert!(Engine::Sglang.contract(&of(Algo::Sha256Sglang, 128)).is_ok());
    let fault = refused(Engine::Sglang, &of(Algo::Sha256Sglang, 129));
    assert_eq!(fault, ContractFault::BlockSize { tokens: 129, least: 1, most: 128 });
    let fault = refused(Engine::Trtllm, &of(Algo::BlockhashTrtllm, 64));
    assert_eq!(fault.problem(), "the block size 64 is not 32, the only one of this contract");
    assert_eq!(fault.cure(), "use 32, or name blocks by kvHashAlgo tokens");
    assert!(Engine::Trtllm.contract(&of(Algo::Tokens, 64)).is_ok());
    let ahead = |version| Terms { lookahead: 1, seed: Seed::Given("0"), ..terms(Algo::Sha256Cbor, version) };
    assert!(Engine::Vllm.contract(&ahead("0.33.0")).is_ok());
    assert!(matches!(refused(Engine::Vllm, &ahead("0.32.0")), ContractFault::Feature { .. }));
    let dynamo = |version| Terms { dynamo: true, ..terms(Algo::Sha256Sglang, version) };
    assert!(Engine::Sglang.contract(&dynamo("0.5.23")).is_ok());
    assert!(matches!(refused(Engine::Sglang, &dynamo("0.5.19")), ContractFault::Feature { .. }));
    let pairs = Terms { bigram: true, ..ahead("0.33.0") };
    assert!(matches!(refused(Engine::Vllm, &pairs), ContractFault::Feature { .. }));
}

/// Every reason to decline, each from the contract and the extras that lead to it.
#[test]
fn what_cannot_be_known_is_declined_with_its_reason() {
    let media = [Media { identifier: "a", offset: 0, length: 1 }];
    let lora = |path| Extras { lora: Some(Lora { name: "x", path }), ..Extras::default() };
    let salt = Extras { salt: Some("s"), ..Extras::default() };
    let seen = Extras { media: &media, ..Extras::default() };
    let namespace = Extras { namespace: Some("n"), ..Extras::default() };
    let alike = Extras { salt: Some("x"), ..lora(Some("y")) };
    let long = "s".repeat(70_000);
    let too_long = Extras { salt: Some(&long), ..Extras::default() };
    let one_frame = Extras { salt: Some(&long[..65_400]), ..Extras::default() };
    let seeded = |algo, version| Terms { seed: Seed::Given("0"), ..terms(algo, version) };
    let ahead = Terms { lookahead: 1, ..seeded(Algo::Sha256Cbor, "0.33.0") };
    let block32 = Terms { block_size: size(32), ..terms(Algo::BlockhashTrtllm, "1.3.0") };
    for (engine, terms, extras, reason) in [
        (Engine::Vllm, seeded(Algo::Sha256Cbor, ""), salt, Decline::VersionUnknown),
        (Engine::Vllm, seeded(Algo::Sha256Cbor, "0.31.0"), lora(None), Decline::LoraPathUnknown),
        (Engine::Vllm, seeded(Algo::Sha256, "0.23.0"), seen, Decline::MediaPickled),
        (Engine::Vllm, seeded(Algo::Xxhash, "0.33.0"), seen, Decline::MediaPickled),
        (Engine::Vllm, seeded(Algo::Sha256, "0.31.0"), alike, Decline::StringsAlike),
        (Engine::Vllm, seeded(Algo::Sha256, "0.31.0"), lora(Some("x")), Decline::StringsAlike),
        (Engine::Vllm, seeded(Algo::Sha256, "0.31.0"), lora(Some("lora")), Decline::StringsAlike),
        (Engine::Vllm, seeded(Algo::Sha256, "0.31.0"), too_long, Decline::TooLong),
        (Engine::Vllm, seeded(Algo::Sha256, "0.31.0"), one_frame, Decline::TooLong),
        (Engine::Vllm, terms(Algo::Tokens, "0.31.0"), too_long, Decline::TooLong),
        (Engine::Vllm, seeded(Algo::Sha256Cbor, "0.31.0"), namespace, Decline::NamespaceUnseen),
        (Engine::Vllm, ahead, seen, Decline::LookaheadMedia),
        (Engine::Sglang, terms(Algo::Sha256Sglang, "0.5.23"), lora(None), Decline::LoraRandom),
        (Engine::Sglang, terms(Algo::Sha256Sglang, "0.5.23"), seen, Decline::MediaUnknown),
        (Engine::Sglang, terms(Algo::Sha256Sglang, "0.5.23"), namespace, Decline::NamespaceUnseen),
        (Engine::Sglang, terms(Algo::Tokens, "0.5.23"), namespace, Decline::NamespaceUnseen),
        (Engine::Trtllm, block32, salt, Decline::TokensOnly),
    ] {
        let contract = engine.contract(&terms).unwrap();
        let mut scratch = Scratch::default();
        let declined = contract.chain(&extras, &mut scratch).map(|_| ()).unwrap_err();
        assert_eq!(declined, reason, "{engine:?} {terms:?}");
        assert!(
            contract.chain(&Extras::default(), &mut Scratch::default()).is_ok(),
            "plain requests never are"
        );
    }
    let untagged = Engine::Vllm.contract(&seeded(Algo::Sha256, "0.30.0")).unwrap();
    assert!(untagged.start(&lora(None).whole()).is_ok(), "no path is hashed before 0.31");
}

/// Contracts of every shape: with and without overhang, wide and narrow pages.
fn shapes() -> impl Strategy<Value = Contract> {
    let algos = prop::sample::select(vec![
        (Engine::Vllm, Algo::Sha256Cbor, "0.33.0"),
        (Engine::Vllm, Algo::Xxhash, "0.33.0"),
        (Engine::Sglang, Algo::Sha256Sglang, "0.5.23"),
        (Engine::Vllm, Algo::Tokens, "0.33.0"),
    ]);
    (algos, 1u64..40, 0u16..4).prop_map(|((engine, algo, version), tokens, overhang)| {
        let ahead = if engine == Engine::Vllm { overhang } else { 0 };
        let terms = Terms {
            seed: Seed::Given("0"),
            lookahead: ahead,
            bigram: engine == Engine::Sglang && overhang > 1,
            ..Terms { block_size: size(tokens), ..terms(algo, version) }
        };
        engine.contract(&terms).unwrap()
    })
}

proptest! {
    #[test]
    fn where_a_prompt_is_cut_makes_no_difference(
        contract in shapes(),
        tokens in prop::collection::vec(any::<u32>(), 0..200),
        cuts in prop::collection::vec(0usize..200, 0..8),
        salt in prop::option::of("[a-z]{2,9}"),
    ) {
        let extras = Extras { salt: salt.as_deref(), ..Extras::default() };
        let whole = keys(&contract, &extras, &tokens);
        let per_block = contract.block_size().tokens();
        prop_assert_eq!(whole.len(), tokens.len().saturating_sub(contract.overhang()) / per_block);
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(tokens.len())).collect();
        cuts.extend([0, tokens.len()]);
        cuts.sort_unstable();
        let (mut pieces, mut scratch) = (Vec::new(), Scratch::default());
        let mut chain = contract.chain(&extras, &mut scratch).unwrap();
        cuts.windows(2).for_each(|cut| chain.feed(&tokens[cut[0]..cut[1]], |key, _| pieces.push(key)));
        prop_assert_eq!(&whole, &pieces);
    }

    #[test]
    fn a_chain_goes_on_from_any_checkpoint(
        contract in shapes(),
        tokens in prop::collection::vec(any::<u32>(), 0..200),
        cut in 0usize..200,
    ) {
        let extras = Extras { salt: Some("tenant"), ..Extras::default() };
        let whole = keys(&contract, &extras, &tokens);
        let (mut pieces, mut scratch) = (Vec::new(), Scratch::default());
        let mut chain = contract.chain(&extras, &mut scratch).unwrap();
        chain.feed(&tokens[..cut.min(tokens.len())], |key, _| pieces.push(key));
        let checkpoint = chain.checkpoint();
        prop_assert_eq!(checkpoint.blocks as usize, pieces.len());
        let from = checkpoint.blocks as usize * contract.block_size().tokens();
        let mut chain = contract.resume(checkpoint, &extras, &mut scratch).unwrap();
        chain.feed(&tokens[from..], |key, _| pieces.push(key));
        prop_assert_eq!(whole, pieces);
    }

    #[test]
    fn blocks_one_by_one_are_the_chain(contract in shapes(), tokens in prop::collection::vec(any::<u32>(), 0..200)) {
        let extras = Extras { salt: Some("tenant"), ..Extras::default() };
        let (step, span) = (contract.block_size().tokens(), contract.block_size().tokens() + contract.overhang());
        let mut scratch = Scratch::default();
        let mut parent = contract.start(&extras.of_block(0, step)).unwrap().digest;
        for (index, key) in keys(&contract, &extras, &tokens).into_iter().enumerate() {
            let extra = extras.of_block(index as u64, step);
            parent = contract.digest(&parent, &tokens[index * step..][..span], &extra, &mut scratch);
            prop_assert_eq!(contract.key(&parent, None), key);
        }
    }

    /// One token, one extra key, one secret, one size changed: every key from there on is another one.
    #[test]
    fn own_names_differ_from_the_first_difference_on(
        tokens in prop::collection::vec(any::<u32>(), 64..=64),
        at in 0usize..64,
        flip in 1u32..=u32::MAX,
    ) {
        let of = |secret, block: u64| {
            let terms = Terms { secret, ..Terms::plain(Algo::Tokens, size(block)) };
            Engine::Vllm.contract(&terms).unwrap()
        };
        let (contract, plain) = (of(1, 16), Extras::default());
        let own = keys(&contract, &plain, &tokens);
        let mut other = tokens.clone();
        other[at] ^= flip;
        for (index, (a, b)) in own.iter().zip(keys(&contract, &plain, &other)).enumerate() {
            prop_assert_eq!(*a == b, index < at / 16);
        }
        let media = [Media { identifier: "a", offset: 16, length: 1 }];
        let salted = keys(&contract, &Extras { salt: Some("s"), ..plain }, &tokens);
        let seen = keys(&contract, &Extras { media: &media, ..plain }, &tokens);
        let adapted = keys(&contract, &Extras { lora: Some(Lora { name: "s", path: None }), ..plain }, &tokens);
        prop_assert_eq!(own[0], seen[0]);
        let families = [&own, &salted, &seen, &adapted, &keys(&of(2, 16), &plain, &tokens)];
        for (i, a) in families.iter().enumerate() {
            for b in &families[..i] {
                prop_assert!(a[1..].iter().zip(&b[1..]).all(|(a, b)| a != b));
            }
        }
        let coarse = keys(&of(1, 32), &plain, &tokens);
        prop_assert!(coarse.iter().all(|key| !own.contains(key)));
    }
}

/// An adapter's path is in no event, so names that both sides agree on leave it out.
#[test]
fn own_names_leave_out_what_events_do_not_tell() {
    let contract = Engine::Vllm.contract(&Terms::plain(Algo::Tokens, size(2))).unwrap();
    let with = |path| Extras { lora: Some(Lora { name: "x", path }), ..Extras::default() };
    assert_eq!(keys(&contract, &with(None), &[1, 2]), keys(&contract, &with(Some("p")), &[1, 2]));
}

/// Once the longest block was seen, hashing needs no memory.
#[test]
fn scratch_does_not_grow_with_the_prompt() {
    let contract = Engine::Vllm.contract(&terms(Algo::Sha256Cbor, "0.33.0")).unwrap();
    let mut scratch = Scratch::default();
    let tokens = vec![100_000u32; 16 * 100];
    let plain = Extras::default();
    contract.chain(&plain, &mut scratch).unwrap().feed(&tokens[..17], |_, _| {});
    let before = (scratch.preimage.room(0).as_ptr(), scratch.pending.as_ptr(), scratch.pending.capacity());
    let mut chain = contract.chain(&plain, &mut scratch).unwrap();
    tokens.chunks(13).for_each(|piece| chain.feed(piece, |_, _| {}));
    assert_eq!(chain.checkpoint().blocks, 100);
    let after = (scratch.preimage.room(0).as_ptr(), scratch.pending.as_ptr(), scratch.pending.capacity());
    assert_eq!(before, after);
}

#[test]
fn versions_that_name_blocks_alike_are_one_family() {
    let family = |engine: Engine, text| engine.family(Version::read(text).unwrap());
    assert_eq!(family(Engine::Vllm, "0.29.0"), family(Engine::Vllm, "0.30.2"));
    for (one, other) in [("0.28.1", "0.29.0"), ("0.30.2", "0.31.0"), ("0.32.0", "0.33.0")] {
        assert_ne!(family(Engine::Vllm, one), family(Engine::Vllm, other), "{one} {other}");
    }
    assert_ne!(family(Engine::Sglang, "0.5.19"), family(Engine::Sglang, "0.5.23"));
    assert_eq!(family(Engine::Trtllm, "1.0"), family(Engine::Trtllm, "1.3"));
}

#[test]
fn only_sglang_names_an_adapter_behind_its_model() {
    let split = |engine: Engine, model| engine.split_model(model);
    assert_eq!(split(Engine::Sglang, "org/base:tuned"), Some(("org/base", "tuned")));
    assert_eq!(split(Engine::Sglang, "base : a:b "), Some(("base", "a:b")));
    for plain in ["base", "base:", "base: ", ""] {
        assert_eq!(split(Engine::Sglang, plain), None, "{plain}");
    }
    for engine in [Engine::Vllm, Engine::Trtllm, Engine::Llamacpp] {
        assert_eq!(split(engine, "base:tuned"), None, "{engine:?}");
    }
}
