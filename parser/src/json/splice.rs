//! Edits of a body by range.
//!
//! Owns insert, replace and remove of members with the commas between them. Every byte outside an edit is
//! left as the client sent it; the result of editing a valid body is valid. A member that is set or removed
//! is gone in all its repetitions, so that a reader for whom the first one wins sees the same.

use super::peek::{Kind, Member, Members, Value};
use super::walk::{entries, member};
use crate::Span;

/// A wanted change of a top-level member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The member shall have this value, given as valid JSON.
    Set(Member, &'a [u8]),
    /// The member shall not be there.
    Remove(Member),
}

impl Change<'_> {
    fn member(&self) -> Member {
        match self {
            Change::Set(member, _) | Change::Remove(member) => *member,
        }
    }

    /// The most by which it makes a body longer.
    fn bytes(&self) -> usize {
        match self {
            Change::Set(member, value) => 1 + member.quoted().len() + value.len(),
            Change::Remove(_) => 0,
        }
    }
}

/// One edit: the bytes of `range` give way to the concatenation of `with`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit<'a> {
    /// What to leave out of the body; empty for an insertion.
    pub range: Span,
    /// What to write there instead.
    pub with: [&'a [u8]; 3],
}

impl<'a> Edit<'a> {
    fn replace(range: Span, with: &'a [u8]) -> Self {
        Edit { range, with: [with, b"", b""] }
    }

    /// Pushes what the body has from `from` up to the edit, and what the edit writes.
    fn write(&self, body: &[u8], from: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(Span { start: from, end: self.range.start }.of(body));
        for piece in self.with {
            out.extend_from_slice(piece);
        }
    }

    /// A new member before the closing brace at the end of `object`.
    fn append(object: Span, name: &'a [u8], value: &'a [u8], first: bool) -> Self {
        let at = object.end.saturating_sub(1);
        let comma: &[u8] = if first { b"" } else { b"," };
        Edit { range: Span { start: at, end: at }, with: [comma, name, value] }
    }
}

/// Writes into `out` the edits that bring about `changes`, in order of their ranges, without overlap. Of two
/// changes of one member the last counts. `members` must come from a peek at this body.
pub fn edits<'a>(body: &[u8], members: &Members, changes: &[Change<'a>], out: &mut Vec<Edit<'a>>) {
    out.clear();
    let kept = each_edit(body, members, changes, |edit| out.push(edit));
    append_absent(members, changes, kept > 0, |edit| out.push(edit));
}

/// Hands out the edits of members that are there, in order; how many members stay.
fn each_edit<'a>(
    body: &[u8],
    members: &Members,
    changes: &[Change<'a>],
    mut emit: impl FnMut(Edit<'a>),
) -> u32 {
    let mut removed = 0;
    let mut touch = |entry: Value, change: Change<'a>, is_last: bool| match change {
        Change::Set(_, value) if is_last => emit(Edit::replace(entry.raw, value)),
        _ => {
            emit(Edit::replace(with_comma(body, entry, entry.index > removed), b""));
            removed += 1;
        }
    };
    if members.has_repeated() {
        for entry in entries(body, members.as_value()) {
            if let Some(change) =
                effective(changes).find(|change| entry.is_named(body, change.member().name()))
            {
                touch(entry, change, members.get(change.member()) == Some(entry));
            }
        }
    } else {
        let mut next = 0;
        while let Some((entry, change)) = following(members, changes, next) {
            touch(entry, change, true);
            next = entry.index + 1;
        }
    }
    members.count() - removed
}

/// The changes without those that a later one of the same member overrides.
fn effective<'c, 'a>(changes: &'c [Change<'a>]) -> impl Iterator<Item = Change<'a>> + 'c {
    changes.iter().enumerate().filter_map(|(at, change)| {
        let later = changes.get(at + 1..).unwrap_or_default();
        (!later.iter().any(|later| later.member() == change.member())).then_some(*change)
    })
}

/// Of the changed members that are there, the first whose index is at least `next`.
fn following<'a>(members: &Members, changes: &[Change<'a>], next: u32) -> Option<(Value, Change<'a>)> {
    effective(changes)
        .filter_map(|change| Some((members.get(change.member())?, change)))
        .filter(|(entry, _)| entry.index >= next)
        .min_by_key(|(entry, _)| entry.index)
}

