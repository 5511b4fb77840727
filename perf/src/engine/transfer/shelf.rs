//! What a prefill engine keeps for decode: computed prompts by handle, each until it is taken or its lease ends, and
//! rooms in which two legs meet. Must never give the same thing twice.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::{ALONE, OTHER_PROMPT, Parcel, STALE, UNKNOWN};

/// Handles and rooms remembered after their end, so that a second use is told from an unknown one.
const REMEMBERED: usize = 100_000;

/// A prompt's digest and its blocks.
type Computed = (u64, u64);

/// How far a room has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A leg is there and the other not, or prefill is still computing.
    Waiting,
    /// Prefill has computed the prompt.
    Ready(Computed),
    /// Decode has it.
    Taken,
    /// Prefill left.
    Closed,
}

#[derive(Debug)]
struct Room {
    opened: bool,
    joined: bool,
    phase: watch::Sender<Phase>,
}

#[derive(Debug, Default)]
struct Things {
    held: BTreeMap<String, (Computed, Instant)>,
    rooms: HashMap<u64, Room>,
    /// Encodings of media, which stay.
    encodings: HashSet<String>,
    /// Whether it was taken, else it ended in vain.
    spent: HashMap<String, bool>,
    expired: u64,
}

/// All that is kept.
#[derive(Debug, Default)]
pub struct Shelf {
    things: Mutex<Things>,
}

/// A prefill leg's view of a room that is ready.
#[derive(Debug)]
pub struct Guest(watch::Receiver<Phase>);

impl Guest {
    /// Waits until decode has taken it.
    pub async fn taken(mut self) {
        let _ = self.0.wait_for(|phase| *phase == Phase::Taken).await;
    }
}

impl Shelf {
    fn things(&self) -> MutexGuard<'_, Things> {
        let mut things = self.things.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let ended: Vec<String> = things
            .held
            .iter()
            .filter(|(_, (_, until))| *until <= now)
            .map(|(name, _)| name.clone())
            .collect();
        for name in ended {
            things.held.remove(&name);
            things.expired += 1;
            things.remember(name, false);
        }
        things
    }

    /// Keeps a computed prompt until it is taken, or for as long as the lease; false if the handle was used before.
    pub fn hold(&self, handle: &str, computed: Computed, lease: Duration) -> bool {
        let mut things = self.things();
        if things.held.contains_key(handle) || things.spent.contains_key(handle) {
            return false;
        }
        things.held.insert(handle.to_owned(), (computed, Instant::now() + lease));
        true
    }

    /// Keeps an encoding.
    pub fn encode(&self, place: &str) {
        self.things().encodings.insert(place.to_owned());
    }

    /// Handles held now, and those whose lease ended untaken.
    pub fn counts(&self) -> (u64, u64) {
        let things = self.things();
        (things.held.len() as u64, things.expired)
    }

    /// Forgets all, as a new process does.
    pub fn clear(&self) {
        *self.things() = Things::default();
    }

    /// Takes what is held under a handle.
    pub fn take(&self, handle: &str, prompt: u64) -> Parcel {
        let mut things = self.things();
        match things.held.remove(handle) {
            Some((computed, _)) => {
                things.remember(handle.to_owned(), true);
                parcel(computed, prompt)
            }
            None if things.encodings.contains(handle) => Parcel::Blocks(1),
            None if things.spent.contains_key(handle) => Parcel::Refused(STALE.into()),
            None => Parcel::Refused(UNKNOWN.into()),
        }
    }

    /// Opens a room for prefill; false if one was there before.
    pub fn open(&self, room: u64) -> bool {
        let mut things = self.things();
        if things.spent.contains_key(&room.to_string()) {
            return false;
        }
        let entry = things.room(room);
        !std::mem::replace(&mut entry.opened, true)
    }

    /// What a room holds now is ready for decode.
    pub fn ready(&self, room: u64, computed: Computed) -> Guest {
        let mut things = self.things();
        let phase = &things.room(room).phase;
        phase.send_replace(Phase::Ready(computed));
        Guest(phase.subscribe())
    }

    /// Prefill leaves a room.
    pub fn close(&self, room: u64) {
        let mut things = self.things();
        let mut taken = false;
        if let Some(entry) = things.rooms.remove(&room) {
            entry.phase.send_if_modified(|phase| {
                taken = *phase == Phase::Taken;
                if !taken {
                    *phase = Phase::Closed;
                }
                !taken
            });
        }
        things.remember(room.to_string(), taken);
    }

    /// Joins a room for decode: waits until prefill has computed the prompt.
    pub async fn join(&self, room: u64, prompt: u64) -> Parcel {
        let (phase, mut seen) = {
            let mut things = self.things();
            match things.spent.get(&room.to_string()) {
                Some(true) => return Parcel::Refused(STALE.into()),
                Some(false) => return Parcel::Refused(ALONE.into()),
                None => {}
            }
            let entry = things.room(room);
            if std::mem::replace(&mut entry.joined, true) {
                return Parcel::Refused(STALE.into());
            }
            (entry.phase.clone(), entry.phase.subscribe())
        };
        let ended = seen.wait_for(|phase| *phase != Phase::Waiting).await.map(|phase| *phase);
        match ended {
            Ok(Phase::Ready(computed)) => {
                phase.send_replace(Phase::Taken);
                parcel(computed, prompt)
            }
            _ => Parcel::Refused(ALONE.into()),
        }
    }

    /// Decode that waited in a room left it.
    pub fn leave(&self, room: u64) {
        let mut things = self.things();
        let abandoned = things.rooms.get_mut(&room).is_some_and(|entry| {
            entry.joined = *entry.phase.borrow() == Phase::Taken;
            !entry.opened
        });
        if abandoned {
            things.rooms.remove(&room);
        }
    }
}

