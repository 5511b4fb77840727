//! Tools of a chat: their definitions as the engine hands them to the template, and calls of them in the history.
//! Owns both forms; must decline a member that an engine's request model would treat in a way of its own.

use super::{given, string};
use crate::decline::Decline;
use crate::value::value;
use minijinja::value::Value as Cell;
use warmpath_core::engine::ToolForm;
use warmpath_parser::json::{Kind, Member, Members, Value, elements, entries, member};

/// Members of a function that every engine's request model knows, in the order in which SGLang declares them.
const KNOWN: [&str; 3] = ["description", "name", "parameters"];

/// The list of tools; none where the request has none, as transformers passes it.
pub(super) fn tools(
    body: &[u8],
    members: &Members,
    verified: bool,
    form: Option<ToolForm>,
) -> Result<Cell, Decline> {
    let Some(tools) = given(members, Member::Tools) else {
        let choice = given(members, Member::ToolChoice);
        return choice
            .map_or(Ok(()), |choice| choice_is(body, choice, &["none", "auto"]))
            .map(|()| Cell::from(()));
    };
    if !verified {
        return Err(Decline::Tools);
    }
    if let Some(choice) = given(members, Member::ToolChoice) {
        choice_is(body, choice, &["auto"])?;
    }
    if tools.kind != Kind::Array {
        return Err(Decline::MemberType);
    }
    let form = form.ok_or(Decline::ToolVersion)?;
    elements(body, tools)
        .map(|tool| definition(body, tool, form))
        .collect::<Result<Vec<Cell>, _>>()
        .map(Cell::from)
}

fn choice_is(body: &[u8], choice: Value, words: &[&str]) -> Result<(), Decline> {
    match string(body, choice) {
        Ok(word) if words.contains(&word.as_str()) => Ok(()),
        _ => Err(Decline::ToolChoice),
    }
}

/// A tool's definition. Only what all request models read alike is taken: `type` and `function`, and in it name,
/// description, parameters and strict.
fn definition(body: &[u8], tool: Value, form: ToolForm) -> Result<Cell, Decline> {
    let mut function = None;
    for entry in entries(body, tool) {
        match () {
            () if entry.is_named(body, "function") => function = Some(entry),
            () if entry.is_named(body, "type") && string(body, entry).as_deref() == Ok("function") => {}
            () => return Err(Decline::ToolShape),
        }
    }
    let function = function.filter(|function| function.kind == Kind::Object).ok_or(Decline::ToolShape)?;
    let mut sent: Vec<(&str, Cell)> = Vec::new();
    for entry in entries(body, function) {
        let known = KNOWN.into_iter().chain(["strict"]).find(|name| entry.is_named(body, name));
        let name = known.filter(|name| is_typed(name, entry.kind)).ok_or(Decline::ToolShape)?;
        let read = value(entry.raw.of(body))?;
        // As in a dictionary of Python: the first place, the last value.
        match sent.iter_mut().find(|(before, _)| *before == name) {
            Some((_, before)) => *before = read,
            None => sent.push((name, read)),
        }
    }
    if !sent.iter().any(|(name, _)| *name == "name") {
        return Err(Decline::ToolShape);
    }
    Ok(formed(&sent, form))
}

/// Whether an engine takes a value of this kind for the member.
fn is_typed(name: &str, kind: Kind) -> bool {
    match name {
        "name" => matches!(kind, Kind::String { .. }),
        "description" => matches!(kind, Kind::String { .. } | Kind::Null),
        "parameters" => matches!(kind, Kind::Object | Kind::Null),
        _ => matches!(kind, Kind::True | Kind::False),
    }
}

fn formed(sent: &[(&'static str, Cell)], form: ToolForm) -> Cell {
    let of = |name: &str| sent.iter().find(|(own, _)| *own == name).map(|(_, cell)| cell.clone());
    let null = || Cell::from(());
    let filled = |name: &'static str| (name, of(name).unwrap_or_else(null));
    let strict = of("strict").map(|strict| ("strict", strict));
    let function: Vec<(&str, Cell)> = match form {
        ToolForm::Declared => {
            ["name", "description", "parameters"].map(filled).into_iter().chain(strict).collect()
        }
        ToolForm::Strict => {
            let strict = strict.unwrap_or(("strict", Cell::from(false)));
            KNOWN.map(filled).into_iter().chain([strict]).collect()
        }
        ToolForm::AsSent => {
            let absent = KNOWN.into_iter().filter(|name| of(name).is_none()).map(|name| (name, null()));
            sent.iter().cloned().chain(absent).collect()
        }
    };
    let function: Cell = function.into_iter().collect();
    let deferred = (form != ToolForm::Declared).then(|| ("defer_loading", null()));
    [("type", Cell::from("function")), ("function", function)].into_iter().chain(deferred).collect()
}

/// The calls of an assistant's message: arguments are objects by the time that a template sees them.
pub(super) fn calls(body: &[u8], list: Value) -> Result<Cell, Decline> {
    elements(body, list).map(|call| self::call(body, call)).collect::<Result<Vec<Cell>, _>>().map(Cell::from)
}

fn call(body: &[u8], call: Value) -> Result<Cell, Decline> {
    let of = |value, name| member(body, value, name).ok_or(Decline::ToolCalls);
    if call.kind != Kind::Object {
        return Err(Decline::ToolCalls);
    }
    if let Some(kind) =
        member(body, call, "type").filter(|kind| string(body, *kind).as_deref() != Ok("function"))
        && kind.kind != Kind::Null
    {
        return Err(Decline::ToolCalls);
    }
    let text = |value| string(body, value).map_err(|_| Decline::ToolCalls);
    let id = text(of(call, "id")?)?;
    let function = of(call, "function")?;
    if function.kind != Kind::Object {
        return Err(Decline::ToolCalls);
    }
    let name = text(of(function, "name")?)?;
    let arguments = text(of(function, "arguments")?)?;
    // What is no object, engines refuse, replace or keep, each in its way.
    if !arguments.trim_start_matches([' ', '\t', '\n', '\r']).starts_with('{') {
        return Err(Decline::ToolCalls);
    }
    let arguments = value(arguments.as_bytes()).map_err(|why| match why {
        Decline::Number => why,
        _ => Decline::ToolCalls,
    })?;
    let function: Cell = [("name", Cell::from(name)), ("arguments", arguments)].into_iter().collect();
    Ok([("id", Cell::from(id)), ("type", Cell::from("function")), ("function", function)]
        .into_iter()
        .collect())
}
