//! Why a rule body is refused. Owns the sentence an operator reads; must never echo a value at full length.

use crate::engine::ContractFault;
use serde_json::Value;
use std::fmt;

/// Bytes of a refused value that are quoted back, before the ellipsis.
const VALUE_MAX: usize = 64;

/// A refused rule body: which member, what it held, what it may hold. Prints as one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyFault {
    /// HTTP status: 422 where a value breaks the schema (kind, range, missing), 400 where it breaks a rule, 412
    /// where the gateway's environment lacks what it needs.
    pub status: u16,
    /// The class of fault: `wrong_kind`, `null_member`, `out_of_range`, `missing_member`, `unknown_member`,
    /// `not_yet_available`, `not_in_this_build`, `conflicting_members`, `duplicate_endpoint`, or the code of a
    /// [`ContractFault`].
    pub code: &'static str,
    /// Path of the member, for example `endpoints[2].weight`.
    pub member: String,
    /// The refused value as JSON, shortened; empty when there was none.
    pub value: String,
    /// What is allowed instead, or the cure.
    pub allowed: String,
    /// The whole sentence.
    pub message: String,
}

/// The closed list of faults a body can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Another JSON kind than the member has.
    WrongKind,
    /// `null` where that must not pass for a member left out (`fc_…`).
    Null,
    /// Right kind, wrong value.
    OutOfRange,
    /// A required member is absent.
    Missing,
    /// No member of this name.
    Unknown,
    /// A feature of a later version.
    NotYetAvailable,
    /// A feature that this gateway doesn't have.
    NotInThisBuild,
    /// Two members contradict each other.
    Conflict,
    /// The same endpoint twice.
    Duplicate,
    /// Blocks can't be named on these terms.
    Contract(ContractFault),
}

impl Class {
    fn status_and_code(self) -> (u16, &'static str) {
        match self {
            Class::WrongKind => (422, "wrong_kind"),
            Class::Null => (400, "null_member"),
            Class::OutOfRange => (422, "out_of_range"),
            Class::Missing => (422, "missing_member"),
            Class::Unknown => (400, "unknown_member"),
            Class::NotYetAvailable => (400, "not_yet_available"),
            Class::NotInThisBuild => (400, "not_in_this_build"),
            Class::Conflict => (400, "conflicting_members"),
            Class::Duplicate => (400, "duplicate_endpoint"),
            Class::Contract(fault) => (fault.status(), fault.code()),
        }
    }
}

impl BodyFault {
    /// A fault of `member`. The sentence reads "`member` is `value`: `problem`; `allowed`".
    pub(super) fn new(
        class: Class,
        member: impl Into<String>,
        value: Option<&Value>,
        problem: &str,
        allowed: impl Into<String>,
    ) -> BodyFault {
        let (status, code) = class.status_and_code();
        let (member, allowed) = (member.into(), allowed.into());
        let value = value.map(quoted).unwrap_or_default();
        let subject = if value.is_empty() { member.clone() } else { format!("{member} is {value}") };
        let message = format!("{subject}: {problem}; {allowed}");
        BodyFault { status, code, member, value, allowed, message }
    }

    /// Whether nothing is wrong with the body, but the gateway's environment lacks what it needs.
    pub fn is_precondition(&self) -> bool {
        self.status == 412
    }
}

impl fmt::Display for BodyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BodyFault {}

/// `value` as JSON, cut to [`VALUE_MAX`] bytes at a character boundary.
fn quoted(value: &Value) -> String {
    let text = value.to_string();
    if text.len() <= VALUE_MAX {
        return text;
    }
    let end = (0..=VALUE_MAX).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    format!("{}…", &text[..end])
}

/// The JSON kind of `value`, as the sentences name it.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(n) if n.is_f64() => "a fractional number",
        Value::Number(_) => "a whole number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
