//! vLLM's surface, checked against a capture of a real 0.32.0 server (`tests/captures/`). Stream
//! events were not captured; their shape follows the same version's protocol classes. Its cache: `hash`
//! names blocks, `events` tells of them.
//! One difference is on purpose: `prompt_tokens_details` is filled, as with
//! `--enable-prompt-tokens-details`; a default server sends null.

pub mod encode;
pub mod events;
pub mod hash;
pub mod pair;
mod preimage;

use serde_json::{Value, json};

use super::metrics::{Metrics, escape};
use super::{MAX_MODEL_LEN, Reply, View, first_model};
use crate::engine::blocks::Lora;
use crate::engine::openai::{Answer, Choice, Piece, Usage};
use crate::engine::publish::{Endpoint, Source};
use crate::engine::version::Version;

const FINGERPRINT: &str = "vllm-simulated";
/// `hwm` and `max_queue_size` of the event publisher, as captured.
const QUEUED: u64 = 100_000;

/// GET pages; `/server_info` and the like exist only in the engine's development mode.
pub fn page(path: &str, view: View) -> Option<Reply> {
    let json = |value| Some(Reply::json(200, "application/json", &value));
    match path {
        "/health" | "/ping" => Some(Reply::empty()),
        "/version" => json(json!({"version": told_version(view)})),
        "/load" => json(json!({"server_load": view.stats.running})),
        "/v1/models" => json(models(view)),
        "/kv_event_sources" if view.config.release().at_least(0, 31, 0) => json(event_sources(view)),
        "/metrics" => Some(Reply::text("text/plain; version=1.0.0; charset=utf-8", metrics(view))),
        _ => None,
    }
}

/// The release that it says it is.
fn told_version(view: View) -> String {
    let pretended = view.config.pretence.version.as_ref();
    pretended.map_or_else(|| view.config.release().text.clone(), |version| version.text.clone())
}

/// By rank, as captured from 0.32 with two ranks; empty where nothing is published (not captured).
fn event_sources(view: View) -> Value {
    let events = &view.config.events;
    let source = |(rank, source): (usize, &Source)| {
        let value = json!({
            "enable_kv_cache_events": true, "publisher": "zmq", "endpoint": source.live.to_string(),
            "replay_endpoint": source.replay.as_ref().map(Endpoint::to_string),
            "buffer_steps": events.buffer_steps, "hwm": QUEUED, "max_queue_size": QUEUED,
            "topic": events.topic,
        });
        (rank.to_string(), value)
    };
    Value::Object(view.sources.iter().enumerate().map(source).collect())
}

/// Refuses a salt as the API does: never empty; from 0.30 on at most 128 characters and none of `@ / \`
/// and NUL.
pub fn check_salt(version: &Version, salt: &str) -> Result<(), &'static str> {
    let strict = version.at_least(0, 30, 0);
    match salt {
        "" => Err("Parameter 'cache_salt' must be a non-empty string if provided."),
        _ if strict && salt.chars().count() > 128 => Err("cache_salt must have at most 128 characters"),
        _ if strict && salt.contains(['@', '/', '\\', '\0']) => {
            Err("cache_salt must not contain '@', '/', '\\' or NUL")
        }
        _ => Ok(()),
    }
}

/// The served names, then the adapters with their path as `root`.
fn models(view: View) -> Value {
    let own = |id: &String| card(view, id, id, Value::Null, json!(MAX_MODEL_LEN));
    let parent = json!(first_model(&view));
    let adapter = |lora: &Lora| card(view, &lora.name, &lora.path, parent.clone(), Value::Null);
    let config = view.config;
    let cards = config.models.iter().map(own).chain(config.loras.iter().map(adapter));
    json!({"object": "list", "data": cards.collect::<Vec<_>>()})
}

