//! Loading, agreement and its end, on the small tokenizers of the tests.

use super::*;

const TINY: &str = include_str!("../../tests/tokenizers/tiny.json");

fn edited(edit: impl Fn(&mut Value)) -> Result<Tokenizer, TokenizerFault> {
    let mut document: Value = serde_json::from_str(TINY).expect("JSON");
    edit(&mut document);
    Tokenizer::load(document.to_string().as_bytes(), Choice::Fast)
}

fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer.encode(text, &mut Recent::default(), &mut ids).expect("ids");
    ids
}

#[test]
fn a_difference_ends_the_fast_tokenizer_once_and_for_all() {
    let mut tokenizer = edited(|_| ()).expect("a tokenizer");
    assert_eq!(tokenizer.refusal(), None);
    let reference = ids(&tokenizer, "the quick <|im_end|>");
    // Another vocabulary on the fast side, which only knows bytes.
    let bytes = edited(|document| document["model"]["merges"] = serde_json::json!([])).expect("a tokenizer");
    tokenizer.fast = bytes.fast;
    assert_ne!(ids(&tokenizer, "the quick <|im_end|>"), reference);
    assert!(tokenizer.check("<|im_end|>") && tokenizer.refusal().is_none());
    assert!(!tokenizer.check("the quick"));
    assert_eq!(tokenizer.refusal(), Some(&Refusal::Diverged));
    assert_eq!(ids(&tokenizer, "the quick <|im_end|>"), reference);
    assert!(tokenizer.check("the quick"));
}

#[test]
fn rare_letters_go_to_the_reference() {
    let mut tokenizer = edited(|_| ()).expect("a tokenizer");
    assert!(tokenizer.rare.is_empty());
    let bytes = edited(|document| document["model"]["merges"] = serde_json::json!([])).expect("a tokenizer");
    let reference = ids(&tokenizer, "the quick \u{17f}");
    tokenizer.fast = bytes.fast;
    assert_ne!(ids(&tokenizer, "the quick \u{17f}"), reference);
    tokenizer.rare = vec!["\u{17f}"];
    assert_eq!(ids(&tokenizer, "the quick \u{17f}"), reference);
    assert!(tokenizer.check("the quick \u{17f}"));
}

#[test]
fn the_reference_alone_may_be_asked_for() {
    let tokenizer = Tokenizer::load(TINY.as_bytes(), Choice::Reference).expect("a tokenizer");
    assert_eq!(tokenizer.refusal(), Some(&Refusal::Chosen));
    assert_eq!(ids(&tokenizer, "<|im_end|>"), [4]);
    assert_eq!(tokenizer.id_of("<|im_end|>"), Some(4));
    assert_eq!(tokenizer.id_of("nothing"), None);
}

#[test]
fn what_can_t_be_used_is_refused_by_name() {
    assert!(matches!(Tokenizer::load(b"{", Choice::Fast), Err(TokenizerFault::Unreadable(_))));
    assert!(matches!(Tokenizer::load(b"{}", Choice::Fast), Err(TokenizerFault::Unreadable(_))));
    let random = edited(|document| document["model"]["dropout"] = serde_json::json!(0.1));
    assert_eq!(random.err(), Some(TokenizerFault::Random));
    let zero = edited(|document| document["model"]["dropout"] = serde_json::json!(0.0));
    assert!(zero.is_ok());
}

#[test]
fn truncation_and_padding_are_off() {
    let tokenizer = edited(|document| {
        document["truncation"] = serde_json::json!(
            {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
        );
        document["padding"] = serde_json::json!({"strategy": {"Fixed": 64}, "direction": "Right",
            "pad_to_multiple_of": null, "pad_id": 2, "pad_type_id": 0, "pad_token": "<|pad|>"});
    });
    let tokenizer = tokenizer.expect("a tokenizer");
    assert_eq!(ids(&tokenizer, "<|im_end|>").len(), 1);
    assert_eq!(ids(&tokenizer, &"<|im_end|>".repeat(9)).len(), 9);
    assert!(tokenizer.check(&"the".repeat(30)));
}
