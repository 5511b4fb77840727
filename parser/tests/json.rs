//! The JSON peek beside `serde_json`, on random and mutated bodies.

#![allow(clippy::unwrap_used)] // A test may stop at the first surprise.

mod seeded;

use seeded::{Random, mutate};
use serde::de::IgnoredAny;
use serde_json::Value as Tree;
use warmpath_parser::json::{JsonFault, JsonLimits, Kind, Member, Members, elements, messages, peek, text};

const SEEDS: &[&str] = &[
    r#"{"model":"m","stream":true,"n":1,"messages":[{"role":"user","content":"hi \"there\" \\ \u0041\ud83d\ude00"}]}"#,
    r#"{ "a" : [ 1 , -0.5e+10 , [ ] , { } , null , false ] , "\u006dodel" : "x" , "user" : "" }"#,
    r#"{"prompt":"{\"model\":\"fake\"}","model":{"model":"nested"},"model":["last"]}"#,
    r#"{"max_tokens":0,"cache_salt":"äöü€😀","stream_options":{"include_usage":true},"tools":[[[[]]]]}"#,
];

/// Messages of all kinds, none, repeated, and more than places are noted for.
#[test]
fn messages_are_where_a_second_look_finds_them() {
    let many = |count: usize| vec![r#"{"role":"user","content":"a]},{"}"#; count].join(" ,\n");
    let lists = [
        "[]".to_string(),
        "[ ]".into(),
        "[[]]".into(),
        r#""[{}]""#.into(),
        r#"[{},1,{},"x",[{}],{}]"#.into(),
        format!("[{}]", many(511)),
        format!("[{} ]", many(512)),
        format!("[ {}]", many(513)),
        format!("[{},null,{}]", many(600), many(3)),
        format!("[{}],\"messages\":[{}]", many(5), many(2)),
        format!("[{}],\"messages\":{{}}", many(5)),
        format!("[{}],\"m\\u0065ssages\":[{}]", many(5), many(3)),
    ];
    let mut members = Members::new();
    for list in lists {
        let body = format!("{{\"messages\":{list},\"model\":\"m\"}}");
        peek(body.as_bytes(), &mut members, JsonLimits::default()).unwrap();
        same_messages(body.as_bytes(), &members);
        assert_eq!(members.get(Member::Model).unwrap().inner().of(body.as_bytes()), b"m");
    }
}

/// The list of messages is nested as any other.
#[test]
fn the_bound_on_nesting_is_the_same_within_messages() {
    for name in ["messages", "massages"] {
        for depth in 0..5 {
            let body = format!("{{\"{name}\":[{{\"a\":[]}}]}}");
            let told = peek(body.as_bytes(), &mut Members::new(), JsonLimits { depth });
            assert_eq!(told, if depth < 4 { Err(JsonFault::TooDeep) } else { Ok(()) }, "{name} {depth}");
        }
    }
    for broken in ["[", "[{}", "[{},", "[{},]", "[,]", "[{}}", "[{} {}]", "{]"] {
        let told = ["messages", "massages"].map(|name| {
            let body = format!("{{\"{name}\":{broken}");
            peek(body.as_bytes(), &mut Members::new(), JsonLimits::default())
        });
        assert!(told[0].is_err() && told[0] == told[1], "{broken}: {told:?}");
    }
}

const SPECIAL: &[u8] = b"{}[]\",:\\0123456789-+.eEtfnu \t\r\n\x7f\x80\xc3\xff";

fn peeked(body: &[u8]) -> Result<Members, JsonFault> {
    let mut members = Members::new();
    peek(body, &mut members, JsonLimits::default()).map(|()| members)
}

/// Whether a full reading of the grammar takes `body` for an object. The text is checked first, because
/// `serde_json` does not look into strings that it skips.
fn is_object(body: &[u8]) -> bool {
    let Ok(body) = std::str::from_utf8(body) else { return false };
    serde_json::from_str::<IgnoredAny>(body).is_ok()
        && body.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('{')
}

fn compare(body: &[u8]) {
    let shown = String::from_utf8_lossy(body);
    match (peeked(body), is_object(body)) {
        (Ok(members), true) => same_members(body, &members),
        (Err(_), false) => {}
        (Ok(_), false) => panic!("only we accept {shown:?}"),
        (Err(fault), true) => panic!("only we refuse, {fault}: {shown:?}"),
    }
}

/// The messages that were noted are those that a second look finds.
fn same_messages(body: &[u8], members: &Members) {
    let list = members.get(Member::Messages);
    let looked: Vec<_> = list.into_iter().flat_map(|list| elements(body, list)).collect();
    let noted: Vec<_> = messages(body, members).collect();
    assert_eq!(noted, looked, "{:?}", String::from_utf8_lossy(body));
}

/// Each member's text parses to what the tree has under that name, which is the last of that name.
fn same_members(body: &[u8], members: &Members) {
    same_messages(body, members);
    // Lone surrogates and huge numbers are grammar, but no tree can hold them.
    let Ok(tree) = serde_json::from_slice::<Tree>(body) else { return };
    for member in Member::ALL {
        let ours = members.get(*member);
        let theirs = tree.get(member.name());
        assert_eq!(ours.is_some(), theirs.is_some(), "{member:?} in {:?}", String::from_utf8_lossy(body));
        let (Some(ours), Some(theirs)) = (ours, theirs) else { continue };
        let parsed: Tree = serde_json::from_slice(ours.raw.of(body)).unwrap();
        assert_eq!(&parsed, theirs);
        let mut unescaped = Vec::new();
        assert_eq!(text(body, ours, &mut unescaped), theirs.is_string());
        if let Some(theirs) = theirs.as_str() {
            assert_eq!(unescaped, theirs.as_bytes());
        }
        let kind = match theirs {
            Tree::String(_) => matches!(ours.kind, Kind::String { .. }),
            Tree::Number(_) => ours.kind == Kind::Number,
            Tree::Bool(value) => ours.kind == if *value { Kind::True } else { Kind::False },
            Tree::Null => ours.kind == Kind::Null,
            Tree::Array(_) => ours.kind == Kind::Array,
            Tree::Object(_) => ours.kind == Kind::Object,
        };
        assert!(kind, "{ours:?}");
    }
}

#[test]
fn mutated_bodies() {
    let mut random = Random::new(5);
    for _ in 0..200_000 {
        let mut body = random.pick(SEEDS).as_bytes().to_vec();
        mutate(&mut body, SPECIAL, &mut random);
        compare(&body);
    }
}

#[test]
fn random_bodies() {
    let mut random = Random::new(6);
    for _ in 0..50_000 {
        let mut body = String::new();
        object(&mut body, 4, &mut random);
        assert!(peeked(body.as_bytes()).is_ok(), "{body}");
        compare(body.as_bytes());
    }
}

fn object(out: &mut String, depth: usize, random: &mut Random) {
    out.push('{');
    for number in 0..random.below(5) {
        out.push_str(if number > 0 { random.pick(&[",", " ,", ",\n "]) } else { "" });
        out.push_str(random.pick(&[
            r#""model""#,
            r#""\u006Dodel""#,
            r#""user""#,
            r#""x""#,
            r#""n""#,
            r#""mode""#,
            r#""""#,
        ]));
        out.push_str(random.pick(&[":", " : ", ":\t"]));
        value(out, depth, random);
    }
    out.push_str(random.pick(&["}", " }", "\r\n}"]));
}

fn value(out: &mut String, depth: usize, random: &mut Random) {
    match random.below(if depth == 0 { 4 } else { 6 }) {
        0 => out.push_str(random.pick(&["0", "-1", "1.5", "1e9", "-0.0E-7", "12345678901234567890"])),
        1 => out.push_str(random.pick(&["true", "false", "null"])),
        2 | 3 => out.push_str(random.pick(&[
            r#""""#,
            r#""text""#,
            r#""a \"model\":\"b\" c""#,
            r#""\\""#,
            r#""ä\n\u20ac, much longer than a block""#,
        ])),
        4 => object(out, depth - 1, random),
        _ => {
            out.push('[');
            for number in 0..random.below(4) {
                out.push_str(if number > 0 { "," } else { "" });
                value(out, depth - 1, random);
            }
            out.push(']');
        }
    }
}

#[test]
fn every_prefix_is_truncated_and_nothing_else() {
    for seed in SEEDS {
        for end in 0..seed.len() {
            let fault = peeked(&seed.as_bytes()[..end]).unwrap_err();
            let split_character = !seed.is_char_boundary(end);
            assert_eq!(matches!(fault, JsonFault::NotUtf8 { .. }), split_character);
            assert!(split_character || fault == JsonFault::Truncated, "{fault:?} at {end} of {seed}");
        }
        assert!(peeked(seed.as_bytes()).is_ok());
    }
}

#[test]
fn text_inside_strings_and_nested_objects_never_counts() {
    for body in [
        r#"{"prompt":"\",\"model\":\"evil\",\"x\":\""}"#,
        r#"{"messages":[{"model":"evil"}],"metadata":{"model":"evil"}}"#,
        r#"{"x":"\"model\":\"evil\""}"#,
        r#"{"model ":1,"Model":2,"mode":3,"modell":4,"\u006d\u006fdel\u0000":5,"m\\u006fdel":6}"#,
    ] {
        assert_eq!(peeked(body.as_bytes()).unwrap().get(Member::Model), None, "{body}");
    }
}

#[test]
fn the_last_of_a_repeated_name_wins_however_it_is_written() {
    let body = br#"{"model":"first","\u006d\u006F\u0064\u0065\u006C":"last"}"#;
    let members = peeked(body).unwrap();
    assert_eq!(members.get(Member::Model).unwrap().inner().of(body), b"last");
    assert!(members.has_repeated());
    assert_eq!(members.count(), 2);
}

#[test]
fn nesting_is_bounded_exactly() {
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}"), (r#"[{"a":"#, "}]")] {
        for depth in [1u32, 2, 63, 64, 65, 127, 128, 200, 1023] {
            let width = if open.len() > 4 && open.starts_with('[') { 2 } else { 1 };
            if depth % width != 0 {
                continue;
            }
            let times = (depth / width) as usize;
            let inner = if open == "[" { "" } else { "1" };
            let body = format!(r#"{{"x":{}{inner}{}}}"#, open.repeat(times), close.repeat(times));
            let at = |depth| peek(body.as_bytes(), &mut Members::new(), JsonLimits { depth });
            assert_eq!(at(depth + 1), Ok(()), "{open} {depth}");
            assert_eq!(at(depth), Err(JsonFault::TooDeep), "{open} {depth}");
        }
    }
    let deep = format!("{{\"x\":{}", "[".repeat(1_000_000));
    assert_eq!(
        peek(deep.as_bytes(), &mut Members::new(), JsonLimits { depth: u32::MAX }),
        Err(JsonFault::TooDeep)
    );
}

#[test]
fn other_tops_and_encodings_are_refused() {
    for body in ["[]", "1", "null", "\"x\"", "true"] {
        assert_eq!(peeked(body.as_bytes()).unwrap_err(), JsonFault::NotObject);
    }
    assert_eq!(peeked(b" ").unwrap_err(), JsonFault::Truncated);
    assert_eq!(peeked(b"{\"a\":\"\xff\"}").unwrap_err(), JsonFault::NotUtf8 { at: 6 });
    assert_eq!(peeked(b"{} {}").unwrap_err(), JsonFault::Syntax { at: 3 });
    assert_eq!(peeked(b"\xef\xbb\xbf{}").unwrap_err(), JsonFault::NotObject);
}
