//! A peeked body into what is to be tokenized: the conversation that the template gets, or the prompt. Owns
//! which requests are declined and how an engine hands content to a template; must never name an engine: what
//! differs between them is data of [`Policy`].

mod chat;
mod completion;
mod tools;

use crate::template::Kwarg;

pub use chat::Conversation;
pub(crate) use chat::{conversation, frame, message};
pub(crate) use completion::{Given, prompt};

use crate::decline::Decline;
pub use warmpath_core::profile::Api;

use warmpath_core::engine::{Engine, Named};
use warmpath_parser::json::{JsonLimits, Kind, Member, Members, Value, peek, text};

/// How an engine hands the text parts of a content to the template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentShape {
    /// One string (`string`): several parts are joined.
    Text {
        /// What stands between two parts: a line feed in vLLM 0.32 and TensorRT-LLM, a blank in SGLang 0.5.
        joiner: &'static str,
    },
    /// A list of parts (`openai`).
    Parts {
        /// Whether a plain string becomes a list of one part (vLLM 0.32) or stays a string (SGLang 0.5).
        wrap: bool,
    },
}

/// Where the first token of a completion's prompt comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionsBos {
    /// The post-processor of `tokenizer.json` decides (`add_special_tokens` true).
    File,
    /// This token always stands first and the text is encoded without others (`completionsBos`).
    Always(u32),
}

/// What a template that prints the date gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Nothing: which day it is where the engine runs is not known.
    Unknown,
    /// The date in UTC (`clockPolicy: utc-date`): the engines are said to run in that time zone.
    UtcDate,
}

/// What a profile and an engine's version say about turning requests into tokens.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Whose quirks of a profile count; none: nobody's.
    pub engine: Option<Engine>,
    /// Types of models (`model_type`) whose chats the engine encodes by code of its own.
    pub encoded: &'static [&'static str],
    /// What the template may print of the time.
    pub clock: Clock,
    /// Whether the profile is for chats (`supportedApis`).
    pub chats: bool,
    /// Whether the profile is for completions.
    pub completions: bool,
    /// How content gets to the template.
    pub content: ContentShape,
    /// What stands between the text parts of a tool's result.
    pub joiner: &'static str,
    /// How it does instead where the template loops over parts; none: the same way.
    pub looped: Option<ContentShape>,
    /// Whether tools, calls of them and their results are rendered: verified for the template, and not excluded
    /// by the profile.
    pub tools: bool,
    /// Whether `chat_template_kwargs` get to the engine's template.
    pub template_kwargs: bool,
    /// Those that were verified for the template; others are declined.
    pub kwargs: &'static [Kwarg],
    /// Whose `name` gets to the template.
    pub names: Named,
    /// What a system text must not begin with.
    pub cut_header: Option<&'static str>,
    /// Whether the engine encodes chats by the template (false: `modelType` gpt_oss, mistral3).
    pub chats_by_template: bool,
    /// What a completion's prompt begins with.
    pub completions_bos: CompletionsBos,
    /// `bos_token`, `eos_token` and such, as the template sees them.
    pub special_tokens: Vec<(String, String)>,
}

impl Policy {
    /// vLLM's way with a plain template, nothing optional verified.
    pub fn plain() -> Policy {
        Policy {
            engine: None,
            encoded: &[],
            clock: Clock::Unknown,
            chats: true,
            completions: true,
            content: ContentShape::Text { joiner: "\n" },
            joiner: "\n",
            looped: None,
            tools: false,
            template_kwargs: false,
            kwargs: &[],
            names: Named::All,
            cut_header: None,
            chats_by_template: true,
            completions_bos: CompletionsBos::File,
            special_tokens: Vec::new(),
        }
    }
}

/// What names blocks beside tokens, as far as the body tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// `cache_salt` (vLLM, SGLang).
    pub salt: Option<String>,
    /// `extra_key` (SGLang).
    pub namespace: Option<String>,
}

/// The members of a body that nobody has looked into yet, or what is wrong with its JSON.
pub fn members(body: &[u8]) -> Result<Members, String> {
    let mut members = Members::new();
    match peek(body, &mut members, JsonLimits::default()) {
        Ok(_) => Ok(members),
        Err(fault) => Err(fault.to_string()),
    }
}

/// Reads [`Beside`], or declines what can't be told.
pub fn beside(body: &[u8], members: &Members) -> Result<Beside, Decline> {
    refuse(members, Member::PromptEmbeds, Decline::PromptEmbeds)?;
    refuse(members, Member::PromptTokenIds, Decline::PromptTokenIds)?;
    refuse(members, Member::PromptTokenIdsB64, Decline::PromptTokenIds)?;
    refuse(members, Member::TruncatePromptTokens, Decline::Truncated)?;
    refuse(members, Member::LoraPath, Decline::LoraPath)?;
    let string = |member| given(members, member).map(|value| string(body, value)).transpose();
    Ok(Beside { salt: string(Member::CacheSalt)?, namespace: string(Member::ExtraKey)? })
}

/// A member that is there and not null.
fn given(members: &Members, member: Member) -> Option<Value> {
    members.get(member).filter(|value| value.kind != Kind::Null)
}

fn refuse(members: &Members, member: Member, decline: Decline) -> Result<(), Decline> {
    given(members, member).map_or(Ok(()), |_| Err(decline))
}

/// Declines any value but `default`.
fn expect(members: &Members, member: Member, default: Kind, decline: Decline) -> Result<(), Decline> {
    if given(members, member).is_some_and(|value| value.kind != default) { Err(decline) } else { Ok(()) }
}

/// A string's text.
fn string(body: &[u8], value: Value) -> Result<String, Decline> {
    let mut out = Vec::with_capacity(value.raw.len());
    if !text(body, value, &mut out) {
        return Err(Decline::MemberType);
    }
    if value.kind == (Kind::String { escaped: true }) && has_lone_surrogate(value.inner().of(body)) {
        return Err(Decline::LoneSurrogate);
    }
    String::from_utf8(out).map_err(|_| Decline::MemberType)
}

/// Whether an escaped surrogate stands alone. Python keeps it, and what tokenizers make of it differs.
fn has_lone_surrogate(inner: &[u8]) -> bool {
    let unit = |at: usize| {
        let digits = inner.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    // Most texts have no such escape: one quick look spares them the walk.
    if memchr::memmem::find(inner, b"\\u").is_none() {
        return false;
    }
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'\\', inner.get(at..).unwrap_or_default()) {
        at += found;
        match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => at += 12,
            (Some(0xd800..=0xdfff), _) => return true,
            (Some(_), _) => at += 6,
            (None, _) => at += 2,
        }
    }
    false
}

#[cfg(test)]
mod tests;
