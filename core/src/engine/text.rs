//! What an engine does to a request's text before it is tokenized, as data for the crate that renders. Owns the
//! list of questions; the answers are the engine files'.

use super::Version;

/// How an engine hands text to a chat template.
#[derive(Clone, Copy, Debug)]
pub struct TextTerms {
    /// What stands between two text parts of one message where they are joined.
    pub joiner: &'static str,
    /// What becomes of the parts where the template loops over them.
    pub looped: Looped,
    /// Types of models (`model_type` of `config.json`) whose chats it encodes by code of its own instead of the
    /// template.
    pub encoded: &'static [&'static str],
    /// Whose `name` a template gets.
    pub names: Named,
    /// What the engine, in some versions, cuts off a system text that begins with it.
    pub cut_header: Option<&'static str>,
    /// Whether `chat_template_kwargs` get to the template as they are.
    pub template_kwargs: bool,
    /// What a template gets of a tool's definition, by version; `None`: not verified.
    pub tools: fn(Option<Version>) -> Option<ToolForm>,
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

/// Whose `name` gets to the template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// That of every message.
    All,
    /// That of all messages but those of users.
    NotUsers,
    /// Nobody's.
    Nobody,
}

/// What becomes of the definition of a tool, which templates print as JSON. Absent members that an engine adds are
/// null, but for `strict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolForm {
    /// `type`, `function`; in it `name`, `description`, `parameters`, and `strict` if given.
    Declared,
    /// `type`, `function`, `defer_loading`; in it `description`, `name`, `parameters`, `strict` (false).
    Strict,
    /// `type`, `function`, `defer_loading`; in it what was sent in the order it was sent, then those of
    /// `description`, `name`, `parameters` that were not.
    AsSent,
}
