//! Going on with a rendering behind messages that were rendered before. Owns the two other forms of a template that
//! allow it, whether they may be used, and the messages as the resumed form sees them; what was kept is the
//! caller's.
//!
//! Reading order: `proof` (for which templates, and why it is exact), `values` and `eval` (what the proof knows),
//! `splice` (the two forms).

mod eval;
mod proof;
mod splice;
mod trial;
mod values;

use super::NAME;
use minijinja::machinery::{WhitespaceConfig, ast, parse};
use minijinja::value::{Enumerator, Object, ObjectRepr, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State};
use std::fmt;
use std::sync::Arc;

const KEPT: &str = "kept";
const RESUMED: &str = "resumed";

/// How a template goes on behind earlier messages.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resumable {
    /// Loops over messages before and with the printing one.
    loops: usize,
    literals: Vec<String>,
    least: usize,
}

/// Where a rendering may go on: before the message that was the last one, if that is a pivot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stop {
    /// Bytes of text before that message.
    pub(crate) at: usize,
    /// Of each loop over messages its index there and what it carries.
    carried: Carried,
}

/// What each loop over messages carries, behind its index; none for one that did not run.
type Carried = Box<[Option<Box<[Value]>>]>;

/// A text, and where it may go on.
pub(crate) type Rendered = (String, Option<Stop>);

impl Stop {
    /// The same, counted from so many bytes before.
    pub(crate) fn behind(self, more: usize) -> Stop {
        Stop { at: self.at + more, ..self }
    }

    /// Bytes beside its own.
    pub(crate) fn bytes(&self) -> usize {
        let values = self.carried.iter().flatten().flat_map(|values| values.iter());
        let strings: usize =
            values.map(|value| size_of::<Value>() + value.as_str().map_or(0, str::len)).sum();
        strings + size_of_val(&*self.carried)
    }
}

impl Resumable {
    /// Proves a template that is in `env` under [`NAME`], and puts its other forms beside it; or why it can't.
    pub(super) fn prove(source: &str, env: &mut Environment<'static>) -> Result<Resumable, String> {
        let whitespace =
            WhitespaceConfig { keep_trailing_newline: false, lstrip_blocks: true, trim_blocks: true };
        let parsed =
            parse(source, NAME, Default::default(), whitespace).map_err(|error| error.to_string())?;
        let ast::Stmt::Template(template) = &parsed else { return Err("it is no template".into()) };
        let proven = proof::prove(&template.children)?;
        let forms = splice::forms(source, &template.children, &proven)?;
        let resumable =
            Resumable { loops: proven.loops.len(), literals: proven.literals, least: proven.least };
        for (name, form) in [(KEPT, forms.kept), (RESUMED, forms.resumed)] {
            env.add_template_owned(name, form).map_err(|error| format!("its {name} form: {error}"))?;
        }
        trial::run(&resumable, env)?;
        Ok(resumable)
    }

    /// Whether a conversation that ends on this message may go on before it.
    pub(crate) fn is_pivot(&self, index: usize, message: &Value) -> bool {
        let role = message.get_attr("role").unwrap_or_default();
        let content = message.get_attr("content").unwrap_or_default();
        index >= self.least && role.as_str() == Some("user") && !self.holds_literal(&content)
    }

    fn holds_literal(&self, content: &Value) -> bool {
        match content.kind() {
            ValueKind::String => {
                let text = content.as_str().unwrap_or_default().as_bytes();
                self.literals.iter().any(|literal| memchr::memmem::find(text, literal.as_bytes()).is_some())
            }
            _ if self.literals.is_empty() => false,
            ValueKind::Seq => {
                let texts = |part: Value| part.get_attr("text").unwrap_or_default();
                content
                    .try_iter()
                    .map_or(true, |mut parts| parts.any(|part| self.holds_literal(&texts(part))))
            }
            _ => true,
        }
    }

    /// Whether a message of this role may stand behind a pivot.
    pub(crate) fn may_follow(role: &str) -> bool {
        proof::TAIL_ROLES.contains(&role)
    }

