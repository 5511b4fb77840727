//! What befalls engines and their events in the demo, and what the gateway is seen to do about it. Owns the order of the
//! acts and the list of those that did not go as told; an act says only what a receipt, the gateway's status, its
//! inventory or the engine itself gave.

mod eviction;
mod loss;
mod restart;

use super::conversation::Conversation;
use super::pool::Side;
use super::show::{Halt, Show};
use warmpath_core::receipt::{ExactReceipt, Receipt};

/// An act: its name, and what happens in it.
type Act = (&'static str, fn(&mut Show) -> Result<(), Halt>);

/// All, in order.
const ACTS: [Act; 3] =
    [("an engine restarts", restart::act), ("an eviction", eviction::act), ("a lost message", loss::act)];

/// What came of them, a sentence each; what went as told has none.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What did not go as told.
    pub failures: Vec<String>,
    /// What can't be tried with these engines.
    pub not_run: Vec<String>,
}

/// Runs all acts.
pub fn run(show: &mut Show) -> Result<Outcome, Halt> {
    let mut outcome = Outcome::default();
    for (number, (name, act)) in ACTS.iter().enumerate() {
        let name = format!("Act {}, {name}", number + 1);
        show.announce(format!("{name}."))?;
        match act(show) {
            Ok(()) => {}
            Err(Halt::Interrupted) => return Err(Halt::Interrupted),
            Err(Halt::NotRun(why)) => {
                show.say(format!("not_run: {why}"))?;
                outcome.not_run.push(format!("{name}: {why}"));
            }
            Err(Halt::Fault(what)) => {
                show.say(format!("FAILED: {what}"))?;
                outcome.failures.push(format!("{name}: {what}"));
            }
        }
    }
    Ok(outcome)
}

/// A conversation that nobody had a part of before; each number gives another.
fn stranger(show: &Show, number: u64) -> Conversation {
    Conversation::of_stranger(&show.manner(Side::Exact), number)
}

/// What a request was expected to find in the engine's cache, and found there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    /// Leading blocks that the engine held, as the gateway knew; 0 where others decided.
    held: u32,
    /// Blocks of the prompt.
    blocks: u32,
    /// Tokens predicted.
    predicted: u32,
    /// Tokens that the engine says it had.
    cached: u32,
}

impl Found {
    fn of(receipt: &Receipt) -> Result<Found, Halt> {
        let exact = receipt.exact.as_ref();
        let exact = exact.ok_or_else(|| Halt::Fault("requests are not routed by blocks".into()))?;
        let chosen = exact.chosen();
        let cached = exact.cached_tokens;
        Ok(Found {
            held: chosen.map_or(0, |chosen| chosen.runs[0]),
            blocks: exact.explanation.blocks,
            predicted: chosen.map_or(0, |_| exact.predicted_tokens),
            cached: cached
                .ok_or_else(|| Halt::Fault("the engine does not tell what it had cached".into()))?,
        })
    }

    /// It was routed by blocks, and found what was predicted.
    fn is_warm_as_predicted(&self, receipt: &Receipt) -> bool {
        let by_blocks = receipt.exact.as_ref().and_then(ExactReceipt::chosen).is_some();
        by_blocks && self.predicted > 0 && self.predicted == self.cached
    }
}

/// As a part of a sentence.
impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Found { held, blocks, predicted, cached } = self;
        write!(
            f,
            "{held} of {blocks} blocks held, {predicted} tokens expected in the cache and {cached} found"
        )
    }
}

/// A turn that has to be routed by blocks to what is there; where it went and what it found.
fn warm_turn(show: &mut Show, conversation: &mut Conversation) -> Result<(usize, Found), Halt> {
    let receipt = show.ask(conversation)?;
    let (engine, found) = (show.went_to(&receipt)?, Found::of(&receipt)?);
    match found.is_warm_as_predicted(&receipt) {
        true => Ok((engine, found)),
        false => Err(Halt::Fault(format!(
            "a next turn of {} is not warm as predicted: {found}",
            conversation.name()
        ))),
    }
}
