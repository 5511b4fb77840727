//! TensorRT-LLM's handover from context to generation, as on the public main branch in 2026: `disaggregated_params`,
//! an opaque state that goes from one engine's answer into the other's request. Owns the two request types and what a
//! final answer of the context engine looks like as a stream. The engine refuses members that it does not know: none
//! must be added but those that it has itself.

use crate::engine::pairing::encode::Encoding;
use crate::engine::pairing::{
    Body, Given, Handed, Need, Order, PairTerms, Pairing, PrefillEnd, Unpairable, print,
};
use warmpath_parser::Span;
use warmpath_parser::json::{Change, Kind, Member, Rewrite, Value, elements, entries, member, set_in};

pub(super) const PAIRING: Pairing = Pairing {
    order: Order::PrefillFirst,
    admit,
    prefill,
    decode,
    read,
    stream_of: Some(stream_of),
    encoding: Encoding::Never,
    native: "",
};

/// One context makes one state: the engines' own orchestrator takes one prompt and one choice too.
fn admit(body: &Body<'_>) -> Result<Need, Unpairable> {
    body.carries_no(Member::DisaggregatedParams)?;
    body.is_single()?;
    Ok(Need::ONE)
}

/// The context engine stops by itself after one token: `max_tokens` stays.
fn prefill(body: &Body<'_>, terms: &PairTerms<'_>, out: &mut Vec<u8>) {
    let changes = [
        body.set_present(Member::Stream, b"false"),
        Change::Remove(Member::StreamOptions),
        Change::Remove(Member::DisaggregatedParams),
    ];
    let mut rewrite = Rewrite::begin(body.bytes, body.members, &changes, 128, out);
    let room = terms.rooms.first();
    print(
        rewrite.member(Member::DisaggregatedParams),
        format_args!(r#"{{"request_type":"context_only","disagg_request_id":{room}}}"#),
    );
    rewrite.end();
}

/// The client's request with the state and, where the context engine told them, the prompt's tokens in the place of
/// its text, so that both engines count on the same ones.
fn decode(body: &Body<'_>, _: &PairTerms<'_>, given: Option<Given<'_>>, out: &mut Vec<u8>) {
    let Some((given, state)) = given.and_then(|given| Some((given, given.handed.state?))) else {
        out.extend_from_slice(body.bytes);
        return;
    };
    let tokens = match given.prompt() {
        Some(tokens) if body.get(Member::Messages).is_some() => Change::Set(Member::PromptTokenIds, tokens),
        Some(tokens) if body.get(Member::Prompt).is_some() => Change::Set(Member::Prompt, tokens),
        _ => Change::Remove(Member::DisaggregatedParams),
    };
    let changes = [Change::Remove(Member::DisaggregatedParams), tokens];
    let mut rewrite = Rewrite::begin(body.bytes, body.members, &changes, 64 + state.len(), out);
    generation(given.answer, state, rewrite.member(Member::DisaggregatedParams));
    rewrite.end();
}

/// The state to the letter, but for its request type.
fn generation(answer: &[u8], state: Span, out: &mut Vec<u8>) {
    let object = Value { raw: state, key: Span::default(), kind: Kind::Object, index: 0 };
    let Some(edit) = set_in(answer, object, "request_type", b"\"request_type\":", b"\"generation_only\"") else {
        return;
    };
    out.extend_from_slice(Span { start: state.start, end: edit.range.start }.of(answer));
    for piece in edit.with {
        out.extend_from_slice(piece);
    }
    out.extend_from_slice(Span { start: edit.range.end, end: state.end }.of(answer));
}

fn read(answer: &Body<'_>, _: &PairTerms<'_>) -> PrefillEnd {
    let Some(choice) = answer.named("choices").and_then(|choices| elements(answer.bytes, choices).next()) else {
        return PrefillEnd::Nothing;
    };
    let in_choice = |name| member(answer.bytes, choice, name);
    let reason = in_choice("finish_reason").filter(|reason| matches!(reason.kind, Kind::String { .. }));
    let goes_on = |reason: Value| matches!(reason.inner().of(answer.bytes), b"length" | b"not_finished");
    if reason.is_some_and(|reason| !goes_on(reason)) {
        return PrefillEnd::Final;
    }
    match in_choice("disaggregated_params") {
        Some(state) if state.kind == Kind::Object => {
            PrefillEnd::Ready(Handed { state: Some(state.raw), prompt: prompt_tokens(answer) })
        }
        _ => PrefillEnd::Nothing,
    }
}

/// The answer's `prompt_token_ids`: a list, or a list of one list.
fn prompt_tokens(answer: &Body<'_>) -> Option<Span> {
    let tokens = answer.get(Member::PromptTokenIds)?;
    let mut inside = elements(answer.bytes, tokens);
    let first = inside.next()?;
    match first.kind {
        Kind::Number => Some(tokens.raw),
        Kind::Array if inside.next().is_none() && !elements(answer.bytes, first).any(|id| id.kind != Kind::Number) => {
            Some(first.raw)
        }
        _ => None,
    }
}

/// Members of an answer that its chunk has another way, or not at all.
const NOT_IN_CHUNK: [&str; 4] = ["object", "choices", "usage", "prompt_token_ids"];

fn stream_of(body: &Body<'_>, answer: &Body<'_>, out: &mut Vec<u8>) {
    let usage = answer.named("usage").filter(|_| wants_usage(body));
    out.reserve(answer.bytes.len() + 512);
    event(answer, out, |out| {
        print(out, format_args!(",\"choices\":["));
        let choices = answer.named("choices").map(|choices| elements(answer.bytes, choices));
        for (at, choice) in choices.into_iter().flatten().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            delta(answer.bytes, choice, out);
        }
        out.push(b']');
        if usage.is_some() {
            print(out, format_args!(",\"usage\":null"));
        }
    });
    if let Some(usage) = usage {
        event(answer, out, |out| {
            print(out, format_args!(",\"choices\":[],\"usage\":"));
            out.extend_from_slice(usage.raw.of(answer.bytes));
        });
    }
    print(out, format_args!("data: [DONE]\n\n"));
}

