//! What every index must do here, and how its events look to it. Owns the seam; must never measure.

use crate::stream::Request;

/// Blocks of one event: what an engine that computes 2,048 tokens a step tells at once.
pub const EVENT_BLOCKS: usize = 128;

/// A part of what an engine tells about a request.
#[derive(Clone, Copy, Debug)]
pub enum Told<'a> {
    /// It removed these keys.
    Removed(&'a [u64]),
    /// It stored a run of blocks.
    Stored {
        /// The key before the run; none at a prompt's start.
        parent: Option<u64>,
        /// The first one's place in the prompt.
        depth: usize,
        /// Blocks by their own hash.
        contents: &'a [u64],
        /// Blocks by the hash of everything up to them.
        keys: &'a [u64],
    },
}

/// An index under measurement. Its events and queries are made in its own form before the clock runs.
pub trait Index {
    /// An event in its form.
    type Event;
    /// A query in its form.
    type Query;

    /// Makes an event of engine `engine`.
    fn event(&self, engine: usize, told: Told<'_>) -> Self::Event;

    /// Makes a query.
    fn query(&self, request: &Request<'_>) -> Self::Query;

    /// Applies an event.
    fn apply(&mut self, event: Self::Event);

    /// Returns when all events so far are applied.
    fn settle(&mut self) {}

    /// The most leading blocks that any engine has.
    fn look(&mut self, query: &Self::Query) -> u32;
}

/// What an engine told about a request, in order, at most [`EVENT_BLOCKS`] at once.
pub fn told<'a>(request: &Request<'a>) -> impl Iterator<Item = Told<'a>> {
    let Request { from, contents, keys, removed, .. } = *request;
    let stored = (from..keys.len()).step_by(EVENT_BLOCKS).map(move |at| {
        let run = at..(at + EVENT_BLOCKS).min(keys.len());
        let parent = at.checked_sub(1).map(|before| keys[before]);
        Told::Stored { parent, depth: at, contents: &contents[run.clone()], keys: &keys[run] }
    });
    removed.chunks(EVENT_BLOCKS).map(Told::Removed).chain(stored)
}
