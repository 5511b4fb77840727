//! Which leg of exact routing is broken, by what events and answers show. Owns the inference; must never name one
//! where the evidence fits several: then all of them are named.

use super::{Apart, Class, Finding, Given, Symptoms};
use crate::shared::Fence;

/// What has to be alike here and in the engine, or to arrive whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Leg {
    /// The seed of block hashes.
    Seed,
    /// The block hash.
    Algorithm,
    /// Tokens of a block.
    BlockSize,
    /// The tokenizer's files.
    Tokenizer,
    /// The chat template.
    Template,
    /// Events that never came.
    LostEvents,
    /// Somebody else who takes events.
    SecondReader,
    /// How a salt enters the names of blocks.
    Salt,
    /// How an adapter does.
    Lora,
}

impl Leg {
    /// All of them, as their discriminants go.
    pub const ALL: [Leg; 9] = [
        Leg::Seed,
        Leg::Algorithm,
        Leg::BlockSize,
        Leg::Tokenizer,
        Leg::Template,
        Leg::LostEvents,
        Leg::SecondReader,
        Leg::Salt,
        Leg::Lora,
    ];

    /// As in status, metrics and explanations.
    pub const fn word(self) -> &'static str {
        [
            "seed",
            "algorithm",
            "block_size",
            "tokenizer",
            "template",
            "lost_events",
            "second_reader",
            "salt",
            "lora",
        ][self as usize]
    }

    /// What to do about it.
    pub const fn cure(self) -> &'static str {
        match self {
            Leg::Seed => {
                "start the engines with the PYTHONHASHSEED that the gateway has in LLB_KV_NONE_HASH_SEED, to the letter, \
                 or set kvHashAlgo to tokens"
            }
            Leg::Algorithm => "set the rule's kvHashAlgo to the engine's block hash, or to tokens",
            Leg::BlockSize => "set the rule's kvBlockSize to the tokens of the engine's blocks",
            Leg::Tokenizer => {
                "put the tokenizer of the very revision that the engine serves into the model's folder below \
                 --config-root"
            }
            Leg::Template => {
                "put the chat template that the engine renders with into the model's folder below --config-root"
            }
            Leg::LostEvents => {
                "give the engine a replay endpoint and larger buffers, and look at what stands between it and the gateway"
            }
            Leg::SecondReader => "end the other reader of its events, then `warmpath ctl kv reacquire`",
            Leg::Salt | Leg::Lora => {
                "set the rule's kvEngineVersion to the release that the engine is built from"
            }
        }
    }
}

/// A set of legs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Legs(u16);

impl Legs {
    /// These.
    pub fn of(legs: &[Leg]) -> Legs {
        Legs(legs.iter().fold(0, |set, leg| set | 1 << *leg as u16))
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those in it.
    pub fn iter(self) -> impl Iterator<Item = Leg> {
        Leg::ALL.into_iter().filter(move |leg| self.0 >> *leg as u16 & 1 == 1)
    }

    fn and(self, legs: &[Leg]) -> Legs {
        Legs(self.0 | Legs::of(legs).0)
    }
}

/// Names of published blocks that were computed here too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The engine's name was the one computed.
    pub same: u64,
    /// It was another.
    pub other: u64,
}

impl Seen {
    /// Whether the engine names these blocks otherwise.
    pub const fn differs(&self) -> bool {
        self.other > self.same
    }
}

/// What of a rule would have made the names of blocks the engine's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tried {
    /// Nothing that was tried.
    #[default]
    Nothing,
    /// Another hash with the rule's seed.
    Algorithm(&'static str),
    /// A seed that engines are often started with.
    Seed(&'static str),
}

/// What a source's events show of names, and of themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// First blocks that tokens alone name.
    pub plain: Seen,
    /// First blocks with a salt.
    pub salted: Seen,
    /// First blocks of an adapter.
    pub adapter: Seen,
    /// What would have made plain ones alike.
    pub tried: Tried,
    /// Blocks that were stored have another size than the rule's, and none the rule's.
    pub wrong_size: bool,
    /// Part of the stream's history is missing.
    pub is_partial: bool,
    /// Its events go to whoever asks first.
    pub is_drained: bool,
}

