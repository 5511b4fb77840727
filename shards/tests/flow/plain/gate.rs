//! The gate over whole requests: what its ceiling hears of engines, who is counted as gone, maintenance and drained
//! endpoints, fairness by tenant, and the valve before all of it.

use crate::plain::ask::Ask;
use crate::plain::{Scene, scene_of};
use crate::sim::client::Came;
use crate::sim::scene::Pending;
use serde_json::{Value, json};
use warmpath_core::control::Count;
use warmpath_core::engine::telemetry::Load;
use warmpath_core::gate::Finding;
use warmpath_core::shared::Decided;
use warmpath_core::{MILLISECOND, SECOND};

type Coming = Pending<Ask>;

fn ask(todo: &str) -> Ask {
    Ask { todo: todo.into(), ..Ask::default() }
}

fn scene(engines: usize, members: Value) -> Scene {
    let mut arguments = json!({"fc_mode": "enforce", "fc_max_queue_depth": 9, "fc_max_queue_wait_ms": 60_000,
                               "first_byte_timeout_ms": 3_600_000});
    arguments.as_object_mut().expect("an object").extend(members.as_object().cloned().unwrap_or_default());
    scene_of(1, engines, &arguments)
}

fn limit(scene: &Scene) -> u32 {
    scene.service().admission.gate.limit()
}

fn waiting(scene: &Scene, requests: u32) -> u32 {
    let load = Load { waiting: requests, ..Load::default() };
    scene.service().endpoints.iter().for_each(|endpoint| endpoint.load().tell(load, scene.now()));
    requests
}

/// An answer that takes some 700 ms.
const LONG: &str = "chunked 60000 3000 90";

/// A request that waits at the gate, and is still there some time later.
fn waits(scene: &mut Scene, ask: Ask) -> Coming {
    let before = scene.service().admission.gate.waiting();
    let coming = scene.send(0, ask);
    scene.pass(20 * MILLISECOND);
    assert_eq!(scene.service().admission.gate.waiting(), before + 1, "it waits");
    coming
}

#[test]
fn an_adaptive_ceiling_hears_what_waits_in_the_engines() {
    let members = json!({"fc_max_outstanding": 10, "fc_adaptive": "on", "fc_telemetry_stale_ms": 5000});
    let mut scene = scene(1, members);
    let after = |scene: &mut Scene, told: Option<u32>| {
        told.map(|requests| waiting(scene, requests));
        assert_eq!(scene.ask(0, ask("length 5")), Came::Answer(200));
        scene.pass(SECOND);
        (limit(scene), scene.service().admission.finding())
    };
    after(&mut scene, Some(4));
    assert_eq!(after(&mut scene, Some(4)), (8, Finding::Queued));
    assert_eq!(after(&mut scene, Some(4)), (6, Finding::Queued));
    assert_eq!(after(&mut scene, Some(0)), (7, Finding::Clear));
    // The rule believes no figure that is older than five seconds.
    scene.pass(5 * SECOND);
    after(&mut scene, None);
    assert_eq!(after(&mut scene, None).1, Finding::Stale);
    scene.assert_quiet();
}

#[test]
fn an_adaptive_ceiling_hears_how_long_first_bytes_take() {
    // The engine takes up to 2 ms to each step of an answer, beside the network.
    for (target, finding, most) in [(1, Finding::Ttft, 8), (3_600_000, Finding::Clear, 10)] {
        let mut scene =
            scene(1, json!({"fc_max_outstanding": 10, "fc_adaptive": "on", "fc_ttft_target_ms": target}));
        for _ in 0..3 {
            for _ in 0..20 {
                assert_eq!(scene.ask(0, ask("length 5")), Came::Answer(200));
            }
            scene.pass(SECOND);
        }
        assert_eq!(scene.service().admission.finding(), finding, "target {target}");
        assert!(limit(&scene) <= most && limit(&scene) >= most - 2, "{}", limit(&scene));
    }
}

#[test]
fn an_endpoint_that_comes_up_is_given_more_and_more() {
    let mut scene = scene(2, json!({"fc_ep_max_inflight": 8, "fc_warmup_ms": 60_000}));
    scene.pass(60 * SECOND);
    let now = scene.now();
    scene.service().endpoints[1].came_up(now);
    let mut limits = Vec::new();
    for _ in 0..4 {
        assert_eq!(scene.ask(0, ask("length 5")), Came::Answer(200));
        limits.push(limit(&scene));
        scene.pass(20 * SECOND);
    }
    assert_eq!(limits, [10, 12, 14, 16], "of two endpoints with 8 each, one begins with a quarter");
    scene.assert_quiet();
}

#[test]
fn one_who_leaves_the_queue_is_counted_as_such_and_one_who_is_refused_is_not() {
    let mut scene = scene(1, json!({"fc_max_outstanding": 1, "fc_max_queue_wait_ms": 2_000}));
    let first = scene.begin(0, ask("hang"));
    let leaves = Ask { leave_after: Some(0), ..ask("length 5") };
    assert_eq!(scene.ask(0, leaves), Came::Left);
    let late = waits(&mut scene, ask("length 5"));
    assert_eq!(scene.end(0, &late), Came::refused(504, "admission_queue_timeout"));
    let admission = scene.service().admission.clone();
    let counted =
        [Decided::Admitted, Decided::Left, Decided::QueueTimeout].map(|decided| admission.counted(decided));
    assert_eq!(counted, [1, 1, 1]);
    scene.end(0, &first);
    scene.assert_quiet();
}

