//! What an engine does to a request's text before it is tokenized, as data for the crate that renders. Owns the
//! list of questions; the answers are the engine files'.

/// How an engine hands text to a chat template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextTerms {
    /// What stands between two text parts of one message where they are joined.
    pub joiner: &'static str,
    /// What becomes of the parts where the template loops over them.
    pub looped: Looped,
}

/// What a template that loops over the parts of a content gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looped {
    /// Joined text nevertheless.
    Joined,
    /// The parts; a plain string stays one.
    Parts,
    /// The parts; a plain string becomes one of them.
    Wrapped,
}
