//! What a proof knows of a template's values, and how two ways come together. Owns these abstractions; each stands
//! for all values that it may be, so that joining only ever makes them coarser.

use minijinja::Value;
use std::collections::BTreeMap;

/// A value as the proof sees it. `k` is the pivot's index, `n` the number of messages.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Abstract {
    /// Told by the request and the messages up to the pivot.
    Told,
    /// This very value.
    Known(Known),
    /// Anything, told by later messages.
    Later,
    /// True or false, told by later messages.
    LaterBool,
    /// An integer of at least `k`, told by later messages.
    Least,
    /// `n` and so many more.
    Length(i64),
    /// `loop.index0` of the loop over messages, and so many more.
    Index(i64),
    /// The messages, without up to so many first ones.
    Messages(usize),
    /// All messages, the last first.
    Reversed,
    /// The pivot.
    PivotMessage,
    /// The pivot's content, which holds none of the proof's literals.
    PivotText,
    /// A message behind the pivot.
    LaterMessage,
    /// Its role.
    LaterRole,
    /// `loop` of the loop over messages.
    Loop,
    /// One of the template's namespaces.
    Namespace(usize),
    /// A macro of the template.
    Macro,
    /// What a macro must not use.
    Forbidden,
}

/// A literal. Values of different types differ, whatever the template language holds equal.
#[derive(Clone, Debug)]
pub(super) struct Known(pub(super) Value);

impl PartialEq for Known {
    fn eq(&self, other: &Known) -> bool {
        self.0.kind() == other.0.kind() && self.0 == other.0
    }
}

impl Abstract {
    /// Whether later messages may decide it. Of an index the loop decides.
    pub(super) fn is_later(&self) -> bool {
        use Abstract::{Later, LaterBool, LaterMessage, LaterRole, Least, Length};
        matches!(self, Later | LaterBool | Least | Length(_) | LaterMessage | LaterRole)
    }

    /// Whether it is an integer of at least `k`.
    pub(super) fn is_least(&self) -> bool {
        matches!(self, Abstract::Least) || matches!(self, Abstract::Length(more) if *more >= -1)
    }

    fn is_told(&self) -> bool {
        matches!(self, Abstract::Told | Abstract::Known(_) | Abstract::PivotText | Abstract::PivotMessage)
    }

    fn is_bool(&self) -> bool {
        match self {
            Abstract::LaterBool => true,
            Abstract::Known(Known(value)) => value.kind() == minijinja::value::ValueKind::Bool,
            _ => false,
        }
    }

    /// Either of two, and what is not later tells which.
    fn or(&self, other: &Abstract) -> Abstract {
        match (self, other) {
            (one, other) if one == other => one.clone(),
            (one, other) if one.is_told() && other.is_told() => Abstract::Told,
            (Abstract::Messages(one), Abstract::Messages(other)) => Abstract::Messages(*one.max(other)),
            (one, other) => one.or_later(other),
        }
    }

    /// Either of two, and later messages tell which.
    fn or_later(&self, other: &Abstract) -> Abstract {
        match (self, other) {
            (Abstract::Known(one), Abstract::Known(other)) if one == other => self.clone(),
            (one, other) if one.is_least() && other.is_least() => Abstract::Least,
            (one, other) if one.is_bool() && other.is_bool() => Abstract::LaterBool,
            (Abstract::Messages(_) | Abstract::Reversed | Abstract::Loop, _)
            | (_, Abstract::Messages(_) | Abstract::Reversed | Abstract::Loop)
            | (Abstract::Namespace(_) | Abstract::Macro | Abstract::Forbidden, _)
            | (_, Abstract::Namespace(_) | Abstract::Macro | Abstract::Forbidden) => Abstract::Forbidden,
            _ => Abstract::Later,
        }
    }
}

/// Something that a template sets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Target<'a> {
    Variable(&'a str),
    Member {
        /// The namespace's name there.
        space: &'a str,
        /// Which namespace.
        at: usize,
        name: &'a str,
    },
}

