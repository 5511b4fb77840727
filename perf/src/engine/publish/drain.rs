//! Events kept until somebody takes them all: TensorRT-LLM's `POST /kv_cache_events`. Taking is final;
//! two readers split the stream. Must never keep more than its bound: the oldest go, and their numbers
//! with them.

use std::collections::VecDeque;

use serde_json::Value;

/// A bounded, numbered buffer.
#[derive(Debug)]
pub struct Drain {
    next: u64,
    kept: VecDeque<(u64, Value)>,
    bound: usize,
    /// What a new process puts in front.
    first: Option<Value>,
}

impl Drain {
    /// A buffer of `bound` events that begins with `first`.
    pub fn new(bound: usize, first: Option<Value>) -> Self {
        let mut drain = Drain { next: 0, kept: VecDeque::new(), bound, first };
        drain.restart();
        drain
    }

    /// Numbers one event; `kept` false loses it.
    pub fn put(&mut self, data: Value, kept: bool) {
        let number = self.next;
        self.next += 1;
        if kept {
            self.kept.push_back((number, data));
        }
        if self.kept.len() > self.bound {
            self.kept.pop_front();
        }
    }

    /// All that is kept, with its numbers; nothing is kept after.
    pub fn take(&mut self) -> Vec<(u64, Value)> {
        self.kept.drain(..).collect()
    }

    /// The number of the next event.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// A new process.
    pub fn restart(&mut self) {
        self.next = 0;
        self.kept.clear();
        if let Some(first) = self.first.clone() {
            self.put(first, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn taking_is_final_and_what_overflows_leaves_a_hole() {
        let mut drain = Drain::new(2, Some(json!("created")));
        (0..2).for_each(|i| drain.put(json!(i), true));
        drain.put(json!("lost"), false);
        assert_eq!(drain.take(), [(1, json!(0)), (2, json!(1))]);
        assert!(drain.take().is_empty());
        drain.put(json!(5), true);
        assert_eq!(drain.take(), [(4, json!(5))]);
        drain.restart();
        assert_eq!(drain.take(), [(0, json!("created"))]);
    }
}