fn append_absent<'a>(
    members: &Members,
    changes: &[Change<'a>],
    keeps_any: bool,
    mut emit: impl FnMut(Edit<'a>),
) {
    let mut first = !keeps_any;
    for change in effective(changes) {
        if let Change::Set(member, value) = change
            && members.get(member).is_none()
        {
            emit(Edit::append(members.object(), member.quoted(), value, first));
            first = false;
        }
    }
}

/// A member with one comma: the one before it if a member that stays comes before it, else the one after it.
fn with_comma(body: &[u8], entry: Value, after_kept: bool) -> Span {
    let (start, end) = (entry.key.start as usize, entry.raw.end as usize);
    if after_kept {
        let before = body.get(..start).unwrap_or_default();
        let comma = memchr::memrchr(b',', before).unwrap_or(start);
        return Span::new(comma, end);
    }
    let after = body.get(end..).unwrap_or_default();
    let blanks = after.iter().take_while(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t')).count();
    match after.get(blanks) {
        Some(b',') => Span::new(start, end + blanks + 1),
        _ => Span::new(start, end),
    }
}

/// The edit that sets a member of a nested object, for example in `stream_options`. `quoted` is the name in
/// quotes with its colon (`"name":`), `name` the same without. `None` if `object` is not an object.
pub fn set_in<'a>(
    body: &[u8],
    object: Value,
    name: &str,
    quoted: &'a [u8],
    value: &'a [u8],
) -> Option<Edit<'a>> {
    if object.kind != Kind::Object {
        return None;
    }
    Some(match member(body, object, name) {
        Some(old) => Edit::replace(old.raw, value),
        None => Edit::append(object.raw, quoted, value, entries(body, object).next().is_none()),
    })
}

/// A body that is written anew: the client's with changes done, open for further members behind its last.
///
/// What a further member may hold is not a slice that exists already, so that nothing but the output is
/// allocated. A member that is added must be among those that the changes remove, or not be there.
#[derive(Debug)]
pub struct Rewrite<'a> {
    out: &'a mut Vec<u8>,
    rest: &'a [u8],
    empty: bool,
}

impl<'a> Rewrite<'a> {
    /// Pushes `body` with `changes` done, up to its closing brace. `more` is about what further members take, in
    /// bytes. `members` must come from a peek at this body.
    pub fn begin(
        body: &'a [u8],
        members: &Members,
        changes: &[Change<'_>],
        more: usize,
        out: &'a mut Vec<u8>,
    ) -> Rewrite<'a> {
        let added: usize = changes.iter().map(|change| change.bytes()).sum();
        out.reserve_exact(body.len() + added + more);
        let mut from = 0;
        let kept = each_edit(body, members, changes, |edit| {
            edit.write(body, from, out);
            from = edit.range.end;
        });
        let mut empty = kept == 0;
        append_absent(members, changes, !empty, |edit| {
            edit.write(body, from, out);
            from = edit.range.end;
            empty = false;
        });
        let brace = members.object().end.saturating_sub(1);
        out.extend_from_slice(Span { start: from, end: brace }.of(body));
        Rewrite { out, rest: body.get(brace as usize..).unwrap_or_default(), empty }
    }

    /// Begins a member: its value is pushed next, as valid JSON.
    pub fn member(&mut self, member: Member) -> &mut Vec<u8> {
        if !self.empty {
            self.out.push(b',');
        }
        self.empty = false;
        self.out.extend_from_slice(member.quoted());
        self.out
    }

    /// Closes the object, with all that stands behind it in the client's body.
    pub fn end(self) {
        self.out.extend_from_slice(self.rest);
    }
}