impl<'a> Target<'a> {
    pub(super) fn variable(&self) -> Option<&'a str> {
        match self {
            Target::Variable(name) => Some(name),
            Target::Member { .. } => None,
        }
    }
}

/// The variables that a template has set, and the members of its namespaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct State<'a> {
    variables: BTreeMap<&'a str, Abstract>,
    spaces: Vec<BTreeMap<&'a str, Abstract>>,
}

impl<'a> State<'a> {
    /// What was not set is the request's, or undefined.
    pub(super) fn get(&self, name: &str) -> Abstract {
        self.variables.get(name).cloned().unwrap_or(Abstract::Told)
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        self.variables.contains_key(name)
    }

    pub(super) fn set(&mut self, name: &'a str, value: Abstract) {
        self.variables.insert(name, value);
    }

    pub(super) fn member(&self, space: usize, name: &str) -> Abstract {
        self.spaces.get(space).and_then(|space| space.get(name)).cloned().unwrap_or(Abstract::Told)
    }

    pub(super) fn set_member(&mut self, space: usize, name: &'a str, value: Abstract) {
        if let Some(space) = self.spaces.get_mut(space) {
            space.insert(name, value);
        }
    }

    pub(super) fn new_space(&mut self) -> usize {
        self.spaces.push(BTreeMap::new());
        self.spaces.len() - 1
    }

    /// All that a macro must not use becomes so.
    pub(super) fn keep_macros(&mut self) {
        for value in self.variables.values_mut().filter(|value| **value != Abstract::Macro) {
            *value = Abstract::Forbidden;
        }
    }

    /// This state with the namespaces of another: what a loop's body sets is gone behind it.
    pub(super) fn behind(&self, inside: &State<'a>) -> State<'a> {
        State { variables: self.variables.clone(), spaces: inside.spaces.clone() }
    }
}

/// Behind two ways, of which what is not later tells the one taken.
pub(super) fn join<'a>(one: &State<'a>, other: &State<'a>) -> State<'a> {
    let merge = |one: &BTreeMap<&'a str, Abstract>, other: &BTreeMap<&'a str, Abstract>| {
        let mut all = one.clone();
        all.extend(other.iter().map(|(name, value)| (*name, value.clone())));
        for (name, value) in &mut all {
            let side = |side: &BTreeMap<&'a str, Abstract>| side.get(name).cloned().unwrap_or(Abstract::Told);
            *value = side(one).or(&side(other));
        }
        all
    };
    let most = one.spaces.len().max(other.spaces.len());
    let empty = BTreeMap::new();
    let space = |state: &State<'a>, at: usize| state.spaces.get(at).unwrap_or(&empty).clone();
    State {
        variables: merge(&one.variables, &other.variables),
        spaces: (0..most).map(|at| merge(&space(one, at), &space(other, at))).collect(),
    }
}

/// Behind two ways, of which later messages tell the one taken: what either wrote is then told by them too.
pub(super) fn join_tainted<'a>(one: &State<'a>, other: &State<'a>, writes: &[Target<'a>]) -> State<'a> {
    let mut joined = join(one, other);
    let unlike = |one: Option<&Abstract>, other: Option<&Abstract>, written: bool| {
        let told = Abstract::Told;
        (written || one != other).then(|| one.unwrap_or(&told).or_later(other.unwrap_or(&told)))
    };
    for (name, value) in &mut joined.variables {
        let written = writes.contains(&Target::Variable(name));
        *value = unlike(one.variables.get(name), other.variables.get(name), written).unwrap_or(value.clone());
    }
    for (at, space) in joined.spaces.iter_mut().enumerate() {
        for (name, value) in space {
            let written = writes.iter().any(
                |write| matches!(write, Target::Member { at: to, name: of, .. } if (*to, of) == (at, name)),
            );
            let side = |state: &State<'a>| state.spaces.get(at).and_then(|space| space.get(name)).cloned();
            *value = unlike(side(one).as_ref(), side(other).as_ref(), written).unwrap_or(value.clone());
        }
    }
    joined
}
