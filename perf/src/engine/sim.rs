//! The inspection and fault paths `/sim/…`, on the engine's own port and never subject to faults.
//! Must never be counted among the engine's requests.

use serde_json::{Value, json};

use super::Engine;
use super::faults::Faults;
use super::http::Head;
use super::kinds::Reply;

/// True for the paths of this file.
pub fn owns(path: &str) -> bool {
    path.starts_with("/sim/")
}

/// Answers one of the paths: `GET /sim/stats`, `GET /sim/faults`, `POST /sim/faults` (replaces all
/// switches), `POST /sim/reset` (switches off, counts and cache empty).
pub fn answer(engine: &Engine, head: &Head, body: &[u8]) -> Reply {
    match (head.method.as_str(), head.path.as_str()) {
        ("GET", "/sim/stats") => json_reply(200, &stats(engine)),
        ("GET", "/sim/faults") => json_reply(200, &json!(*engine.faults.borrow())),
        ("POST", "/sim/faults") => set_faults(engine, body),
        ("POST", "/sim/reset") => reset(engine),
        (_, "/sim/stats" | "/sim/faults" | "/sim/reset") => problem(405, "use GET for stats, POST for reset"),
        _ => problem(404, "the paths are /sim/stats, /sim/faults and /sim/reset"),
    }
}

fn stats(engine: &Engine) -> Value {
    let mut value = json!(engine.stats());
    value["kind"] = json!(engine.config.kind.name());
    value["models"] = json!(engine.config.models);
    value
}

fn set_faults(engine: &Engine, body: &[u8]) -> Reply {
    match Faults::from_json(body) {
        Ok(faults) => {
            let reply = json_reply(200, &json!(faults));
            engine.faults.send_replace(faults);
            reply
        }
        Err(words) => problem(400, &words),
    }
}

fn reset(engine: &Engine) -> Reply {
    engine.faults.send_replace(Faults::default());
    let mut state = engine.state();
    state.stats.reset();
    state.cache.clear();
    json_reply(200, &json!({}))
}

fn json_reply(status: u16, value: &Value) -> Reply {
    Reply::json(status, "application/json", value)
}

fn problem(status: u16, words: &str) -> Reply {
    json_reply(status, &json!({"error": words}))
}
