//! Where a conversation's next turn goes on with the rendering of the turn before. Owns the key, under which only
//! the same request with the same messages up to the pivot is found again, and the value; what a rendering keeps
//! and when it may go on is the template's, the store is in `shared`.

use crate::checkpoint::{Fold, Key};
use crate::template::Stop;
use crate::tokenizer::Boundary;
use warmpath_parser::json::{Member, Members, Value};

/// Members of a body that no template sees and no check of this crate asks. All others are part of the key, so that
/// one that is read some day can't be forgotten here.
const UNSEEN: [Member; 16] = [
    Member::Model,
    Member::Stream,
    Member::StreamOptions,
    Member::Messages,
    Member::MaxTokens,
    Member::MaxCompletionTokens,
    Member::MinTokens,
    Member::Temperature,
    Member::Logprobs,
    Member::N,
    Member::BestOf,
    Member::User,
    Member::RequestId,
    Member::Rid,
    Member::Priority,
    Member::Store,
];

/// A rendering that may be gone on with.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The pivot's index among the messages.
    pub(crate) index: usize,
    /// Where and how the template goes on.
    pub(crate) stop: Stop,
    /// The last cut before it, and its place in the whole text.
    pub(crate) cut: Boundary,
    /// The key of the text up to the cut.
    pub(crate) key: Key,
    /// The text from the cut's token on, up to where the template goes on.
    pub(crate) pending: Box<str>,
}

impl Turn {
    /// What it takes in a store, table and order included.
    pub(crate) fn bytes(&self) -> usize {
        const BESIDE: usize = size_of::<Turn>() + 3 * size_of::<Key>() + 64;
        BESIDE + self.pending.len() + self.stop.bytes()
    }
}

/// The keyed hash of a chat, message by message, as sent.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    fold: Fold,
    at: usize,
}

impl Raw {
    /// Begins with the model, before the messages.
    pub(crate) fn new(secret: u64, model: u64, messages: Value) -> Raw {
        Raw { fold: Fold::new(secret, model), at: messages.raw.start as usize }
    }

    /// Takes in what is not in the body.
    pub(crate) fn beside(&mut self, bytes: &[u8]) {
        self.fold.fold(bytes);
    }

    /// Takes in all members of the body that the text may depend on, but for the messages.
    pub(crate) fn members(&mut self, body: &[u8], members: &Members) {
        for member in Member::ALL.iter().filter(|member| !UNSEEN.contains(member)) {
            if let Some(value) = members.get(*member) {
                self.fold.fold(member.name().as_bytes());
                self.fold.fold(value.raw.of(body));
            }
        }
    }

    /// Goes on to the end of a message.
    pub(crate) fn message(&mut self, body: &[u8], message: Value) {
        let end = message.raw.end as usize;
        self.fold.fold(body.get(self.at..end).unwrap_or_default());
        self.at = end;
    }

    /// The key of a turn with this message as its pivot, in a scheme.
    pub(crate) fn key(&self, scheme: u128) -> Key {
        let mut fold = self.fold.clone();
        // No text of a message: those have a length of their own.
        fold.fold(b"turn");
        fold.fold(&scheme.to_le_bytes());
        fold.key(self.at)
    }
}
