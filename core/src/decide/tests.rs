//! Fairness, stability and bounds of the selectors.

use super::*;
use crate::environment::Environment;
use crate::rule::body;
use crate::table::Table;
use serde_json::{Value, json};
use std::sync::Arc;

fn service(arguments: Value, addresses: &[String]) -> Arc<Service> {
    let mut arguments = arguments;
    arguments["externalIP"] = json!("127.0.0.1");
    arguments["port"] = json!(80);
    let endpoints: Vec<_> = addresses.iter().map(|a| json!({"endpointIP": a, "targetPort": 8000})).collect();
    let body = json!({"serviceArguments": arguments, "endpoints": endpoints});
    let rule = body::parse(&body, &Environment::default(), || "id".into()).unwrap();
    Table::next(&Table::default(), vec![rule], &mut 0, 0).vips[0].services[0].clone()
}

fn addresses(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("10.0.{}.{}", i / 200, i % 200 + 1)).collect()
}

fn fleet(n: usize) -> Vec<EndpointView> {
    vec![EndpointView { available: true, load: 0, queued: None, capacity: None, weight: 1, backup: false }; n]
}

/// A key that spreads as hashes do.
fn key(i: u64) -> Facts {
    Facts { prefix: Some(xxhash_rust::xxh64::xxh64(&i.to_le_bytes(), 1)), ..Facts::default() }
}

fn tally(service: &Service, fleet: &[EndpointView], decisions: usize) -> Vec<usize> {
    let mut turn = Turn::default();
    let mut counts = vec![0; fleet.len()];
    for _ in 0..decisions {
        counts[decide(service, &Facts::default(), fleet, &mut turn).unwrap().endpoint] += 1;
    }
    counts
}

#[test]
fn round_robin_is_fair_also_beside_an_unavailable_endpoint() {
    let service = service(json!({}), &addresses(4));
    assert_eq!(tally(&service, &fleet(4), 1000), [250; 4]);
    let mut view = fleet(4);
    view[1].available = false;
    assert_eq!(tally(&service, &view, 999), [333, 0, 333, 333]);
}

#[test]
fn every_selector_serves_256_endpoints() {
    for sel in [0, 2, 4] {
        let service = service(json!({"sel": sel}), &addresses(256));
        assert_eq!(tally(&service, &fleet(256), 512), [2; 256], "sel {sel}");
    }
    let service = service(json!({"sel": 8}), &addresses(256));
    let mut turn = Turn::default();
    let decision = decide(&service, &key(1), &fleet(256), &mut turn).unwrap();
    assert_eq!((decision.candidates, decision.reason), (256, Reason::HashHome));
}

#[test]
fn weights_are_kept_exactly_and_smoothly() {
    let service = service(json!({"sel": 2}), &addresses(3));
    let mut view = fleet(3);
    for (endpoint, weight) in view.iter_mut().zip([5, 1, 1]) {
        endpoint.weight = weight;
    }
    assert_eq!(tally(&service, &view, 1001), [715, 143, 143]);
    let mut turn = Turn::default();
    let first: Vec<_> =
        (0..7).map(|_| decide(&service, &Facts::default(), &view, &mut turn).unwrap().endpoint).collect();
    assert_eq!(first, [0, 0, 1, 0, 2, 0, 0], "the order that nginx gives for 5, 1, 1");
    view[0].available = false;
    assert_eq!(tally(&service, &view, 1000), [0, 500, 500]);
}

#[test]
fn a_turn_is_sized_once() {
    let service = service(json!({"sel": 2}), &addresses(64));
    let mut turn = Turn::default();
    decide(&service, &Facts::default(), &fleet(64), &mut turn).unwrap();
    let (memory, room) = (turn.running.as_ptr(), turn.running.capacity());
    for _ in 0..1000 {
        decide(&service, &Facts::default(), &fleet(64), &mut turn).unwrap();
    }
    assert_eq!((turn.running.as_ptr(), turn.running.capacity()), (memory, room));
    assert_eq!(turn.running.iter().sum::<i64>(), 0, "what is gained is paid");
    decide(&service, &Facts::default(), &fleet(2), &mut turn).unwrap();
    assert_eq!(turn.running.len(), 2);
    turn.next = 200;
    assert!(decide(&service, &Facts::default(), &fleet(1), &mut turn).is_some());
}

