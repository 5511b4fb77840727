//! What a member of a rule body is: its name, kind, default and how much of it this gateway serves. Owns
//! the words in which that is told; the rows stand in [`super::table`].

/// One row of the table.
#[derive(Debug)]
pub(super) struct Member {
    /// The name, to the letter.
    pub name: &'static str,
    /// Which JSON values the schema knows.
    pub kind: Kind,
    /// What an absent member means.
    pub default: Plain,
    /// Which of the schema's values are served.
    pub accepts: Accepts,
    /// What it does, for the generated document.
    pub meaning: &'static str,
}

/// The JSON values a member may have by its schema.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number within inclusive bounds.
    Int(i64, i64),
    /// One of these strings.
    Word(&'static [&'static str]),
    /// A string of at most so many bytes, without control characters.
    Text(usize),
    /// A string that is an IPv4 or IPv6 address.
    Address,
    /// An object of strings, bounded as `annotations` are.
    Strings,
    /// An object.
    Object,
    /// A list.
    List,
    /// Any JSON value: read-only members of a readback.
    Any,
}

/// A value that the table can spell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plain {
    /// The member must be given.
    Required,
    /// Nothing.
    Absent,
    /// A boolean.
    Flag(bool),
    /// A whole number.
    Int(i64),
    /// A string.
    Text(&'static str),
    /// `[]` or `{}`.
    Empty,
}

/// How much of a member's schema this gateway serves.
#[derive(Clone, Copy, Debug)]
pub(super) enum Accepts {
    /// All of it.
    All,
    /// Only its default.
    Default(Others),
    /// Only these values.
    Just(&'static [Plain], Others),
    /// Nothing is done with it: a readback may be posted again.
    Ignored,
}

/// Why the other values of a schema are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    /// They come with a later version.
    Later,
    /// They belong to features that this gateway does not have.
    Never,
}

impl Member {
    /// What may stand here, as a phrase that fits after "use" and into the document.
    pub fn allowed(&self) -> String {
        match self.accepts {
            Accepts::All => self.kind.words(),
            Accepts::Default(_) => match self.default {
                Plain::Absent => "nothing: leave it out".to_string(),
                default => format!("{} or leave it out", default.words()),
            },
            Accepts::Just(values, _) => one_of(values.iter().map(|v| v.words())),
            Accepts::Ignored => "anything: it is read-only".to_string(),
        }
    }
}

impl Kind {
    /// The kind as a phrase.
    pub fn words(&self) -> String {
        match self {
            Kind::Flag => "true or false".to_string(),
            Kind::Int(min, max) => format!("a whole number from {min} to {max}"),
            Kind::Word(words) => one_of(words.iter().map(|w| format!("\"{w}\""))),
            Kind::Text(max) => format!("a string of at most {max} bytes without control characters"),
            Kind::Address => "an IPv4 or IPv6 address as a string".to_string(),
            Kind::Strings => "an object of at most 32 strings of at most 256 characters".to_string(),
            Kind::Object => "an object".to_string(),
            Kind::List => "a list".to_string(),
            Kind::Any => "any value".to_string(),
        }
    }
}

impl Plain {
    /// The value as JSON, or a word where there is none.
    pub fn words(self) -> String {
        match self {
            Plain::Required => "required".to_string(),
            Plain::Absent => "absent".to_string(),
            Plain::Flag(value) => value.to_string(),
            Plain::Int(value) => value.to_string(),
            Plain::Text(value) => format!("\"{value}\""),
            Plain::Empty => "empty".to_string(),
        }
    }

    /// Whether the JSON `value` is this one.
    pub fn is(self, value: &serde_json::Value) -> bool {
        match self {
            Plain::Required | Plain::Absent => false,
            Plain::Flag(own) => value.as_bool() == Some(own),
            Plain::Int(own) => value.as_i64() == Some(own),
            Plain::Text(own) => value.as_str() == Some(own),
            Plain::Empty => {
                value.as_array().is_some_and(|a| a.is_empty())
                    || value.as_object().is_some_and(|o| o.is_empty())
            }
        }
    }
}

fn one_of(words: impl Iterator<Item = String>) -> String {
    let words: Vec<String> = words.collect();
    match words.as_slice() {
        [only] => only.clone(),
        _ => format!("one of {}", words.join(", ")),
    }
}

/// A member served in full.
pub(super) const fn here(name: &'static str, kind: Kind, default: Plain, meaning: &'static str) -> Member {
    Member { name, kind, default, accepts: Accepts::All, meaning }
}

/// A member served for some of its values.
pub(super) const fn some(
    name: &'static str,
    kind: Kind,
    accepts: (&'static [Plain], Others),
    default: Plain,
    meaning: &'static str,
) -> Member {
    Member { name, kind, default, accepts: Accepts::Just(accepts.0, accepts.1), meaning }
}

/// A member of a later version.
pub(super) const fn later(name: &'static str, kind: Kind, default: Plain, meaning: &'static str) -> Member {
    Member { name, kind, default, accepts: Accepts::Default(Others::Later), meaning }
}

/// A member of a feature that this gateway does not have.
pub(super) const fn never(name: &'static str, kind: Kind, default: Plain, meaning: &'static str) -> Member {
    Member { name, kind, default, accepts: Accepts::Default(Others::Never), meaning }
}

/// A member that only readbacks carry.
pub(super) const fn read_only(name: &'static str, meaning: &'static str) -> Member {
    Member { name, kind: Kind::Any, default: Plain::Absent, accepts: Accepts::Ignored, meaning }
}
