//! What SGLang is asked before it is routed to by blocks that a profile vouches for (read at 0.5.18 to 0.5.23). Owns its
//! paths and members.

use crate::attest::{Reason, Told};
use crate::engine::attest::{Page, Questions, number, object, read_models, text};

pub(super) const QUESTIONS: Questions = Questions {
    pages: &[
        // The older name of `/server_info`, which all of these versions have.
        Page { path: "/get_server_info", is_vital: true, read: read_info },
        Page { path: "/v1/models", is_vital: true, read: read_models },
    ],
    tokenize: Some("/v1/tokenize"),
    contract: |_| "sglang-kv-rank-v1",
    tells_hash: false,
    lacks,
};

/// The answer has every argument of the server; one without these is another server's.
fn lacks(told: &Told) -> Option<Reason> {
    let is_told = told.version.is_some() && told.block_size.is_some() && told.ranks.is_some();
    (!is_told).then_some(Reason::ProbeSchemaMismatch)
}

fn read_info(body: &[u8], told: &mut Told) -> bool {
    let Some(info) = object(body) else { return false };
    told.version = text(&info["version"]);
    told.revision = text(&info["revision"]);
    told.ranks = number(&info["dp_size"]);
    // A page of the tree is `page_size` times the ranks of context parallelism.
    let events = &info["kv_events"];
    told.block_size = number(&events["block_size"]).or_else(|| number(&info["page_size"]));
    told.publishes = Some(events.is_object() && events["publisher"] != "null");
    told.event_port = number(&events["endpoint_port_base"]);
    told.dtype = text(&info["dtype"]).filter(|value| value != "auto");
    told.started = info["startup_time"].as_f64().map(f64::to_bits);
    told.version.is_some()
}
