//! Sessions in the flow: each turn of a conversation comes on a new connection, to any shard, and goes to one endpoint
//! while that can serve.

use crate::plain::ask::Ask;
use crate::plain::engine::engine_at;
use crate::plain::{Scene, install, scene_of};
use crate::sim::client::Came;
use serde_json::{Value, json};
use warmpath_core::SECOND;

fn ask(lines: &str, json: &str) -> Ask {
    Ask { todo: "length 5".into(), lines: lines.into(), json: Some(json.into()), ..Ask::default() }
}

/// Asks, and tells which engine served it.
fn engine_of(scene: &mut Scene, shard: usize, ask: Ask) -> usize {
    let before = scene.served();
    assert_eq!(scene.ask(shard, ask), Came::Answer(200));
    let after = scene.served();
    (0..before.len()).find(|i| after[*i] > before[*i]).expect("an engine served it")
}

/// Three turns of each of eleven conversations (no multiple of the engines, which taking turns would keep together) by `turn`, over all shards in turn: whether each went to one engine.
fn sticks(shards: usize, arguments: &Value, turn: &dyn Fn(usize) -> Ask) -> bool {
    let mut scene = scene_of(shards, 3, arguments);
    let mut homes: Vec<Option<usize>> = vec![None; 11];
    let (mut together, mut used) = (true, [false; 3]);
    for round in 0..3 {
        for (conversation, home) in homes.iter_mut().enumerate() {
            let engine = engine_of(&mut scene, (conversation * 5 + round) % shards, turn(conversation));
            used[engine] = true;
            together &= *home.get_or_insert(engine) == engine;
        }
    }
    scene.assert_quiet();
    assert!(!together || used == [true; 3], "they spread over the engines");
    together
}

#[test]
fn every_form_of_a_key_keeps_a_conversation_together_at_one_shard_and_four() {
    let base64 =
        ["YTo=", "Yjo=", "Yzo=", "ZDo=", "ZTo=", "Zjo=", "Zzo=", "aDo=", "aTo=", "ajo=", "azo=", "bDo="];
    for shards in [1, 4] {
        for sel in [0, 2, 3, 4] {
            let header = json!({"sel": sel, "session_header_name": "X-Thread"});
            assert!(sticks(shards, &header, &|c| ask(&format!("x-thread: c{c}\r\n"), "{}")), "sel {sel}");
        }
        let named = |name: &str| json!({"session_header_name": name});
        let cookie = |c| ask(&format!("Cookie: a=1; sid=c{c}\r\n"), "{}");
        assert!(sticks(shards, &named("cookie:sid"), &cookie));
        let two = |c| ask(&format!("Cookie: a=1\r\nCookie: sid=c{c}\r\n"), "{}");
        assert!(sticks(shards, &named("cookie:sid"), &two));
        let basic = |c: usize| ask(&format!("Authorization: Basic {}\r\n", base64[c]), "{}");
        assert!(sticks(shards, &named("basic-auth"), &basic));
        let user = |c| ask("", &format!("{{\"user\":\"c{c}\"}}"));
        assert!(sticks(shards, &named("X-Thread"), &user), "the body's user where the header is missing");
        let by_header =
            |c| ask(&format!("X-Conversation-ID: c{c}\r\n"), &format!("{{\"user\":\"u{}\"}}", c % 2));
        assert!(sticks(shards, &named("X-Thread"), &by_header), "a conversation before its user");
        assert!(sticks(shards, &named("X-Thread"), &|c| ask(&format!("X-Session-ID: c{c}\r\n"), "{}")));
    }
}

#[test]
fn what_is_no_conversation_keeps_nothing_together() {
    for (arguments, lines) in [
        (json!({}), "X-Conversation-ID: c0\r\n"),
        (json!({"session_header_name": "X-Thread"}), ""),
        (json!({"session_header_name": "X-Thread"}), "X-Thread-2: c0\r\nX-Trace-ID: t\r\n"),
        (json!({"session_header_name": "X-Thread"}), "X-Thread: auto-7f\r\n"),
        (json!({"session_header_name": "cookie:sid"}), "Cookie: sid2=1; SID=1\r\n"),
        (json!({"session_header_name": "basic-auth"}), "Authorization: Bearer YTo=\r\n"),
        (json!({"sel": 3}), "X-Conversation-ID: c0\r\n"),
    ] {
        assert!(!sticks(1, &arguments, &|_| ask(lines, "{}")), "{arguments} {lines}");
    }
}

#[test]
fn hashing_selectors_take_the_session_where_there_is_no_prompt() {
    for shards in [1, 4] {
        for sel in [8, 9, 10] {
            let user = |c| ask("", &format!("{{\"user\":\"c{c}\"}}"));
            assert!(sticks(shards, &json!({"sel": sel}), &user), "sel {sel}");
            let prompt = |c| ask(&format!("X-Conversation-ID: {c}\r\n"), r#"{"prompt":"once upon a time"}"#);
            let mut scene = scene_of(shards, 3, &json!({"sel": sel}));
            let homes: Vec<usize> = (0..6).map(|c| engine_of(&mut scene, c % shards, prompt(c))).collect();
            assert!(homes.iter().all(|home| *home == homes[0]), "the prompt goes first: {homes:?}");
            assert_eq!(scene.table().sessions().map(|s| s.active(0)), None, "they need no memory");
        }
    }
}

#[test]
fn a_session_moves_when_its_endpoint_cannot_serve_and_stays_where_it_moved() {
    for arguments in [
        json!({"sel": 3, "session_header_name": "X-Thread"}),
        json!({"session_header_name": "X-Thread", "cb_enable": true}),
    ] {
        let mut scene = scene_of(4, 3, &arguments);
        let turn = || ask("X-Thread: one\r\n", "{}");
        let first = engine_of(&mut scene, 0, turn());
        assert_eq!(engine_of(&mut scene, 1, turn()), first);
        scene.refuses(first, true);
        scene.pass(10 * SECOND);
        let second = engine_of(&mut scene, 2, turn());
        assert_ne!(second, first, "it went elsewhere within one request");
        scene.refuses(first, false);
        scene.pass(60 * SECOND);
        for shard in [3, 0, 1, 2] {
            assert_eq!(engine_of(&mut scene, shard, turn()), second, "and stays there");
        }
        assert_eq!(scene.table().sessions().map(|s| s.active(scene.now())), Some(1));
        scene.assert_quiet();
    }
}

#[test]
fn a_session_is_kept_by_address_through_changes_of_its_rule_and_ends_by_time() {
    let arguments = json!({"session_header_name": "X-Thread", "pd_session_ttl_sec": 60});
    let mut scene = scene_of(2, 3, &arguments);
    let turn = || ask("X-Thread: one\r\n", "{}");
    let first = engine_of(&mut scene, 0, turn());
    let others: Vec<usize> = (0..3).filter(|engine| *engine != first).collect();
    install(&mut scene, &arguments, &[others[0], others[1], first]);
    for round in 0..3 {
        scene.pass(50 * SECOND);
        assert_eq!(engine_of(&mut scene, round % 2, turn()), first, "it slides");
    }
    assert_eq!(scene.service().endpoints[2].address(), engine_at(first));
    install(&mut scene, &arguments, &others);
    assert_ne!(engine_of(&mut scene, 0, turn()), first, "its endpoint is gone");
    scene.pass(61 * SECOND);
    assert_eq!(scene.table().sessions().map(|s| s.active(scene.now())), Some(0));
    scene.assert_quiet();
}
