//! Prefill and decode apart, prefill by its blocks (`kvExactMode` 1): only prefill endpoints are asked, whatever decode
//! has cached, under the indices that they have in the rule.

use super::pool::{complete_with, config, exact_rule, gateway, in_step, known, tokens, warm};
use crate::harness::{Driver, on_both_drivers};
use serde_json::json;
use warmpath_perf::engine::transfer::{Pair, Role};
use warmpath_perf::engine::{Config, Handle, Kind, start};

on_both_drivers!(the_prefill_endpoint_with_most_of_the_prompt_wins);

fn half(role: Role) -> Handle {
    start(Config { pair: Some(Pair::of(role)), ..config(Kind::Vllm) }).unwrap()
}

fn the_prefill_endpoint_with_most_of_the_prompt_wins(driver: Driver) {
    let engines = [Role::Prefill, Role::Decode, Role::Prefill, Role::Decode].map(half);
    let all = engines.each_ref();
    let mut rule =
        exact_rule("pool", Kind::Vllm, &all, json!({"kvExactMode": 1, "pd_disagg_mode": true, "sel": 0}));
    for (at, role) in [1, 2, 1, 2].into_iter().enumerate() {
        rule["endpoints"][at]["ep_role"] = role.into();
    }
    let gateway = gateway(driver, &[rule]);
    let rows = known(&gateway);
    let indices: Vec<_> = rows.iter().map(|row| row["ep_idx"].as_u64().unwrap()).collect();
    assert_eq!(indices, [0, 2], "only prefill endpoints are followed");
    let prompt = tokens(1, 400);
    warm(&gateway, "pool", all[0], &prompt[..32]);
    warm(&gateway, "pool", all[2], &prompt[..96]);
    // Decode has all of it, which counts for nothing.
    assert_eq!(complete_with(all[1].addr, &prompt, &[], json!({})).reply.status, 200);
    let told = complete_with(gateway.vip, &prompt[..200], &[], json!({}));
    assert_eq!(told.reply.status, 200);
    assert_eq!((told.word("tier"), told.word("overlap_blocks")), ("tier15", "6"));
    assert_eq!(told.word("prefill"), all[2].addr.to_string());
    assert!([all[1], all[3]].iter().any(|decode| told.went_to(decode)));
    in_step(&gateway, "pool", all[2]);
    let again = complete_with(gateway.vip, &prompt[..200], &[], json!({}));
    assert_eq!((again.word("prefill"), again.word("overlap_blocks")), (&*all[2].addr.to_string(), "12"));
    let rows = gateway.admin("GET", "/netlox/v1/config/ai/explain?limit=1", "").json();
    let exact = &rows["decisions"][0];
    assert_eq!(exact["pair"]["prefill"], all[2].addr.to_string());
}
