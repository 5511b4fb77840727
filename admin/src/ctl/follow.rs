//! Which records of an answer are new. Owns the cursor; pure.

use serde_json::Value;
use std::collections::BTreeSet;

/// Shards are asked one after the other, so a receipt may turn up after a later one of another shard: each
/// question goes back by this much, nanoseconds.
const OVERLAP: u64 = 1_000_000_000;

/// Records asked for in one question after the first.
const BATCH: u64 = 1_000;

/// What can be followed: records with `at`, `shard` and `id`, and a `cursor` beside them.
pub struct Stream {
    /// Where they are asked for.
    pub path: &'static str,
    /// The query member for how many.
    pub count: &'static str,
    /// The member of the answer that lists them, in any order.
    pub list: &'static str,
}

/// Requests as they end.
pub const RECEIPTS: Stream = Stream { path: "/netlox/v1/receipts", count: "last", list: "receipts" };

/// What was seen so far.
pub struct Follow {
    stream: &'static Stream,
    last: u64,
    newest: u64,
    seen: BTreeSet<(u64, u64, String)>,
}

impl Follow {
    /// Begins with the `last` records.
    pub fn new(stream: &'static Stream, last: u64) -> Follow {
        Follow { stream, last, newest: 0, seen: BTreeSet::new() }
    }

    /// What to ask next.
    pub fn path(&self) -> String {
        let Stream { path, count, .. } = self.stream;
        match self.newest {
            0 => format!("{path}?{count}={}", self.last),
            newest => format!("{path}?since={}&{count}={BATCH}", newest.saturating_sub(OVERLAP).max(1)),
        }
    }

    /// The records of an answer that were not seen before, oldest first.
    pub fn fresh(&mut self, answer: &Value) -> Vec<Value> {
        let records = answer[self.stream.list].as_array().cloned().unwrap_or_default();
        let mut fresh: Vec<_> = records.into_iter().filter(|r| self.seen.insert(identity(r))).collect();
        fresh.sort_by_key(|record| identity(record).0);
        self.newest = self.newest.max(answer["cursor"].as_u64().unwrap_or(0));
        let old = self.newest.saturating_sub(OVERLAP);
        self.seen.retain(|(at, ..)| *at >= old);
        fresh
    }
}

fn identity(record: &Value) -> (u64, u64, String) {
    let number = |name: &str| record[name].as_u64().unwrap_or(0);
    (number("at"), number("shard"), record["id"].as_str().unwrap_or("").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(receipts: &[(u64, u64)]) -> Value {
        let list: Vec<_> = receipts.iter().map(|(at, shard)| json!({"at": at, "shard": shard})).collect();
        json!({"receipts": list, "cursor": receipts.iter().map(|r| r.0).max()})
    }

    #[test]
    fn each_receipt_is_fresh_once_even_when_it_comes_late() {
        let s = OVERLAP;
        let mut follow = Follow::new(&RECEIPTS, 5);
        assert_eq!(follow.path(), "/netlox/v1/receipts?last=5");
        assert_eq!(follow.fresh(&answer(&[(10 * s, 0), (10 * s + 5, 0)])).len(), 2);
        assert_eq!(follow.path(), format!("/netlox/v1/receipts?since={}&last=1000", 9 * s + 5));
        let late = follow.fresh(&answer(&[(10 * s, 0), (10 * s + 3, 1), (10 * s + 5, 0), (10 * s + 5, 1)]));
        let at: Vec<_> =
            late.iter().map(|r| (r["at"].as_u64().unwrap() - 10 * s, r["shard"].as_u64().unwrap())).collect();
        assert_eq!(at, [(3, 1), (5, 1)]);
        assert!(follow.fresh(&json!({"receipts": [], "cursor": 0})).is_empty());
        assert!(follow.path().contains("since="));
    }
}