/// The legs that may be broken; none where nothing shows that any is.
pub fn legs(symptoms: &Symptoms, names: &Names, fence: Option<Fence>) -> Legs {
    let by_events = by_events(names, fence);
    if !by_events.is_empty() {
        return by_events;
    }
    by_text(symptoms, names).or(by_kind(symptoms)).or(by_loss(symptoms, names))
}

impl Legs {
    fn or(self, other: Legs) -> Legs {
        if self.is_empty() { other } else { self }
    }
}

/// Events carry token ids, so that they prove by themselves how blocks are named.
fn by_events(names: &Names, fence: Option<Fence>) -> Legs {
    match fence {
        Some(Fence::BlockSize) => return Legs::of(&[Leg::BlockSize]),
        Some(Fence::Algorithm) => return Legs::of(&[Leg::Algorithm]),
        // A number that is missing was lost on the way, or somebody else has it.
        Some(Fence::Ownership) => return Legs::of(&[Leg::SecondReader, Leg::LostEvents]),
        _ => {}
    }
    if names.wrong_size {
        return Legs::of(&[Leg::BlockSize]);
    }
    if names.plain.differs() {
        return match names.tried {
            Tried::Algorithm(_) => Legs::of(&[Leg::Algorithm]),
            Tried::Seed(_) => Legs::of(&[Leg::Seed]),
            Tried::Nothing => Legs::of(&[Leg::Seed, Leg::Algorithm]),
        };
    }
    let mut legs = Legs::default();
    if names.salted.differs() {
        legs = legs.and(&[Leg::Salt]);
    }
    if names.adapter.differs() {
        legs = legs.and(&[Leg::Lora]);
    }
    legs
}

/// Whether a finding was made more often than agreement in these classes.
fn prevails(symptoms: &Symptoms, fits: impl Fn(Class) -> bool + Copy, findings: &[Finding]) -> bool {
    let found: u32 = findings.iter().map(|finding| symptoms.count(fits, *finding)).sum();
    found > symptoms.count(fits, Finding::Agrees)
}

fn given(given: Given) -> impl Fn(Class) -> bool + Copy {
    move |class| class.given == given
}

/// Prompts that come to another number of tokens in the engine, or that it finds although no block of that name is
/// there, while blocks that carry their ids have the right names.
fn by_text(symptoms: &Symptoms, names: &Names) -> Legs {
    let is_named = names.plain.same > 0 || symptoms.count(given(Given::Ids), Finding::Agrees) > 0;
    let breaks = |how: Given| {
        prevails(symptoms, given(how), &[Finding::Recount])
            || is_named && prevails(symptoms, given(how), &[Finding::Recount, Finding::More])
    };
    let text_agrees = symptoms.count(given(Given::Text), Finding::Agrees) > 0;
    match (breaks(Given::Text), breaks(Given::Chat)) {
        (true, _) => Legs::of(&[Leg::Tokenizer]),
        (false, true) if text_agrees => Legs::of(&[Leg::Template]),
        (false, true) => Legs::of(&[Leg::Tokenizer, Leg::Template]),
        (false, false) => Legs::default(),
    }
}

/// Requests with a salt or an adapter break, and plain ones don't.
fn by_kind(symptoms: &Symptoms) -> Legs {
    let breaks = |apart: Apart| {
        let fits = move |class: Class| class.apart == apart;
        prevails(symptoms, fits, &[Finding::Less, Finding::More])
    };
    let mut legs = Legs::default();
    if breaks(Apart::Plain) {
        return legs;
    }
    if breaks(Apart::Salt) {
        legs = legs.and(&[Leg::Salt]);
    }
    if breaks(Apart::Adapter) {
        legs = legs.and(&[Leg::Lora]);
    }
    legs
}

/// Names are right as far as they could be seen: what was stored or removed was not told, or told to another.
fn by_loss(symptoms: &Symptoms, names: &Names) -> Legs {
    if !prevails(symptoms, |_| true, &[Finding::Less, Finding::More]) {
        return Legs::default();
    }
    match names.is_drained {
        true => Legs::of(&[Leg::LostEvents, Leg::SecondReader]),
        false => Legs::of(&[Leg::LostEvents]),
    }
}
