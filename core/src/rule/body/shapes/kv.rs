//! Contradictions among the members of exact routing and of prefill/decode. Owns their phrases; what an
//! engine has or lacks is asked of [`Engine`].

use super::{Shape, USE_MODE_4, disaggregated, has_role, not_full_proxy, shape};
use crate::engine::{Algo, Engine};
use crate::rule::body::exact::{engine, publish_port};
use crate::rule::body::given::Given;

pub(super) const SHAPES: &[Shape] = &[
    untold("pd_disagg_mode", |s, _| no_blocks(s) && disaggregated(s)),
    untold("kvExactMode", |s, _| no_blocks(s) && s.int("kvExactMode") != 0),
    untold("kvHashAlgo", |s, _| no_blocks(s) && !s.text("kvHashAlgo").is_empty()),
    untold("kvBlockSize", |s, _| no_blocks(s) && another_block_size(s)),
    shape(
        "ep_role",
        |s, e| disaggregated(s) && has_role(e, 3) && !engine(s).encodes(),
        "engines of this kvEngineType have no encoders: ep_role 3 is for vllm and sglang",
        "give the endpoint another role or leave it out",
    ),
    shape(
        "kvExactMode",
        |s, _| s.int("kvExactMode") == 3 && disaggregated(s),
        "kv-exact single-role mode is incompatible with pd-disagg",
        "use kvExactMode 1",
    ),
    shape(
        "kvExactMode",
        |s, _| s.int("kvExactMode") == 3 && not_full_proxy(s),
        "kv-exact single-role mode requires mode=fullproxy",
        USE_MODE_4,
    ),
    shape(
        "kvExactMode",
        |s, _| s.int("kvExactMode") == 2,
        "2 is reserved; every kv-engine-type with cache events supports kvExactMode 1 or 3",
        "use kvExactMode 3 for a single pool",
    ),
    shape(
        "kvExactMode",
        |s, _| s.int("kvExactMode") == 1 && !disaggregated(s),
        "kv-exact zmq mode requires pd_disagg_mode=true",
        "use kvExactMode 3 for a single pool",
    ),
    shape(
        "kvHashAlgo",
        algorithm_of_another_engine,
        "this kv-hash-algo is incompatible with kv-engine-type",
        "omit kvHashAlgo to let the engine decide",
    ),
    shape(
        "pdBootstrapPort",
        |s, _| {
            let meets = engine(s).has_bootstrap_port() || by_mooncake(s);
            s.int("pdBootstrapPort") != 0 && !(disaggregated(s) && meets)
        },
        "pd-bootstrap-port requires pd_disagg_mode=true and kvEngineType sglang",
        "leave it out, or with vllm set pd_connector mooncake",
    ),
    shape(
        "pd_connector",
        |s, _| !(s.text("pd_connector").is_empty() || disaggregated(s) && engine(s) == Engine::Vllm),
        "engines of other kinds, and single pools, have one way to transfer",
        "leave it out",
    ),
    shape(
        "kv_engine_id",
        |s, e| by_mooncake(s) && e.iter().any(|e| e.int("ep_role") == 1 && e.text("kv_engine_id").is_empty()),
        "with pd_connector mooncake decode has to be told the engine_id of each prefill endpoint",
        "give --kv-transfer-config an engine_id and name it here",
    ),
    portless(
        "kvZmqPort",
        |s, _| no_port(s) && !matches!(s.int("kvZmqPort"), 0 | 5557),
        "kvZmqPort is meaningless for this kv-engine-type, which has no event port",
    ),
    portless(
        "kvReplayPort",
        |s, _| no_port(s) && s.int("kvReplayPort") != 0,
        "kvReplayPort is meaningless for this kv-engine-type, which has no event port",
    ),
    portless(
        "kvZmqBind",
        |s, _| no_port(s) && s.flag("kvZmqBind"),
        "kvZmqBind is meaningless for this kv-engine-type, which has no event port",
    ),
    portless(
        "kvDpRankCount",
        |s, _| no_port(s) && s.int("kvDpRankCount") > 1,
        "kvDpRankCount is meaningless for this kv-engine-type, which has no event port",
    ),
    shape(
        "kvZmqPort",
        |s, _| last_rank(s, i64::from(publish_port(s))) > i64::from(u16::MAX),
        "the last rank's port is above 65535",
        "use kvZmqPort + kvDpRankCount - 1 of at most 65535",
    ),
    shape(
        "kvReplayPort",
        |s, _| last_rank(s, s.int("kvReplayPort")) > i64::from(u16::MAX),
        "the last rank's port is above 65535",
        "use kvReplayPort + kvDpRankCount - 1 of at most 65535",
    ),
    shape(
        "kvReplayPort",
        replay_among_published,
        "some rank would replay where another publishes",
        "keep it kvDpRankCount or more away from kvZmqPort",
    ),
    unasked("kvExactApiMode", |s, _| !s.text("kvExactApiMode").is_empty() && not_exact(s)),
    unasked("kvModelProfile", |s, _| !s.text("kvModelProfile").is_empty() && not_exact(s)),
];

/// A member of engines that tell which blocks they hold.
const fn untold(member: &'static str, broken: fn(&Given, &[Given]) -> bool) -> Shape {
    shape(member, broken, "this kv-engine-type publishes no cache events", "leave it out")
}

/// A member of engines with an event port.
const fn portless(
    member: &'static str,
    broken: fn(&Given, &[Given]) -> bool,
    problem: &'static str,
) -> Shape {
    shape(member, broken, problem, "leave it out")
}

/// A member of exact routing alone.
const fn unasked(member: &'static str, broken: fn(&Given, &[Given]) -> bool) -> Shape {
    shape(member, broken, "it requires kvExactMode 1 or 3", "use kvExactMode 3 or leave it out")
}

fn no_blocks(service: &Given) -> bool {
    !engine(service).publishes_blocks()
}

fn no_port(service: &Given) -> bool {
    !engine(service).has_event_port()
}

fn not_exact(service: &Given) -> bool {
    !matches!(service.int("kvExactMode"), 1 | 3)
}

fn another_block_size(service: &Given) -> bool {
    let own = engine(service).rule_block_size().tokens() as i64;
    !matches!(service.int("kvBlockSize"), 0) && service.int("kvBlockSize") != own
}

fn algorithm_of_another_engine(service: &Given, _: &[Given]) -> bool {
    let algo = Algo::from_name(service.text("kvHashAlgo"));
    algo.is_some_and(|algo| !engine(service).algorithms(None).contains(&algo))
}

fn last_rank(service: &Given, first: i64) -> i64 {
    first + service.int("kvDpRankCount") - 1
}

fn replay_among_published(service: &Given, _: &[Given]) -> bool {
    let (publish, replay) = (i64::from(publish_port(service)), service.int("kvReplayPort"));
    replay != 0 && replay.abs_diff(publish) < service.int("kvDpRankCount").unsigned_abs()
}

fn by_mooncake(service: &Given) -> bool {
    service.text("pd_connector") == "mooncake"
}
