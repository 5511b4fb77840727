//! vLLM's handshake, `kv_transfer_params`: of the NIXL connector by version, and of Mooncake. Must never take a handle
//! for good because it looks so: the door knows.

use serde_json::{Value, json};

use super::encode;
use crate::engine::kinds::pair::{Half, Leg};
use crate::engine::kinds::{Kind, Reply};
use crate::engine::openai::Ask;
use crate::engine::transfer::{Connector, Role};

/// Tokens that prefill found in its cache, which decode tells as its own; seen at 0.32.
pub const PREFILL_CACHED: &str = "remote_prefill_cached_tokens";

/// Reads the two flags, and what belongs to the one that is set.
pub fn leg(half: &mut Half<'_>, ask: &Ask) -> Result<Leg, Reply> {
    check_bounds(half, ask)?;
    if half.pair.role == Role::Encode {
        return Ok(encode::leg(half, ask));
    }
    let params = &ask.handshake.transfer;
    if params.is_null() {
        return Ok(half.plain());
    }
    if !params.is_object() {
        half.blame("params_not_object");
        return Err(Kind::Vllm.error(
            400,
            "BadRequestError",
            "kv_transfer_params must be a valid dictionary",
        ));
    }
    let flags = (params["do_remote_decode"] == true, params["do_remote_prefill"] == true, half.pair.role);
    Ok(match flags {
        (true, true, _) => half.alone("both_directions"),
        (true, false, Role::Prefill) => hold(half, ask),
        (false, true, Role::Decode) => take(half, params),
        (false, false, _) => half.plain(),
        _ => half.alone("wrong_role"),
    })
}

/// What the API refuses of bounds that contradict each other, as prefill's would if the client's were left.
fn check_bounds(half: &mut Half<'_>, ask: &Ask) -> Result<(), Reply> {
    let words = if ask.min_tokens.zip(ask.max_tokens).is_some_and(|(least, most)| least > most) {
        "min_tokens must be less than or equal to max_tokens"
    } else if ask.has_stream_options && !ask.stream {
        "Stream options can only be defined when `stream=True`."
    } else {
        return Ok(());
    };
    if half.pair.role == Role::Prefill {
        half.blame("bounds");
    }
    Err(Kind::Vllm.error(400, "BadRequestError", words))
}

fn hold(half: &mut Half<'_>, ask: &Ask) -> Leg {
    if ask.max_tokens != Some(1) {
        half.blame("not_one_token");
    }
    if ask.stream {
        half.blame("streamed_prefill");
    }
    if ask.prompts.len() > 1 {
        half.blame("several_prompts");
    }
    let params = &ask.handshake.transfer;
    let name = match half.pair.connector {
        Connector::Nixl => format!("req-{:016x}", half.serial),
        Connector::Mooncake => match params["transfer_id"].as_str() {
            Some(id) => id.to_owned(),
            None => return half.alone("missing_member"),
        },
    };
    Leg::Hold { handle: Half::handle(&half.engine_id, &name) }
}

fn take(half: &mut Half<'_>, params: &Value) -> Leg {
    let text = |name: &str| params[name].as_str();
    let place = match half.pair.connector {
        Connector::Nixl => {
            let host = text("remote_host").filter(|_| params["remote_block_ids"].is_array());
            let at = host.zip(params["remote_port"].as_u64()).map(|(host, port)| format!("{host}:{port}"));
            at.zip(text("remote_request_id"))
        }
        Connector::Mooncake => {
            let at = text("remote_bootstrap_addr").map(|at| at.trim_start_matches("http://").to_owned());
            at.zip(text("transfer_id"))
        }
    };
    match (place, text("remote_engine_id")) {
        (Some((at, name)), Some(engine)) => Leg::Take { at, handle: Half::handle(engine, name) },
        // The connector says so in its log and computes the prompt.
        _ => half.alone("missing_member"),
    }
}

/// `kv_transfer_params` of an answer, with the members that the release has; Mooncake's producer says nothing.
pub fn handed(half: &Half<'_>, handle: &str, ask: &Ask) -> Value {
    let (Some(door), Connector::Nixl) = (half.door, half.pair.connector) else { return Value::Null };
    let Some((engine, request)) = handle.split_once('/') else { return Value::Null };
    let tokens = ask.prompts.first().map_or(0, Vec::len);
    let blocks: Vec<usize> = (0..tokens.div_ceil(half.config.block_size)).collect();
    let mut params = json!({
        "do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [blocks],
        "remote_engine_id": engine, "remote_request_id": request, "remote_host": door.ip().to_string(),
        "remote_port": door.port(), "tp_size": 1, "remote_num_tokens": tokens,
    });
    let release = half.config.release();
    let since = |minor| release.at_least(0, minor, 0);
    if since(28) {
        // Told only of blocks that decode keeps for a next turn.
        params["remote_blocks_expiry_time"] = Value::Null;
        params["transfer_mode"] = json!("pull");
    }
    if since(31) {
        params["dcp_size"] = json!(1);
        params["pp_size"] = json!(1);
    }
    if since(32) {
        // Known once the prompt was looked up.
        params[PREFILL_CACHED] = Value::Null;
    }
    if since(33) {
        params["remote_registration_generation"] = json!(0);
    }
    params
}
