//! A model's folder: which files count, which goes first, and what is said of one that can't be used.

use crate::kinds::KINDS;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use warmpath_core::block::BlockSize;
use warmpath_core::engine::{Algo, Engine, Extras, Terms, ToolForm};
use warmpath_core::profile::Profile;
use warmpath_parser::json::{JsonLimits, Members, peek};
use warmpath_prompt::load::registry::Reader;
use warmpath_prompt::load::{Files, LoadFault, folder};
use warmpath_prompt::tokenizer::Choice;
use warmpath_prompt::{Api, Checkpoints, Date, Decline, Desk, Model, Policy, Scheme};

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
    rendered(&model).map_err(|why| LoadFault::Config(why.word().into()))
}

/// An engine that encodes two types of models by code of its own.
fn encoding() -> Policy {
    Policy { encoded: &["gpt_oss", "mistral3"], engine: Some(Engine::Sglang), ..Policy::plain() }
}

fn profile(yaml: &str) -> Profile {
    warmpath_prompt::profile::read(yaml.as_bytes()).expect("a profile")
}

fn rendered(model: &Model) -> Result<String, Decline> {
    rendered_on(model, None)
}

fn rendered_on(model: &Model, today: Option<Date>) -> Result<String, Decline> {
    let body = br#"{"messages": [{"role": "user", "content": "a"}]}"#;
    let mut members = Members::new();
    peek(body, &mut members, JsonLimits::default()).expect("JSON");
    let prompt = model.read(Api::Chat, body, &members, today, None)?;
    Ok(prompt.text().unwrap_or_default().to_string())
}

