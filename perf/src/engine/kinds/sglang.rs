//! SGLang's surface, read from the released package 0.5.23 (no server was run). Its cache: `hash` names
//! pages, `events` tells of them. Must never claim an event source that is not open.

pub mod events;
pub mod hash;
pub mod pair;

use serde_json::{Value, json};

use super::metrics::{Metrics, escape};
use super::{MAX_MODEL_LEN, Reply, View, first_model};
use crate::engine::openai::{Answer, Choice, Piece, Usage};
use crate::engine::transfer::Role;

/// GET pages. `/get_server_info` and `/get_model_info` are the older names.
pub fn page(path: &str, view: View) -> Option<Reply> {
    let json = |value| Some(Reply::json(200, "application/json", &value));
    match path {
        "/health" | "/health_generate" | "/ready" | "/ping" => Some(Reply::empty()),
        "/server_info" | "/get_server_info" => json(server_info(view)),
        "/model_info" | "/get_model_info" => json(model_info(view)),
        "/v1/models" => json(models(view)),
        "/v1/loads" => json(loads(view)),
        "/metrics" => Some(Reply::text("text/plain; version=0.0.4; charset=utf-8", metrics(view))),
        _ => None,
    }
}

fn server_info(view: View) -> Value {
    json!({
        "model_path": first_model(&view), "served_model_name": first_model(&view),
        "host": view.config.host, "port": view.config.port, "page_size": view.config.block_size,
        "dp_size": view.config.ranks, "tp_size": 1, "disaggregation_mode": mode(view),
        "disaggregation_bootstrap_port": view.door.map_or(8998, |door| door.port()),
        "max_total_num_tokens": capacity(view), "kv_events": kv_events(view), "internal_states": [{}],
        "startup_time": view.started, "version": view.config.release().text,
        "dtype": view.config.pretence.dtype.as_deref().unwrap_or("auto"), "revision": view.config.pretence.revision,
    })
}

fn mode(view: View) -> &'static str {
    match view.config.pair.map(|pair| pair.role) {
        None | Some(Role::Encode) => "null",
        Some(Role::Prefill) => "prefill",
        Some(Role::Decode) => "decode",
    }
}

/// Where events are published; the replay port is told from 0.5.23 on.
fn kv_events(view: View) -> Value {
    let Some(source) = view.sources.first() else { return Value::Null };
    let config = view.config;
    let mut value = json!({
        "publisher": "zmq", "endpoint_host": source.live.host, "endpoint_port_base": source.live.port,
        "topic": config.events.topic, "block_size": config.block_size, "dp_size": config.ranks,
    });
    if let Some(replay) = source.replay.as_ref().filter(|_| config.release().at_least(0, 5, 23)) {
        value["replay_endpoint_port_base"] = json!(replay.port);
    }
    value
}

fn model_info(view: View) -> Value {
    json!({
        "model_path": first_model(&view), "tokenizer_path": first_model(&view), "is_generation": true,
        "preferred_sampling_params": null, "weight_version": "default",
    })
}

fn models(view: View) -> Value {
    let card = |id: &String| {
        json!({
            "id": id, "object": "model", "created": view.started, "owned_by": "sglang", "root": id,
            "parent": null, "max_model_len": MAX_MODEL_LEN,
        })
    };
    json!({"object": "list", "data": view.config.models.iter().map(card).collect::<Vec<_>>()})
}

fn loads(view: View) -> Value {
    let used = view.stats.blocks * view.config.block_size as u64;
    json!({
        "timestamp": view.started, "version": view.config.release().text, "accelerator": "cpu", "num_accelerators": 1,
        "loads": [{
            "dp_rank": 0, "num_running_reqs": view.stats.executing(), "num_waiting_reqs": view.stats.waiting,
            "num_waiting_uncached_tokens": 0, "num_used_tokens": used, "num_total_tokens": used,
            "max_total_num_tokens": capacity(view), "token_usage": share(view), "gen_throughput": 0.0,
            "cache_hit_rate": hit_rate(view),
        }],
    })
}

fn capacity(view: View) -> u64 {
    (view.config.cache_blocks * view.config.block_size * view.config.ranks) as u64
}

