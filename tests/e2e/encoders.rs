//! Encoders before prefill and decode, and Mooncake's handshake, over real sockets: what the simulated engines say of the
//! gateway, whose counters show that encodings and blocks went from one engine to the other.

use crate::harness::*;
use serde_json::{Value, json};
use warmpath_perf::engine::faults::{Faults, Stall};
use warmpath_perf::engine::transfer::{Connector, Pair, Role};
use warmpath_perf::engine::{Config, Handle, Kind, start};

on_both_drivers!(
    images_are_encoded_before_prefill_and_texts_are_not,
    an_encoder_that_fails_is_replaced_and_then_left_out,
    a_refusal_of_an_encoder_goes_to_the_client,
    an_encoder_that_stalls_ends_in_time,
    a_client_that_leaves_ends_all_encoders,
    mooncake_transfers_what_both_legs_name,
);

struct Pool {
    encoders: Vec<Handle>,
    prefill: Handle,
    decode: Handle,
}

fn engine(role: Role, connector: Connector) -> Handle {
    start(Config { pair: Some(Pair { connector, ..Pair::of(role) }), ..Config::of(Kind::Vllm) }).unwrap()
}

impl Pool {
    fn new(encoders: usize, connector: Connector) -> Pool {
        Pool {
            encoders: (0..encoders).map(|_| engine(Role::Encode, connector)).collect(),
            prefill: engine(Role::Prefill, connector),
            decode: engine(Role::Decode, connector),
        }
    }

    fn gateway(&self, driver: Driver, more: &Value, env: &[(&str, &str)]) -> Gateway {
        let end = |engine: &Handle, role: u8| json!({"endpointIP": "127.0.0.1", "targetPort": engine.addr.port(), "weight": 1, "ep_role": role});
        let mut arguments = json!({"pd_disagg_mode": true, "kvEngineType": "vllm", "model_name": "sim"});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut rule = rule_with(free_address(), &[], arguments);
        let mut endpoints = vec![end(&self.prefill, 1), end(&self.decode, 2)];
        if more["pd_connector"] == "mooncake" {
            let stats =
                Client::connect(self.prefill.addr).ask(b"GET /sim/stats HTTP/1.1\r\nHost: a\r\n\r\n").json();
            endpoints[0]["kv_engine_id"] = stats["pair"]["engine_id"].clone();
        }
        endpoints.extend(self.encoders.iter().map(|engine| end(engine, 3)));
        rule["endpoints"] = endpoints.into();
        Gateway::start_in(driver, &[rule], &["--shards", "1"], env)
    }

    fn encodings(&self) -> u64 {
        self.encoders.iter().map(|engine| engine.stats().pair.encodings).sum()
    }

    /// Encodings that prefill fetched, and those that it had to make.
    fn fetched(&self) -> (u64, u64) {
        let pair = self.prefill.stats().pair;
        (pair.encodings_received, pair.encoded_here)
    }

    fn assert_clean(&self) {
        for engine in self.encoders.iter().chain([&self.prefill, &self.decode]) {
            assert!(engine.stats().pair.violations.is_empty(), "{:?}", engine.stats().pair.violations);
            wait_until("no leg is left", || engine.stats().running == 0);
        }
    }
}

/// A chat with images that no other has.
fn chat(name: &str, images: usize, stream: bool) -> Vec<u8> {
    let image = |n: usize| json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{name}{n}")}});
    let text = json!({"type": "text", "text": "\"type\":\"image_url\" what is this?"});
    let parts: Vec<Value> = [text].into_iter().chain((0..images).map(image)).collect();
    let body = json!({"model": "sim", "messages": [{"role": "user", "content": parts}], "max_tokens": 7, "stream": stream});
    post("/v1/chat/completions", &[], body.to_string().as_bytes())
}

fn faults(status: u16) -> Faults {
    Faults { status: Some(status), ..Faults::default() }
}

fn images_are_encoded_before_prefill_and_texts_are_not(driver: Driver) {
    let pool = Pool::new(2, Connector::Nixl);
    let gateway = pool.gateway(driver, &json!({}), &[]);
    let mut client = gateway.client();
    for stream in [false, true] {
        assert_eq!(client.ask(&chat(&format!("a{stream}"), 5, stream)).status, 200);
    }
    assert_eq!((pool.encodings(), pool.fetched()), (10, (10, 0)));
    assert!(pool.encoders.iter().all(|engine| engine.stats().pair.encodings > 0), "they share the work");
    assert_eq!(client.ask(&chat("b", 0, false)).status, 200);
    assert_eq!((pool.encodings(), pool.decode.stats().pair.decodes), (10, 3), "a text skips the encoders");
    pool.encoders
        .iter()
        .for_each(|engine| engine.set_faults(Faults { pd_hand_nothing: true, ..Faults::default() }));
    assert_eq!(client.ask(&chat("c", 2, false)).status, 200);
    assert_eq!((pool.encodings(), pool.fetched()), (12, (10, 2)), "a store that all share is told by nobody");
    gateway.settle();
    let page = String::from_utf8(gateway.admin("GET", "/netlox/v1/metrics", "").body).unwrap();
    assert!(page.contains("warmpath_pd_encoded_total 12\n"), "{page}");
    pool.assert_clean();
}

