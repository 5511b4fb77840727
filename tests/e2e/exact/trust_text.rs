//! Text that an engine reads otherwise: with another tokenizer, or through another template. What the gateway then says
//! is broken, in status and in its log, and that the endpoint takes requests by load alone.

use super::pool::{NO_SEEDING, SEED, engine_with, exact_rule, gateway_with, known_of};
use crate::harness::{Driver, Gateway, on_both_drivers, post, wait_until, write_byte_model};
use serde_json::{Value, json};
use std::path::PathBuf;
use warmpath_perf::engine::Handle;
use warmpath_perf::engine::Kind::Vllm;
use warmpath_perf::engine::text::Reading;

on_both_drivers!(another_tokenizer_is_named_and_demotes, another_template_is_named_and_demotes);

/// An engine, the gateway before it, and the gateway's files.
struct Behind {
    gateway: Gateway,
    engine: Handle,
    root: PathBuf,
}

impl Drop for Behind {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// An engine that reads text like this, behind a gateway with the files of a model whose tokens are bytes.
fn behind(driver: Driver, reading: Reading) -> Behind {
    let engine = engine_with(Vllm, |config| config.reading = reading);
    let root = Gateway::folder();
    write_byte_model(&root.join("tokenizers/sim"));
    let rule = exact_rule("pool", Vllm, &[&engine], json!({"model_name": "sim"}));
    let flags = ["--shards", "2", "--config-root", root.to_str().unwrap()];
    let gateway = gateway_with(driver, &[rule], &flags, &[SEED, NO_SEEDING]);
    wait_until("the model is loaded", || {
        let models = gateway.admin("GET", "/netlox/v1/config/ai/models", "").json();
        models["models"][0]["state"] == "loaded"
    });
    Behind { gateway, engine, root }
}

fn words(seed: usize) -> String {
    (0..20).map(|at| format!("{} of {seed}, ", at * 7919)).collect()
}

fn ask(gateway: &Gateway, path: &str, body: &Value) {
    let reply = gateway.client().ask(&post(path, &[], body.to_string().as_bytes()));
    assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
}

fn complete(gateway: &Gateway, seed: usize) {
    ask(gateway, "/v1/completions", &json!({"model": "sim", "prompt": words(seed), "max_tokens": 1}));
}

fn chat(gateway: &Gateway, seed: usize) {
    let messages = json!([{"role": "user", "content": words(seed)}]);
    ask(gateway, "/v1/chat/completions", &json!({"model": "sim", "messages": messages, "max_tokens": 1}));
}

/// Waits for the demotion, what status says of it, and the line in the log.
fn demoted(gateway: &Gateway, engine: &Handle, legs: &[&str]) {
    let row = known_of(gateway, "pool", engine);
    assert_eq!((&row["trust"]["state"], &row["trust"]["legs"]), (&json!("load_only"), &json!(legs)), "{row}");
    let line = format!("endpoint {}: of 2", engine.addr);
    wait_until("the log says it", || {
        let log = gateway.log();
        let said = log.lines().find(|line| line.contains("[KV_TRUST]")).unwrap_or_default().to_owned();
        said.contains(&line)
            && legs.iter().all(|leg| said.contains(&format!("{leg} (")))
            && said.contains("--config-root")
    });
}

fn another_tokenizer_is_named_and_demotes(driver: Driver) {
    let Behind { gateway, engine, .. } = &behind(driver, Reading::default());
    (0..24).for_each(|seed| complete(gateway, seed));
    demoted(gateway, engine, &["tokenizer"]);
}

fn another_template_is_named_and_demotes(driver: Driver) {
    let opening = "You are of some use.".to_owned();
    let Behind { gateway, engine, .. } = &behind(driver, Reading { bytes: true, opening });
    (0..24).for_each(|seed| chat(gateway, seed));
    demoted(gateway, engine, &["tokenizer", "template"]);
    // Text without a template agrees: from then on it is known to be the template.
    wait_until("text agrees", || {
        complete(gateway, 1);
        let row = known_of(gateway, "pool", engine);
        row["trust"]["legs"] == json!(["template"])
    });
}

/// The same files, the same marks: chats and texts agree.
#[test]
fn an_engine_with_the_same_files_is_trusted() {
    let Behind { gateway, engine, .. } =
        &behind(Driver::Epoll, Reading { bytes: true, ..Reading::default() });
    wait_until("it is trusted", || {
        chat(gateway, 1);
        complete(gateway, 2);
        known_of(gateway, "pool", engine)["trust"]["answers"]["agrees"].as_u64() >= Some(4)
    });
    let row = known_of(gateway, "pool", engine);
    assert_eq!(
        (&row["trust"]["state"], &row["trust"]["agreed"]),
        (&json!("trusted"), &row["trust"]["judged"]),
        "{row}"
    );
    assert!(!gateway.log().contains("[KV_TRUST]"));
}