#[test]
fn least_connections_takes_the_least_and_rotates_among_equals() {
    let service = service(json!({"sel": 4}), &addresses(4));
    let mut view = fleet(4);
    assert_eq!(tally(&service, &view, 1000), [250; 4]);
    for (endpoint, load) in view.iter_mut().zip([3, 1, 2, 1]) {
        endpoint.load = load;
    }
    assert_eq!(tally(&service, &view, 100), [0, 50, 0, 50]);
    view[1].available = false;
    view[3].available = false;
    assert_eq!(tally(&service, &view, 10), [0, 0, 10, 0]);
}

#[test]
fn backups_serve_only_when_no_primary_does() {
    for sel in [0, 2, 4, 8] {
        let service = service(json!({"sel": sel}), &addresses(4));
        let mut view = fleet(4);
        view[2].backup = true;
        view[3].backup = true;
        let mut turn = Turn::default();
        let mut ask = |view: &[EndpointView], excluded: &[usize], i: u64| {
            let mut facts = key(i);
            excluded.iter().for_each(|e| facts.excluded.add(*e));
            decide(&service, &facts, view, &mut turn)
        };
        for i in 0..100 {
            let decision = ask(&view, &[], i).unwrap();
            assert!(decision.endpoint < 2 && decision.candidates == 2, "sel {sel}");
            assert_eq!(ask(&view, &[0], i).unwrap().endpoint, 1, "sel {sel}");
            assert!(ask(&view, &[0, 1], i).unwrap().endpoint >= 2, "sel {sel}");
        }
        assert_eq!(ask(&view, &[0, 1, 2, 3], 1), None);
        view[0].available = false;
        view[1].available = false;
        assert!(ask(&view, &[], 1).unwrap().endpoint >= 2);
        view[2].available = false;
        view[3].available = false;
        assert_eq!(ask(&view, &[], 1), None);
        assert_eq!(ask(&[], &[], 1), None);
    }
}

#[test]
fn without_a_prefix_the_hash_selector_takes_turns() {
    let service = service(json!({"sel": 8}), &addresses(4));
    assert_eq!(tally(&service, &fleet(4), 1000), [250; 4]);
    let decision = decide(&service, &Facts::default(), &fleet(4), &mut Turn::default()).unwrap();
    assert_eq!((decision.reason, decision.load_bound), (Reason::NoPrefix, u32::MAX));
}

fn homes(service: &Service, view: &[EndpointView], keys: u64) -> Vec<usize> {
    let mut turn = Turn::default();
    (0..keys).map(|i| decide(service, &key(i), view, &mut turn).unwrap().endpoint).collect()
}

#[test]
fn ten_thousand_keys_spread() {
    let service = service(json!({"sel": 8, "chwbl_replication": 256}), &addresses(8));
    let mut counts = [0; 8];
    for home in homes(&service, &fleet(8), 10_000) {
        counts[home] += 1;
    }
    assert!(counts.iter().all(|c| (900..1700).contains(c)), "{counts:?}");
}

#[test]
fn an_endpoint_that_goes_moves_only_its_own_keys() {
    let all = addresses(8);
    let whole = service(json!({"sel": 8}), &all);
    let before = homes(&whole, &fleet(8), 10_000);
    let mut view = fleet(8);
    view[3].available = false;
    let down = homes(&whole, &view, 10_000);
    let fewer: Vec<String> =
        all.iter().enumerate().filter(|(i, _)| *i != 3).map(|(_, a)| a.clone()).collect();
    let removed = homes(&service(json!({"sel": 8}), &fewer), &fleet(7), 10_000);
    let mut heirs = [0; 8];
    for ((before, down), removed) in before.iter().zip(&down).zip(&removed) {
        let removed = removed + usize::from(*removed >= 3);
        assert_eq!(*down, removed, "down and removed are alike");
        if *before == 3 {
            heirs[*down] += 1;
        } else {
            assert_eq!(before, down);
        }
    }
    let served = heirs.iter().filter(|h| **h > 0).count();
    assert!(served >= 5, "its keys spread over the others: {heirs:?}");
}

