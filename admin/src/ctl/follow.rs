//! Which receipts of an answer are new. Owns the cursor; pure.

use serde_json::Value;
use std::collections::BTreeSet;

/// Shards are asked one after the other, so a receipt may turn up after a later one of another shard: each
/// question goes back by this much, nanoseconds.
const OVERLAP: u64 = 1_000_000_000;

/// Receipts asked for in one question after the first.
const BATCH: u64 = 1_000;

/// What was seen so far.
pub struct Follow {
    last: u64,
    newest: u64,
    seen: BTreeSet<(u64, u64, String)>,
}

impl Follow {
    /// Begins with the `last` receipts.
    pub fn new(last: u64) -> Follow {
        Follow { last, newest: 0, seen: BTreeSet::new() }
    }

    /// What to ask next.
    pub fn path(&self) -> String {
        match self.newest {
            0 => format!("/netlox/v1/receipts?last={}", self.last),
            newest => {
                format!("/netlox/v1/receipts?since={}&last={BATCH}", newest.saturating_sub(OVERLAP).max(1))
            }
        }
    }

    /// The receipts of an answer that were not seen before, in their order.
    pub fn fresh(&mut self, answer: &Value) -> Vec<Value> {
        let receipts = answer["receipts"].as_array().cloned().unwrap_or_default();
        let fresh: Vec<_> = receipts.into_iter().filter(|r| self.seen.insert(identity(r))).collect();
        self.newest = self.newest.max(answer["cursor"].as_u64().unwrap_or(0));
        let old = self.newest.saturating_sub(OVERLAP);
        self.seen.retain(|(at, ..)| *at >= old);
        fresh
    }
}

fn identity(receipt: &Value) -> (u64, u64, String) {
    let number = |name: &str| receipt[name].as_u64().unwrap_or(0);
    (number("at"), number("shard"), receipt["id"].as_str().unwrap_or("").into())
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
        let mut follow = Follow::new(5);
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
