//! The handler of what this build can do, and what of it lacks something here and now. Owns the list; a name that is not
//! on it is a feature that this build does not know.

use crate::answer::Answer;
use crate::gateway::Gateway;
use crate::rest::forms;
use crate::routes::{Answered, Call, Query, Route};
use serde_json::{Value, json};
use warmpath_core::block::BlockSize;
use warmpath_core::control::ModelState;
use warmpath_core::engine::{Algo, Engine};

/// The row of capabilities.
pub const ROUTES: &[Route] = &[Route::own(
    "/netlox/v1/status/capabilities",
    capabilities,
    "what this build can do, and what it lacks for it",
)
.gives(&forms::CAPABILITIES)
.query(&[Query::may("model_name", "also whether text of this model can be tokenized")])];

/// What a capability lacks: a word for programs and a sentence.
type Lack = Option<(&'static str, String)>;

/// A capability and what it lacks.
type Capability = (&'static str, fn(&Gateway, &Call) -> Lack);

const CAPABILITIES: &[Capability] = &[
    ("kv_exact_vllm", kv_exact_vllm),
    ("kv_exact_vllm_tokens", nothing),
    ("kv_exact_sglang", nothing),
    ("kv_exact_trtllm", nothing),
    ("kv_exact_pd", nothing),
    ("kv_trust", nothing),
    ("pd_disagg_vllm", nothing),
    ("pd_disagg_sglang", nothing),
    ("pd_disagg_trtllm", nothing),
    ("pd_cache_aware", nothing),
    ("chwbl", nothing),
    ("sessions", nothing),
    ("circuit_breaker", nothing),
    ("admission", nothing),
    ("health_probes", nothing),
    ("explain", nothing),
    ("rule_history", nothing),
    ("snapshot_restore", nothing),
    ("openapi", nothing),
    ("metrics", |gateway, _| {
        let off =
            ("METRICS_OFF", "switched off; POST /netlox/v1/config/metrics switches them on".to_string());
        (!gateway.serves_metrics).then_some(off)
    }),
];

fn capabilities(gateway: &Gateway, call: &Call) -> Answered {
    let shown = |(name, lack): &Capability| {
        let lack = lack(gateway, call);
        let (code, reason) = lack.map_or((String::new(), String::new()), |(code, why)| (code.into(), why));
        json!({"name": name, "ready": code.is_empty(), "reason_code": code, "reason": reason})
    };
    let list: Vec<Value> = CAPABILITIES.iter().map(shown).collect();
    Ok(Answer::json(200, &json!({"capabilities": list})))
}

fn nothing(_: &Gateway, _: &Call) -> Lack {
    None
}

/// The seed, as a rule with the default hash of vLLM needs it, and where the call names a model its tokenizer.
fn kv_exact_vllm(gateway: &Gateway, call: &Call) -> Lack {
    let block = BlockSize::new(16)?;
    let terms = gateway.outside.environment.terms(None, Algo::Sha256Cbor, block);
    if let Err(fault) = Engine::Vllm.contract(&terms) {
        return Some((fault.code(), format!("{}; {}", fault.problem(), fault.cure())));
    }
    let model = call.query("model_name").filter(|name| !name.is_empty())?;
    let folder = model.replace('/', "__");
    let models = gateway.outside.data_plane.models();
    let report = models.iter().find(|m| m.folder == folder && m.engine == Engine::Vllm)?;
    match report.state {
        ModelState::Absent | ModelState::Failed => {
            let cause = report.fault.clone().unwrap_or_else(|| "it is not below --config-root".into());
            Some(("KV_EXACT_TOKENIZER_UNLOADABLE", format!("tokenizers/{folder}: {cause}")))
        }
        _ => None,
    }
}