#[test]
fn the_order_of_endpoints_does_not_matter() {
    let forward = addresses(8);
    let backward: Vec<String> = forward.iter().rev().cloned().collect();
    let one = homes(&service(json!({"sel": 8}), &forward), &fleet(8), 2_000);
    let other = homes(&service(json!({"sel": 8}), &backward), &fleet(8), 2_000);
    assert!(one.iter().zip(&other).all(|(a, b)| *a == 7 - b));
}

#[test]
fn reasons_tell_why_it_is_not_the_home() {
    let service = service(json!({"sel": 8}), &addresses(4));
    let mut turn = Turn::default();
    let mut view = fleet(4);
    let home = decide(&service, &key(7), &view, &mut turn).unwrap();
    assert_eq!((home.reason, home.load_bound), (Reason::HashHome, 1));
    view[home.endpoint].load = 1;
    let bounded = decide(&service, &key(7), &view, &mut turn).unwrap();
    assert_eq!(bounded.reason, Reason::HashBounded);
    assert_ne!(bounded.endpoint, home.endpoint);
    view[home.endpoint].available = false;
    let next = decide(&service, &key(7), &view, &mut turn).unwrap();
    assert_eq!((next.reason, next.endpoint), (Reason::HashNext, bounded.endpoint), "the next on the ring");
    view[home.endpoint].available = true;
    view[home.endpoint].load = 0;
    let mut facts = key(7);
    facts.excluded.add(home.endpoint);
    let other = decide(&service, &facts, &view, &mut turn).unwrap();
    assert_eq!((other.reason, other.endpoint), (Reason::HashNext, next.endpoint));
}

/// ceil(mean * factor / 100), the request itself included; never passed while requests only arrive.
#[test]
fn a_hot_prefix_spills_at_the_bound() {
    for (factor, n) in [(100, 1), (100, 4), (125, 4), (300, 4), (125, 256)] {
        let arguments = json!({"sel": 8, "chwbl_mean_load_factor": factor, "chwbl_replication": 16});
        let service = service(arguments, &addresses(n));
        let mut view = fleet(n);
        let mut turn = Turn::default();
        for placed in 0..(n as u64 * 10) {
            let decision = decide(&service, &key(1), &view, &mut turn).unwrap();
            let bound = ((placed + 1) * factor).div_ceil(100 * n as u64).max(1);
            assert_eq!(u64::from(decision.load_bound), bound);
            view[decision.endpoint].load += 1;
            assert!(u64::from(view[decision.endpoint].load) <= bound);
        }
        let most = view.iter().map(|e| e.load).max().unwrap();
        assert!(u64::from(most) <= (10 * factor).div_ceil(100), "{factor} {n}: {most}");
    }
}

/// Where those left all are at the bound, the least loaded is taken, and its reservation can't fail.
#[test]
fn exclusion_never_leaves_a_request_without_an_endpoint() {
    let service = service(json!({"sel": 8, "chwbl_mean_load_factor": 100}), &addresses(3));
    let mut view = fleet(3);
    view[1].load = 9;
    view[2].load = 8;
    let mut facts = key(1);
    facts.excluded.add(0);
    let decision = decide(&service, &facts, &view, &mut Turn::default()).unwrap();
    assert_eq!((decision.endpoint, decision.load_bound, decision.reason), (2, u32::MAX, Reason::HashBounded));
    view[1].load = u32::MAX;
    view[2].load = u32::MAX;
    assert!(decide(&service, &facts, &view, &mut Turn::default()).is_some());
}

