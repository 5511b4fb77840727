//! Completions in text and chats: whether the gateway's files make the engine's tokens of them. Owns these probes and
//! their sentences.

use super::probe::Probed;
use crate::doctor::look::{Look, completion};
use crate::doctor::row::{Leg, Row};
use crate::doctor::text;
use serde_json::{Value, json};
use warmpath_prompt::{Api, Model};

/// Blocks that a text should fill, at two bytes a token or more.
const BLOCKS: usize = 3;

/// Both, where the model's files are there.
pub fn tokenizer_and_template(look: &mut Look<'_>, probed: &Probed) {
    let Some(files) = look.wanted.files.clone() else {
        for leg in [Leg::Tokenizer, Leg::Template] {
            let row = Row::not_run(
                leg,
                "the model's files are not found: text is left to the selector, token ids are not",
            )
            .rule(
                "tokenizers/MODEL/tokenizer.json and its template below --config-root, or here --tokenizer FILE",
            );
            look.tell(row);
        }
        return;
    };
    let model = match text::load(&files, look.wanted.engine) {
        Ok(model) => model,
        Err(why) => {
            look.tell(
                Row::not_equal(Leg::Tokenizer, format!("{}: {why}", files.display()))
                    .rule("files as the model's repository has them"),
            );
            look.tell(Row::not_run(Leg::Template, "without a tokenizer there are no tokens to compare"));
            return;
        }
    };
    let bytes = BLOCKS * probed.chain[0].tokens.len() * 3;
    let row = tokenizer(look, &model, bytes);
    look.tell(row);
    let row = template(look, &model, bytes);
    look.tell(row);
}

fn tokenizer(look: &mut Look<'_>, model: &Model, bytes: usize) -> Row {
    let mark = look.mark();
    let text = text::text(mark, bytes);
    let salt = salt(look, mark);
    let body = completion(&look.model(), Value::from(text), salt.as_deref());
    row(look, model, Api::Completions, &body, Leg::Tokenizer)
}

fn template(look: &mut Look<'_>, model: &Model, bytes: usize) -> Row {
    let mark = look.mark();
    let (system, text) = (text::text(mark, bytes / 2), text::text(mark ^ 1, bytes / 2));
    let turns = json!([
        {"role": "system", "content": system},
        {"role": "user", "content": "Is anybody there?"},
        {"role": "assistant", "content": "Yes, and listening."},
        {"role": "user", "content": text},
    ]);
    let mut body = json!({"model": look.model(), "messages": turns, "max_tokens": 1, "temperature": 0});
    if let Some(salt) = salt(look, mark) {
        body["cache_salt"] = salt.into();
    }
    row(look, model, Api::Chat, &body, Leg::Template)
}

/// By the salt the blocks of a text are known again among those of others.
fn salt(look: &Look<'_>, mark: u64) -> Option<String> {
    look.launch.tells_salt.then(|| format!("doctor-{mark:016x}"))
}

fn row(look: &mut Look<'_>, model: &Model, api: Api, body: &Value, leg: Leg) -> Row {
    let (path, what) = match api {
        Api::Chat => ("/v1/chat/completions", "a chat"),
        Api::Completions => ("/v1/completions", "a text"),
    };
    let ids = match text::ids(model, api, body.to_string().as_bytes(), crate::serve::wall()) {
        Ok(ids) => ids,
        Err(why) => {
            return Row::not_run(leg, format!("the gateway leaves {what} to the selector: {why}"))
                .rule(cure(leg));
        }
    };
    let sent = match look.send(path, body, look.pinned(0)) {
        Ok(sent) => sent,
        Err(why) => return Row::not_run(leg, format!("{what} of {} tokens: {why}", ids.len())),
    };
    if let Some(own) = sent.answer["usage"]["prompt_tokens"].as_u64().filter(|own| *own != ids.len() as u64) {
        return differ(leg, format!("{what} has {own} tokens at the engine, {} here", ids.len()));
    }
    let salt = body["cache_salt"].as_str();
    if let Err(why) = look.hear_until(|heard| heard.firsts(sent.since, salt).next().is_some()) {
        return Row::not_run(leg, why);
    }
    compared(look, leg, what, sent.since, &ids, salt)
}

fn compared(look: &Look<'_>, leg: Leg, what: &str, since: usize, ids: &[u32], salt: Option<&str>) -> Row {
    let firsts: Vec<Vec<u32>> =
        look.heard.firsts(since, salt).map(|first| look.heard.prompt(first)).collect();
    let common = |own: &Vec<u32>| own.iter().zip(ids).take_while(|(own, ours)| own == ours).count();
    match firsts.iter().max_by_key(|own| common(own)) {
        None => Row::not_run(leg, format!("no block of {what} of {} tokens came", ids.len())),
        Some(own) if common(own) == own.len() => Row::equal(
            leg,
            format!("{what} becomes the same tokens: {} of {} were told of", own.len(), ids.len()),
        ),
        Some(own) => {
            let at = common(own);
            let theirs = own.get(at).map_or_else(|| "none".to_owned(), u32::to_string);
            let ours = ids.get(at).map_or_else(|| "none".to_owned(), u32::to_string);
            differ(leg, format!("token {at} of {what} is {theirs} at the engine, {ours} here"))
        }
    }
}

fn differ(leg: Leg, seen: String) -> Row {
    Row::not_equal(leg, seen)
        .engine(match leg {
            Leg::Template => {
                "the model repository's own chat template (no --chat-template), and UTC if it prints the date"
            }
            _ => "the model repository's own tokenizer",
        })
        .rule(cure(leg))
}

fn cure(leg: Leg) -> &'static str {
    match leg {
        Leg::Template => {
            "chat_template.jinja or tokenizer_config.json of the engine's model, beside tokenizer.json"
        }
        _ => "tokenizer.json of the engine's model, below --config-root",
    }
}