#[test]
fn in_maintenance_nobody_comes_in_those_who_wait_go_home_and_what_runs_ends() {
    let mut scene = scene(1, json!({"fc_max_outstanding": 1}));
    let runs = scene.begin(0, ask(LONG));
    let parked = waits(&mut scene, ask("length 5"));
    scene.service().admission.close(true);
    assert_eq!(scene.end(0, &parked), Came::refused(503, "admission_drained"));
    assert_eq!(scene.ask(0, ask("length 5")), Came::refused(503, "gateway_draining"));
    assert_eq!(scene.end(0, &runs), Came::Answer(200));
    scene.service().admission.close(false);
    assert_eq!(scene.ask(0, ask("length 5")), Came::Answer(200));
    let counted = [Decided::Drained, Decided::Maintenance, Decided::Left];
    assert_eq!(counted.map(|decided| scene.service().admission.counted(decided)), [1, 1, 0]);
    scene.assert_quiet();
    let mut observing = self::scene(1, json!({"fc_mode": "observe"}));
    observing.service().admission.close(true);
    assert_eq!(observing.ask(0, ask("length 5")), Came::Answer(200), "a gate that refuses nobody");
}

#[test]
fn a_drained_endpoint_gets_nothing_new_and_its_sessions_move() {
    let session = |name: &str| Ask { lines: format!("X-Session-ID: {name}\r\n"), ..ask("length 5") };
    let mut scene = scene_of(1, 2, &json!({"sel": 3, "session_header_name": "X-Session-ID"}));
    for name in ["a", "b", "a", "b"] {
        assert_eq!(scene.ask(0, session(name)), Came::Answer(200));
    }
    assert_eq!(scene.served(), [2, 2]);
    let runs = scene.begin(0, Ask { todo: LONG.into(), ..session("a") });
    let drained = if scene.served()[0] == 3 { 0 } else { 1 };
    scene.service().endpoints[drained].set_drained(true);
    for name in ["a", "b", "c", "a", "d"] {
        assert_eq!(scene.ask(0, session(name)), Came::Answer(200));
    }
    assert_eq!((scene.served()[drained], scene.served()[1 - drained]), (3, 7));
    assert_eq!(scene.end(0, &runs), Came::Answer(200), "what ran there ends there");
    scene.service().endpoints[1 - drained].set_drained(true);
    assert_eq!(scene.ask(0, session("a")), Came::refused(503, "no_healthy_backend"));
    scene.service().endpoints.iter().for_each(|endpoint| endpoint.set_drained(false));
    assert_eq!(scene.ask(0, session("a")), Came::Answer(200));
    scene.assert_quiet();
}

/// One permit; a tenant with six long prompts waits already when another one comes with two short ones.
#[test]
fn fairness_lets_a_light_tenant_go_before_a_heavy_ones_crowd() {
    for (fair, order) in [("off", "hhhhhhll"), ("on", "hllhhhhh")] {
        let mut scene = scene(1, json!({"fc_max_outstanding": 1, "fc_fair": fair}));
        let by =
            |tenant: &str, size| Ask { lines: format!("X-Api-Key: {tenant}\r\n"), size, ..ask("length 5") };
        let first = scene.begin(0, ask(LONG));
        let mut waiting: Vec<(char, Coming)> = Vec::new();
        for _ in 0..6 {
            waiting.push(('h', waits(&mut scene, by("heavy", 20_000))));
        }
        for _ in 0..2 {
            waiting.push(('l', waits(&mut scene, by("light", 100))));
        }
        let order_of = |waiting: &[(char, Coming)]| {
            let ended = |(tenant, coming): &(char, Coming)| {
                coming.borrow().first().map(|end| (end.ask.id.clone(), *tenant, end.came.clone()))
            };
            waiting.iter().filter_map(ended).collect::<Vec<_>>()
        };
        let mut seen: Vec<char> = Vec::new();
        let mut known: Vec<String> = Vec::new();
        while known.len() < 8 {
            scene.pass(MILLISECOND / 5);
            for (id, tenant, came) in order_of(&waiting) {
                if !known.contains(&id) {
                    assert_eq!(came, Came::Answer(200));
                    known.push(id);
                    seen.push(tenant);
                }
            }
        }
        assert_eq!(seen.into_iter().collect::<String>(), order, "fc_fair {fair}");
        scene.end(0, &first);
        scene.assert_quiet();
    }
}

/// Two seats: a third client is served when one of the two has left, and those who wait are served in order.
#[test]
fn the_valve_lets_so_many_connections_be_served_at_once() {
    let mut scene = scene_of(1, 1, &json!({"first_byte_timeout_ms": 20_000}));
    scene.bound_connections(2);
    let hangs: Vec<Coming> = (0..2).map(|_| scene.begin(0, ask("hang"))).collect();
    let held: Vec<Coming> = (0..3).map(|_| scene.send(0, ask("length 5"))).collect();
    scene.pass(5 * SECOND);
    assert_eq!((scene.served(), scene.count(Count::AcceptsHeld)), (vec![2], 3));
    assert!(held.iter().all(|coming| coming.borrow().is_empty()), "they wait");
    let report = scene.report(0);
    assert_eq!((report.clients, report.held), (5, 3));
    hangs.iter().for_each(|coming| drop(scene.end(0, coming)));
    for coming in &held {
        assert_eq!(scene.end(0, coming), Came::Answer(200));
    }
    assert_eq!(scene.report(0).held, 0);
    scene.assert_quiet();
}
