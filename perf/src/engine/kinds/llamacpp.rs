//! llama.cpp server's surface, checked against a capture of a real b11434 server (`tests/captures/`).
//! The native `/completion` route is not simulated. Timings are derived from the chosen pace, not
//! measured. Must never check the model's name: a single-model server serves any.

use serde_json::{Value, json};

use super::metrics::Metrics;
use super::{MAX_MODEL_LEN, Reply, View, first_model};
use crate::engine::openai::{Answer, Choice, Piece, Usage};

const JSON: &str = "application/json; charset=utf-8";
const FINGERPRINT: &str = "b11434-simulated";
/// Slots that `/slots` and `/props` show; more requests than slots still run.
const SLOTS: u64 = 4;

/// GET pages; `/metrics` as with `--metrics`.
pub fn page(path: &str, view: View) -> Option<Reply> {
    let json = |value| Some(Reply::json(200, JSON, &value));
    match path {
        "/health" | "/v1/health" => json(json!({"status": "ok"})),
        "/v1/models" | "/models" => json(models(view)),
        "/props" => json(props(view)),
        "/slots" => json(slots(view)),
        "/lora-adapters" => json(json!([])),
        "/metrics" => Some(Reply::text("text/plain; version=0.0.4", metrics(view))),
        _ => None,
    }
}

fn models(view: View) -> Value {
    let old = |id: &String| {
        json!({
            "name": id, "model": id, "modified_at": "", "size": "", "digest": "", "type": "model",
            "description": "", "tags": [""], "capabilities": ["completion"], "parameters": "",
            "details": {
                "parent_model": "", "format": "gguf", "family": "", "families": [""], "parameter_size": "",
                "quantization_level": "",
            },
        })
    };
    let card = |id: &String| {
        json!({
            "id": id, "aliases": [id], "tags": [], "object": "model",
            "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
            "created": view.started, "owned_by": "llamacpp",
            "meta": {
                "vocab_type": 2, "n_vocab": crate::engine::text::VOCABULARY, "n_ctx": MAX_MODEL_LEN,
                "n_ctx_train": MAX_MODEL_LEN, "n_embd": 64, "n_params": 147_776, "size": 591_104,
                "ftype": "all F32",
            },
        })
    };
    let models = &view.config.models;
    json!({
        "models": models.iter().map(old).collect::<Vec<_>>(), "object": "list",
        "data": models.iter().map(card).collect::<Vec<_>>(),
    })
}

fn props(view: View) -> Value {
    json!({
        "default_generation_settings": {
            "params": {"temperature": 0.8, "n_predict": -1},
            "n_ctx": MAX_MODEL_LEN,
        },
        "total_slots": SLOTS, "model_alias": first_model(&view), "model_ftype": "all F32",
        "model_path": "simulated.gguf", "modalities": {"vision": false, "video": false, "audio": false},
        "endpoint_slots": true, "endpoint_props": false, "endpoint_metrics": true, "ui": false,
        "chat_template": "", "bos_token": "", "eos_token": "", "build_info": FINGERPRINT,
        "is_sleeping": false,
    })
}

fn slots(view: View) -> Value {
    let slot = |id| {
        json!({
            "id": id, "n_ctx": MAX_MODEL_LEN / SLOTS, "speculative": false,
            "is_processing": id < view.stats.executing(),
        })
    };
    Value::Array((0..SLOTS).map(slot).collect())
}

fn usage(usage: Usage) -> Value {
    json!({
        "completion_tokens": usage.generated, "prompt_tokens": usage.prompt,
        "total_tokens": usage.prompt + usage.generated,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    })
}

/// Timings at a pace of one token a millisecond; only the counts carry meaning.
fn timings(counts: Usage) -> Value {
    let (prompt, predicted) = ((counts.prompt - counts.cached) as f64, counts.generated as f64);
    json!({
        "cache_n": counts.cached, "prompt_n": counts.prompt - counts.cached, "prompt_ms": prompt,
        "prompt_per_token_ms": 1.0, "prompt_per_second": 1000.0, "predicted_n": counts.generated,
        "predicted_ms": predicted, "predicted_per_token_ms": 1.0, "predicted_per_second": 1000.0,
    })
}

/// A whole answer; members in the order of the capture.
pub fn whole(answer: &Answer, choices: &[Choice], counts: Usage) -> Value {
    let choice = |choice: &Choice| {
        if answer.chat {
            return json!({
                "finish_reason": choice.finish, "index": choice.index,
                "message": {"role": "assistant", "content": choice.text()},
            });
        }
        json!({
            "text": choice.text(), "index": choice.index, "logprobs": null,
            "finish_reason": choice.finish,
        })
    };
    json!({
        "choices": choices.iter().map(choice).collect::<Vec<_>>(), "created": answer.created,
        "model": answer.model, "system_fingerprint": FINGERPRINT, "object": answer.object(false),
        "usage": usage(counts), "id": answer.id, "timings": timings(counts),
    })
}

/// One event of a stream.
pub fn chunk(answer: &Answer, piece: Piece) -> Value {
    let choices = match piece {
        Piece::Role => json!([choice(answer, 0, json!({"role": "assistant", "content": null}), "", None)]),
        Piece::Token(index, token, finish) => {
            json!([choice(answer, index, json!({"content": token.text}), token.text, finish)])
        }
        Piece::Finish(index, reason) => json!([choice(answer, index, json!({}), "", Some(reason))]),
        Piece::Usage(_) => json!([]),
    };
    let mut value = json!({
        "choices": choices, "created": answer.created, "id": answer.id, "model": answer.model,
        "system_fingerprint": FINGERPRINT, "object": answer.object(true),
    });
    if let Piece::Usage(counts) = piece {
        value["usage"] = usage(counts);
        value["timings"] = timings(counts);
    }
    value
}

fn choice(answer: &Answer, index: usize, delta: Value, text: &str, finish: Option<&str>) -> Value {
    if answer.chat {
        return json!({"finish_reason": finish, "index": index, "delta": delta});
    }
    json!({"text": text, "index": index, "logprobs": null, "finish_reason": finish})
}

fn metrics(view: View) -> String {
    let tokens = &view.stats.tokens;
    let mut page = Metrics::default();
    let counters = [
        (
            "llamacpp:prompt_tokens_total",
            "Prompt tokens processed, cached ones excluded",
            tokens.prompt - tokens.cached,
        ),
        ("llamacpp:prompt_tokens_cached_total", "Prompt tokens from the cache", tokens.cached),
        ("llamacpp:tokens_predicted_total", "Generated tokens", tokens.generated),
        ("llamacpp:n_decode_total", "Decode calls", tokens.generated),
    ];
    for (name, help, value) in counters {
        page.one(name, "counter", help, "", value as f64);
    }
    let gauges = [
        ("llamacpp:prompt_tokens_seconds", "Prompt throughput in tokens/s", 0.0),
        ("llamacpp:predicted_tokens_seconds", "Generation throughput in tokens/s", 0.0),
        ("llamacpp:requests_processing", "Requests processing", view.stats.executing() as f64),
        ("llamacpp:requests_deferred", "Requests deferred", view.stats.waiting as f64),
        ("llamacpp:n_busy_slots_per_decode", "Busy slots per decode call", view.stats.executing() as f64),
    ];
    for (name, help, value) in gauges {
        page.one(name, "gauge", help, "", value);
    }
    page.finish()
}
