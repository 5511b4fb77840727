//! Breakers in the flow: what opens one, that nobody goes to an open one, and that one trial at a time closes it,
//! whichever shard asks.

use crate::plain::ask::Ask;
use crate::plain::engine::engine_at;
use crate::plain::{Scene, install, scene_of};
use crate::sim::client::Came;
use serde_json::json;
use warmpath_core::SECOND;
use warmpath_core::breaker::State;
use warmpath_core::control::Count;

fn ask(todo: &str) -> Ask {
    Ask { todo: todo.into(), ..Ask::default() }
}

/// A rule with a breaker and short deadlines; all of its endpoints are the first engine's until told otherwise.
fn scene(shards: usize, engines: usize) -> Scene {
    scene_of(shards, engines, &json!({"cb_enable": true, "first_byte_timeout_ms": 2000}))
}

fn state(scene: &Scene, engine: usize) -> State {
    let endpoint = scene.service().endpoints.iter().find(|e| e.address() == engine_at(engine));
    endpoint.expect("it is in the rule").breaker().now().state(scene.now())
}

#[test]
fn each_kind_of_failure_opens_it_and_no_other_end_does() {
    for (todo, asks, came, opens) in [
        ("die-before", 5, Came::refused(502, "backend_died"), true),
        ("garbage", 5, Came::refused(502, "bad_answer"), true),
        ("hang", 5, Came::refused(504, "first_byte_timeout"), true),
        ("die-before", 4, Came::refused(502, "backend_died"), false),
        ("status 500", 3, Came::Answer(500), true),
        ("status 503", 2, Came::Answer(503), false),
        ("status 404", 40, Came::Answer(404), false),
        ("length 5", 40, Came::Answer(200), false),
        ("die-mid 500", 10, Came::Cut, false),
    ] {
        let mut scene = scene(1, 1);
        for _ in 0..asks {
            assert_eq!(scene.ask(0, ask(todo)), came, "{todo}");
        }
        let expected = if opens { State::Open } else { State::Closed };
        assert_eq!(state(&scene, 0), expected, "{todo} {asks} times");
        assert_eq!(scene.count(Count::BreakerOpenings), u64::from(opens));
        let served = scene.served()[0];
        let next = scene.ask(0, ask("length 5"));
        let (answer, more) =
            if opens { (Came::refused(503, "no_healthy_backend"), 0) } else { (Came::Answer(200), 1) };
        assert_eq!((next, scene.served()[0] - served), (answer, more), "after {todo} {asks} times");
        scene.assert_quiet();
    }
}

#[test]
fn a_refusing_endpoint_is_left_out_until_a_trial_finds_it_back() {
    for shards in [1, 4] {
        let mut scene = scene(shards, 2);
        scene.refuses(0, true);
        for turn in 0..20 {
            assert_eq!(scene.ask(turn % shards, ask("length 5")), Came::Answer(200), "another one answers");
        }
        assert_eq!(
            (state(&scene, 0), scene.count(Count::ConnectFailures)),
            (State::Open, 5),
            "{shards} shards"
        );
        assert_eq!(scene.count(Count::Ejections), 0, "the breaker alone decides");
        scene.pass(30 * SECOND);
        assert_eq!(state(&scene, 0), State::HalfOpen);
        for turn in 0..8 {
            scene.ask(turn % shards, ask("length 5"));
        }
        assert_eq!(
            (state(&scene, 0), scene.count(Count::ConnectFailures)),
            (State::Open, 6),
            "one trial failed"
        );
        scene.refuses(0, false);
        scene.pass(30 * SECOND);
        for turn in 0..8 {
            assert_eq!(scene.ask(turn % shards, ask("length 5")), Came::Answer(200));
        }
        assert_eq!(state(&scene, 0), State::Closed);
        assert!(scene.served()[0] >= 2, "it gets its share again: {:?}", scene.served());
        let counts = [Count::BreakerOpenings, Count::BreakerClosings, Count::BreakerHeals];
        assert_eq!(counts.map(|count| scene.count(count)), [2, 1, 2]);
        scene.assert_quiet();
    }
}

#[test]
fn one_trial_at_a_time_across_shards_and_an_abandoned_one_is_given_back() {
    let mut scene = scene(4, 1);
    (0..3).for_each(|_| drop(scene.ask(0, ask("status 500"))));
    scene.pass(30 * SECOND);
    let leaving = Ask { leave_after: Some(0), ..ask("hang") };
    let left = (0..20).find(|_| scene.ask(1, leaving.clone()) == Came::Left && scene.served()[0] == 4);
    assert!(left.is_some(), "a client left while the engine had its request: {:?}", scene.served());
    assert_eq!(state(&scene, 0), State::HalfOpen);
    assert_eq!(scene.ask(3, ask("status 404")), Came::Answer(404), "the next is the next trial");
    assert_eq!(state(&scene, 0), State::HalfOpen, "4xx proves nothing after 5xx");
    let trial = scene.begin(1, ask("hang"));
    assert_eq!((state(&scene, 0), scene.served()[0]), (State::HalfOpen, 6));
    for shard in 0..4 {
        assert_eq!(
            scene.ask(shard, ask("length 5")),
            Came::refused(503, "no_healthy_backend"),
            "shard {shard}"
        );
    }
    assert_eq!(scene.end(1, &trial), Came::refused(504, "first_byte_timeout"));
    assert_eq!((state(&scene, 0), scene.served()[0]), (State::Open, 6));
    scene.pass(30 * SECOND);
    assert_eq!(scene.ask(2, ask("length 5")), Came::Answer(200));
    assert_eq!(state(&scene, 0), State::Closed);
    scene.assert_quiet();
}

/// A rule is replaced, its endpoints change places: the state stays with the address.
#[test]
fn a_breaker_outlives_a_change_of_its_rule() {
    let arguments = json!({"cb_enable": true});
    let mut scene = scene_of(1, 2, &arguments);
    install(&mut scene, &arguments, &[0]);
    (0..3).for_each(|_| drop(scene.ask(0, ask("status 500"))));
    install(&mut scene, &arguments, &[1, 0]);
    assert_eq!((state(&scene, 0), state(&scene, 1)), (State::Open, State::Closed));
    (0..6).for_each(|_| assert_eq!(scene.ask(0, ask("length 5")), Came::Answer(200)));
    assert_eq!(scene.served(), [3, 6]);
    install(&mut scene, &json!({}), &[0]);
    assert_eq!(scene.ask(0, ask("length 5")), Came::Answer(200), "without a breaker nothing is held back");
    scene.assert_quiet();
}
