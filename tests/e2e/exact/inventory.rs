//! The gateway's inventory beside the engine's own cache, key by key. Owns eviction, copies, media, and how an
//! operator reads it: pages, status, metrics.

use super::pool::{
    complete_with, engine_with, exact_rule, gateway, held, in_step, inventory, known, known_of, metric, page,
    tokens,
};
use crate::harness::{Driver, Gateway};
use serde_json::{Value, json};
use warmpath_perf::engine::Kind::{self, Sglang, Vllm};
use warmpath_perf::engine::{Handle, text::mix};

/// Prompts that share beginnings, answers that fill blocks, more of both than the cache has room for. Whether a
/// block was ever held twice.
fn churn(gateway: &Gateway, engine: &Handle, rounds: u64) -> bool {
    let (mut random, mut several) = (7, false);
    for round in 1..=rounds {
        let mut draw = |below: u64| {
            random = mix(random);
            (random % below) as u32
        };
        let head = tokens(draw(4), 16 * (1 + draw(4)));
        let tail = tokens(10 + draw(3), draw(3) * 16);
        let more = json!({"max_tokens": 1 + draw(40), "ignore_eos": true});
        complete_with(engine.addr, &[head, tail].concat(), &[], more);
        let caches = engine.caches();
        let copies = caches["ranks"].as_array().unwrap().iter().map(|rank| &rank["media"]["gpu"]["several"]);
        several |= copies.into_iter().any(|copies| copies != &json!([]));
        if round % 10 == 0 {
            in_step(gateway, "pool", engine);
        }
    }
    several
}

fn churned(kind: Kind, ranks: u64, host_blocks: usize) -> (Gateway, Handle, bool) {
    let engine = engine_with(kind, |c| {
        (c.cache_blocks, c.host_blocks, c.ranks) = (20, host_blocks, ranks as usize);
    });
    let rule = exact_rule("pool", kind, &[&engine], json!({"kvDpRankCount": ranks}));
    let gateway = gateway(Driver::Epoll, &[rule]);
    let several = churn(&gateway, &engine, 60);
    (gateway, engine, several)
}

#[test]
fn vllms_blocks_with_their_copies() {
    let (gateway, engine, several) = churned(Vllm, 1, 0);
    assert!(several, "some block was held twice");
    let row = known_of(&gateway, "pool", &engine);
    assert!(row["ranks"][0]["removed"].as_u64() > Some(20), "{row}");
    assert_eq!(row["ranks"][0]["cleared"], 0);
}

#[test]
fn vllms_blocks_on_two_ranks_and_in_the_hosts_memory() {
    let (gateway, engine, _) = churned(Vllm, 2, 10);
    assert!(!held(&engine, &["host"]).is_empty());
    assert_eq!(metric(&gateway, "warmpath_kv_stored_total", &[]).map(|stored| stored > 100.0), Some(true));
}

#[test]
fn sglangs_pages_on_three_ranks_and_in_the_hosts_memory() {
    let (_gateway, engine, _) = churned(Sglang, 3, 10);
    assert!(!held(&engine, &["host"]).is_empty());
}

/// A clear of the engine's, told with its next step.
#[test]
fn a_cleared_cache_is_followed() {
    let (gateway, engine, _) = churned(Vllm, 1, 4);
    engine.clear_caches();
    complete_with(engine.addr, &tokens(1, 40), &[], json!({}));
    in_step(&gateway, "pool", &engine);
    assert_eq!(known_of(&gateway, "pool", &engine)["ranks"][0]["blocks"]["gpu"], 2);
}

#[test]
fn an_inventory_is_read_in_pages_and_agrees_with_status_and_metrics() {
    let (gateway, engine, _) = churned(Sglang, 2, 0);
    let row = known_of(&gateway, "pool", &engine);
    let held = held(&engine, &["gpu"]);
    for limit in [1, 3, 1000] {
        assert_eq!(inventory(&gateway, &row, "gpu", limit), held, "pages of {limit}");
    }
    let path = |query: &str| format!("/netlox/v1/config/ai/kv/inventory?{query}");
    let own = format!("service_id={}&ep_idx={}", row["service_id"], row["ep_idx"]);
    let whole = gateway.admin("GET", &path(&own), "").json();
    assert_eq!((&whole["total"], &whole["hash_algo"]), (&json!(held.len()), &json!("sha256_sglang")));
    let second = gateway.admin("GET", &path(&format!("{own}&rank=1")), "").json();
    let of_rank = held.iter().filter(|(rank, _)| *rank == 1).count();
    assert_eq!(second["total"], of_rank, "{second}");
    let status = |query: &str| gateway.admin("GET", &path(query), "").status;
    assert_eq!(status("service_id=99&ep_idx=0"), 404);
    assert_eq!(status(&format!("service_id={}&ep_idx=9", row["service_id"])), 404);
    for wrong in
        ["ep_idx=0".into(), format!("{own}&rank=2"), format!("{own}&limit=0"), format!("{own}&from=x")]
    {
        assert_eq!(status(&wrong), 400, "{wrong}");
    }
    let simulated = page(&engine, "/sim/cache").json();
    assert_eq!(simulated["ranks"], engine.caches()["ranks"], "the engine's page says the same");
    let (service, ep) = (row["service_id"].to_string(), row["ep_idx"].to_string());
    let labels: [(&str, &str); 1] = [("service", &service)];
    let count = Some(held.len() as f64);
    assert_eq!(metric(&gateway, "loxilb_pd_kv_blocks", &labels), count);
    assert_eq!(metric(&gateway, "warmpath_kv_blocks", &[("tier", "gpu")]), count);
    for up in ["loxilb_kv_subscriber_connected", "loxilb_kv_inventory_fresh"] {
        assert_eq!(metric(&gateway, up, &labels), Some(1.0), "{up} of ep {ep}");
    }
    assert_eq!(metric(&gateway, "loxilb_kv_subscriber_recv_error_total", &labels), Some(0.0));
    let index = gateway.admin("GET", "/netlox/v1/config/ai/kv/status", "").json()["index"].clone();
    let distinct: std::collections::BTreeSet<u64> = held.iter().map(|(_, key)| *key).collect();
    assert!(index["blocks"].as_u64() >= Some(distinct.len() as u64), "{index}");
    assert_eq!(index["refused"], 0);
}

/// `ctl kv` prints what REST says.
#[test]
fn ctl_lists_what_is_known() {
    let (gateway, engine, _) = churned(Vllm, 1, 0);
    let socket = gateway.folder.join("state/ctl.sock");
    let ctl = |words: &[&str]| {
        let mut command = crate::harness::binary();
        command.arg("ctl").args(words).arg("--socket").arg(&socket).current_dir(&gateway.folder);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{words:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        text
    };
    let all = ctl(&["kv"]);
    assert!(all.contains(&engine.addr.to_string()) && all.contains("complete"), "{all}");
    let row = known(&gateway)[0].clone();
    let (service, ep) = (row["service_id"].to_string(), row["ep_idx"].to_string());
    let listed = ctl(&["kv", "inventory", &service, &ep]);
    for (_, key) in held(&engine, &["gpu"]) {
        let as_number = Value::from(key).to_string();
        assert!(
            listed.contains(&format!("{key:016x}")) || listed.contains(&as_number),
            "{key:016x}: {listed}"
        );
    }
}
