//! The stage before prefill: what of a chat is no text (media) is encoded by engines of its own. Owns which parts are
//! media and what engines' dialects have in common; must never fetch media, nor look into them.

use super::Body;
use warmpath_parser::Span;
use warmpath_parser::json::{
    JsonLimits, Kind, Member, Members, Value, elements, is_text, member, messages, peek,
};

/// How pairs of an engine have media encoded.
#[derive(Clone, Copy)]
pub enum Encoding {
    /// Prefill does it.
    Never,
    /// Prefill asks encoders itself, by the addresses that it was started with (SGLang's `--encoder-urls`): requests go
    /// to a pair as they are, and encoders get none.
    ByAddress,
    /// Each part goes to an encoder before prefill.
    Legs(EncodeLegs),
}

/// One engine's dialect of encoding.
#[derive(Clone, Copy)]
pub struct EncodeLegs {
    pub(in crate::engine) body: fn(&Body<'_>, Span, &mut Vec<u8>),
    /// What a whole answer of status 200 hands over: the members of an object.
    pub(in crate::engine) read: fn(&Body<'_>) -> Option<Span>,
}

/// How a leg to an encoder ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeEnd {
    /// The part is encoded; what prefill is to be told of it, as members of an object. Nothing is told where
    /// encoders and prefill share a store.
    Ready(Option<Span>),
    /// The engine refused the part (4xx): its answer is the client's, as it is.
    Refused,
    /// The engine failed (any other status, or 200 without an answer that can be read).
    Failed,
}

/// Types of a message's parts that are media, by the OpenAI API and vLLM's additions to it.
const MEDIA: [&str; 4] = ["image_url", "input_audio", "audio_url", "video_url"];

/// Parts of one request that are encoded before prefill: what comes behind is prefill's, which computes what it does
/// not find.
const PARTS_MAX: usize = 64;

/// The media parts of a chat, equal ones once, in their order, at most 64. Allocates where there are any.
pub fn media(body: &Body<'_>) -> Vec<Span> {
    let mut parts: Vec<Span> = Vec::new();
    if body.get(Member::Messages).is_none() {
        return parts;
    }
    for message in messages(body.bytes, body.members) {
        let Some(content) = member(body.bytes, message, "content") else { continue };
        for part in elements(body.bytes, content).filter(|part| is_media(body.bytes, *part)) {
            if parts.len() == PARTS_MAX {
                return parts;
            }
            let bytes = part.raw.of(body.bytes);
            if !parts.iter().any(|known| known.of(body.bytes) == bytes) {
                parts.push(part.raw);
            }
        }
    }
    parts
}

fn is_media(bytes: &[u8], part: Value) -> bool {
    let kind = if part.kind == Kind::Object { member(bytes, part, "type") } else { None };
    kind.is_some_and(|kind| MEDIA.iter().any(|name| is_text(bytes, kind, name)))
}

impl EncodeLegs {
    /// Pushes the body of a leg: `part` is one of [`media`]'s.
    pub fn body(&self, body: &Body<'_>, part: Span, out: &mut Vec<u8>) {
        (self.body)(body, part, out);
    }

    /// How a leg ended, by its status and its whole answer.
    pub fn read(&self, status: u16, answer: &[u8]) -> EncodeEnd {
        match status {
            200 => {}
            400..=499 => return EncodeEnd::Refused,
            _ => return EncodeEnd::Failed,
        }
        let mut members = Members::new();
        match peek(answer, &mut members, JsonLimits::default()) {
            Ok(()) => EncodeEnd::Ready((self.read)(&Body { bytes: answer, members: &members })),
            Err(_) => EncodeEnd::Failed,
        }
    }
}