/// The engine's `StreamOptions.include_usage` is true unless it says otherwise.
fn wants_usage(body: &Body<'_>) -> bool {
    let options = body.get(Member::StreamOptions).filter(|options| options.kind == Kind::Object);
    options.is_some_and(|options| {
        member(body.bytes, options, "include_usage").is_none_or(|usage| usage.kind == Kind::True)
    })
}

/// One chunk: what it has of the answer, and what `rest` says.
fn event(answer: &Body<'_>, out: &mut Vec<u8>, rest: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    let chat = answer.named("object").is_some_and(|object| object.inner().of(answer.bytes) == b"chat.completion");
    let object = if chat { "chat.completion.chunk" } else { "text_completion" };
    print(out, format_args!("data: {{\"object\":\"{object}\""));
    for entry in entries(answer.bytes, answer.members.as_value()) {
        if !NOT_IN_CHUNK.iter().any(|name| entry.is_named(answer.bytes, name)) {
            out.push(b',');
            pair(answer.bytes, entry, out);
        }
    }
    rest(out);
    out.push(b'}');
    // In valid JSON a line end is nothing but a blank, and an event's data is one line.
    for byte in &mut out[begin..] {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    out.extend_from_slice(b"\n\n");
}

/// A choice of an answer as a choice of a chunk: its message is what is new, its state is not the client's.
fn delta(answer: &[u8], choice: Value, out: &mut Vec<u8>) {
    out.push(b'{');
    let mut first = true;
    for entry in entries(answer, choice).filter(|entry| !entry.is_named(answer, "disaggregated_params")) {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        if entry.is_named(answer, "message") {
            print(out, format_args!("\"delta\":"));
            out.extend_from_slice(entry.raw.of(answer));
        } else {
            pair(answer, entry, out);
        }
    }
    out.push(b'}');
}

fn pair(answer: &[u8], entry: Value, out: &mut Vec<u8>) {
    out.extend_from_slice(entry.key.of(answer));
    out.push(b':');
    out.extend_from_slice(entry.raw.of(answer));
}
