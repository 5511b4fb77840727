//! An engine ends as by a crash and starts anew: requests go elsewhere, what it held is forgotten, it warms again.

use super::{Found, stranger, warm_turn};
use crate::demo::show::{Halt, Show};
use std::time::Duration;

/// The longest wait for the gateway to find the new process.
const FINDING: Duration = Duration::from_secs(30);
/// The longest wait for the new process to serve: a real engine takes minutes.
const STARTING: Duration = Duration::from_secs(600);
/// Strangers that are sent until the new process gets one.
const STRANGERS: u64 = 40;

/// The act.
pub fn act(show: &mut Show) -> Result<(), Halt> {
    let mut talk = stranger(show, 100);
    show.ask(&mut talk)?;
    show.settle()?;
    let (victim, _) = warm_turn(show, &mut talk)?;
    show.settle()?;
    let name = show.name(victim);
    let before = show.known(victim)?;
    let held = before.blocks[0];
    show.announce(format!(
        "{name} is killed. It holds {held} blocks, those of conversation {} too.",
        talk.name()
    ))?;
    show.pool.stop(victim)?;
    elsewhere(show, victim, &mut talk)?;
    let patience = if show.facts().is_shared { " That takes a real engine minutes." } else { "" };
    show.announce(format!("{name} is started again, with an empty cache.{patience}"))?;
    show.pool.start(victim)?;
    let serves = |show: &mut Show| Ok(show.pool.serves(victim)?);
    show.wait_for(STARTING, "the new process serves", serves)?;
    forgotten(show, victim, held)?;
    warms_again(show, victim)
}

/// The conversation goes on while its engine is away.
fn elsewhere(show: &mut Show, victim: usize, talk: &mut super::Conversation) -> Result<(), Halt> {
    let receipt = show.ask(talk)?;
    let (engine, found) = (show.went_to(&receipt)?, Found::of(&receipt)?);
    if engine == victim {
        return Err(Halt::Fault(format!("a request went to {}, which is away", show.name(victim))));
    }
    let (name, attempt) = (show.name(engine), receipt.retries + 1);
    show.say(format!("Its next turn is answered by {name} at attempt {attempt}: {found}."))
}

/// Blocks of the process that is gone count no more.
fn forgotten(show: &mut Show, victim: usize, held: u64) -> Result<(), Halt> {
    let name = show.name(victim);
    let follows = |show: &mut Show| {
        let known = show.known(victim)?;
        Ok(known.connected && known.reason == "restarted" && known.blocks[0] == 0)
    };
    let took = show.wait_for(FINDING, "the old process's blocks leave the index", follows)?.as_millis();
    show.say(format!(
        "{took} ms after it serves, the gateway follows the new process: the {held} blocks of the old one have left \
         the index ({name}: restarted)."
    ))
}

/// A new conversation comes to it by turn, and its next turn by its blocks.
fn warms_again(show: &mut Show, victim: usize) -> Result<(), Halt> {
    for number in 0..STRANGERS {
        let mut talk = stranger(show, 110 + number);
        let receipt = show.ask(&mut talk)?;
        if show.went_to(&receipt)? != victim {
            continue;
        }
        show.settle()?;
        let (engine, found) = warm_turn(show, &mut talk)?;
        if engine != victim {
            return Err(Halt::Fault(format!("the next turn of {} went elsewhere", talk.name())));
        }
        let name = show.name(victim);
        return show.say(format!(
            "{name} warms again: {} comes by turn, its next turn by blocks: {found}.",
            talk.name()
        ));
    }
    Err(Halt::Fault(format!("none of {STRANGERS} new conversations came to {}", show.name(victim))))
}
