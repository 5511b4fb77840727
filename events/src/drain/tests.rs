//! Order, ownership and windows.

use super::*;
use crate::residency::Removal;
use crate::trtllm_json::Moved;

const WINDOW: u32 = 4_096;

struct Bench {
    drain: Drain,
    residency: Residency,
}

impl Bench {
    fn new() -> Self {
        Bench { drain: Drain::default(), residency: Residency::new(Removal::All, 100) }
    }

    /// Applies an event: the changes in short.
    fn apply(&mut self, id: u64, window: u32, data: DrainData) -> Vec<String> {
        let event = DrainEvent { id, rank: 0, window, algorithm: None, data };
        let mut saw = Vec::new();
        self.drain.apply(&event, &mut self.residency, &mut |change| {
            saw.push(match change {
                DrainChange::Held { shelf, parent, block, .. } => {
                    format!("held {} {:?} after {parent:?}", block.block_hash.0, shelf.medium)
                }
                DrainChange::Moved { to, hash, .. } => format!("moved {hash} {:?}", to.medium),
                DrainChange::Gone { hash, .. } => format!("gone {hash}"),
                DrainChange::Unknown { hash } => format!("unknown {hash}"),
                DrainChange::Again { hash } => format!("again {hash}"),
                DrainChange::Cleared => "cleared".to_owned(),
            });
        });
        saw
    }

    fn started() -> Self {
        let mut bench = Bench::new();
        assert_eq!(bench.apply(0, WINDOW, created()), ["cleared"]);
        bench
    }
}

fn created() -> DrainData {
    DrainData::Created { num_blocks_per_cache_level: vec![8, 0] }
}

fn stored(hashes: &[u64]) -> DrainData {
    let block = |hash: &u64| StoredBlock {
        block_hash: Hash(*hash),
        tokens: Vec::new(),
        cache_level: 0,
        mm_keys: None,
        cache_salt: None,
    };
    DrainData::Stored { parent_hash: None, blocks: hashes.iter().map(block).collect() }
}

fn removed(hash: u64) -> DrainData {
    DrainData::Removed { block_hashes: vec![Hash(hash)] }
}

#[test]
fn blocks_are_stored_in_their_chain_moved_and_removed() {
    let mut bench = Bench::started();
    assert_eq!(
        bench.apply(1, WINDOW, stored(&[5, 6])),
        ["held 5 Gpu after None", "held 6 Gpu after Some(5)"]
    );
    let moved = Moved { old_value: 0, new_value: 1 };
    let update = DrainData::Updated { block_hash: Hash(5), cache_level: Some(moved) };
    assert_eq!(bench.apply(2, WINDOW, update), ["moved 5 Cpu"]);
    assert_eq!(bench.apply(3, WINDOW, removed(5)), ["gone 5"]);
    assert_eq!(bench.apply(4, WINDOW, removed(5)), ["unknown 5"]);
    assert!(bench.drain.is_complete());
}

#[test]
fn a_hole_fences_until_the_engine_starts_anew() {
    let mut bench = Bench::started();
    bench.apply(1, WINDOW, stored(&[5]));
    assert_eq!(bench.apply(3, WINDOW, stored(&[6])), ["cleared"]);
    assert_eq!(bench.drain.fault(), Some(DrainFault::Gap));
    assert!(bench.apply(4, WINDOW, stored(&[7])).is_empty());
    assert_eq!(bench.apply(0, WINDOW, created()), ["cleared"]);
    assert_eq!(bench.drain.fault(), None);
    assert_eq!(bench.apply(1, WINDOW, stored(&[8])).len(), 1);
}

#[test]
fn an_id_that_goes_back_is_lost_ownership_until_it_is_taken_over() {
    let mut bench = Bench::started();
    bench.apply(1, WINDOW, stored(&[5]));
    assert_eq!(bench.apply(1, WINDOW, stored(&[6])), ["cleared"]);
    assert_eq!(bench.drain.fault(), Some(DrainFault::OwnershipLost));
    bench.drain.reacquire(&mut bench.residency, &mut |_| ());
    assert_eq!(bench.apply(9, WINDOW, stored(&[7])).len(), 1);
    assert!(!bench.drain.is_complete() && bench.drain.fault().is_none());
}

#[test]
fn taking_over_forgets_what_was_held() {
    let mut bench = Bench::started();
    bench.apply(1, WINDOW, stored(&[5]));
    bench.drain.reacquire(&mut bench.residency, &mut |_| ());
    bench.apply(7, WINDOW, stored(&[6]));
    assert_eq!(bench.residency.blocks().map(|(_, hash, _)| hash).collect::<Vec<_>>(), [6]);
    assert!(!bench.drain.is_complete());
}

#[test]
fn a_lost_answer_fences() {
    let mut bench = Bench::started();
    bench.apply(1, WINDOW, stored(&[5]));
    let mut cleared = 0;
    bench.drain.lost(&mut bench.residency, &mut |_| cleared += 1);
    assert_eq!((cleared, bench.drain.fault()), (1, Some(DrainFault::Lost)));
    assert!(bench.residency.is_empty());
}

#[test]
fn only_the_largest_window_counts() {
    let mut bench = Bench::new();
    bench.apply(0, 512, created());
    assert!(bench.apply(1, WINDOW, created()).is_empty());
    assert!(bench.apply(2, 512, stored(&[5])).is_empty());
    assert_eq!(bench.apply(3, WINDOW, stored(&[5])).len(), 1);
    assert!(bench.apply(4, 512, removed(5)).is_empty());
    assert_eq!(bench.residency.len(), 1);
}

#[test]
fn a_larger_window_that_shows_up_late_takes_over() {
    let mut bench = Bench::new();
    bench.apply(10, 512, stored(&[5]));
    assert_eq!(bench.apply(11, WINDOW, stored(&[6])), ["cleared", "held 6 Gpu after None"]);
    assert!(bench.apply(12, 512, stored(&[7])).is_empty());
}

#[test]
fn a_stream_picked_up_midway_is_part_of_the_cache() {
    let mut bench = Bench::new();
    assert_eq!(bench.apply(40, WINDOW, stored(&[5])).len(), 1);
    assert!(bench.drain.fault().is_none() && !bench.drain.is_complete());
}
