//! Shapes of several versions, exactness of hashes, and what is refused.

use super::*;

fn one(event: &str) -> DrainEvent {
    let events = parse(format!("[{event}]").as_bytes()).expect("an event");
    events.into_iter().next().expect("one")
}

fn hashes(body: &str) -> Result<Vec<u64>, Malformed> {
    let body = format!(r#"[{{"event_id":1,"data":{{"type":"removed","block_hashes":{body}}}}}]"#);
    parse(body.as_bytes()).map(|events| match &events[0].data {
        DrainData::Removed { block_hashes } => block_hashes.iter().map(|hash| hash.0).collect(),
        other => panic!("a removal, not {other:?}"),
    })
}

#[test]
fn hashes_are_exact_beyond_53_bits_and_of_either_sign() {
    let read = hashes("[18446744073709551615, 9007199254740993, -1, 0]");
    assert_eq!(read, Ok(vec![u64::MAX, 9_007_199_254_740_993, u64::MAX, 0]));
}

#[test]
fn digests_are_named_by_their_first_eight_bytes() {
    let digest = format!("\"0102030405060708{}\"", "ff".repeat(24));
    assert_eq!(hashes(&format!("[{digest}]")), Ok(vec![0x0102_0304_0506_0708]));
}

#[test]
fn what_is_no_hash_is_refused() {
    for bad in
        ["[1.0]", "[1e3]", "[18446744073709551616]", "[\"xyz\"]", "[\"0102\"]", "[null]", "[[1]]", "{}"]
    {
        assert!(hashes(bad).is_err(), "{bad}");
    }
}

#[test]
fn early_events_have_no_window_rank_or_algorithm() {
    let event = one(r#"{"event_id":7,"data":{"type":"created","num_blocks_per_cache_level":[10,2]}}"#);
    assert_eq!((event.id, event.rank, event.window, event.algorithm), (7, 0, 0, None));
    assert_eq!(event.data, DrainData::Created { num_blocks_per_cache_level: vec![10, 2] });
}

#[test]
fn the_algorithm_is_read_from_either_place() {
    let outer = one(r#"{"event_id":1,"hash_algo":"a","data":{"type":"x"}}"#);
    let inner = one(r#"{"event_id":1,"data":{"type":"x","hash_algo":"b"}}"#);
    assert_eq!((outer.algorithm.as_deref(), inner.algorithm.as_deref()), (Some("a"), Some("b")));
    assert_eq!(outer.data, DrainData::Unknown);
}

#[test]
fn a_block_is_plain_without_media_salt_and_extra_ids() {
    let block = |rest: &str| {
        let event = one(&format!(
            r#"{{"event_id":1,"data":{{"type":"stored","parent_hash":null,"blocks":[{{"block_hash":5,"later":[]{rest}}}]}}}}"#
        ));
        match event.data {
            DrainData::Stored { blocks, .. } => blocks[0].is_plain(),
            other => panic!("a store, not {other:?}"),
        }
    };
    assert!(block(""));
    assert!(block(r#","mm_keys":[],"cache_salt":null,"tokens":[{"token_id":1,"token_extra_id":0}]"#));
    assert!(!block(r#","cache_salt":"a""#));
    assert!(!block(r#","mm_keys":[{"type":"mm_key","hash":"ab","start_offset":-3}]"#));
    assert!(!block(r#","tokens":[{"token_id":1,"token_extra_id":9}]"#));
}

#[test]
fn an_update_may_leave_the_level_alone() {
    let event = one(r#"{"event_id":1,"data":{"type":"updated","block_hash":5,"cache_level":null}}"#);
    assert_eq!(event.data, DrainData::Updated { block_hash: Hash(5), cache_level: None });
}

#[test]
fn what_is_no_list_of_events_is_refused() {
    for bad in ["", "{}", "[{}]", r#"[{"event_id":-1,"data":{"type":"x"}}]"#, r#"[{"event_id":1,"data":{}}]"#]
    {
        assert!(parse(bad.as_bytes()).is_err(), "{bad}");
    }
    let stored = r#"[{"event_id":1,"data":{"type":"stored"}}]"#;
    assert_eq!(parse(stored.as_bytes()), Err(Malformed("stored without blocks".to_owned())));
}