    /// The whole text, and where it may go on. `None` if the text has the marks by itself.
    pub(super) fn keep(&self, env: &Environment<'static>, context: Value) -> Result<Option<Rendered>, Error> {
        let captured = env.get_template(KEPT)?.render_captured(context)?;
        let carried = self.carried(captured.state());
        Ok(self.split(captured.into_output(), carried))
    }

    /// The text from the pivot on, and where it may go on, counted from there. `None` if that can't be told.
    pub(super) fn go_on(
        &self,
        env: &Environment<'static>,
        context: impl Iterator<Item = (Value, Value)>,
        stop: &Stop,
        messages: Value,
        rest: Vec<Value>,
    ) -> Result<Option<Rendered>, Error> {
        let own = |what: &str, number: usize| Value::from(format!("{}{what}{number}", splice::OURS));
        let kept = stop.carried.iter().enumerate().flat_map(|(number, kept)| {
            let (index, carried) = match kept.as_deref() {
                Some([index, carried @ ..]) => (index.clone(), carried.to_vec()),
                _ => Default::default(),
            };
            [(own("at", number), index), (own("carried", number), Value::from(carried))]
        });
        let messages = [
            (Value::from("messages"), messages),
            (Value::from(format!("{}rest", splice::OURS)), Value::from(rest)),
        ];
        let context: Value = context.chain(kept).chain(messages).collect();
        let captured = env.get_template(RESUMED)?.render_captured(context)?;
        let carried = self.carried(captured.state());
        let text = captured.into_output();
        let Some(at) = only(&text, splice::PIVOT) else { return Ok(None) };
        Ok(self.split(text[at + splice::PIVOT.len()..].to_string(), carried))
    }

    /// What loops kept; `None` if some is no plain value.
    fn carried(&self, state: &State<'_, '_>) -> Option<Carried> {
        let kept = |number: usize| {
            let Some(values) = state.get_temp(&temp(number)) else { return Some(None) };
            let values: Box<[Value]> = values.try_iter().ok()?.collect();
            values.iter().all(is_plain).then_some(Some(values))
        };
        (0..self.loops).map(kept).collect()
    }

    fn split(&self, mut text: String, carried: Option<Carried>) -> Option<Rendered> {
        let at = only(&text, splice::LAST)?;
        text.replace_range(at..at + splice::LAST.len(), "");
        Some((text, carried.map(|carried| Stop { at, carried })))
    }
}

/// What may outlive a rendering: it holds nothing of it.
fn is_plain(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Undefined | ValueKind::None | ValueKind::Bool | ValueKind::Number | ValueKind::String
    )
}

/// Where a mark stands, if it does once.
fn only(text: &str, mark: &str) -> Option<usize> {
    let mut found = memchr::memmem::find_iter(text.as_bytes(), mark.as_bytes());
    found.next().filter(|_| found.next().is_none())
}

fn temp(number: usize) -> String {
    format!("{}{number}", splice::OURS)
}

/// The function by which the forms keep what loops carry.
pub(super) fn keep(state: &State<'_, '_>, number: usize, values: Rest<Value>) -> Value {
    state.set_temp(&temp(number), Value::from(values.0));
    Value::from("")
}

/// Its name.
pub(super) const KEEP: &str = "warmpath_keep";

/// The messages as the resumed form sees them: those from the pivot on, the one before it, and the first, both read
/// when they are asked for. Whoever asks for another fails, and all is rendered anew.
pub(crate) struct Sparse {
    /// Reads the first or the one before the pivot.
    pub(crate) earlier: Box<dyn Fn(usize) -> Option<Value> + Send + Sync>,
    /// The pivot's index.
    pub(crate) from: usize,
    /// The messages from there on.
    pub(crate) rest: Vec<Value>,
}

impl fmt::Debug for Sparse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "messages from {} on", self.from)
    }
}

impl Object for Sparse {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let at = key.as_usize()?;
        match at.checked_sub(self.from) {
            Some(behind) => self.rest.get(behind).cloned(),
            None => Some((self.earlier)(at).unwrap_or_else(|| {
                Value::from(Error::new(ErrorKind::InvalidOperation, "a message that is not read again"))
            })),
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.from + self.rest.len())
    }
}

#[cfg(test)]
mod tests;
