//! Prompts in text end to end: a model's files below `--config-root`, engines that were given the same prompt as
//! token ids, and where its text then goes. The simulated engines have no such tokenizer, so what they hold comes
//! from the reference tokenizer and from text written out here.

use crate::harness::*;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use warmpath_perf::engine::Handle;
use warmpath_prompt::Tokenizer;
use warmpath_prompt::tokenizer::{Choice, Recent};

on_both_drivers!(text_goes_where_its_tokens_are, files_that_come_late_or_torn_stop_nobody);

const TINY: &[u8] = include_bytes!("../../core/prompt/tests/tokenizers/tiny.json");

const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}\
                      {{ '<|im_start|>assistant\n' }}";

fn live_port() -> u16 {
    static PORT: OnceLock<u16> = OnceLock::new();
    *PORT.get_or_init(|| free_address().port())
}

/// At an address that no other engine of this process has: all publish at one port.
fn engine() -> Handle {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 192 + high % 63, low, 1 + NEXT.fetch_add(1, Relaxed) % 254);
    engine_with(|config| {
        config.host = host.to_string();
        config.models = vec!["org/tiny".into()];
        config.events.live = format!("tcp://*:{}", live_port()).parse().ok();
    })
}

fn exact_rule(engines: &[&Handle]) -> Value {
    let addresses: Vec<SocketAddr> = engines.iter().map(|engine| engine.addr).collect();
    let members = json!({
        "name": "text", "model_name": "org/tiny", "kvExactMode": 3, "kvHashAlgo": "tokens", "kvBlockSize": 16,
        "kvZmqPort": live_port(), "kvWarmupSec": 0, "explain_header": "full",
    });
    rule_with(free_address(), &addresses, members)
}

/// A folder that is removed at the end.
struct Root(PathBuf);