fn share(view: View) -> f64 {
    view.stats.blocks as f64 / (view.config.cache_blocks * view.config.ranks).max(1) as f64
}

fn hit_rate(view: View) -> f64 {
    view.stats.tokens.cached as f64 / view.stats.tokens.prompt.max(1) as f64
}

fn usage(usage: Usage) -> Value {
    let mut value = super::usage_json(usage);
    value["reasoning_tokens"] = json!(0);
    value
}

/// A whole answer.
pub fn whole(answer: &Answer, choices: &[Choice], counts: Usage) -> Value {
    json!({
        "id": answer.id, "object": answer.object(false), "created": answer.created, "model": answer.model,
        "choices": choices.iter().map(|choice| whole_choice(answer, choice)).collect::<Vec<_>>(),
        "usage": usage(counts), "metadata": {"weight_version": "default"},
    })
}

fn whole_choice(answer: &Answer, choice: &Choice) -> Value {
    let mut value = json!({"index": choice.index});
    if answer.chat {
        value["message"] = json!({
            "role": "assistant", "content": choice.text(), "reasoning_content": null, "tool_calls": null,
        });
    } else {
        value["text"] = json!(choice.text());
    }
    value["logprobs"] = Value::Null;
    value["finish_reason"] = json!(choice.finish);
    value["matched_stop"] = Value::Null;
    value
}

/// One event of a stream.
pub fn chunk(answer: &Answer, piece: Piece) -> Value {
    let choices = match piece {
        Piece::Role => json!([choice(answer, 0, Some("assistant"), Some(""), None)]),
        Piece::Token(index, token, finish) => json!([choice(answer, index, None, Some(token.text), finish)]),
        Piece::Finish(index, reason) => json!([choice(answer, index, None, None, Some(reason))]),
        Piece::Usage(_) => json!([]),
    };
    let counts = if let Piece::Usage(counts) = piece { usage(counts) } else { Value::Null };
    json!({
        "id": answer.id, "object": answer.object(true), "created": answer.created, "model": answer.model,
        "choices": choices, "usage": counts,
    })
}

fn choice(
    answer: &Answer,
    index: usize,
    role: Option<&str>,
    text: Option<&str>,
    finish: Option<&str>,
) -> Value {
    let mut value = json!({"index": index});
    if answer.chat {
        value["delta"] =
            json!({"role": role, "content": text, "reasoning_content": null, "tool_calls": null});
    } else {
        value["text"] = json!(text.unwrap_or_default());
    }
    value["logprobs"] = Value::Null;
    value["finish_reason"] = json!(finish);
    value["matched_stop"] = Value::Null;
    value
}

fn metrics(view: View) -> String {
    let (stats, labels) = (view.stats, format!("model_name=\"{}\"", escape(first_model(&view))));
    let used = stats.blocks as f64 * view.config.block_size as f64;
    let gauges = [
        ("sglang:num_running_reqs", "Running requests.", stats.executing() as f64),
        ("sglang:num_queue_reqs", "Queued requests.", stats.waiting as f64),
        ("sglang:num_used_tokens", "Used tokens.", used),
        ("sglang:max_total_num_tokens", "Token capacity.", capacity(view) as f64),
        ("sglang:token_usage", "Token usage, 1 is full.", share(view)),
        ("sglang:cache_hit_rate", "Prefix cache hit rate.", hit_rate(view)),
        ("sglang:gen_throughput", "Generation throughput in tokens per second.", 0.0),
        ("sglang:page_size", "Tokens per page.", view.config.block_size as f64),
        ("sglang:num_pages", "Pages.", view.config.cache_blocks as f64),
    ];
    let mut page = Metrics::default();
    for (name, help, value) in gauges {
        page.one(name, "gauge", help, &labels, value);
    }
    let counters = [
        ("sglang:prompt_tokens_total", "Prefill tokens.", stats.tokens.prompt),
        ("sglang:generation_tokens_total", "Generated tokens.", stats.tokens.generated),
        ("sglang:num_requests_total", "Requests.", stats.executions.total),
    ];
    for (name, help, value) in counters {
        page.one(name, "counter", help, &labels, value as f64);
    }
    page.finish()
}