/// The protocol of a shard: decide, reserve, and ask again where the bound was passed meanwhile.
#[test]
fn reserving_in_a_loop_ends_and_obeys_the_bound() {
    let service = service(json!({"sel": 8}), &addresses(4));
    let mut turn = Turn::default();
    let mut stale = Vec::new();
    service.view(0, &mut stale);
    for _ in 0..64 {
        let mut facts = key(1);
        loop {
            let decision = decide(&service, &facts, &stale, &mut turn).unwrap();
            if service.endpoints[decision.endpoint].reserve(decision.load_bound) {
                break;
            }
            facts.excluded.add(decision.endpoint);
            service.view(0, &mut stale);
        }
    }
    let loads: Vec<u32> = service.endpoints.iter().map(|e| e.reserved()).collect();
    assert_eq!(loads.iter().sum::<u32>(), 64);
    assert!(loads.iter().all(|l| *l <= 20), "{loads:?}");
}

#[test]
fn words_of_reasons_are_different_and_tell_their_tier() {
    let words: std::collections::HashSet<_> = Reason::ALL.iter().map(|r| r.word()).collect();
    assert_eq!(words.len(), Reason::ALL.len());
    for reason in Reason::ALL {
        let tier = match reason {
            Reason::Session => "tier0",
            Reason::PrefixTrie => "tier1",
            exact if exact.word().starts_with("exact") => "tier15",
            _ => "tier2",
        };
        assert_eq!(reason.tier(), tier);
    }
}

/// The published formula: a key that is a point belongs to that point; beyond the last comes the first.
#[test]
fn points_are_hashes_of_the_address_text() {
    let addresses = ["10.0.0.1".to_string(), "::1".to_string(), "10.0.0.3".to_string()];
    let service = service(json!({"sel": 8, "chwbl_replication": 5}), &addresses);
    let texts = ["10.0.0.1:8000", "[::1]:8000", "10.0.0.3:8000"];
    let point = |text: &str, j: usize| xxhash_rust::xxh64::xxh64(format!("{text}#{j}").as_bytes(), 0);
    let ask = |key| {
        let facts = Facts { prefix: Some(key), ..Facts::default() };
        decide(&service, &facts, &fleet(3), &mut Turn::default()).unwrap().endpoint
    };
    let mut points = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        points.extend((0..5).map(|j| (point(text, j), index)));
    }
    points.sort();
    for (i, (hash, index)) in points.iter().enumerate() {
        assert_eq!(ask(*hash), *index);
        assert_eq!(ask(hash + 1), points[(i + 1) % points.len()].1);
    }
    assert_eq!((ask(0), ask(u64::MAX)), (points[0].1, points[0].1));
}

#[test]
fn a_client_goes_to_one_endpoint_and_clients_spread() {
    let service = service(json!({"sel": 1}), &addresses(8));
    let mut counts = [0; 8];
    let mut turn = Turn::default();
    for i in 0..8_000u64 {
        let facts = Facts { client: key(i).prefix.unwrap(), ..Facts::default() };
        let first = decide(&service, &facts, &fleet(8), &mut turn).unwrap();
        assert_eq!(first.reason, Reason::ClientHash);
        counts[first.endpoint] += 1;
        let mut view = fleet(8);
        view[(first.endpoint + 1) % 8].available = false;
        assert_eq!(decide(&service, &facts, &view, &mut turn).unwrap().endpoint, first.endpoint);
    }
    assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
}

/// Selector 9: prefix, else session, else the least to do, what waits in the engine counted.
/// Of engines with different caches each has requests in proportion to its blocks; one that tells none, and one whose
/// figure is old, count as the mean of those that tell.
#[test]
fn gpu_aware_weighs_what_is_to_do_by_the_blocks_of_the_cache() {
    let service = service(json!({"sel": 9}), &addresses(3));
    let mut fleet = fleet(3);
    for (capacities, shares) in [
        ([Some(100), Some(200), Some(300)], [10, 20, 30]),
        ([Some(100), None, Some(300)], [10, 20, 30]),
        ([None; 3], [20, 20, 20]),
        ([Some(0), Some(1), Some(1)], [20, 20, 20]),
    ] {
        fleet.iter_mut().zip(capacities).for_each(|(endpoint, capacity)| {
            (endpoint.load, endpoint.queued, endpoint.capacity) = (0, Some(0), capacity);
        });
        let mut turn = Turn::default();
        for _ in 0..60 {
            let decision = decide(&service, &Facts::default(), &fleet, &mut turn).unwrap();
            fleet[decision.endpoint].load += 1;
        }
        assert_eq!(fleet.iter().map(|endpoint| endpoint.load).collect::<Vec<_>>(), shares, "{capacities:?}");
    }
}

