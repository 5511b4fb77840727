//! The prompt of a completion. Owns its four shapes.

use super::{expect, given, refuse, string};
use crate::decline::Decline;
use warmpath_parser::json::{Kind, Member, Members, Value, elements};

/// A prompt as text or as tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// To be tokenized; `specials` as `add_special_tokens`.
    Text { text: String, specials: bool },
    /// Tokens already.
    Tokens(Vec<u32>),
}

/// Reads `prompt`: a string, a list of one string, token ids, or a list of one list of token ids.
pub(crate) fn prompt(body: &[u8], members: &Members) -> Result<Given, Decline> {
    refuse(members, Member::Suffix, Decline::Suffix)?;
    let specials = given(members, Member::AddSpecialTokens).is_none_or(|value| value.kind != Kind::False);
    if specials {
        expect(members, Member::AddSpecialTokens, Kind::True, Decline::AddSpecialTokens)?;
    }
    let prompt = given(members, Member::Prompt).ok_or(Decline::NoPrompt)?;
    match prompt.kind {
        Kind::String { .. } => Ok(Given::Text { text: string(body, prompt)?, specials }),
        Kind::Array => match first_of(body, prompt) {
            None => Err(Decline::NoPrompt),
            Some((first, _)) if first.kind == Kind::Number => tokens(body, prompt),
            Some((_, true)) => Err(Decline::ManyPrompts),
            Some((only, _)) if only.kind == Kind::Array => tokens(body, only),
            Some((only, _)) if matches!(only.kind, Kind::String { .. }) => {
                Ok(Given::Text { text: string(body, only)?, specials })
            }
            Some(_) => Err(Decline::PromptShape),
        },
        _ => Err(Decline::PromptShape),
    }
}

/// The first element, and whether there are more.
fn first_of(body: &[u8], array: Value) -> Option<(Value, bool)> {
    let mut elements = elements(body, array);
    let first = elements.next()?;
    Some((first, elements.next().is_some()))
}

fn tokens(body: &[u8], array: Value) -> Result<Given, Decline> {
    let id = |value: Value| value.as_u64(body).and_then(|id| u32::try_from(id).ok());
    let ids: Option<Vec<u32>> = elements(body, array).map(id).collect();
    match ids {
        None => Err(Decline::TokenIds),
        Some(ids) if ids.is_empty() => Err(Decline::NoPrompt),
        Some(ids) => Ok(Given::Tokens(ids)),
    }
}