/// The ids of a completion of this text, whose blocks are one token each.
fn completion(model: &Model, text: &str) -> Result<u64, Decline> {
    let body = format!(r#"{{"prompt": "{text}"}}"#);
    let mut members = Members::new();
    peek(body.as_bytes(), &mut members, JsonLimits::default()).expect("JSON");
    let prompt = model.read(Api::Completions, body.as_bytes(), &members, None, None)?;
    let naming = Terms::plain(Algo::Tokens, BlockSize::new(1).expect("a size"));
    let scheme = Scheme::new(Engine::Vllm.contract(&naming).expect("a contract"));
    let (checkpoints, mut desk) = (Checkpoints::new(0, 0), Desk::default());
    let plan = model.plan(prompt, &scheme, &Extras::default(), &checkpoints, &mut desk)?;
    model.keys(&plan, &scheme, &Extras::default(), &checkpoints, &mut desk)?;
    Ok(desk.tokens)
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
        let word = text(&folder, encoding()).err().map(|why| why.to_string());
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
    let own = |kind: &str| format!("profileId: a\nbaseModel: m\nmodelType: {kind}\n");
    let profiled = |kind: &str| {
        let files = Files::read_under(&folder, &folder, &profile(&own(kind)));
        rendered(&files.expect("nothing pinned").model(1, encoding(), Choice::Reference).expect("a model"))
    };
    assert_eq!(profiled("gpt_oss"), Err(Decline::ModelType));
    assert_eq!(profiled("qwen3").as_deref(), Ok("<|bos|>a<|eos|>"), "the profile's word goes first");
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

#[test]
fn a_date_is_printed_only_where_the_clock_policy_gives_it() {
    let config = r#"{"chat_template": "{{ strftime_now('%d %b %Y') }}"}"#;
    let folder = place("clock", &[("tokenizer_config.json", config)]);
    let midnight = 1_798_761_600;
    let on = |yaml: &str, second| {
        let files = Files::read_under(&folder, &folder, &profile(yaml)).expect("nothing pinned");
        let model = files.model(1, Policy::plain(), Choice::Reference).expect("a model");
        rendered_on(&model, Some(Date::of_unix(second)))
    };
    let bare = "profileId: a\nbaseModel: m\n";
    assert_eq!(on(bare, midnight), Err(Decline::Clock));
    let utc = "profileId: a\nbaseModel: m\nrenderPolicy: {clockPolicy: utc-date}\n";
    assert_eq!(on(utc, midnight - 1).as_deref(), Ok("31 Dec 2026"));
    assert_eq!(on(utc, midnight).as_deref(), Ok("01 Jan 2027"));
}

#[test]
fn a_completion_begins_with_the_bos_token_where_the_quirk_of_its_engine_says_so() {
    let bos = r#"{"bos_token": "<|eos|>"}"#;
    let folder = place("quirk", &[("tokenizer_config.json", bos)]);
    let tokens = |yaml: &str, engine| {
        let files = Files::read_under(&folder, &folder, &profile(yaml)).expect("nothing pinned");
        let model = files.model(1, Policy { engine: Some(engine), ..Policy::plain() }, Choice::Reference);
        model.map(|model| completion(&model, "a").expect("keys")).map_err(|fault| fault.to_string())
    };
    let plain = tokens("profileId: a\nbaseModel: m\n", Engine::Sglang).expect("a model");
    let quirk = "profileId: a\nbaseModel: m\nengineQuirks: {sglang-kv-rank-v1: {completionsBos: true}}\n";
    assert_eq!(tokens(quirk, Engine::Sglang), Ok(plain + 1));
    assert_eq!(tokens(quirk, Engine::Vllm), Ok(plain), "another engine's");
    let named = format!("{quirk}renderPolicy: {{bosToken: <none>}}\n");
    let fault = tokens(&named, Engine::Sglang).expect_err("no such token");
    assert!(fault.contains("kvprofiles/a") && fault.contains("renderPolicy.bosToken"), "{fault}");
}

#[test]
fn apis_that_a_profile_leaves_out_are_declined() {
    let folder = place("apis", &[("tokenizer_config.json", CONFIG)]);
    for (api, outcome) in [("chat", (true, false)), ("completions", (false, true))] {
        let yaml = format!("profileId: a\nbaseModel: m\nsupportedApis: [{api}]\n");
        let files = Files::read_under(&folder, &folder, &profile(&yaml)).expect("nothing pinned");
        let model = files.model(1, Policy::plain(), Choice::Reference).expect("a model");
        let (chat, completion) = (rendered(&model).err(), completion(&model, "a").err());
        assert_eq!((chat.is_none(), completion.is_none()), outcome);
        assert_eq!(chat.or(completion), Some(Decline::ProfileApi));
    }
}

#[test]
fn pinned_files_go_first_and_must_be_what_they_were_pinned_as() {
    let folder = place("pins", &[("tokenizer_config.json", CONFIG)]);
    std::fs::create_dir_all(folder.join("kvprofiles/artifacts/sha256")).expect("a folder");
    let (template, digest) = ("pinned {{ eos_token }}", sha256(b"pinned {{ eos_token }}"));
    let yaml = |locator: &str, digest: &str| {
        format!("profileId: a\nbaseModel: m\ntemplateArtifact: {locator}\ntemplateSha256: {digest}\n")
    };
    let pinned = |yaml: &str| {
        let files = Files::read_under(&folder, &folder, &profile(yaml))?;
        let model = files.model(1, Policy::plain(), Choice::Reference)?;
        rendered(&model).map_err(|why| LoadFault::Config(why.word().into()))
    };
    let locator = format!("sha256/{digest}");
    let missing = pinned(&yaml(&locator, &digest)).expect_err("not there yet").to_string();
    assert!(missing.contains(&locator), "{missing}");
    std::fs::write(folder.join("kvprofiles/artifacts").join(&locator), template).expect("a file");
    assert_eq!(pinned(&yaml(&locator, &digest)).ok().as_deref(), Some("pinned <|eos|>"));
    std::fs::write(folder.join("kvprofiles/artifacts/own.jinja"), "torn").expect("a file");
    let other = pinned(&yaml("own.jinja", &digest)).expect_err("other bytes").to_string();
    assert!(other.contains("own.jinja") && other.contains(&sha256(b"torn")), "{other}");
}

#[test]
fn a_model_has_one_profile_or_a_fault() {
    let root = place("registry", &[]);
    std::fs::create_dir_all(root.join("kvprofiles")).expect("a folder");
    for (name, yaml) in [
        ("one.yaml", "profileId: one\nbaseModel: org/m\naliasPolicy: list\nallowedAliases: [m]\n"),
        ("two.yaml", "profileId: two\nbaseModel: m\n"),
        ("three.yaml", "profileId: three\nbaseModel: org/n\n"),
        ("torn.yaml", "profileId: torn\nbaseModel: t\nclock: 1\n"),
        ("bare.yaml", "baseModel: {"),
    ] {
        std::fs::write(root.join("kvprofiles").join(name), yaml).expect("a file");
    }
    let mut reader = Reader::new(&root);
    assert!(reader.look() && !reader.look(), "read once");
    let of = |folder| reader.of_folder(folder).map(|own| own.map(|own| own.profile.id.clone()));
    assert_eq!(of("org__n").ok(), Some(Some("three".into())));
    assert_eq!(of("none").ok(), Some(None));
    for (folder, words) in
        [("m", ["one.yaml", "two.yaml"]), ("org__m", ["one.yaml", "two.yaml"]), ("t", ["torn.yaml", "clock"])]
    {
        let fault = of(folder).expect_err("a fault").to_string();
        assert!(words.iter().all(|word| fault.contains(word)), "{fault}");
    }
    let registry = reader.registry();
    let refused: Vec<&str> = registry.refused.iter().map(|refused| refused.file.as_str()).collect();
    assert_eq!(refused, ["bare.yaml", "one.yaml", "torn.yaml", "two.yaml"]);
    assert_eq!((registry.profiles.len(), registry.generation), (1, 1), "the others are published");
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Who says that tools are rendered: the engine's policy, the template's verification and the profile, all three.
#[test]
fn tools_are_rendered_where_the_template_is_verified_and_the_only_one() {
    const QWEN3: &str = include_str!("../templates/qwen3_later.jinja");
    let tools = Policy { tools: true, template_kwargs: true, ..Policy::plain() };
    let body =
        br#"{"tools": [{"function": {"name": "f"}}], "chat_template_kwargs": {"enable_thinking": false},
        "messages": [{"role": "user", "content": "a"}]}"#;
    let outcome = |files: Files, policy: &Policy| {
        let model = files.model(1, policy.clone(), Choice::Reference).expect("a model");
        let mut members = Members::new();
        peek(body, &mut members, JsonLimits::default()).expect("JSON");
        let prompt = model.read(Api::Chat, body, &members, None, Some(ToolForm::Declared));
        prompt.map(|prompt| prompt.text().unwrap_or_default().contains("\"description\": null"))
    };
    let folder = place("verified", &[("chat_template.jinja", QWEN3)]);
    let files = || Files::read(&folder).expect("files");
    assert_eq!(outcome(files(), &tools), Ok(true));
    assert_eq!(outcome(files(), &Policy { tools: false, ..tools.clone() }), Err(Decline::Tools));
    assert_eq!(
        outcome(files(), &Policy { template_kwargs: false, ..tools.clone() }),
        Err(Decline::TemplateKwargs)
    );
    for (excluded, decline) in [("tools", Decline::Tools), ("thinking", Decline::TemplateKwargs)] {
        let yaml = format!("profileId: a\nbaseModel: m\nexcludedFeatures: [{excluded}]\n");
        let profiled = Files::read_under(&folder, &folder, &profile(&yaml)).expect("nothing pinned");
        assert_eq!(outcome(profiled, &tools), Err(decline));
    }
    let changed = place("changed", &[("chat_template.jinja", &format!("{QWEN3} "))]);
    assert_eq!(outcome(Files::read(&changed).expect("files"), &tools), Err(Decline::Tools));
    for (name, expected) in [("rag", Ok(true)), ("tool_use", Err(Decline::Tools))] {
        let list =
            serde_json::json!([{"name": "default", "template": QWEN3}, {"name": name, "template": "x"}]);
        let config = serde_json::json!({"chat_template": list}).to_string();
        let folder = place(&format!("named-{name}"), &[("tokenizer_config.json", &config)]);
        assert_eq!(outcome(Files::read(&folder).expect("files"), &tools), expected, "{name}");
    }
}