fn an_encoder_that_fails_is_replaced_and_then_left_out(driver: Driver) {
    let pool = Pool::new(2, Connector::Nixl);
    let gateway = pool.gateway(driver, &json!({}), &[]);
    let mut client = gateway.client();
    pool.encoders[0].set_faults(faults(500));
    for name in ["a", "b", "c", "d"] {
        assert_eq!(client.ask(&chat(name, 1, false)).status, 200);
    }
    assert_eq!(pool.fetched(), (4, 0), "the other one encodes");
    pool.encoders[1].set_faults(faults(500));
    assert_eq!(client.ask(&chat("e", 1, false)).status, 200);
    assert_eq!(pool.fetched(), (4, 1), "prefill encodes what nobody will");
    gateway.settle();
    let page = String::from_utf8(gateway.admin("GET", "/netlox/v1/metrics", "").body).unwrap();
    assert!(page.contains("warmpath_pd_not_encoded_total 1\n"), "{page}");
    pool.assert_clean();
}

fn a_refusal_of_an_encoder_goes_to_the_client(driver: Driver) {
    let pool = Pool::new(1, Connector::Nixl);
    let gateway = pool.gateway(driver, &json!({}), &[]);
    let mut client = gateway.client();
    pool.encoders[0].set_faults(faults(422));
    assert_eq!(client.ask(&chat("a", 3, true)).status, 422);
    assert_eq!(pool.prefill.stats().executions.total, 0);
    pool.encoders[0].set_faults(Faults::default());
    assert_eq!(client.ask(&chat("a", 3, true)).status, 200, "on the same connection");
    pool.assert_clean();
}

fn an_encoder_that_stalls_ends_in_time(driver: Driver) {
    let pool = Pool::new(1, Connector::Nixl);
    let gateway = pool.gateway(driver, &json!({}), &[("LLB_PD_PREFILL_TIMEOUT_SEC", "1")]);
    pool.encoders[0].set_faults(Faults { stall: Some(Stall::BeforeHead), ..Faults::default() });
    let reply = gateway.client().ask(&chat("a", 20, true));
    assert_eq!((reply.status, reply.error_code().as_str()), (504, "pd_encode_timeout"));
    wait_until("all legs are closed", || pool.encoders[0].stats().running == 0);
    wait_until("nothing is left", || gateway.sum("active") == 0);
}

fn a_client_that_leaves_ends_all_encoders(driver: Driver) {
    let pool = Pool::new(2, Connector::Nixl);
    let gateway = pool.gateway(driver, &json!({}), &[]);
    let stall = Faults { stall: Some(Stall::BeforeHead), ..Faults::default() };
    pool.encoders.iter().for_each(|engine| engine.set_faults(stall.clone()));
    let mut client = gateway.client();
    client.send(&chat("a", 20, true));
    let running = || pool.encoders.iter().map(|engine| engine.stats().running).sum::<u64>();
    wait_until("sixteen are under way", || running() == 16);
    client.reset();
    wait_until("all legs are closed", || running() == 0);
    wait_until("nothing is left", || gateway.sum("active") == 0);
    assert_eq!(pool.prefill.stats().executions.total, 0);
}

fn mooncake_transfers_what_both_legs_name(driver: Driver) {
    let pool = Pool::new(0, Connector::Mooncake);
    let port = pool.prefill.door().unwrap().port();
    let gateway = pool.gateway(driver, &json!({"pd_connector": "mooncake", "pdBootstrapPort": port}), &[]);
    let mut client = gateway.client();
    for round in 0..4 {
        assert_eq!(client.ask(&chat(&format!("a{round}"), 0, round % 2 == 0)).status, 200);
    }
    let (sent, taken) = (pool.prefill.stats().pair, pool.decode.stats().pair);
    assert_eq!((sent.prefills, taken.decodes, taken.recomputes), (4, 4, 0));
    assert_eq!(sent.blocks_sent, taken.blocks_received);
    pool.assert_clean();
}
