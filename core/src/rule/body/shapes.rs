//! Members that contradict each other, whether or not this gateway serves them. Owns the reason phrases that
//! scripts written for the loxilb AI gateway look for; they are kept to the letter.

mod kv;

use super::body_fault::{BodyFault, Class};
use super::given::Given;
use crate::rule::Chwbl;

/// A contradiction: which member is blamed, when, in which words, and the cure.
struct Shape {
    member: &'static str,
    broken: fn(&Given, &[Given]) -> bool,
    problem: &'static str,
    cure: &'static str,
}

const fn shape(
    member: &'static str,
    broken: fn(&Given, &[Given]) -> bool,
    problem: &'static str,
    cure: &'static str,
) -> Shape {
    Shape { member, broken, problem, cure }
}

const USE_MODE_4: &str = "use mode 4";

const SHAPES: &[Shape] = &[
    shape(
        "sel",
        |s, _| s.int("sel") == 5 && not_full_proxy(s),
        "sel=n2(5) requires mode=fullproxy",
        USE_MODE_4,
    ),
    shape(
        "sel",
        |s, _| s.int("sel") == 8 && not_full_proxy(s),
        "sel=chwbl(8) requires mode=fullproxy",
        USE_MODE_4,
    ),
    shape(
        "sel",
        |s, _| s.int("sel") == 9 && not_full_proxy(s),
        "sel=gpu-aware(9) requires mode=fullproxy",
        USE_MODE_4,
    ),
    shape(
        "sel",
        |s, _| s.int("sel") == 10 && not_full_proxy(s),
        "sel=wrr-hash(10) requires mode=fullproxy",
        USE_MODE_4,
    ),
    shape(
        "sel",
        |s, e| s.int("sel") == 10 && weighted(e) == 0,
        "sel=wrr-hash(10) requires at least 1 endpoint of positive weight",
        "give an endpoint a weight, or use sel 8",
    ),
    shape(
        "chwbl_replication",
        |s, e| s.int("sel") == 10 && s.int("chwbl_replication") < weighted(e),
        "fewer points than endpoints of positive weight, which share them under sel=wrr-hash(10)",
        "use at least as many as there are endpoints",
    ),
    shape("portMax", port_max_below, "portMax is below port", "use the value of port or leave it out"),
    shape(
        "pd_disagg_mode",
        |s, _| disaggregated(s) && not_full_proxy(s),
        "pd-disagg requires mode=fullproxy",
        USE_MODE_4,
    ),
    shape(
        "pd_disagg_mode",
        |s, e| disaggregated(s) && !(has_role(e, 1) && has_role(e, 2)),
        "pd-disagg requires at least 1 prefill endpoint and 1 decode endpoint",
        "give one endpoint ep_role 1 and one ep_role 2",
    ),
    shape(
        "ep_role",
        |s, e| !disaggregated(s) && (has_role(e, 1) || has_role(e, 2) || has_role(e, 3)),
        "an endpoint of prefill, decode or encode alone serves no whole request; it requires pd_disagg_mode=true",
        "set pd_disagg_mode or leave ep_role out",
    ),
    shape(
        "pd_cache_aware_mode",
        |s, _| s.flag("pd_cache_aware_mode") && !disaggregated(s),
        "pd-cache-aware requires pd_disagg_mode=true",
        "set pd_disagg_mode or leave this out",
    ),
    hash_only("chwbl_prefix_hash_level", |s, _| hash_foreign(s, "chwbl_prefix_hash_level")),
    hash_only("chwbl_prefix_hash_flags", |s, _| hash_foreign(s, "chwbl_prefix_hash_flags")),
    hash_only("chwbl_mean_load_factor", |s, _| hash_foreign(s, "chwbl_mean_load_factor")),
    hash_only("chwbl_replication", |s, _| hash_foreign(s, "chwbl_replication")),
    hash_only("chwbl_enable_cache_salt", |s, _| hash_foreign(s, "chwbl_enable_cache_salt")),
    shape(
        "chwbl_prefix_hash_flags",
        flags_above_level,
        "it sets bits above its chwbl_prefix_hash_level",
        "level 1 knows bits 0 to 4 (at most 31), level 2 also bit 5 (at most 63), level 3 all (at most 255)",
    ),
    shape(
        "chwbl_enable_cache_salt",
        |s, _| {
            s.flag("chwbl_enable_cache_salt")
                && s.has("chwbl_prefix_hash_flags")
                && s.int("chwbl_prefix_hash_flags") & 8 == 0
        },
        "cache salt requires bit 3 of chwbl_prefix_hash_flags",
        "add 8 to the flags or leave them out",
    ),
    shape(
        "fc_max_queue_wait_ms",
        |s, _| {
            s.int("fc_max_queue_depth") > 0
                && s.has("fc_max_queue_wait_ms")
                && s.int("fc_max_queue_wait_ms") == 0
        },
        "fc_max_queue_depth lets requests wait, and this lets them wait for no time",
        "leave it out (5000) or give the milliseconds",
    ),
];