#[test]
fn a_prefix_goes_before_a_session_and_without_both_the_least_to_do_serves() {
    let service = service(json!({"sel": 9}), &addresses(8));
    let mut turn = Turn::default();
    let mut ask = |prefix, session, view: &[EndpointView]| {
        decide(&service, &Facts { prefix, session, ..Facts::default() }, view, &mut turn).unwrap()
    };
    let homes: std::collections::HashSet<usize> =
        (0..100).map(|i| ask(key(i).prefix, key(7).prefix, &fleet(8)).endpoint).collect();
    assert_eq!(homes.len(), 8, "prefixes spread");
    let home = ask(key(1).prefix, None, &fleet(8));
    assert_eq!(home.reason, Reason::HashHome);
    assert_eq!(ask(None, key(1).prefix, &fleet(8)).endpoint, home.endpoint, "a session is hashed alike");
    let mut view = fleet(8);
    view[home.endpoint].available = false;
    let next = ask(key(1).prefix, None, &view);
    assert_eq!((next.reason, next.endpoint == home.endpoint), (Reason::HashNext, false));
    for (endpoint, (load, queued)) in view.iter_mut().zip([(0, 9), (3, 0), (1, 1), (9, 0), (2, 1)]) {
        (endpoint.load, endpoint.queued, endpoint.available) = (load, Some(queued), true);
    }
    view.truncate(5);
    let least = ask(None, None, &view);
    assert_eq!((least.endpoint, least.reason), (2, Reason::LeastLoad));
}

#[test]
fn weights_share_the_points_of_the_ring_and_the_load() {
    let weights = [3, 1, 0, 4];
    let mut weighted = service(json!({"sel": 10, "chwbl_replication": 800}), &addresses(4)).rule.clone();
    weighted.endpoints.iter_mut().zip(weights).for_each(|(endpoint, weight)| endpoint.weight = weight);
    let service = Table::next(&Table::default(), vec![weighted], &mut 0, 0).vips[0].services[0].clone();
    let mut view = Vec::new();
    service.view(0, &mut view);
    let mut counts = [0u32; 4];
    homes(&service, &view, 8_000).iter().for_each(|home| counts[*home] += 1);
    for (count, weight) in counts.iter().zip(weights) {
        assert!(count.abs_diff(1000 * weight) <= 250 * weight, "{counts:?}");
    }
    // All for one key: the bound is each one's share, 125 percent of it.
    let mut turn = Turn::default();
    for _ in 0..80 {
        service.view(0, &mut view);
        let decision = decide(&service, &key(1), &view, &mut turn).unwrap();
        assert!(service.endpoints[decision.endpoint].reserve(decision.load_bound));
    }
    let loads: Vec<u32> = service.endpoints.iter().map(|e| e.reserved()).collect();
    assert!(loads.iter().zip(weights).all(|(load, weight)| *load <= 13 * weight), "{loads:?}");
}

#[test]
fn a_pinned_endpoint_stays_while_it_is_as_good_as_any() {
    let mut view = fleet(3);
    view[2].backup = true;
    let mut tried = Excluded::default();
    assert_eq!([0, 1, 2, 3].map(|i| stays(i, &view, tried)), [true, true, false, false]);
    view[0].available = false;
    tried.add(1);
    assert_eq!([0, 1, 2].map(|i| stays(i, &view, tried)), [false, false, true], "only backups are left");
    view[2].available = false;
    assert!(!stays(2, &view, tried));
}
