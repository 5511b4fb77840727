//! A model of TensorRT-LLM's cache whose events are drained, sometimes by someone else too, sometimes lost.
//!
//! The oracle is the cache after each event: what is claimed was there, all of it when the drain says so, and
//! after a hole nothing is claimed until the engine starts anew. A reader that takes the `created` of a
//! restart is left out: ids alone cannot show that, which is why the drain wants to be the only one.

use std::collections::BTreeSet;
use warmpath_events::drain::{Drain, DrainFault};
use warmpath_events::residency::{Removal, Residency};
use warmpath_events::trtllm_json::parse;

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % bound
    }
}

type Cache = BTreeSet<u64>;

/// Names beyond 2^53, so that one that went through a float would be another.
fn name(random: &mut Random) -> u64 {
    (1 << 60) + random.below(12)
}

#[derive(Default)]
struct Engine {
    next: u64,
    cache: Cache,
    pending: Vec<(String, Cache)>,
}

impl Engine {
    fn emit(&mut self, data: &str) {
        let event = format!(r#"{{"event_id":{},"window_size":64,"data":{data}}}"#, self.next);
        self.next += 1;
        self.pending.push((event, self.cache.clone()));
    }

    fn start(&mut self) {
        *self = Engine::default();
        self.emit(r#"{"type":"created","num_blocks_per_cache_level":[12]}"#);
    }

    fn work(&mut self, random: &mut Random) {
        let hash = name(random);
        if random.below(2) == 0 && self.cache.remove(&hash) {
            self.emit(&format!(r#"{{"type":"removed","block_hashes":[{hash}]}}"#));
        } else {
            self.cache.insert(hash);
            let block =
                format!(r#"{{"type":"stored_block","block_hash":{hash},"tokens":[],"cache_level":0}}"#);
            self.emit(&format!(r#"{{"type":"stored","parent_hash":null,"blocks":[{block}]}}"#));
        }
    }

    fn drain(&mut self) -> (String, Vec<Cache>) {
        let (events, caches): (Vec<String>, Vec<Cache>) = self.pending.drain(..).unzip();
        (format!("[{}]", events.join(",")), caches)
    }
}

struct Reader {
    drain: Drain,
    residency: Residency,
    faults: Vec<DrainFault>,
}

impl Reader {
    fn read(&mut self, body: &str, caches: &[Cache]) {
        for (event, cache) in parse(body.as_bytes()).expect("events").iter().zip(caches) {
            let before = self.drain.fault();
            self.drain.apply(event, &mut self.residency, &mut |_| ());
            self.faults.extend(self.drain.fault().filter(|fault| before != Some(*fault)));
            let claimed: Cache = self.residency.blocks().map(|(_, hash, _)| hash).collect();
            assert!(claimed.is_subset(cache), "{claimed:?} of {cache:?}");
            assert!(self.drain.fault().is_none() || claimed.is_empty());
            assert!(!self.drain.is_complete() || claimed == *cache);
        }
    }
}

#[test]
fn a_drained_cache_is_never_more_than_the_engines() {
    let (mut faults, mut complete) = (Vec::new(), 0);
    for seed in 1..=300 {
        let mut random = Random(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15) | 1);
        let mut engine = Engine::default();
        engine.start();
        let residency = Residency::new(Removal::All, usize::MAX);
        let mut reader = Reader { drain: Drain::default(), residency, faults: Vec::new() };
        for _ in 0..200 {
            (0..random.below(5)).for_each(|_| engine.work(&mut random));
            let is_restart_pending = engine.pending.iter().any(|(event, _)| event.contains("created"));
            match random.below(60) {
                0 => engine.start(),
                1 if !is_restart_pending => drop(engine.drain()),
                2 if !is_restart_pending => {
                    engine.drain();
                    reader.drain.lost(&mut reader.residency, &mut |_| ());
                }
                3 => reader.drain.reacquire(&mut reader.residency, &mut |_| ()),
                4 if reader.drain.fault().is_none() => {
                    // The same answer twice: another reader's copy, or a proxy's.
                    let (body, caches) = engine.drain();
                    reader.read(&body, &caches);
                    reader.read(&body, &caches);
                }
                _ => {
                    let (body, caches) = engine.drain();
                    reader.read(&body, &caches);
                }
            }
        }
        complete += u32::from(reader.drain.is_complete());
        faults.extend(reader.faults);
    }
    assert!(complete > 30, "{complete} complete at the end");
    assert!(faults.contains(&DrainFault::Gap) && faults.contains(&DrainFault::OwnershipLost));
}