impl Root {
    fn new() -> Root {
        let root = Gateway::folder();
        std::fs::create_dir_all(root.join("tokenizers/org__tiny")).unwrap();
        Root(root)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.0.join("tokenizers/org__tiny").join(name), bytes).unwrap();
    }

    fn gateway(&self, driver: Driver, rules: &[Value]) -> Gateway {
        Gateway::start_with(driver, rules, &["--shards", "2", "--config-root", self.0.to_str().unwrap()])
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn wait_state(gateway: &Gateway, state: &str) -> Value {
    let mut model = Value::Null;
    wait_until("the model's state", || {
        model = gateway.admin("GET", "/netlox/v1/config/ai/models", "").json()["models"][0].clone();
        model["state"] == state
    });
    // A shard reports behind what it was told before: it has taken the model over.
    gateway.shards();
    model
}

fn tokens(text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    Tokenizer::load(TINY, Choice::Reference).unwrap().encode(text, &mut Recent::default(), &mut ids).unwrap();
    ids
}

/// Gives an engine a prompt as token ids, and waits until the gateway knows its blocks.
fn warm(gateway: &Gateway, engine: &Handle, ids: &[u32]) {
    let body = json!({"model": "org/tiny", "prompt": ids, "max_tokens": 1}).to_string();
    let mut client = Client::connect(engine.addr);
    assert_eq!(client.ask(&post("/v1/completions", &[], body.as_bytes())).status, 200);
    let at = engine.addr.to_string();
    wait_until("the gateway knows of the blocks", || {
        let reply = gateway.admin("GET", "/netlox/v1/config/ai/kv/status", "");
        let rows = if reply.status == 200 { reply.json()["endpoints"].clone() } else { Value::Null };
        let row = rows.as_array().into_iter().flatten().find(|row| row["endpoint"] == at.as_str()).cloned();
        row.is_some_and(|row| row["ranks"][0]["blocks"]["gpu"].as_u64() >= Some(ids.len() as u64 / 16))
    });
}

/// Waits until the events of all engines come.
fn wait_connected(gateway: &Gateway) {
    wait_until("all events come", || {
        let reply = gateway.admin("GET", "/netlox/v1/config/ai/kv/status", "");
        let rows = if reply.status == 200 { reply.json()["endpoints"].clone() } else { Value::Null };
        rows.as_array().is_some_and(|rows| {
            !rows.is_empty() && rows.iter().all(|row| row["ranks"][0]["connected"] == true)
        })
    });
}

/// The receipt of a request on a connection of its own.
fn ask(gateway: &Gateway, path: &str, body: &Value) -> String {
    let reply = gateway.client().ask(&post(path, &[], body.to_string().as_bytes()));
    assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    reply.header("x-warmpath-receipt").unwrap().to_string()
}

fn rendered(turns: &[(&str, &str)]) -> String {
    turns.iter().map(|(role, content)| format!("<|im_start|>{role}\n{content}<|im_end|>\n")).collect()
}

fn chat_of(turns: &[(&str, &str)]) -> Value {
    let turns: Vec<Value> =
        turns.iter().map(|(role, content)| json!({"role": role, "content": content})).collect();
    json!({"model": "org/tiny", "messages": turns, "max_tokens": 1})
}

fn text_goes_where_its_tokens_are(driver: Driver) {
    let engines = [engine(), engine(), engine()];
    let root = Root::new();
    root.write("tokenizer.json", TINY);
    root.write("chat_template.jinja", CHATML.as_bytes());
    let gateway = root.gateway(driver, &[exact_rule(&engines.each_ref())]);
    let model = wait_state(&gateway, "loaded");
    assert!(model["safe_tokens"].as_u64() > Some(0) && model["fast_refused"].is_null(), "{model}");
    wait_connected(&gateway);
    // Both a prompt that a shard does itself and one for a token core; each turn on a connection of its own.
    for (seed, many, engine) in [(1, 60, &engines[1]), (2, 6_000, &engines[2])] {
        let long: String = (0..many).map(|at| format!("{} of {seed}, ", at * 7919)).collect();
        let mut turns = vec![("system", "be brief"), ("user", long.as_str())];
        let ids = tokens(&rendered(&turns));
        warm(&gateway, engine, &ids);
        for _ in 0..2 {
            let receipt = ask(&gateway, "/v1/chat/completions", &chat_of(&turns));
            let expected = format!("endpoint={}, rank=0, tier=tier15, overlap_blocks=", engine.addr);
            assert!(receipt.contains(&expected), "{receipt}");
            turns.extend([("assistant", "yes"), ("user", "and then?")]);
        }
    }
    let text: String = (0..60).map(|at| format!("completion {} ", at * 31)).collect();
    let ids = tokens(&text);
    warm(&gateway, &engines[0], &ids);
    let receipt =
        ask(&gateway, "/v1/completions", &json!({"model": "org/tiny", "prompt": text, "max_tokens": 1}));
    let expected =
        format!("endpoint={}, rank=0, tier=tier15, overlap_blocks={}", engines[0].addr, ids.len() / 16);
    assert!(receipt.contains(&expected), "{receipt}");
}

fn files_that_come_late_or_torn_stop_nobody(driver: Driver) {
    let engine = engine();
    let root = Root::new();
    root.write("tokenizer.json", &TINY[..TINY.len() / 2]);
    let gateway = root.gateway(driver, &[exact_rule(&[&engine])]);
    wait_state(&gateway, "failed");
    let ready = gateway.admin("GET", "/netlox/v1/status/ready", "").json();
    assert!(
        ready["ready"] == true && ready["warnings"].to_string().contains("tokenizers/org__tiny"),
        "{ready}"
    );
    let body = chat_of(&[("user", "a question that is long enough to have a block of its own")]);
    assert!(ask(&gateway, "/v1/chat/completions", &body).contains("missed=tokenizer_failed"));
    // Its template is still missing: completions work, chats have their reason.
    root.write("tokenizer.json", TINY);
    wait_state(&gateway, "loaded");
    assert!(ask(&gateway, "/v1/chat/completions", &body).contains("missed=no_template"));
    root.write("chat_template.jinja", CHATML.as_bytes());
    wait_until("the template is taken in", || {
        !ask(&gateway, "/v1/chat/completions", &body).contains("missed=no_template")
    });
    // A profile is taken in, and one that can't be is told by name and changes nothing.
    let profile = root.0.join("kvprofiles/tiny.yaml");
    std::fs::create_dir_all(root.0.join("kvprofiles")).unwrap();
    std::fs::write(&profile, "profileId: tiny\nbaseModel: org/tiny\nsupportedApis: [completions]\n").unwrap();
    wait_until("the profile is taken in", || {
        ask(&gateway, "/v1/chat/completions", &body).contains("missed=profile_api")
    });
    std::fs::write(&profile, "profileId: tiny\nbaseModel: org/tiny\nclock: utc\n").unwrap();
    let models = || gateway.admin("GET", "/netlox/v1/config/ai/models", "").json();
    wait_until("the profile is refused", || models()["refused_profiles"][0]["file"] == "tiny.yaml");
    let model = wait_state(&gateway, "loaded");
    assert_eq!(model["profile"], "tiny", "the one before goes on: {model}");
    let ready = gateway.admin("GET", "/netlox/v1/status/ready", "").json();
    assert!(ready["warnings"].to_string().contains("kvprofiles/tiny.yaml is not taken"), "{ready}");
    std::fs::remove_dir_all(root.0.join("tokenizers/org__tiny")).unwrap();
    wait_state(&gateway, "absent");
    assert!(ask(&gateway, "/v1/chat/completions", &body).contains("missed=no_tokenizer"));
}
