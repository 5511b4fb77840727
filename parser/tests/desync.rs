//! The cases and the judgement of `http_desync_guardian`, a classifier of smuggling attempts.
//!
//! Its case files are read where Cargo unpacked them. They judge the head alone and carry no Host, so one
//! is added. Compliant must be accepted, Severe refused; what lies between is decided by our own rules, and
//! `ACCEPTED_BETWEEN` lists all of it that we let through.

#![allow(clippy::unwrap_used)] // A test may stop at the first surprise.

mod seeded;

use http_desync_guardian::RequestSafetyTier;
use http_desync_guardian::request_analyzer::HttpRequestData;
use seeded::{Random, mutate};
use std::path::PathBuf;
use std::process::Command;
use warmpath_parser::Malformed;
use warmpath_parser::http1::{Field, Headers, Limits, Progress, RequestParser};

/// Cases that are Compliant there and refused here, with the rule that refuses them.
/// Codings other than `chunked` are refused on purpose: nothing here decodes them. A fragment, bytes outside
/// ASCII and an absent target are outside the grammar of RFC 9112 3.2.
const REFUSED_COMPLIANT: &[(&str, Malformed)] = &[
    ("Correct TE OK", Malformed::CodingUnknown),
    ("Transfer-Encoding: identity and chunked OK", Malformed::CodingUnknown),
    ("Multiple transfer encoding headers in a single request OK", Malformed::CodingUnknown),
    ("TE with custom parameters OK", Malformed::CodingSyntax),
    ("Different Transfer-Encoding headers", Malformed::CodingUnknown),
    ("Different Transfer-Encoding headers combined", Malformed::CodingUnknown),
    ("Transfer-Encoding with a param: chunked;custom_param", Malformed::CodingSyntax),
    ("Compliant URL", Malformed::TargetFragment),
    ("International in URI", Malformed::TargetByte),
    ("Empty URI", Malformed::TargetEmpty),
];

/// Cases that are Severe there and accepted here.
const ACCEPTED_SEVERE: &[&str] = &[];

/// Cases that are Acceptable or Ambiguous there and accepted here.
/// A body with GET or HEAD is allowed by RFC 9110 9.3.1 and framed without doubt; the other two names are
/// no spelling of Transfer-Encoding that any reader is known to accept.
const ACCEPTED_BETWEEN: &[&str] = &[
    "Get with a body and Content-Length:0",
    "Get with a body and Content-Length:0",
    "Get with a body and Content-Length",
    "Get with a body and Transfer-Encoding",
    "Head with a body and Content-Length",
    "Head with a body and Transfer-Encoding",
    "Transfer-Encoding with multiple hyphens",
    "Transfer-Encoding with multiple delimiters",
    "Has a CL in GET",
    "Has a TE in GET",
];

#[derive(Debug, Default)]
struct Case {
    name: String,
    uri: Vec<u8>,
    method: Vec<u8>,
    version: Vec<u8>,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    tier: String,
}

impl Case {
    fn head(&self) -> Vec<u8> {
        let mut head = [&self.method[..], b" ", &self.uri, b" ", &self.version, b"\r\n"].concat();
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"host")) {
            head.extend_from_slice(b"Host: a\r\n");
        }
        for (name, value) in &self.headers {
            head.extend_from_slice(&[name, b": ".as_slice(), value, b"\r\n"].concat());
        }
        head.extend_from_slice(b"\r\n");
        head
    }
}

/// Where Cargo keeps the sources of the crate.
fn case_folder() -> Option<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .ok()?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let packages = metadata["packages"].as_array()?;
    let package = packages.iter().find(|package| package["name"] == "http_desync_guardian")?;
    let folder = PathBuf::from(package["manifest_path"].as_str()?).parent()?.join("tests");
    folder.is_dir().then_some(folder)
}

/// Reads the subset of YAML that the files use: one key a line, plain or quoted scalars.
fn cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
        let indent = line.len() - line.trim_start().len();
        let Some((key, value)) = line.trim_start().split_once(':') else { continue };
        let value = value.trim();
        match (indent, key) {
            (0, "- name") => cases.push(Case { name: shown(value), ..Case::default() }),
            (2, "uri") => cases.last_mut().unwrap().uri = scalar(value),
            (2, "method") => cases.last_mut().unwrap().method = scalar(value),
            (2, "version") => cases.last_mut().unwrap().version = scalar(value),
            (4, "- name") => cases.last_mut().unwrap().headers.push((scalar(value), Vec::new())),
            (6, "value") => cases.last_mut().unwrap().headers.last_mut().unwrap().1 = scalar(value),
            (4, "tier") => cases.last_mut().unwrap().tier = shown(value),
            _ => {}
        }
    }
    cases
}

