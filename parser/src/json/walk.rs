//! Into arrays and objects below the top level.
//!
//! Owns the iterators over elements and members, and the walk to the message whose text keys a request. The
//! text must have passed [`super::peek()`]; on any other an iterator just ends.

use super::peek::{Kind, Member, Members, Value};
use super::scan::{DEEPEST, Scanner};
use super::text::{means, prefix_text};
use crate::Span;

/// The elements of an array, in order; their keys are empty spans.
pub fn elements(body: &[u8], array: Value) -> Children<'_> {
    Children::of(body, array, Kind::Array)
}

/// The elements of `messages`, as [`elements`] gives them. Those that [`super::peek()`] noted cost nothing.
/// `body` must be what was peeked at.
pub fn messages<'a>(body: &'a [u8], members: &'a Members) -> impl Iterator<Item = Value> + 'a {
    let noted = members.noted();
    let places = noted.iter().zip(0..).map(|(place, index)| Value {
        raw: *place,
        key: Span { start: place.start, end: place.start },
        kind: Kind::Object,
        index,
    });
    let list = members.get(Member::Messages);
    places.chain(list.into_iter().flat_map(move |list| elements(body, list).behind(noted)))
}

/// The members of an object, in order, repeated ones included.
pub fn entries(body: &[u8], object: Value) -> Children<'_> {
    Children::of(body, object, Kind::Object)
}

/// The last member of an object whose unescaped name is `name`.
pub fn member(body: &[u8], object: Value, name: &str) -> Option<Value> {
    entries(body, object).filter(|entry| entry.is_named(body, name)).last()
}

/// The content of the first message that has text and the earliest role in `roles`, for example
/// `["system", "user"]`: the first system message, or without one the first user message. `messages` is the
/// top-level member of that name.
pub fn first_message_content(body: &[u8], messages: Value, roles: &[&str]) -> Option<Value> {
    let mut best = None;
    let mut wanted = roles;
    for message in elements(body, messages) {
        let Some(role) = member(body, message, "role") else { continue };
        let Some(rank) = wanted.iter().position(|name| is_text(body, role, name)) else { continue };
        let Some(content) = member(body, message, "content").filter(|content| is_textual(*content)) else {
            continue;
        };
        best = Some(content);
        wanted = wanted.get(..rank).unwrap_or_default();
        if wanted.is_empty() {
            break;
        }
    }
    best
}

/// Pushes at most `limit` bytes of a message content: a string's text, or the texts of the parts of a
/// multipart content one after the other. Whether there was any text part.
pub fn content_text(body: &[u8], content: Value, limit: usize, out: &mut Vec<u8>) -> bool {
    if content.kind != Kind::Array {
        return prefix_text(body, content, limit, out);
    }
    let begin = out.len();
    let mut any = false;
    for part in elements(body, content) {
        let Some(text) = member(body, part, "text") else { continue };
        let pushed = out.len() - begin;
        any |= prefix_text(body, text, limit.saturating_sub(pushed), out);
        if out.len() - begin >= limit {
            break;
        }
    }
    any
}

/// The unescaped text of the first message with one of `roles`; see [`first_message_content`] and
/// [`content_text`]. Whether there was one.
pub fn first_message_text(
    body: &[u8],
    messages: Value,
    roles: &[&str],
    limit: usize,
    out: &mut Vec<u8>,
) -> bool {
    first_message_content(body, messages, roles)
        .is_some_and(|content| content_text(body, content, limit, out))
}

fn is_textual(content: Value) -> bool {
    matches!(content.kind, Kind::String { .. } | Kind::Array)
}

/// Whether a value is a string that means `text` after unescaping.
pub fn is_text(body: &[u8], value: Value, text: &str) -> bool {
    matches!(value.kind, Kind::String { .. }) && means(value.inner().of(body), text)
}

impl Value {
    /// Whether the key of this member means `name` after unescaping.
    pub fn is_named(self, body: &[u8], name: &str) -> bool {
        let key = self.key.of(body);
        means(key.get(1..key.len().saturating_sub(1)).unwrap_or_default(), name)
    }
}

impl Members {
    /// The top-level object as a value, for [`entries`].
    pub fn as_value(&self) -> Value {
        Value { raw: self.object(), key: Span::default(), kind: Kind::Object, index: 0 }
    }
}

/// Iterator over the values in an array or object.
pub struct Children<'a> {
    scanner: Scanner<'a>,
    keyed: bool,
    index: u32,
    ended: bool,
}

