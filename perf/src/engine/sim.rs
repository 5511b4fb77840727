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

/// Answers one of the paths: `GET /sim/stats`, `GET /sim/faults`, `POST /sim/faults` (replaces all switches),
/// `POST /sim/reset` (switches off, counts zero, caches empty, nothing kept for decode), and of the cache
/// `GET /sim/cache`, `POST /sim/cache/clear`, `POST /sim/cache/restart` (`{"renewed": true}` also draws a new
/// start time and what is random) and `POST /sim/events/close`.
pub fn answer(engine: &Engine, head: &Head, body: &[u8]) -> Reply {
    let done = || json_reply(200, &json!({}));
    match (head.method.as_str(), head.path.as_str()) {
        ("GET", "/sim/stats") => json_reply(200, &stats(engine)),
        ("GET", "/sim/faults") => json_reply(200, &json!(*engine.faults.borrow())),
        ("POST", "/sim/faults") => set_faults(engine, body),
        ("POST", "/sim/reset") => reset(engine),
        ("GET", "/sim/cache") => json_reply(200, &engine.dump()),
        ("POST", "/sim/cache/clear") => {
            engine.clear_caches();
            done()
        }
        ("POST", "/sim/cache/restart") => restart(engine, body),
        ("POST", "/sim/events/close") => {
            engine.close_links();
            done()
        }
        (_, path) if PATHS.contains(&path) => problem(405, "use GET for stats and cache, POST to change"),
        _ => problem(404, &format!("the paths are {}", PATHS.join(", "))),
    }
}

const PATHS: [&str; 7] = [
    "/sim/stats",
    "/sim/faults",
    "/sim/reset",
    "/sim/cache",
    "/sim/cache/clear",
    "/sim/cache/restart",
    "/sim/events/close",
];

/// An empty body restarts without drawing anew.
fn restart(engine: &Engine, body: &[u8]) -> Reply {
    #[derive(Default, serde::Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct How {
        renewed: bool,
    }
    let how = if body.is_empty() { Ok(How::default()) } else { serde_json::from_slice::<How>(body) };
    match how {
        Ok(how) => {
            engine.restart(how.renewed);
            json_reply(200, &json!({}))
        }
        Err(e) => problem(400, &format!("{e}; send {{}} or {{\"renewed\": true}}")),
    }
}

fn stats(engine: &Engine) -> Value {
    let mut value = json!(engine.stats());
    value["kind"] = json!(engine.config.kind.name());
    value["models"] = json!(engine.config.models);
    value["pair"]["engine_id"] = json!(engine.half().map(|half| half.engine_id));
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
    engine.state().stats.reset();
    engine.shelf.clear();
    engine.clear_caches();
    json_reply(200, &json!({}))
}

fn json_reply(status: u16, value: &Value) -> Reply {
    Reply::json(status, "application/json", value)
}

fn problem(status: u16, words: &str) -> Reply {
    json_reply(status, &json!({"error": words}))
}