fn unquoted(value: &str) -> &str {
    let inner = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}

fn shown(value: &str) -> String {
    unquoted(value).to_owned()
}

/// The bytes of a scalar. The files' own reader resolves escapes in every style of scalar.
fn scalar(value: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = unquoted(value).chars();
    while let Some(character) = rest.next() {
        if character != '\\' {
            bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        bytes.push(match rest.next() {
            Some('x') => {
                let digits: String = rest.by_ref().take(2).collect();
                u8::from_str_radix(&digits, 16).unwrap()
            }
            Some('n') => b'\n',
            Some('r') => b'\r',
            Some('t') => b'\t',
            other => u8::try_from(other.unwrap()).unwrap(),
        });
    }
    bytes
}

fn verdict(head: &[u8]) -> Option<Malformed> {
    match RequestParser::new().advance(head, &Limits::default(), &mut Headers::default()) {
        Ok(Progress::Done) => None,
        Ok(Progress::NeedMore) => panic!("a whole head needs more: {:?}", String::from_utf8_lossy(head)),
        Err(fault) => Some(fault),
    }
}

#[test]
fn case_files() {
    let Some(folder) = case_folder() else {
        println!("not_run: cargo cannot say where http_desync_guardian is unpacked");
        return;
    };
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut count = 0;
    let (mut refused_compliant, mut accepted_severe, mut accepted_between) = (vec![], vec![], vec![]);
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "yaml")) {
        for case in cases(&std::fs::read_to_string(file).unwrap()) {
            count += 1;
            match (case.tier.as_str(), verdict(&case.head())) {
                ("Compliant", None) | ("Severe", Some(_)) => {}
                ("Compliant", Some(fault)) => refused_compliant.push((case.name, fault)),
                ("Severe", None) => accepted_severe.push(case.name),
                ("Acceptable" | "Ambiguous", None) => accepted_between.push(case.name),
                ("Acceptable" | "Ambiguous", Some(_)) => {}
                (tier, _) => panic!("{} has no tier: {tier:?}", case.name),
            }
        }
    }
    assert!(count >= 150, "only {count} cases were read");
    let expected: Vec<_> =
        REFUSED_COMPLIANT.iter().map(|(name, fault)| ((*name).to_owned(), *fault)).collect();
    assert_eq!(refused_compliant, expected, "Compliant, but refused");
    assert_eq!(accepted_severe, ACCEPTED_SEVERE, "Severe, but accepted");
    assert_eq!(accepted_between, ACCEPTED_BETWEEN, "between, and accepted");
}

/// An accepted head without the fields that are unknown here. The classifier judges every name that resembles
/// a framing field as if it were one, to the point of `Contnt-Length`; no reader takes those for one.
fn without_unknown(head: &[u8], headers: &Headers) -> Vec<u8> {
    let first = headers.iter().next().map_or(head.len() - 2, |header| header.line.start as usize);
    let mut kept = head[..first].to_vec();
    for header in headers.iter().filter(|header| header.field != Field::Other) {
        kept.extend_from_slice(header.line.of(head));
    }
    kept.extend_from_slice(b"\r\n");
    kept
}

fn is_severe(head: &[u8]) -> bool {
    HttpRequestData::analyze_raw_request(head).tier == RequestSafetyTier::Severe
}

/// The classifier itself beside ours: what it calls Severe is never accepted here.
#[test]
fn mutated_requests() {
    let seeds = [
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nX: y\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 10\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nContent-Length: 10\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET /a HTTP/1.0\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    ];
    let mut random = Random::new(8);
    let (mut accepted, mut severe) = (0, 0);
    for _ in 0..100_000 {
        let mut bytes = random.pick(&seeds).as_bytes().to_vec();
        mutate(&mut bytes, b"\r\n: ,\t\0-_+x0", &mut random);
        let (mut parser, mut headers) = (RequestParser::new(), Headers::default());
        if parser.advance(&bytes, &Limits::default(), &mut headers) == Ok(Progress::Done) {
            accepted += 1;
            let head = without_unknown(&bytes[..parser.head().len as usize], &headers);
            assert!(!is_severe(&head), "accepted: {:?}", String::from_utf8_lossy(&head));
        } else {
            severe += u32::from(is_severe(&bytes));
        }
    }
    assert!(
        accepted > 10_000 && severe > 10_000,
        "{accepted} accepted, {severe} severe: the test sees too little"
    );
}