impl Things {
    fn room(&mut self, room: u64) -> &mut Room {
        let new = || Room { opened: false, joined: false, phase: watch::Sender::new(Phase::Waiting) };
        self.rooms.entry(room).or_insert_with(new)
    }

    fn remember(&mut self, name: String, taken: bool) {
        if self.spent.len() >= REMEMBERED {
            self.spent.clear();
        }
        self.spent.insert(name, taken);
    }
}

fn parcel((held, blocks): Computed, prompt: u64) -> Parcel {
    if held == prompt { Parcel::Blocks(blocks) } else { Parcel::Refused(OTHER_PROMPT.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(60);

    #[test]
    fn a_handle_is_taken_once_and_for_its_prompt() {
        let shelf = Shelf::default();
        let hold = |handle, lease| shelf.hold(handle, (7, 3), lease);
        assert!(hold("a", LEASE) && hold("b", LEASE) && hold("c", Duration::ZERO));
        assert!(!hold("a", LEASE) && !hold("c", LEASE), "used before, if only in vain");
        assert_eq!(shelf.counts(), (2, 1));
        for (handle, prompt, parcel) in [
            ("a", 7, Parcel::Blocks(3)),
            ("a", 7, Parcel::Refused(STALE.into())),
            ("b", 8, Parcel::Refused(OTHER_PROMPT.into())),
            ("c", 7, Parcel::Refused(STALE.into())),
            ("d", 7, Parcel::Refused(UNKNOWN.into())),
        ] {
            assert_eq!(shelf.take(handle, prompt), parcel, "{handle} {prompt}");
        }
        assert!(!hold("a", LEASE) && hold("e", LEASE));
        shelf.clear();
        assert_eq!(shelf.take("e", 7), Parcel::Refused(UNKNOWN.into()));
    }

    #[tokio::test]
    async fn legs_meet_in_either_order_and_once() {
        let shelf = Shelf::default();
        for first_prefill in [true, false] {
            let room = 5 + u64::from(first_prefill);
            if first_prefill {
                assert!(shelf.open(room));
            }
            let joined = shelf.join(room, 7);
            let prefill = async {
                tokio::task::yield_now().await;
                assert!(first_prefill || shelf.open(room));
                shelf.ready(room, (7, 3)).taken().await;
            };
            let (parcel, ()) = tokio::join!(joined, prefill);
            assert_eq!(parcel, Parcel::Blocks(3));
            shelf.close(room);
            assert!(!shelf.open(room), "used before");
            assert_eq!(shelf.join(room, 7).await, Parcel::Refused(STALE.into()));
        }
    }

    #[tokio::test]
    async fn a_leg_that_leaves_ends_the_other() {
        let shelf = Shelf::default();
        assert!(shelf.open(1) && !shelf.open(1), "one prefill a room");
        let (parcel, ()) = tokio::join!(shelf.join(1, 7), async { shelf.close(1) });
        assert_eq!(parcel, Parcel::Refused(ALONE.into()));
        assert_eq!(shelf.join(1, 7).await, Parcel::Refused(ALONE.into()), "who comes later finds nobody");
        assert!(shelf.open(2));
        let _first = shelf.ready(2, (7, 3));
        assert_eq!(shelf.join(2, 9).await, Parcel::Refused(OTHER_PROMPT.into()));
    }
}
