//! A full cache evicts a conversation: the gateway follows, and expects of the next turn no more than is there.

use super::{Found, stranger, warm_turn};
use crate::demo::show::{Halt, Show};

/// The act.
pub fn act(show: &mut Show) -> Result<(), Halt> {
    let mut talk = stranger(show, 200);
    show.ask(&mut talk)?;
    show.settle()?;
    let (engine, warm) = warm_turn(show, &mut talk)?;
    show.settle()?;
    let (name, before) = (show.name(engine), show.known(engine)?);
    let (facts, blocks) = (show.facts().clone(), warm.blocks as usize);
    // As many as fit, and thereby a few blocks of the conversation's end do no more.
    let others = (facts.cache_blocks / blocks) as u64;
    show.say(format!("{} is at {name}: {warm}.", talk.name()))?;
    show.announce(format!(
        "{name} has room for {} blocks; {others} other prompts of some {blocks} blocks are sent to it past the gateway.",
        facts.cache_blocks
    ))?;
    for number in 0..others {
        show.ask_engine(engine, &mut stranger(show, 210 + number))?;
    }
    show.settle()?;
    let after = show.known(engine)?;
    let removed = after.removed - before.removed;
    if removed == 0 {
        return Err(Halt::Fault(format!("{name} told of no eviction")));
    }
    show.say(format!(
        "{name} told of {removed} blocks evicted and {} stored; {} are known.",
        after.stored - before.stored,
        after.blocks[0]
    ))?;
    let receipt = show.ask(&mut talk)?;
    let (to, found) = (show.name(show.went_to(&receipt)?), Found::of(&receipt)?);
    let reason = receipt.reason.map_or("-", |reason| reason.word());
    if found.held >= warm.blocks || found.predicted != found.cached {
        return Err(Halt::Fault(format!("after the eviction: {found}")));
    }
    show.say(format!("The next turn goes to {to} ({reason}): {found}."))
}
