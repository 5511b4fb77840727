//! Times of a request's stages, as metrics tell them.

use super::pool::{complete, engine, exact_rule, gateway, metric, tokens, warm};
use crate::harness::Driver;
use serde_json::json;
use warmpath_perf::engine::Kind::Vllm;

#[test]
fn stages_of_requests_are_timed_and_those_they_don_t_pass_are_not() {
    let a = engine(Vllm);
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Vllm, &[&a], json!({}))]);
    warm(&gateway, "pool", &a, &tokens(1, 70));
    for seed in 0..20 {
        assert_eq!(complete(gateway.vip, &tokens(seed, 70)).reply.status, 200);
    }
    let count = |stage: &str| {
        let labels = [("shard", "0"), ("stage", stage)];
        metric(&gateway, "warmpath_stage_seconds_count", &labels).unwrap_or_else(|| panic!("{stage}"))
    };
    assert_eq!(count("first_byte"), 20.0, "of all answers");
    assert!(count("dial") >= 1.0);
    // One in 16 of 20.
    for stage in ["hash", "lookup", "decide"] {
        assert_eq!(count(stage), 2.0, "{stage}");
    }
    assert!(count("parse") >= 2.0, "heads that come in pieces are read more than once");
    assert_eq!((count("render"), count("tokenize")), (0.0, 0.0), "token ids are no text");
}
