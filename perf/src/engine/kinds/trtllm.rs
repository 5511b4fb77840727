//! TensorRT-LLM's surface (trtllm-serve), read from the public repository's text of 2026 (no server
//! was run). `/metrics` is a JSON array of iteration statistics, not Prometheus text. Its cache: `hash`
//! names blocks, `events` tells of them to whoever drains. Must never give an event out twice.

mod base64;
pub mod events;
pub mod hash;
pub mod pair;

use serde_json::{Value, json};

use super::metrics::{Metrics, escape};
use super::{Reply, View, first_model};
use crate::engine::openai::{Answer, Choice, Piece, Usage};

/// GET pages.
pub fn page(path: &str, view: View) -> Option<Reply> {
    let json = |value| Some(Reply::json(200, "application/json", &value));
    match path {
        "/health" | "/health_generate" => Some(Reply::empty()),
        "/version" => json(json!({"version": view.config.release().text})),
        "/server_info" => json(server_info(view)),
        "/v1/models" => json(models(view)),
        "/metrics" => json(iteration_stats(view)),
        "/prometheus/metrics" => {
            Some(Reply::text("text/plain; version=0.0.4; charset=utf-8", prometheus(view)))
        }
        _ => None,
    }
}

fn server_info(view: View) -> Value {
    if view.config.pretence.hides_blocks {
        return json!({"disaggregated_params": null});
    }
    json!({
        "disaggregated_params": null, "kv_cache_hash_algo": "v1_block_key",
        "tokens_per_block": view.config.block_size, "max_batch_size": 256,
    })
}

fn models(view: View) -> Value {
    let card = |id: &String| {
        json!({
            "id": id, "object": "model", "created": view.started, "owned_by": "tensorrt_llm",
        })
    };
    json!({"object": "list", "data": view.config.models.iter().map(card).collect::<Vec<_>>()})
}

fn iteration_stats(view: View) -> Value {
    let blocks = (view.config.cache_blocks * view.config.ranks) as u64;
    json!([{
        "numActiveRequests": view.stats.executing(), "numQueuedRequests": view.stats.waiting,
        "kvCacheStats": {
            "maxNumBlocks": blocks, "usedNumBlocks": view.stats.blocks,
            "freeNumBlocks": blocks - view.stats.blocks,
            "tokensPerBlock": view.config.block_size,
        },
    }])
}

fn prometheus(view: View) -> String {
    let labels = format!("model_name=\"{}\",engine_type=\"pytorch\"", escape(first_model(&view)));
    let mut page = Metrics::default();
    let finished = view.stats.finished as f64;
    page.one("trtllm_request_success_total", "counter", "Finished requests.", &labels, finished);
    page.finish()
}

/// A whole answer.
pub fn whole(answer: &Answer, choices: &[Choice], counts: Usage) -> Value {
    json!({
        "id": answer.id, "object": answer.object(false), "created": answer.created, "model": answer.model,
        "choices": choices.iter().map(|choice| whole_choice(answer, choice)).collect::<Vec<_>>(),
        "usage": super::usage_json(counts), "prompt_token_ids": prompt_ids(answer, choices),
    })
}

/// The prompt's tokens, which go on to generation with the state.
fn prompt_ids(answer: &Answer, choices: &[Choice]) -> Value {
    match choices {
        [choice, ..] if !answer.handed.is_null() => json!(choice.prompt),
        _ => Value::Null,
    }
}

/// The state, with what the context phase generated.
fn state(answer: &Answer, choice: &Choice) -> Value {
    let mut state = answer.handed.clone();
    if let Some(members) = state.as_object_mut() {
        members.insert("first_gen_tokens".into(), json!(choice.ids()));
    }
    state
}

fn whole_choice(answer: &Answer, choice: &Choice) -> Value {
    let mut value = json!({"index": choice.index});
    if answer.chat {
        value["message"] = json!({
            "role": "assistant", "content": choice.text(), "reasoning_content": null, "reasoning": null,
            "tool_calls": [],
        });
    } else {
        value["text"] = json!(choice.text());
    }
    let rest = json!({
        "logprobs": null, "finish_reason": choice.finish, "stop_reason": null,
        "disaggregated_params": state(answer, choice),
    });
    merge(value, rest)
}

fn merge(mut value: Value, rest: Value) -> Value {
    if let (Some(into), Value::Object(from)) = (value.as_object_mut(), rest) {
        into.extend(from);
    }
    value
}

/// One event of a stream.
pub fn chunk(answer: &Answer, piece: Piece) -> Value {
    let choices = match piece {
        Piece::Role => json!([choice(answer, 0, Some("assistant"), "", None)]),
        Piece::Token(index, token, finish) => json!([choice(answer, index, None, token.text, finish)]),
        Piece::Finish(index, reason) => json!([choice(answer, index, None, "", Some(reason))]),
        Piece::Usage(_) => json!([]),
    };
    let counts = if let Piece::Usage(counts) = piece { super::usage_json(counts) } else { Value::Null };
    json!({
        "id": answer.id, "object": answer.object(true), "created": answer.created, "model": answer.model,
        "choices": choices, "usage": counts,
    })
}

fn choice(answer: &Answer, index: usize, role: Option<&str>, text: &str, finish: Option<&str>) -> Value {
    let mut value = json!({"index": index});
    if answer.chat {
        value["delta"] = json!({"role": role, "content": text, "reasoning_content": null, "tool_calls": []});
    } else {
        value["text"] = json!(text);
    }
    merge(value, json!({"logprobs": null, "finish_reason": finish, "stop_reason": null}))
}