fn card(view: View, id: &str, root: &str, parent: Value, length: Value) -> Value {
    json!({
        "id": id, "object": "model", "created": view.started, "owned_by": "vllm", "root": root,
        "parent": parent, "max_model_len": length,
        "permission": [{
            "id": format!("modelperm-{:016x}", view.started), "object": "model_permission",
            "created": view.started, "allow_create_engine": false, "allow_sampling": true,
            "allow_logprobs": true, "allow_search_indices": false, "allow_view": true,
            "allow_fine_tuning": false, "organization": "*", "group": null, "is_blocking": false,
        }],
    })
}

fn usage(usage: Usage) -> Value {
    let mut value = super::usage_json(usage);
    value["completion_tokens_details"] = Value::Null;
    value
}

/// A whole answer; members in the order of the capture.
pub fn whole(answer: &Answer, choices: &[Choice], counts: Usage) -> Value {
    let mut value = json!({
        "id": answer.id, "object": answer.object(false), "created": answer.created, "model": answer.model,
        "choices": choices.iter().map(|choice| whole_choice(answer, choice)).collect::<Vec<_>>(),
        "service_tier": null, "system_fingerprint": FINGERPRINT, "usage": usage(counts),
    });
    if answer.chat {
        value["prompt_logprobs"] = Value::Null;
        value["prompt_token_ids"] = prompt_ids(answer, &choices[0]);
        value["prompt_text"] = Value::Null;
    }
    let [kept, encoded] =
        if answer.encodes { [&Value::Null, &answer.handed] } else { [&answer.handed, &Value::Null] };
    value["kv_transfer_params"] = kept.clone();
    if let Some(told) = value["kv_transfer_params"].get_mut(pair::PREFILL_CACHED) {
        *told = json!(counts.cached);
    }
    value["ec_transfer_params"] = encoded.clone();
    value["metrics"] = Value::Null;
    value
}

fn whole_choice(answer: &Answer, choice: &Choice) -> Value {
    let ids = if answer.token_ids { json!(choice.ids()) } else { Value::Null };
    if answer.chat {
        return json!({
            "index": choice.index,
            "message": {
                "role": "assistant", "content": choice.text(), "refusal": null, "annotations": null,
                "audio": null, "function_call": null, "reasoning": null,
            },
            "logprobs": null, "finish_reason": choice.finish, "stop_reason": null, "token_ids": ids,
            "routed_experts": null,
        });
    }
    json!({
        "index": choice.index, "text": choice.text(), "logprobs": null, "finish_reason": choice.finish,
        "stop_reason": null, "token_ids": ids, "prompt_logprobs": null,
        "prompt_token_ids": prompt_ids(answer, choice), "routed_experts": null,
    })
}

fn prompt_ids(answer: &Answer, choice: &Choice) -> Value {
    if answer.token_ids { json!(choice.prompt) } else { Value::Null }
}

/// One event of a stream.
pub fn chunk(answer: &Answer, piece: Piece) -> Value {
    let choices = match piece {
        Piece::Role => json!([{
            "index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": null,
            "finish_reason": null,
        }]),
        Piece::Token(index, token, finish) => {
            let ids = if answer.token_ids { json!([token.id]) } else { Value::Null };
            json!([choice(answer, index, token.text, finish, ids)])
        }
        Piece::Finish(index, reason) => json!([choice(answer, index, "", Some(reason), Value::Null)]),
        Piece::Usage(_) => json!([]),
    };
    let mut value = json!({
        "id": answer.id, "object": answer.object(true), "created": answer.created, "model": answer.model,
        "choices": choices,
    });
    match piece {
        Piece::Usage(counts) => value["usage"] = usage(counts),
        _ if !answer.chat => value["usage"] = Value::Null,
        _ => {}
    }
    value
}

fn choice(answer: &Answer, index: usize, text: &str, finish: Option<&str>, ids: Value) -> Value {
    if !answer.chat {
        return json!({
            "index": index, "text": text, "logprobs": null, "finish_reason": finish, "stop_reason": null,
            "prompt_token_ids": null, "token_ids": ids,
        });
    }
    let mut value = json!({
        "index": index, "delta": {"content": text}, "logprobs": null, "finish_reason": finish,
        "token_ids": ids,
    });
    if finish.is_some() {
        value["stop_reason"] = Value::Null;
    }
    value
}

