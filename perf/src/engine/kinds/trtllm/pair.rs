//! TensorRT-LLM's handover, `disaggregated_params`, and its refusal of members that it does not know. The opaque state
//! is base64 of a magic word and of where the blocks are. Must never read a state without the magic.

use serde_json::{Value, json};

use super::base64;
use crate::engine::kinds::pair::{Half, Leg};
use crate::engine::kinds::{Kind, Reply};
use crate::engine::openai::Ask;
use crate::engine::transfer::Role;

/// What a state begins with.
const MAGIC: &str = "SIMSTATE1 ";

/// Below it are ids that an engine gives itself (`MIN_GLOBAL_ID`).
const GLOBAL_IDS: u64 = 1 << 40;

/// Members of `disaggregated_params`.
const PARAMS: [&str; 14] = [
    "request_type",
    "first_gen_tokens",
    "first_gen_log_probs",
    "first_gen_logits",
    "ctx_request_id",
    "encoded_opaque_state",
    "draft_tokens",
    "disagg_request_id",
    "ctx_dp_rank",
    "ctx_info_endpoint",
    "schedule_style",
    "conversation_id",
    "ctx_usage",
    "multimodal_embedding_handles",
];

/// Members of a request, chat or not, and one of the simulation's own.
const MEMBERS: &str = "model prompt messages max_tokens max_completion_tokens min_tokens n best_of echo logprobs \
    top_logprobs seed stop stream stream_options suffix temperature top_p top_k min_p user frequency_penalty \
    presence_penalty repetition_penalty length_penalty early_stopping logit_bias use_beam_search ignore_eos \
    stop_token_ids include_stop_str_in_output skip_special_tokens spaces_between_special_tokens \
    truncate_prompt_tokens add_special_tokens add_generation_prompt response_format detokenize return_context_logits \
    return_generation_logits lora_request disaggregated_params documents chat_template chat_template_kwargs \
    reasoning_effort tools tool_choice parallel_tool_calls prompt_token_ids prompt_token_ids_b64 cache_salt \
    prompt_ignore_length top_p_min agent_hierarchy mm_processor_kwargs media_io_kwargs thinking_token_budget \
    sim_answer_ids";

/// The first member that is not of the request model, which forbids extra ones.
pub fn unknown_member(ask: &Ask) -> Option<&str> {
    let known = |name: &&String| MEMBERS.split_whitespace().any(|member| member == name.as_str());
    ask.handshake.members.iter().find(|name| !known(name)).map(String::as_str)
}

/// The refusal of a member that is not known.
pub fn forbidden(name: &str) -> Reply {
    Kind::Trtllm.error(400, "BadRequestError", &format!("body.{name}: Extra inputs are not permitted"))
}

/// Reads the request type, and what belongs to it.
pub fn leg(half: &mut Half<'_>, ask: &Ask) -> Result<Leg, Reply> {
    let params = &ask.handshake.disaggregated;
    let Some(members) = params.as_object() else { return Ok(half.plain()) };
    let padding = |name: &&String| name.as_str() == "sim_padding";
    if let Some(name) = members.keys().find(|name| !padding(name) && !PARAMS.contains(&name.as_str())) {
        half.blame("unknown_param");
        return Err(forbidden(&format!("disaggregated_params.{name}")));
    }
    match (params["request_type"].as_str(), half.pair.role) {
        (Some("context_only"), Role::Prefill) => Ok(context(half, ask)),
        (Some("generation_only"), Role::Decode) => generation(half, params),
        (Some("context_only" | "generation_only"), _) => Ok(half.alone("wrong_role")),
        (Some("context_and_generation"), _) => Ok(half.plain()),
        _ => {
            half.blame("request_type");
            Err(Kind::Trtllm.error(400, "BadRequestError", "Unknown request type in disaggregated_params"))
        }
    }
}

fn context(half: &mut Half<'_>, ask: &Ask) -> Leg {
    if ask.stream {
        half.blame("streamed_prefill");
    }
    if ask.prompts.len() > 1 {
        half.blame("several_prompts");
    }
    match ask.handshake.disaggregated["disagg_request_id"].as_u64() {
        Some(id) if (GLOBAL_IDS..1 << 63).contains(&id) => {
            Leg::Hold { handle: Half::handle(&half.engine_id, &id.to_string()) }
        }
        _ => half.alone("request_id_range"),
    }
}

fn generation(half: &mut Half<'_>, params: &Value) -> Result<Leg, Reply> {
    let bad = |half: &mut Half<'_>, name: &'static str, words: &str| {
        half.blame(name);
        Err(Kind::Trtllm.error(400, "BadRequestError", words))
    };
    if !params["first_gen_tokens"].is_array() || !params["ctx_request_id"].is_u64() {
        return bad(
            half,
            "missing_member",
            "first_gen_tokens and ctx_request_id must be set for generation_only",
        );
    }
    let state = params["encoded_opaque_state"].as_str().and_then(base64::decode);
    let state = state.and_then(|bytes| String::from_utf8(bytes).ok());
    let parts = state.as_deref().and_then(|text| text.strip_prefix(MAGIC)?.split_once(' '));
    match parts {
        Some((at, handle)) if handle.ends_with(&format!("/{}", params["ctx_request_id"])) => {
            Ok(Leg::Take { at: at.to_owned(), handle: handle.to_owned() })
        }
        Some(_) => bad(half, "other_state", "ctx_request_id is not that of the opaque state"),
        None => bad(half, "bad_state", "encoded_opaque_state can't be read"),
    }
}

/// `disaggregated_params` of a context's answer. The first token is filled in by whoever generates it.
pub fn handed(half: &Half<'_>, handle: &str, ask: &Ask) -> Value {
    let Some(door) = half.door else { return Value::Null };
    let id = &ask.handshake.disaggregated["disagg_request_id"];
    json!({
        "request_type": "context_only", "first_gen_tokens": [], "ctx_request_id": id,
        "encoded_opaque_state": base64::encode(format!("{MAGIC}{door} {handle}").as_bytes()),
        "draft_tokens": null, "disagg_request_id": id, "ctx_dp_rank": 0, "ctx_info_endpoint": null,
        "schedule_style": null,
    })
}
