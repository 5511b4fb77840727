//! The property that checkpoints stand on: for a safe token T, ids(A·T·B) = ids(A·T) + ids(T·B) without its
//! first, for any A and B; over small tokenizers of every kind, with both implementations.

use crate::kinds::KINDS;
use crate::texts::{cases as cases_of, property, text};
use proptest::prelude::*;
use warmpath_prompt::Tokenizer;
use warmpath_prompt::tokenizer::{Choice, Recent};

fn load(json: &str, choice: Choice) -> Tokenizer {
    Tokenizer::load(json.as_bytes(), choice).expect("a tokenizer")
}

/// With the implementations that can read the file, and how many tokens are safe.
fn loaded() -> Vec<(&'static str, Vec<Tokenizer>, usize)> {
    let both = |(name, json, safe): &(&'static str, &str, usize)| {
        let loaded = [Choice::Reference, Choice::Fast].map(|choice| load(json, choice));
        (*name, loaded.into_iter().collect(), *safe)
    };
    KINDS.iter().map(both).collect()
}

#[test]
fn the_safe_tokens_are_those_that_the_proof_names() {
    for (name, tokenizers, safe) in loaded() {
        for tokenizer in tokenizers {
            let why: Vec<String> = tokenizer
                .boundaries()
                .tokens()
                .map(|(token, why)| {
                    format!("{token:?}: {}", why.map_or("safe".into(), |why| why.to_string()))
                })
                .collect();
            assert_eq!(tokenizer.boundaries().safe(), safe, "{name}: {why:#?}");
        }
    }
}

#[test]
fn text_may_be_cut_at_every_safe_token() {
    for (name, tokenizers, _) in loaded() {
        let added: Vec<String> = tokenizers[0].boundaries().tokens().map(|(token, _)| token.into()).collect();
        let safe: Vec<String> = tokenizers[0]
            .boundaries()
            .tokens()
            .filter(|(_, why)| why.is_none())
            .map(|(token, _)| token.into())
            .collect();
        let mut runner = proptest::test_runner::TestRunner::new(cases_of(120));
        let cases = (text(&added), proptest::sample::select(safe), text(&added));
        let verdict = runner.run(&cases, |(a, token, b)| {
            for tokenizer in &tokenizers {
                property(tokenizer, &format!("{a}{token}{b}"), &token).map_err(TestCaseError::fail)?;
            }
            Ok(())
        });
        assert!(verdict.is_ok(), "{name}: {verdict:?}");
    }
}

/// Otherwise the test above could not fail.
#[test]
fn a_token_that_is_not_safe_is_caught() {
    let (_, json, _) = KINDS.iter().find(|(name, ..)| *name == "tangled").expect("the kind");
    let tokenizer = load(json, Choice::Reference);
    let ids = |text: &str| {
        let mut ids = Vec::new();
        tokenizer.encode(text, &mut Recent::default(), &mut ids).expect("ids");
        ids
    };
    for (before, token, behind) in [("", "<a>", ">"), ("", "<|im_start|>", "user")] {
        let whole = ids(&format!("{before}{token}{behind}"));
        let mut parts = ids(&format!("{before}{token}"));
        parts.extend_from_slice(&ids(&format!("{token}{behind}"))[1..]);
        assert_ne!(whole, parts, "{before} {token} {behind}");
        let why = tokenizer.boundaries().tokens().find(|(name, _)| *name == token).expect("the token").1;
        assert!(why.is_some(), "{token}");
    }
}

#[test]
fn both_implementations_are_in_use_where_they_agree() {
    for (name, tokenizers, _) in loaded() {
        let [reference, fast] = &tokenizers[..] else { panic!("two of them") };
        let refused = fast.refusal().map(|why| why.to_string());
        println!("{name}: fast tokenizer {}", refused.as_deref().unwrap_or("in use"));
        assert!(reference.refusal().is_some());
        assert!(name != "tiny" || refused.is_none(), "{refused:?}");
        assert!(fast.check("the quick brown fox <|im_end|> e\u{301}"), "{name}");
    }
}
