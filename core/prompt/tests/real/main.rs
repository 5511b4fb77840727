//! Vendors' tokenizers and templates against independent oracles: the `tokenizers` crate, and Jinja2 in a Python
//! environment of its own. Packages are fetched by name and pinned by hash. Run it by
//! `cargo test --release -p warmpath-prompt --test real -- --ignored`; what can't be fetched here is not_run.

#[path = "../prompt/conversations.rs"]
mod conversations;
mod fetch;
#[path = "../jinja/mod.rs"]
mod jinja;
#[path = "../texts/mod.rs"]
mod texts;

use fetch::{Package, python};
use proptest::prelude::*;
use std::path::Path;
use warmpath_prompt::load::Files;
use warmpath_prompt::template::{Kwarg, Template, VERIFIED, Verified};
use warmpath_prompt::tokenizer::Choice;
use warmpath_prompt::{Policy, Tokenizer};

/// How many conversations a template renders.
const CHATS: &str = "600";

fn loaded(package: &Package) -> Option<Tokenizer> {
    let json = match package.file("tokenizer.json") {
        Ok(json) => json,
        Err(why) => {
            println!("not_run {}: {why}", package.name);
            return None;
        }
    };
    let tokenizer = Tokenizer::load(&json, Choice::Fast).expect("a vendor's tokenizer");
    let added = tokenizer.boundaries().tokens().count();
    let refusal = tokenizer.refusal().map(|why| why.to_string());
    println!(
        "{}: {} of {added} added tokens are safe, fast tokenizer {}",
        package.name,
        tokenizer.boundaries().safe(),
        refusal.as_deref().unwrap_or("in use"),
    );
    Some(tokenizer)
}

#[test]
#[ignore = "fetches packages"]
fn vendors_templates_render_as_jinja2_does() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return println!("not_run: {why}"),
    };
    for package in fetch::PACKAGES {
        let config = match package.file("tokenizer_config.json") {
            Ok(config) => config,
            Err(why) => {
                println!("not_run {}: {why}", package.name);
                continue;
            }
        };
        let config: serde_json::Value = serde_json::from_slice(&config).expect("JSON");
        let Some(template) = config["chat_template"].as_str() else { continue };
        let rows = python.oracle(&["chats", CHATS], template).expect("the oracle runs");
        let wrong = jinja::differences(template, jinja::rows(&rows));
        assert!(wrong.is_empty(), "{}: {} differ, first\n{}", package.name, wrong.len(), wrong[0]);
        println!("{}: {CHATS} conversations render alike", package.name);
    }
}

/// What `VERIFIED` promises: tools as each engine gives them, calls, results and keyword arguments.
#[test]
#[ignore = "fetches packages"]
fn verified_templates_render_tools_as_jinja2_does() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return println!("not_run: {why}"),
    };
    for verified in VERIFIED {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/templates").join(verified.name);
        let source = std::fs::read_to_string(path.with_extension("jinja")).expect("a template of the list");
        assert_eq!(Verified::of(&source), Some(verified), "{} has other bytes", verified.name);
        let template = Template::compile(&source).expect("a template");
        let parts = if template.loops_over_parts() { "parts" } else { "text" };
        let kwarg = |own: &Kwarg| format!("{}{}", own.name, if own.is_text { ":text" } else { "" });
        let kwargs: Vec<String> = verified.kwargs.iter().map(kwarg).collect();
        let rows =
            python.oracle(&["tools", CHATS, parts, &kwargs.join(",")], &source).expect("the oracle runs");
        let wrong = jinja::differences(&source, jinja::rows(&rows));
        assert!(wrong.is_empty(), "{}: {} differ, first\n{}", verified.name, wrong.len(), wrong[0]);
        println!("{}: {CHATS} conversations with tools render alike", verified.name);
    }
}

#[test]
#[ignore = "fetches packages"]
fn vendors_chats_go_on_with_the_text_of_a_whole_rendering() {
    let mut proven = 0;
    for package in fetch::PACKAGES {
        let files = ["tokenizer.json", "tokenizer_config.json"].map(|name| package.file(name));
        let [Ok(tokenizer), Ok(config)] = files else {
            println!("not_run {}", package.name);
            continue;
        };
        let files = Files { tokenizer, config: Some(config), ..Files::default() };
        let model = files.model(1, Policy::plain(), Choice::Fast).expect("a vendor's model");
        match model.renders_anew() {
            Some(why) => println!("{}: every turn is rendered whole: {why}", package.name),
            None => {
                let went = conversations::run(&files, 7, 150);
                println!("{}: {} went on, {} did not", package.name, went.resumed, went.whole);
                assert!(went.resumed > 20, "{}", package.name);
                proven += 1;
            }
        }
    }
    println!("{proven} of {} templates are proven", fetch::PACKAGES.len());
}

