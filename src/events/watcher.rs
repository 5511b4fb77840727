//! The steps of one publisher's stream to lines. Owns what is remembered for that; must never order batches
//! itself.

use super::anomaly::Anomaly;
use super::inventory::Inventory;
use super::line::{EventLine, Line};
use warmpath_events::continuity::{Effect, Reason};
use warmpath_events::decode::Reject;
use warmpath_events::feed::Step;
use warmpath_events::wire::Batch;

/// Watches one publisher.
#[derive(Default)]
pub struct Watcher {
    inventory: Inventory,
    last: Option<u64>,
    /// A gap whose end the next batch tells.
    gap: bool,
}

impl Watcher {
    /// The blocks so far.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// A step of a feed.
    pub fn step(&mut self, step: Step<'_>, out: &mut dyn FnMut(Line)) {
        match step {
            Step::Applied { seq, batch } => drop(self.applied(seq, batch, out)),
            Step::Undecodable { seq, reject } => self.undecodable(seq, reject, out),
            Step::Cleared(reason) => self.cleared(reason, out),
            Step::Asked { from } => out(Line::Note(format!("asking for a replay from batch {from} on"))),
            Step::Reconnecting => {
                out(Line::Note("the connection reaches a process that is gone; dialling anew".into()));
            }
        }
    }

    /// The next batch.
    pub fn applied(&mut self, seq: u64, batch: &Batch, out: &mut dyn FnMut(Line)) -> Effect {
        self.follow(seq, out);
        EventLine::of_batch(seq, batch).for_each(|line| out(Line::Event(line)));
        let (effect, told) = self.inventory.apply(batch);
        told.into_iter().for_each(|anomaly| out(Line::Anomaly(Some(seq), anomaly)));
        effect
    }

    /// A batch that could not be decoded. All is forgotten.
    pub fn undecodable(&mut self, seq: u64, reject: Reject, out: &mut dyn FnMut(Line)) {
        self.follow(seq, out);
        out(Line::Anomaly(Some(seq), Anomaly::undecodable(reject)));
        self.inventory.clear();
    }

    /// All is forgotten.
    pub fn cleared(&mut self, reason: Reason, out: &mut dyn FnMut(Line)) {
        self.inventory.clear();
        match reason {
            // Told already, with its cause.
            Reason::Undecodable => {}
            Reason::Gap => self.gap = true,
            _ => out(Line::Anomaly(None, Anomaly::cleared(reason, self.last))),
        }
    }

    fn follow(&mut self, seq: u64, out: &mut dyn FnMut(Line)) {
        let last = self.last.replace(seq);
        if let Some(last) = last.filter(|_| std::mem::take(&mut self.gap)) {
            out(Line::Anomaly(Some(seq), Anomaly::gap(last + 1, seq - 1)));
        }
    }
}
