//! Handlers of switches that hold until the gateway ends: the log's level, and whether metrics are served.

use crate::answer::Answer;
use crate::gateway::Gateway;
use crate::refusal::Refusal;
use crate::rest::forms;
use crate::routes::{Answered, Call, Handler, Route};
use serde_json::json;

const PARAMS: &str = "/netlox/v1/config/params";
const METRICS: &str = "/netlox/v1/config/metrics";

/// Rows of switches.
pub const ROUTES: &[Route] = &[
    Route::own(PARAMS, get, "the log's level").gives(&forms::PARAMS),
    Route::new("POST", PARAMS, Handler::Own(set), "set the log's level, of which there is one: info")
        .takes(&forms::PARAMS)
        .gives(&forms::SUCCESS),
    Route::new("POST", METRICS, Handler::Switch(metrics_on), "serve metrics, as from the start")
        .gives(&forms::SUCCESS),
    Route::new("DELETE", METRICS, Handler::Switch(metrics_off), "serve no metrics until the next start")
        .gives(&forms::SUCCESS),
];

/// The one level of this build: everything that is said is worth a look.
const LEVEL: &str = "info";

fn get(_: &Gateway, _: &Call) -> Answered {
    Ok(Answer::json(200, &json!({"logLevel": LEVEL})))
}

fn set(_: &Gateway, call: &Call) -> Answered {
    let body = call.json()?;
    match body["logLevel"].as_str() {
        Some(LEVEL) => Ok(Answer::success()),
        _ => Err(Refusal::Argument {
            name: "logLevel",
            value: body["logLevel"].to_string().chars().take(64).collect(),
            allowed: "info, the one level of this build's log",
        }),
    }
}

fn metrics_on(gateway: &mut Gateway, _: &Call) -> Answered {
    gateway.serves_metrics = true;
    Ok(Answer::success())
}

fn metrics_off(gateway: &mut Gateway, _: &Call) -> Answered {
    gateway.serves_metrics = false;
    Ok(Answer::success())
}
