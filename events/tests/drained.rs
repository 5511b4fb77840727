//! TensorRT-LLM's example bodies: hashes exact, order kept, the state as written.

use serde_json::Value;
use warmpath_events::drain::{Drain, DrainChange};
use warmpath_events::residency::{Removal, Residency};
use warmpath_events::trtllm_json::{DrainData, parse};
use warmpath_events::wire::Medium;

fn example() -> Value {
    serde_json::from_str(include_str!("vectors/trtllm-events-example.json")).expect("JSON")
}

#[test]
fn events_have_the_written_hashes_tokens_and_ids() {
    for list in ["kv_cache_events", "kv_cache_events_old"] {
        let written = &example()[list];
        let events = parse(written.to_string().as_bytes()).expect("events");
        for (event, written) in events.iter().zip(written.as_array().expect("a list")) {
            assert_eq!(Some(event.id), written["event_id"].as_u64());
            assert_eq!(u64::from(event.window), written["window_size"].as_u64().unwrap_or(0));
            assert_eq!(event.algorithm.as_deref(), written["hash_algo"].as_str());
            let DrainData::Stored { parent_hash, blocks } = &event.data else { continue };
            assert_eq!(parent_hash.map(|hash| hash.0), written["data"]["parent_hash"].as_u64());
            for (block, written) in blocks.iter().zip(written["data"]["blocks"].as_array().expect("blocks")) {
                assert_eq!(Some(block.block_hash.0), written["block_hash"].as_u64());
                let ids: Vec<u64> = block.tokens.iter().map(|token| u64::from(token.token_id)).collect();
                let tokens = written["tokens"].as_array().expect("tokens").iter();
                assert_eq!(
                    ids,
                    tokens.map(|token| token["token_id"].as_u64().expect("id")).collect::<Vec<_>>()
                );
                assert!(block.is_plain());
            }
        }
    }
}

#[test]
fn the_example_moves_a_block_to_the_host_and_ends_with_one() {
    let (mut drain, mut residency) = (Drain::default(), Residency::new(Removal::All, usize::MAX));
    let (mut held, mut moved, mut gone) = (Vec::new(), Vec::new(), Vec::new());
    for event in parse(example()["kv_cache_events"].to_string().as_bytes()).expect("events") {
        drain.apply(&event, &mut residency, &mut |change| match change {
            DrainChange::Held { block, .. } => held.push(block.block_hash.0),
            DrainChange::Moved { to, hash, .. } => moved.push((hash, to.medium)),
            DrainChange::Gone { hash, .. } => gone.push(hash),
            DrainChange::Cleared | DrainChange::Again { .. } | DrainChange::Unknown { .. } => {}
        });
    }
    let (first, second, third) =
        (6_825_260_083_805_565_695, 4_081_191_718_889_327_901, 6_881_635_636_017_823_802);
    assert_eq!(held, [first, second, third]);
    assert_eq!(moved, [(third, Medium::Cpu)]);
    assert_eq!(gone, [third, second]);
    assert_eq!(residency.blocks().map(|(_, hash, _)| hash).collect::<Vec<_>>(), [first]);
    assert!(drain.is_complete());
}
