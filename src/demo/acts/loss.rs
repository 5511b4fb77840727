//! A message of cache events is lost: the gap is seen with the next one, replay is asked, and the index is the engine's
//! cache again.

use super::{stranger, warm_turn};
use crate::demo::show::{Halt, Show};
use std::time::Duration;

/// The longest wait for a replay.
const REPLAY: Duration = Duration::from_secs(10);
/// The engine whose message is lost.
const ENGINE: usize = 0;

/// The act.
pub fn act(show: &mut Show) -> Result<(), Halt> {
    let name = show.name(ENGINE);
    let mut lost = stranger(show, 300).briefly();
    show.pool.lose_next(ENGINE).map_err(Halt::NotRun)?;
    show.announce(format!("{name} loses its next message of cache events, sent for {}.", lost.name()))?;
    show.ask_engine(ENGINE, &mut lost)?;
    show.quiet()?;
    let (before, Apart { stored, removed }) = (show.known(ENGINE)?, apart(show)?);
    if stored == 0 {
        return Err(Halt::Fault("the gateway knows what it was not told".into()));
    }
    show.say(format!(
        "{name}'s own list and the index are apart: {stored} blocks stored and {removed} evicted that the gateway was \
         not told of."
    ))?;
    show.announce(format!("{name} sends its next message, for another prompt."))?;
    show.ask_engine(ENGINE, &mut stranger(show, 301))?;
    replayed(show, before.replays, before.cleared)?;
    let (engine, found) = warm_turn(show, &mut lost)?;
    let to = show.name(engine);
    show.say(format!("The next turn of {} goes to {to} by blocks: {found}.", lost.name()))
}

/// The gap is filled, and nothing else was forgotten for it.
fn replayed(show: &mut Show, replays: u64, cleared: u64) -> Result<(), Halt> {
    let asked = show.wait_for(REPLAY, "a replay", |show| Ok(show.known(ENGINE)?.replays > replays))?;
    let equal = show
        .wait_for(REPLAY, "the index is the engine's cache", |show| Ok(apart(show)? == Apart::default()))?;
    let known = show.known(ENGINE)?;
    if known.cleared != cleared {
        return Err(Halt::Fault(format!("all was forgotten ({})", known.reason)));
    }
    show.say(format!(
        "The gap in the numbers was seen and replay asked {} ms after the answer; {} ms later the gateway's {} blocks \
         are those of the engine's own list, key by key ({}).",
        asked.as_millis(),
        equal.as_millis(),
        known.blocks[0],
        known.standing
    ))
}

/// How far the engine's own list of blocks and the index are apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Apart {
    /// Keys that only the engine has.
    stored: usize,
    /// Keys that only the index has.
    removed: usize,
}

fn apart(show: &Show) -> Result<Apart, Halt> {
    let none = || Halt::NotRun("these engines have no list of their blocks to compare with".into());
    let held = show.pool.held(ENGINE).ok_or_else(none)?;
    let known = show.gateway().inventory(ENGINE);
    let known = known.ok_or_else(|| Halt::Fault("the gateway tells no inventory".into()))?;
    Ok(Apart { stored: held.difference(&known).count(), removed: known.difference(&held).count() })
}
