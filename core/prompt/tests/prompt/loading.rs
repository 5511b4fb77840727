//! A model's folder: which files count, which goes first, and what is said of one that can't be used.

use crate::kinds::KINDS;
use std::path::{Path, PathBuf};
use warmpath_parser::json::{JsonLimits, Members, peek};
use warmpath_prompt::load::{Files, LoadFault, folder};
use warmpath_prompt::tokenizer::Choice;
use warmpath_prompt::{Api, Policy};

/// A fresh folder of a model with these files beside `tokenizer.json`.
fn place(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = folder(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("loading"), &format!("org/{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    for (file, text) in [("tokenizer.json", KINDS[0].1)].iter().chain(files) {
        std::fs::write(folder.join(file), text).expect("a file");
    }
    folder
}

/// What a model of that folder makes of one message.
fn text(folder: &Path, policy: Policy) -> Result<String, LoadFault> {
    let model = Files::read(folder)?.model(1, policy, Choice::Reference)?;
    let body = br#"{"messages": [{"role": "user", "content": "a"}]}"#;
    let mut members = Members::new();
    peek(body, &mut members, JsonLimits::default()).expect("JSON");
    let prompt =
        model.read(Api::Chat, body, &members, None).map_err(|why| LoadFault::Config(why.word().into()))?;
    Ok(prompt.text().unwrap_or_default().to_string())
}

const CONFIG: &str = r#"{"bos_token": "<|bos|>", "eos_token": {"content": "<|eos|>"}, "pad_token": null,
    "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}"}"#;

#[test]
fn a_folder_is_named_by_its_model() {
    assert_eq!(folder(Path::new("root"), "org/a/b"), Path::new("root/tokenizers/org__a__b"));
}

#[test]
fn the_configuration_gives_template_and_special_tokens() {
    let folder = place("config", &[("tokenizer_config.json", CONFIG)]);
    assert_eq!(text(&folder, Policy::plain()).ok().as_deref(), Some("<|bos|>a<|eos|>"));
    let profile = Policy { special_tokens: vec![("bos_token".into(), "<s>".into())], ..Policy::plain() };
    assert_eq!(text(&folder, profile).ok().as_deref(), Some("<s>a<|eos|>"));
    let list =
        r#"{"chat_template": [{"name": "rag", "template": "x"}, {"name": "default", "template": "y"}]}"#;
    let folder = place("list", &[("tokenizer_config.json", list)]);
    assert_eq!(text(&folder, Policy::plain()).ok().as_deref(), Some("y"));
}

#[test]
fn a_template_in_a_file_of_its_own_goes_first() {
    let folder =
        place("own", &[("tokenizer_config.json", CONFIG), ("chat_template.jinja", "own {{ eos_token }}")]);
    assert_eq!(text(&folder, Policy::plain()).ok().as_deref(), Some("own <|eos|>"));
}

/// gpt-oss and mistral3 have templates that engines don't use for chats.
#[test]
fn chats_of_models_that_engines_encode_by_code_are_declined() {
    for (kind, declined) in [("gpt_oss", true), ("mistral3", true), ("qwen3", false)] {
        let model = format!(r#"{{"model_type": "{kind}"}}"#);
        let folder =
            place(&format!("type-{kind}"), &[("tokenizer_config.json", CONFIG), ("config.json", &model)]);
        let word = text(&folder, Policy::plain()).err().map(|why| why.to_string());
        assert_eq!(word, declined.then(|| "tokenizer_config.json: model_type".to_string()), "{kind}");
    }
    let folder = place("broken-model", &[("config.json", "{")]);
    assert!(text(&folder, Policy::plain()).unwrap_err().to_string().starts_with("config.json: "));
    let added = |id: usize, token: &str| {
        format!(
            r#"{{"id": {id}, "content": "{token}", "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true}}"#
        )
    };
    let mut tokenizer: serde_json::Value = serde_json::from_str(KINDS[0].1).expect("JSON");
    let list = tokenizer["added_tokens"].as_array_mut().expect("a list");
    for (at, token) in ["<|start|>", "<|channel|>", "<|message|>", "<|return|>"].iter().enumerate() {
        list.push(serde_json::from_str(&added(9_000 + at, token)).expect("JSON"));
    }
    let harmony = tokenizer.to_string();
    let folder = place("harmony", &[("tokenizer.json", &harmony), ("tokenizer_config.json", CONFIG)]);
    let word = text(&folder, Policy::plain()).err().map(|why| why.to_string());
    assert_eq!(word.as_deref(), Some("tokenizer_config.json: model_type"), "known by its vocabulary");
}

#[test]
fn faults_name_the_file_and_the_cause() {
    let without = r#"{"added_tokens_decoder": {"9": {"content": "<|new|>"}, "1": {"content": "<|eos|>"}}}"#;
    let cases = [
        (
            place("template", &[("chat_template.jinja", "\n{% if %}")]),
            "chat template can't be compiled, line 2",
        ),
        (place("json", &[("tokenizer_config.json", "{")]), "tokenizer_config.json"),
        (place("added", &[("tokenizer_config.json", without)]), "\"<|new|>\""),
        (place("tokenizer", &[("tokenizer.json", "{}")]), "tokenizer.json can't be read"),
        (place("none", &[]).join("nothing"), "nothing/tokenizer.json can't be read"),
        (place("bare", &[]), "no_template"),
    ];
    for (folder, words) in cases {
        let fault = text(&folder, Policy::plain()).err().map(|fault| fault.to_string()).unwrap_or_default();
        assert!(fault.contains(words), "{fault:?} does not say {words:?}");
    }
}