/// Every contradiction that is known: the blamed member and the phrase.
pub fn contradictions() -> impl Iterator<Item = (&'static str, &'static str)> {
    SHAPES.iter().chain(kv::SHAPES).map(|s| (s.member, s.problem))
}

/// The first contradiction of a rule, if any.
pub(super) fn check(service: &Given, endpoints: &[Given]) -> Result<(), BodyFault> {
    match SHAPES.iter().chain(kv::SHAPES).find(|s| (s.broken)(service, endpoints)) {
        Some(s) => {
            Err(blamed(s.member, service, endpoints).fault(Class::Conflict, s.member, s.problem, s.cure))
        }
        None => Ok(()),
    }
}

/// The object that the blamed member stands in: of members of endpoints the first that has the wrong one.
fn blamed<'a>(member: &str, service: &Given<'a>, endpoints: &[Given<'a>]) -> Given<'a> {
    let is_wrong = |e: &&Given| match member {
        "ep_role" if disaggregated(service) => e.int(member) == 3,
        "ep_role" => e.int(member) != 0,
        "kv_engine_id" => e.int("ep_role") == 1 && e.text(member).is_empty(),
        _ => false,
    };
    *endpoints.iter().find(is_wrong).unwrap_or(service)
}

/// The phrase for a value outside of the schema, where scripts look for one.
pub(super) fn range_phrase(member: &str) -> Option<&'static str> {
    match member {
        "kvEngineType" => Some("kv-engine-type must be one of its words"),
        "kvHashAlgo" => Some("kv-hash-algo must be one of its words"),
        "kvDpRankCount" => Some("kv-dp-rank-count must be within 1..8"),
        _ => None,
    }
}

fn flags_above_level(service: &Given, _: &[Given]) -> bool {
    let mask = Chwbl::flag_mask(service.int("chwbl_prefix_hash_level") as u8);
    service.int("chwbl_prefix_hash_flags") & !i64::from(mask) != 0
}

const fn hash_only(member: &'static str, broken: fn(&Given, &[Given]) -> bool) -> Shape {
    shape(
        member,
        broken,
        "CHWBL fields require mode=4 and sel=8 or sel=10",
        "use sel 8 or 10, or leave all chwbl_ members out",
    )
}

fn hash_foreign(service: &Given, member: &str) -> bool {
    service.has(member) && (!matches!(service.int("sel"), 8 | 10) || not_full_proxy(service))
}

fn not_full_proxy(service: &Given) -> bool {
    service.int("mode") != 4
}

fn disaggregated(service: &Given) -> bool {
    service.flag("pd_disagg_mode")
}

fn has_role(endpoints: &[Given], role: i64) -> bool {
    endpoints.iter().any(|e| e.int("ep_role") == role)
}

/// Endpoints of positive weight.
fn weighted(endpoints: &[Given]) -> i64 {
    endpoints.iter().filter(|e| e.int("weight") > 0).count() as i64
}

fn port_max_below(service: &Given, _: &[Given]) -> bool {
    let max = service.int("portMax");
    max != 0 && max < service.int("port")
}