impl<'a> Children<'a> {
    fn of(body: &'a [u8], parent: Value, kind: Kind) -> Self {
        let inside = body.get(..parent.raw.end as usize).unwrap_or(body);
        let scanner = Scanner::new(inside, parent.raw.start as usize + 1, DEEPEST);
        Children { scanner, keyed: kind == Kind::Object, index: 0, ended: parent.kind != kind }
    }

    /// Goes on behind the first elements, whose places are known.
    fn behind(mut self, known: &[Span]) -> Self {
        if let Some(last) = known.last() {
            self.scanner.move_to(last.end as usize);
            self.index = crate::span::narrow(known.len());
        }
        self
    }

    fn step(&mut self) -> Option<Value> {
        let scanner = &mut self.scanner;
        scanner.space();
        if self.index > 0 {
            scanner.expect(b',').ok()?;
            scanner.space();
        }
        let key_start = scanner.at();
        if self.keyed {
            scanner.string().ok()?;
        }
        let key = Span::new(key_start, scanner.at());
        if self.keyed {
            scanner.space();
            scanner.expect(b':').ok()?;
            scanner.space();
        }
        let start = scanner.at();
        let kind = scanner.value().ok()?;
        let value = Value { raw: Span::new(start, scanner.at()), key, kind, index: self.index };
        self.index += 1;
        Some(value)
    }
}

impl Iterator for Children<'_> {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        if self.ended {
            return None;
        }
        let value = self.step();
        self.ended = value.is_none();
        value
    }
}

#[cfg(test)]
mod tests {
    use super::super::{JsonLimits, peek};
    use super::*;

    fn text_of(body: &str, roles: &[&str], limit: usize) -> Option<String> {
        let mut members = Members::new();
        peek(body.as_bytes(), &mut members, JsonLimits::default()).unwrap();
        let mut out = Vec::new();
        let messages = members.get(Member::Messages)?;
        first_message_text(body.as_bytes(), messages, roles, limit, &mut out)
            .then(|| String::from_utf8(out).unwrap())
    }

    const BOTH: [&str; 2] = ["system", "user"];

    #[test]
    fn the_system_message_wins_wherever_it_is() {
        let body = r#"{"messages":[{"role":"user","content":"u"},{"content":"s","role":"system"}]}"#;
        assert_eq!(text_of(body, &BOTH, 99).as_deref(), Some("s"));
        assert_eq!(text_of(body, &["user"], 99).as_deref(), Some("u"));
        assert_eq!(text_of(body, &["tool"], 99), None);
    }

    #[test]
    fn without_one_the_first_user_message_counts() {
        let body = r#"{"messages":[{"role":"assistant","content":"a"},{"role":"us\u0065r","content":"1\n"},
            {"role":"user","content":"2"}]}"#;
        assert_eq!(text_of(body, &BOTH, 99).as_deref(), Some("1\n"));
    }

    #[test]
    fn parts_are_joined_and_bounded() {
        let body = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"ab"},
            {"type":"image_url","image_url":{"text":"no"}},{"type":"text","text":"cäd"}]}]}"#;
        assert_eq!(text_of(body, &BOTH, 99).as_deref(), Some("abcäd"));
        assert_eq!(text_of(body, &BOTH, 4).as_deref(), Some("abc"));
        assert_eq!(text_of(body, &BOTH, 2).as_deref(), Some("ab"));
    }

    #[test]
    fn odd_messages_are_passed_over() {
        let body = r#"{"messages":[1,"x",[],{},{"role":"system"},{"role":"system","content":null},
            {"role":7,"content":"no"},{"role":"system","content":"yes"}]}"#;
        assert_eq!(text_of(body, &BOTH, 99).as_deref(), Some("yes"));
        assert_eq!(text_of(r#"{"messages":"text"}"#, &BOTH, 99), None);
        assert_eq!(text_of(r#"{"messages":[]}"#, &BOTH, 99), None);
    }

    #[test]
    fn nested_members_are_last_wins_too() {
        let body = br#"{"a":{"x":1,"\u0078":2, "y" : [ ] }}"#;
        let mut members = Members::new();
        peek(body, &mut members, JsonLimits::default()).unwrap();
        let a = member(body, members.as_value(), "a").unwrap();
        assert_eq!(member(body, a, "x").unwrap().raw.of(body), b"2");
        assert_eq!(entries(body, a).count(), 3);
        assert_eq!(elements(body, a).count(), 0);
        assert_eq!(member(body, a, "z"), None);
    }
}