/// Pushes `body` with `edits` done, which must be in order and without overlap, as [`edits`] makes them.
pub fn apply(body: &[u8], edits: &[Edit<'_>], out: &mut Vec<u8>) {
    let mut from = 0;
    for edit in edits {
        edit.write(body, from, out);
        from = edit.range.end;
    }
    out.extend_from_slice(body.get(from as usize..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::super::{JsonLimits, peek};
    use super::*;

    fn spliced(body: &str, changes: &[Change<'_>]) -> String {
        let mut members = Members::new();
        peek(body.as_bytes(), &mut members, JsonLimits::default()).unwrap();
        let (mut list, mut out) = (Vec::new(), Vec::new());
        edits(body.as_bytes(), &members, changes, &mut list);
        apply(body.as_bytes(), &list, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn rewritten(body: &str, changes: &[Change<'_>], more: &[(Member, &str)]) -> String {
        let mut members = Members::new();
        peek(body.as_bytes(), &mut members, JsonLimits::default()).unwrap();
        let mut out = Vec::new();
        let mut rewrite = Rewrite::begin(body.as_bytes(), &members, changes, 0, &mut out);
        for (member, value) in more {
            rewrite.member(*member).extend_from_slice(value.as_bytes());
        }
        rewrite.end();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn members_are_added_behind_the_last() {
        use Change::*;
        use Member::*;
        let more = [(User, "[1]"), (Store, "2")];
        for (body, changes, expected) in [
            ("{}", &[][..], r#"{"user":[1],"store":2}"#),
            (" { } \n", &[], " { \"user\":[1],\"store\":2} \n"),
            (r#"{"a":1 } "#, &[], r#"{"a":1 ,"user":[1],"store":2} "#),
            (r#"{"user":0}"#, &[Remove(User)], r#"{"user":[1],"store":2}"#),
            (r#"{"user":0,"a":{},"user":1}"#, &[Remove(User)], r#"{"a":{},"user":[1],"store":2}"#),
            (r#"{"n":3}"#, &[Remove(User), Set(N, b"4")], r#"{"n":4,"user":[1],"store":2}"#),
            ("{}", &[Set(N, b"4"), Set(Model, b"5")], r#"{"n":4,"model":5,"user":[1],"store":2}"#),
        ] {
            assert_eq!(rewritten(body, changes, &more), expected, "{body} {changes:?}");
        }
    }

    #[test]
    fn one_change() {
        use Change::*;
        use Member::*;
        for (body, change, expected) in [
            ("{}", Set(N, b"1"), r#"{"n":1}"#),
            (" { } ", Set(N, b"1"), r#" { "n":1} "#),
            (r#"{"a":1 }"#, Set(N, b"2"), r#"{"a":1 ,"n":2}"#),
            (r#"{ "n" : 1 , "a":2}"#, Set(N, b"33"), r#"{ "n" : 33 , "a":2}"#),
            (r#"{"\u006e":[1,2]}"#, Set(N, b"3"), r#"{"\u006e":3}"#),
            (r#"{"n":1}"#, Remove(N), "{}"),
            (r#"{ "n":1 }"#, Remove(N), "{  }"),
            (r#"{"n":1 , "a":2}"#, Remove(N), r#"{ "a":2}"#),
            (r#"{"a":2 , "n":1}"#, Remove(N), r#"{"a":2 }"#),
            (r#"{"a":",", "n":1,"b":2}"#, Remove(N), r#"{"a":",","b":2}"#),
            (r#"{"a":1}"#, Remove(N), r#"{"a":1}"#),
            (r#"{"n":1,"a":0,"n":2}"#, Set(N, b"3"), r#"{"a":0,"n":3}"#),
            (r#"{"n":1,"a":0,"n":2}"#, Remove(N), r#"{"a":0}"#),
            (r#"{"n":1,"n":2}"#, Remove(N), "{}"),
        ] {
            assert_eq!(spliced(body, &[change]), expected, "{body} {change:?}");
        }
    }

    /// Every subset of removals and settings on every small object gives what a full parser gives.
    #[test]
    fn all_combinations_agree_with_a_full_parser() {
        let names = [Member::Model, Member::User, Member::N];
        let separators = ["{", " { ", "\n{\t"];
        for shape in 0..4usize.pow(4) {
            let picks: Vec<_> = (0..4).map(|slot| shape / 4usize.pow(slot) % 4).collect();
            let fields: Vec<_> = picks
                .iter()
                .enumerate()
                .filter(|(_, pick)| **pick < 4)
                .map(|(slot, pick)| format!("\"{}\" :{slot}", ["model", "user", "n", "other"][*pick]))
                .take(shape % 5)
                .collect();
            let body = format!("{}{} }}", separators[shape % 3], fields.join(" , "));
            for plan in 0..27usize {
                let changes: Vec<_> = (0..3usize)
                    .filter_map(|slot| match plan / 3usize.pow(slot as u32) % 3 {
                        0 => None,
                        1 => Some(Change::Remove(names[slot])),
                        _ => Some(Change::Set(names[slot], b"[9]")),
                    })
                    .collect();
                let mut expected: serde_json::Map<_, _> = serde_json::from_str(&body).unwrap();
                for change in &changes {
                    match change {
                        Change::Remove(member) => drop(expected.remove(member.name())),
                        Change::Set(member, _) => {
                            drop(expected.insert(member.name().into(), [9].as_slice().into()))
                        }
                    }
                }
                let result = spliced(&body, &changes);
                assert_eq!(rewritten(&body, &changes, &[]), result, "the same in one go");
                let parsed: serde_json::Map<_, _> = serde_json::from_str(&result).unwrap_or_else(|fault| {
                    panic!("{body} {changes:?} gave {result}: {fault}");
                });
                assert_eq!(parsed, expected, "{body} {changes:?} gave {result}");
            }
        }
    }

    #[test]
    fn nested_members() {
        for (body, expected) in [
            (r#"{"stream_options":{}}"#, r#"{"stream_options":{"include_usage":true}}"#),
            (r#"{"stream_options":{ "x":1 }}"#, r#"{"stream_options":{ "x":1 ,"include_usage":true}}"#),
            (r#"{"stream_options":{"include_usage":false}}"#, r#"{"stream_options":{"include_usage":true}}"#),
        ] {
            let mut members = Members::new();
            peek(body.as_bytes(), &mut members, JsonLimits::default()).unwrap();
            let options = members.get(Member::StreamOptions).unwrap();
            let edit =
                set_in(body.as_bytes(), options, "include_usage", b"\"include_usage\":", b"true").unwrap();
            let mut out = Vec::new();
            apply(body.as_bytes(), &[edit], &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
