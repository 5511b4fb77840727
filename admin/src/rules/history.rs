//! The bodies that were applied of one rule, as they came. Owns how many are kept and their numbers; must never change a
//! byte of one.

use serde_json::{Value, json};
use std::sync::Arc;

/// Bodies that are kept.
pub const KEPT: usize = 10;

/// A body that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Counts the changes of the rule from 1.
    pub number: u64,
    /// When, in seconds of the Unix epoch.
    pub at: u64,
    /// The body, to the letter where it came as one body, else the whole rule that the change made.
    pub text: String,
}

/// The last changes of a rule, oldest first. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(Vec<Arc<Applied>>);

impl History {
    /// Adds a change, and forgets what is over.
    pub fn push(&mut self, at: u64, text: &str) {
        let number = self.0.last().map_or(1, |last| last.number + 1);
        self.0.push(Arc::new(Applied { number, at, text: text.to_string() }));
        let over = self.0.len().saturating_sub(KEPT);
        self.0.drain(..over);
    }

    /// The changes, oldest first.
    pub fn changes(&self) -> &[Arc<Applied>] {
        &self.0
    }

    /// The change of this number.
    pub fn find(&self, number: u64) -> Option<&Applied> {
        self.0.iter().find(|applied| applied.number == number).map(|applied| &**applied)
    }

    /// As the state file has it.
    pub fn to_json(&self) -> Value {
        let change = |a: &Arc<Applied>| json!({"number": a.number, "at": a.at, "body": a.text});
        self.0.iter().map(change).collect()
    }

    /// From the state file; changes that can't be read are left out, since no rule depends on them.
    pub fn from_json(kept: &Value) -> History {
        let change = |change: &Value| {
            let (number, at) = (change["number"].as_u64()?, change["at"].as_u64()?);
            Some(Arc::new(Applied { number, at, text: change["body"].as_str()?.to_string() }))
        };
        History(kept.as_array().into_iter().flatten().filter_map(change).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ten_are_kept_under_their_own_numbers() {
        let mut history = History::default();
        (1..=12).for_each(|at| history.push(at, &format!("{{ \"n\":{at} }}")));
        let numbers: Vec<u64> = history.changes().iter().map(|a| a.number).collect();
        assert_eq!(numbers, (3..=12).collect::<Vec<_>>());
        assert_eq!(history.find(3).unwrap().text, "{ \"n\":3 }");
        assert_eq!(history.find(2), None);
        assert_eq!(History::from_json(&history.to_json()), history);
    }
}
