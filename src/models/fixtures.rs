//! Probe fixtures made by asking a live engine what its tokens are. Owns the texts that are asked, each of which some
//! tokenizer or template is known to treat otherwise than another; must never write over probes that are there.

use super::FixtureArgs;
use super::files;
use crate::doctor::ask::{Http, refusal};
use serde_json::{Value, json};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;
use warmpath_core::profile::Api;
use warmpath_core::profile::fixture::Fixture;

/// How long an engine may take for one answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Completions: prose, blanks and line ends, letters that lower case changes the length of, scripts without blanks,
/// numbers and code, a token's text within text.
const TEXTS: [&str; 6] = [
    "The quick brown fox jumps over the lazy dog, and then it does so again.",
    "  two blanks, a tab\there, an end\r\n\r\n   and   three.",
    "\u{17f}\u{130}\u{1e9e} na\u{ef}ve co\u{f6}perate e\u{301} \u{fb01}",
    "\u{4f60}\u{597d}\u{ff0c}\u{4e16}\u{754c}\u{3002}\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467} \u{928}\u{92e}\u{938}\u{94d}\u{924}\u{947}",
    "for (i = 0; i < 1024; i++) { x[i] = 3.14159e-10 / 1234567; }",
    "<s>[INST] <|im_start|>user </s> <|endoftext|>",
];

/// Asks and writes.
pub fn run(args: &FixtureArgs) -> Result<(), String> {
    let questions = args.engine.questions().filter(|own| own.tokenize.is_some());
    let (Some(questions), Some(path)) = (questions, questions.and_then(|own| own.tokenize)) else {
        let engine = args.engine.name();
        return Err(format!(
            "{engine} can't be asked for tokens; its probes are made by the model's reference tokenizer"
        ));
    };
    if std::fs::read_dir(&args.out).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(format!("--out {}: is not empty; name a new folder", args.out.display()));
    }
    let http = Http { address: address(&args.url)?, patience: PATIENCE };
    let mut made = Vec::new();
    for (at, (api, body)) in bodies(args).into_iter().enumerate() {
        let request = body.to_string().into_bytes();
        let answer = http.post(path, &request, &[]).map_err(|what| format!("{}{path}: {what}", args.url))?;
        if answer.status != 200 {
            return Err(format!("{}{path}: {}", args.url, refusal(&answer)));
        }
        let tokens = questions.tokens(&answer.body).filter(|tokens| !tokens.is_empty());
        let tokens = tokens
            .ok_or_else(|| format!("{}{path}: its answer has no count and tokens that agree", args.url))?;
        made.push(Fixture::of((at + 1).to_string(), request, api, tokens));
    }
    for fixture in &made {
        let at = |end: &str| args.out.join(format!("{}.{end}.json", fixture.name));
        files::write(&at("request"), &fixture.request)?;
        files::write(&at("expect"), &fixture.expectation())?;
    }
    println!("{} probes of {} in {}", made.len(), args.model, args.out.display());
    Ok(())
}

fn bodies(args: &FixtureArgs) -> Vec<(Api, Value)> {
    let text = |text: &str| (Api::Completions, json!({"model": args.model, "prompt": text}));
    let mut bodies: Vec<(Api, Value)> = TEXTS.into_iter().map(text).collect();
    if args.completions_only {
        return bodies;
    }
    let turn = |role: &str, content: &str| json!({"role": role, "content": content});
    let chats = [
        json!([turn("user", TEXTS[0])]),
        json!([turn("system", "You answer briefly."), turn("user", TEXTS[1])]),
        json!([turn("user", TEXTS[2]), turn("assistant", TEXTS[3]), turn("user", TEXTS[4])]),
    ];
    let chat = |messages| json!({"model": args.model, "messages": messages, "add_generation_prompt": true});
    bodies.extend(chats.into_iter().map(|messages| (Api::Chat, chat(messages))));
    bodies
}

fn address(url: &str) -> Result<SocketAddr, String> {
    let fault = || format!("--url {url}: write it as http://HOST:PORT");
    let rest = url.trim_end_matches('/').strip_prefix("http://").ok_or_else(fault)?;
    rest.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(fault)
}
