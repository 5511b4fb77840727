//! The list of models: the union of the pools of an address.

use crate::harness::*;
use serde_json::json;

on_both_drivers!(models_are_the_union_of_the_pools, without_named_models_the_engine_lists_its_own);

fn models_are_the_union_of_the_pools(driver: Driver) {
    let engine = engine();
    let (vip, other) = (free_address(), free_address());
    let rules = [
        rule_with(vip, &[engine.addr], json!({"model_name": "b"})),
        rule_with(vip, &[engine.addr], json!({"model_name": "a", "host": "one.test"})),
        rule_with(vip, &[engine.addr], json!({"model_name": "a"})),
        rule_with(vip, &[engine.addr], json!({"model_name": "off", "adminStateUp": false})),
        rule_with(vip, &[engine.addr], json!({})),
        rule_with(other, &[engine.addr], json!({"model_name": "elsewhere"})),
    ];
    let gateway = Gateway::start(driver, &rules);
    let mut client = gateway.client();
    let reply = client.ask(&get("/v1/models", &[]));
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    let list = reply.json();
    assert_eq!(list["object"], "list");
    let models = list["data"].as_array().unwrap();
    assert_eq!(models.iter().map(|m| m["id"].as_str().unwrap()).collect::<Vec<_>>(), ["a", "b"]);
    assert!(
        models.iter().all(|m| m["object"] == "model" && m["created"].is_u64() && m["owned_by"].is_string())
    );
    assert_eq!(engine.stats().accepted, 0);
    gateway.delete_rule(vip, "?model_name=b");
    let list = client.ask(&get("/v1/models", &[])).json();
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
}

fn without_named_models_the_engine_lists_its_own(driver: Driver) {
    let engine = engine_with(|c| c.models = vec!["its-own".into()]);
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    let list = gateway.client().ask(&get("/v1/models", &[])).json();
    assert_eq!(list["data"][0]["id"], "its-own");
}