#[test]
#[ignore = "fetches packages"]
fn the_golden_expressions_are_jinja2_s() {
    match python() {
        Ok(python) => {
            let rows = python.oracle(&["expressions"], "").expect("the oracle runs");
            assert_eq!(rows, include_str!("../golden/expressions.jsonl"));
            let members = serde_json::from_str(include_str!("../oracle/expressions.txt.json")).expect("JSON");
            assert_eq!(jinja::render("{{ text }}", &members).as_deref(), Ok("hello Wörld "));
        }
        Err(why) => println!("not_run: {why}"),
    }
}

/// Sources and documents of this repository, cut into pieces of some KiB.
fn documents() -> Vec<String> {
    let mut texts = Vec::new();
    gather(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), &mut texts);
    let lines: Vec<String> =
        texts.iter().flat_map(|text| text.split_inclusive('\n').map(str::to_string)).collect();
    lines.chunks(150).map(|chunk| chunk.concat()).collect()
}

fn gather(folder: &Path, texts: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let wanted = [".rs", ".md", ".py", ".toml", ".json", ".jinja"].iter().any(|end| name.ends_with(end));
        match path.is_dir() {
            true if name != "target" && !name.starts_with('.') => gather(&path, texts),
            false if wanted => texts.extend(std::fs::read_to_string(path)),
            _ => {}
        }
    }
}

#[test]
#[ignore = "fetches packages"]
fn fast_and_reference_agree_on_a_large_corpus() {
    let documents = documents();
    assert!(documents.len() > 100);
    for package in fetch::PACKAGES {
        let Some(tokenizer) = loaded(package) else { continue };
        assert_eq!(tokenizer.refusal().map(|why| why.to_string()), None, "{}", package.name);
        for text in &documents {
            assert!(tokenizer.check(text), "{} differs on {text:?}", package.name);
        }
        let added: Vec<String> = tokenizer.boundaries().tokens().map(|(token, _)| token.into()).collect();
        let mut runner = proptest::test_runner::TestRunner::new(texts::cases(2_000));
        let verdict = runner.run(&proptest::collection::vec(texts::text(&added), 1..6), |texts| {
            prop_assert!(tokenizer.check(&texts.concat()));
            Ok(())
        });
        assert!(verdict.is_ok(), "{}: {verdict:?}", package.name);
        assert!(tokenizer.check(&"\u{1}\u{fffd}".repeat(2_000)) && tokenizer.check(&" ".repeat(20_000)));
    }
}

#[test]
#[ignore = "fetches packages"]
fn vendors_texts_may_be_cut_at_every_safe_token() {
    for package in fetch::PACKAGES {
        let Some(tokenizer) = loaded(package) else { continue };
        let tokens = || tokenizer.boundaries().tokens();
        let added: Vec<String> = tokens().map(|(token, _)| token.into()).collect();
        let safe: Vec<String> =
            tokens().filter(|(_, why)| why.is_none()).map(|(token, _)| token.into()).collect();
        for (token, why) in tokens().filter_map(|(token, why)| Some((token, why?))).take(5) {
            println!("  {token:?} is not safe: {why}");
        }
        assert!(safe.len() * 10 > added.len() * 9, "{}: {} of {}", package.name, safe.len(), added.len());
        let mut runner = proptest::test_runner::TestRunner::new(texts::cases(3_000));
        let cases = (texts::text(&added), proptest::sample::select(safe), texts::text(&added));
        let verdict = runner.run(&cases, |(a, token, b)| {
            texts::property(&tokenizer, &format!("{a}{token}{b}"), &token).map_err(TestCaseError::fail)
        });
        assert!(verdict.is_ok(), "{}: {verdict:?}", package.name);
    }
}

#[test]
#[ignore = "fetches packages"]
fn what_is_put_around_a_text_is_found() {
    for package in fetch::PACKAGES {
        let Some(tokenizer) = loaded(package) else { continue };
        let around = tokenizer.around().map(|around| (around.before.clone(), around.behind.clone()));
        assert_eq!(around, Some((package.before.to_vec(), Vec::new())), "{}", package.name);
    }
}
