//! vLLM's handshake between prefill and decode, 0.23 to 0.33: `kv_transfer_params`, opaque, from one engine's answer
//! into the other's request. Owns what the prefill leg is asked for; must never look into what was handed over.

use super::encode::LEGS;
use crate::engine::pairing::encode::Encoding;
use crate::engine::pairing::{
    Body, Connector, Given, Handed, Need, Order, PairTerms, Pairing, PrefillEnd, Unpairable, print,
};
use warmpath_parser::json::{Change, Kind, Member, Rewrite, elements, member};

pub(super) const PAIRING: Pairing = Pairing {
    order: Order::PrefillFirst,
    admit,
    prefill,
    decode,
    read,
    stream_of: None,
    encoding: Encoding::Legs(LEGS),
    native: "",
};

/// What asks the NIXL connector to keep the blocks and to say where they are.
const KEEP: &[u8] = br#"{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}"#;

/// Decode is told of one request's blocks: the engine answers a list of prompts with the parameters of the first, and
/// frees the blocks when the first of several choices has read them.
fn admit(body: &Body<'_>) -> Result<Need, Unpairable> {
    body.carries_no(Member::KvTransferParams)?;
    body.carries_no(Member::EcTransferParams)?;
    body.is_single()?;
    // The prefill leg has bounds of its own, so that it would hide from the engine what decode then refuses.
    body.at_least_one(Member::MaxTokens)?;
    body.at_least_one(Member::MaxCompletionTokens)?;
    Ok(Need::ONE)
}

/// One token, whole, of a request that ends by its length: any other end frees the blocks.
fn prefill(body: &Body<'_>, terms: &PairTerms<'_>, out: &mut Vec<u8>) {
    let changes = [
        Change::Set(Member::MaxTokens, b"1"),
        body.set_present(Member::MaxCompletionTokens, b"1"),
        body.set_present(Member::Stream, b"false"),
        Change::Remove(Member::StreamOptions),
        Change::Remove(Member::KvTransferParams),
        Change::Remove(Member::EcTransferParams),
        // Last: only where it exceeds the one token; a wrong value is the engine's to refuse.
        Change::Remove(Member::MinTokens),
    ];
    let changes = if exceeds_one(body, Member::MinTokens) { &changes[..] } else { &changes[..6] };
    let mut rewrite =
        Rewrite::begin(body.bytes, body.members, changes, 64 + KEEP.len() + terms.encoded.len(), out);
    let params = rewrite.member(Member::KvTransferParams);
    match terms.connector {
        Connector::Answered => params.extend_from_slice(KEEP),
        Connector::Mooncake { .. } => {
            let room = terms.rooms.first();
            print(
                params,
                format_args!(
                    r#"{{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":"xfer-{room:016x}"}}"#
                ),
            );
        }
    }
    if !terms.encoded.is_empty() {
        let params = rewrite.member(Member::EcTransferParams);
        params.push(b'{');
        params.extend_from_slice(terms.encoded);
        params.push(b'}');
    }
    rewrite.end();
}

fn exceeds_one(body: &Body<'_>, member: Member) -> bool {
    let number = body.get(member).filter(|value| value.kind == Kind::Number);
    let text = number.and_then(|value| std::str::from_utf8(value.raw.of(body.bytes)).ok());
    text.and_then(|text| text.parse::<f64>().ok()).is_some_and(|number| number > 1.0)
}

/// The client's request, with where the blocks are.
fn decode(body: &Body<'_>, terms: &PairTerms<'_>, given: Option<Given<'_>>, out: &mut Vec<u8>) {
    let Some(given) = given else {
        out.extend_from_slice(body.bytes);
        return;
    };
    let state = given.state().unwrap_or_default();
    let replaced = [Change::Remove(Member::KvTransferParams)];
    let mut rewrite = Rewrite::begin(body.bytes, body.members, &replaced, 256 + state.len(), out);
    let params = rewrite.member(Member::KvTransferParams);
    match terms.connector {
        Connector::Answered => params.extend_from_slice(state),
        Connector::Mooncake { engine } => mooncake(terms, engine, params),
    }
    rewrite.end();
}

/// Where a Mooncake consumer asks for the blocks of a transfer.
fn mooncake(terms: &PairTerms<'_>, engine: &str, params: &mut Vec<u8>) {
    let at = terms.meeting();
    print(params, format_args!(r#"{{"do_remote_decode":false,"do_remote_prefill":true,"#));
    print(params, format_args!(r#""remote_bootstrap_addr":"http://{at}","remote_engine_id":"#));
    // A text always has a form in JSON, and a vector takes everything.
    let _ = serde_json::to_writer(&mut *params, engine);
    print(params, format_args!(r#","transfer_id":"xfer-{:016x}"}}"#, terms.rooms.first()));
}

/// Where the answer's `kv_transfer_params` are: `null` when the engine kept nothing. Mooncake's producer says nothing,
/// and kept the blocks if the answer ended by its length.
fn read(answer: &Body<'_>, terms: &PairTerms<'_>) -> PrefillEnd {
    match terms.connector {
        Connector::Answered => match answer.get(Member::KvTransferParams) {
            Some(params) if params.kind == Kind::Object => {
                PrefillEnd::Ready(Handed { state: Some(params.raw), prompt: None })
            }
            _ => PrefillEnd::Nothing,
        },
        Connector::Mooncake { .. } if ended_by_length(answer) => PrefillEnd::Ready(Handed::default()),
        Connector::Mooncake { .. } => PrefillEnd::Nothing,
    }
}

fn ended_by_length(answer: &Body<'_>) -> bool {
    let first = answer.named("choices").and_then(|choices| elements(answer.bytes, choices).next());
    let reason = first.and_then(|choice| member(answer.bytes, choice, "finish_reason"));
    reason.is_some_and(|reason| reason.inner().of(answer.bytes) == b"length")
}
