//! vLLM's requests to an encoder (`--ec-transfer-config` with `ec_role` producer), 0.30 to 0.32: an ordinary chat of one
//! part, for one token. Owns what it is asked for; must never look into what it hands over.
//!
//! `ECCPUConnector` answers `ec_transfer_params`, an object of one member for each item by its hash, which prefill needs to
//! find the encoding; `ECExampleConnector` answers nothing, since both read one folder. A prefill engine that does not
//! find an encoding computes it itself.

use crate::engine::pairing::Body;
use crate::engine::pairing::encode::EncodeLegs;
use warmpath_parser::Span;
use warmpath_parser::json::{Change, Kind, Member, Rewrite, entries};

pub(super) const LEGS: EncodeLegs = EncodeLegs { body, read };

/// The client's request, so that whatever decides how media are read stays, with one part in the place of all messages.
fn body(body: &Body<'_>, part: Span, out: &mut Vec<u8>) {
    let changes = [
        Change::Set(Member::MaxTokens, b"1"),
        body.set_present(Member::MaxCompletionTokens, b"1"),
        body.set_present(Member::Stream, b"false"),
        Change::Remove(Member::MinTokens),
        Change::Remove(Member::StreamOptions),
        Change::Remove(Member::KvTransferParams),
        Change::Remove(Member::EcTransferParams),
        Change::Remove(Member::Messages),
    ];
    let room = 64 + (part.end - part.start) as usize;
    let mut rewrite = Rewrite::begin(body.bytes, body.members, &changes, room, out);
    let messages = rewrite.member(Member::Messages);
    messages.extend_from_slice(br#"[{"role":"user","content":["#);
    messages.extend_from_slice(part.of(body.bytes));
    messages.extend_from_slice(b"]}]");
    rewrite.end();
}

fn read(answer: &Body<'_>) -> Option<Span> {
    let params = answer.get(Member::EcTransferParams).filter(|params| params.kind == Kind::Object)?;
    entries(answer.bytes, params).next()?;
    // Between its braces.
    Some(Span { start: params.raw.start + 1, end: params.raw.end - 1 })
}