/// The families that routing and dashboards read, names and labels as in the capture.
fn metrics(view: View) -> String {
    let (stats, config) = (view.stats, view.config);
    let labels = format!("engine=\"0\",model_name=\"{}\"", escape(first_model(&view)));
    let with = |more: &str| format!("{labels},{more}");
    let mut page = Metrics::default();
    let received = stats.pair.tokens_received;
    let computed = (stats.tokens.prompt - stats.tokens.cached).saturating_sub(received);
    page.one(
        "vllm:num_requests_running",
        "gauge",
        "Requests in execution.",
        &labels,
        stats.executing() as f64,
    );
    page.one("vllm:num_requests_waiting", "gauge", "Requests waiting.", &labels, stats.waiting as f64);
    page.family("vllm:num_requests_waiting_by_reason", "gauge", "Requests waiting, by reason.");
    for (reason, value) in [("capacity", stats.waiting), ("deferred", 0)] {
        let labels = with(&format!("reason=\"{reason}\""));
        page.sample("vllm:num_requests_waiting_by_reason", &labels, value as f64);
    }
    page.family("vllm:engine_sleep_state", "gauge", "Sleep state.");
    for (state, value) in [("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)] {
        page.sample("vllm:engine_sleep_state", &with(&format!("sleep_state=\"{state}\"")), value);
    }
    let usage = stats.blocks as f64 / (config.cache_blocks * config.ranks).max(1) as f64;
    page.one("vllm:kv_cache_usage_perc", "gauge", "KV cache usage, 1 is full.", &labels, usage);
    page.one("process_start_time_seconds", "gauge", "Start of the process.", "", view.started as f64);
    page.family("vllm:cache_config_info", "gauge", "Cache configuration.");
    (0..config.ranks).for_each(|rank| {
        page.sample("vllm:cache_config_info", &cache_labels(view, rank), 1.0);
    });
    let counters = [
        ("vllm:prefix_cache_queries", "Tokens looked up in the prefix cache.", stats.tokens.prompt),
        ("vllm:prefix_cache_hits", "Tokens found in the prefix cache.", stats.tokens.cached),
        ("vllm:prompt_tokens", "Prompt tokens.", stats.tokens.prompt),
        ("vllm:prompt_tokens_cached", "Prompt tokens from the cache.", stats.tokens.cached),
        ("vllm:generation_tokens", "Generated tokens.", stats.tokens.generated),
    ];
    for (name, help, value) in counters {
        page.one(&format!("{name}_total"), "counter", help, &labels, value as f64);
    }
    page.family("vllm:prompt_tokens_by_source_total", "counter", "Prompt tokens by source.");
    let sources = [
        ("local_compute", computed),
        ("local_cache_hit", stats.tokens.cached),
        ("external_kv_transfer", received),
    ];
    for (source, value) in sources {
        page.sample(
            "vllm:prompt_tokens_by_source_total",
            &with(&format!("source=\"{source}\"")),
            value as f64,
        );
    }
    page.family("vllm:request_success_total", "counter", "Finished requests by reason.");
    for (reason, value) in [("stop", stats.finished), ("abort", stats.aborted), ("error", stats.faulted)] {
        page.sample(
            "vllm:request_success_total",
            &with(&format!("finished_reason=\"{reason}\"")),
            value as f64,
        );
    }
    page.finish()
}

fn cache_labels(view: View, rank: usize) -> String {
    let (size, blocks) = (view.config.block_size, view.config.cache_blocks);
    let algo = view.config.pretence.algo.unwrap_or(view.config.hashing.algo).name();
    format!(
        "block_size=\"{size}\",cache_dtype=\"auto\",enable_prefix_caching=\"True\",engine=\"{rank}\",\
         hash_block_size=\"None\",num_gpu_blocks=\"{blocks}\",prefix_caching_hash_algo=\"{algo}\",\
         prefix_match_unit=\"None\",sliding_window=\"None\""
    )
}
