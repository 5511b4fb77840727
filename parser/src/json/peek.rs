//! The top-level members of a request body that the gateway reads.
//!
//! Owns the closed list of names and the one pass that finds them. The whole text is checked against
//! RFC 8259 on the way, so that a body that is accepted here reads the same for an engine. It must never
//! be fooled by text inside strings or by names in nested objects.

use super::scan::Scanner;
use crate::Span;
use std::fmt;

macro_rules! members {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// A top-level member that the gateway reads.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Member {
            $($(#[$doc])* #[doc = concat!("`", $name, "`")] $variant),+
        }

        impl Member {
            /// All members, in the order of the declaration.
            pub const ALL: &'static [Member] = &[$(Member::$variant),+];

            /// The name as it stands in a body.
            pub fn name(self) -> &'static str {
                match self { $(Member::$variant => $name),+ }
            }

            /// The name in quotes with its colon, as it is written into a body.
            pub(super) fn quoted(self) -> &'static [u8] {
                match self { $(Member::$variant => concat!("\"", $name, "\":").as_bytes()),+ }
            }

            fn of(key: &[u8]) -> Option<Member> {
                match key {
                    $(key if key == $name.as_bytes() => Some(Member::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

members! {
    Model = "model",
    Stream = "stream",
    Prompt = "prompt",
    Messages = "messages",
    Input = "input",
    Text = "text",
    InputIds = "input_ids",
    SamplingParams = "sampling_params",
    User = "user",
    MaxTokens = "max_tokens",
    MaxCompletionTokens = "max_completion_tokens",
    MaxOutputTokens = "max_output_tokens",
    MinTokens = "min_tokens",
    N = "n",
    BestOf = "best_of",
    StreamOptions = "stream_options",
    Tools = "tools",
    ToolChoice = "tool_choice",
    ResponseFormat = "response_format",
    Temperature = "temperature",
    Logprobs = "logprobs",
    ChatTemplate = "chat_template",
    ChatTemplateKwargs = "chat_template_kwargs",
    AddGenerationPrompt = "add_generation_prompt",
    ContinueFinalMessage = "continue_final_message",
    AddSpecialTokens = "add_special_tokens",
    TruncatePromptTokens = "truncate_prompt_tokens",
    Documents = "documents",
    Functions = "functions",
    ReasoningEffort = "reasoning_effort",
    PromptEmbeds = "prompt_embeds",
    PromptTokenIds = "prompt_token_ids",
    PromptTokenIdsB64 = "prompt_token_ids_b64",
    Suffix = "suffix",
    ExtraKey = "extra_key",
    CacheSalt = "cache_salt",
    KvTransferParams = "kv_transfer_params",
    EcTransferParams = "ec_transfer_params",
    DisaggregatedParams = "disaggregated_params",
    BootstrapHost = "bootstrap_host",
    BootstrapPort = "bootstrap_port",
    BootstrapRoom = "bootstrap_room",
    DataParallelRank = "data_parallel_rank",
    RoutedDpRank = "routed_dp_rank",
    DisaggPrefillDpRank = "disagg_prefill_dp_rank",
    RequestId = "request_id",
    Rid = "rid",
    Priority = "priority",
    SessionId = "session_id",
    ConversationId = "conversation_id",
    LoraAdapter = "lora_adapter",
    LoraPath = "lora_path",
    Images = "images",
    Audio = "audio",
    SessionContext = "session_context",
    RagContext = "rag_context",
    Store = "store",
}

/// The longest member name, in bytes.
const LONGEST: usize = 22;

/// Messages whose places are noted; those behind are found by a second look.
const NOTED: usize = 512;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A string; `escaped` says whether it has a backslash.
    String {
        /// Whether the text differs from the bytes between the quotes.
        escaped: bool,
    },
    /// A number of any size.
    Number,
    /// `true`
    True,
    /// `false`
    False,
    /// `null`
    Null,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// Where a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// The value with its quotes or brackets, without the whitespace around it.
    pub raw: Span,
    /// The key with its quotes.
    pub key: Span,
    /// What the value is.
    pub kind: Kind,
    /// How many members or elements come before it.
    pub index: u32,
}

impl Value {
    /// The bytes between the quotes of a string; the whole value of another kind.
    pub fn inner(self) -> Span {
        match self.kind {
            Kind::String { .. } => Span { start: self.raw.start + 1, end: self.raw.end.saturating_sub(1) },
            _ => self.raw,
        }
    }

    /// The value as an unsigned integer, if it is one.
    pub fn as_u64(self, body: &[u8]) -> Option<u64> {
        match self.kind {
            Kind::Number => std::str::from_utf8(self.raw.of(body)).ok()?.parse().ok(),
            _ => None,
        }
    }
}

/// What [`peek`] found. Reusable: each peek begins by forgetting the last.
#[derive(Clone, Debug)]
pub struct Members {
    found: [Option<Value>; Member::ALL.len()],
    object: Span,
    count: u32,
    repeated: bool,
    /// Where the first messages are, each an object; those from `noted_count` on are an earlier body's.
    noted: [Span; NOTED],
    noted_count: usize,
}

impl Members {
    /// An empty set.
    pub fn new() -> Self {
        Members {
            found: [None; Member::ALL.len()],
            object: Span::default(),
            count: 0,
            repeated: false,
            noted: [Span::default(); NOTED],
            noted_count: 0,
        }
    }

    /// Forgets everything. What was noted stays where it is, since nobody sees it behind the count.
    fn clear(&mut self) {
        self.found = [None; Member::ALL.len()];
        (self.object, self.count, self.repeated, self.noted_count) = (Span::default(), 0, false, 0);
    }

    /// Where the first messages are, as far as that was noted.
    pub(super) fn noted(&self) -> &[Span] {
        self.noted.get(..self.noted_count).unwrap_or_default()
    }

    /// Notes the place of the message with this index, if all before it are noted.
    fn note(&mut self, index: usize, message: Span) {
        if let Some(slot) = self.noted.get_mut(index).filter(|_| index == self.noted_count) {
            *slot = message;
            self.noted_count += 1;
        }
    }

    /// The last member of that name.
    #[inline]
    pub fn get(&self, member: Member) -> Option<Value> {
        self.found.get(member as usize).copied().flatten()
    }

    /// The top-level object from brace to brace, both included.
    pub fn object(&self) -> Span {
        self.object
    }

    /// How many members of any name the object has, repeated ones included.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether some member of the closed list appears more than once.
    pub fn has_repeated(&self) -> bool {
        self.repeated
    }

    fn set(&mut self, member: Member, value: Value) {
        if let Some(slot) = self.found.get_mut(member as usize) {
            self.repeated |= slot.replace(value).is_some();
        }
    }
}

impl Default for Members {
    fn default() -> Self {
        Members::new()
    }
}

/// Bounds on a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonLimits {
    /// Arrays and objects open at once, the top-level one included; at most 1,024.
    pub depth: u32,
}

impl Default for JsonLimits {
    fn default() -> Self {
        JsonLimits { depth: 128 }
    }
}

/// Why a body is refused. Offsets are in bytes from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonFault {
    /// The body is JSON or may be, but not an object.
    NotObject,
    /// A byte that the grammar does not allow there.
    Syntax {
        /// Where.
        at: u32,
    },
    /// The body ends within the object.
    Truncated,
    /// More nesting than the bound.
    TooDeep,
    /// The body is not UTF-8 (RFC 8259 8.1).
    NotUtf8 {
        /// The first byte that is not.
        at: u32,
    },
    /// The body is longer than offsets reach.
    TooLong,
}

impl fmt::Display for JsonFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JsonFault::NotObject => write!(f, "the body is not a JSON object"),
            JsonFault::Syntax { at } => write!(f, "the body is not valid JSON at byte {at}"),
            JsonFault::Truncated => write!(f, "the body ends within its JSON object"),
            JsonFault::TooDeep => write!(f, "the JSON body is nested too deeply"),
            JsonFault::NotUtf8 { at } => write!(f, "the body is not UTF-8 at byte {at}"),
            JsonFault::TooLong => write!(f, "the body is longer than 4 GiB"),
        }
    }
}

impl std::error::Error for JsonFault {}

/// Finds the members of the object that `body` is, checking all of it. Of a repeated name the last wins.
pub fn peek(body: &[u8], members: &mut Members, limits: JsonLimits) -> Result<(), JsonFault> {
    members.clear();
    check_encoding(body)?;
    let mut scanner = Scanner::new(body, 0, limits.depth.saturating_sub(1));
    scanner.space();
    let start = scanner.at();
    match scanner.byte() {
        Some(b'{') if limits.depth == 0 => return Err(JsonFault::TooDeep),
        Some(b'{') => scanner.skip(),
        Some(_) => return Err(JsonFault::NotObject),
        None => return Err(JsonFault::Truncated),
    }
    scanner.space();
    if scanner.byte() == Some(b'}') {
        scanner.skip();
    } else {
        entries(body, &mut scanner, members)?;
    }
    members.object = Span::new(start, scanner.at());
    scanner.space();
    match scanner.byte() {
        None => Ok(()),
        Some(_) => Err(scanner.fault()),
    }
}

/// The members from the first key to past the closing brace.
fn entries(body: &[u8], scanner: &mut Scanner, members: &mut Members) -> Result<(), JsonFault> {
    loop {
        let key_start = scanner.at();
        let escaped = scanner.string()?;
        let key = Span::new(key_start, scanner.at());
        scanner.space();
        scanner.expect(b':')?;
        scanner.space();
        let start = scanner.at();
        let member = named(key.of(body), escaped);
        let kind = match member {
            Some(Member::Messages) => messages(scanner, members)?,
            _ => scanner.value()?,
        };
        if let Some(member) = member {
            members
                .set(member, Value { raw: Span::new(start, scanner.at()), key, kind, index: members.count });
        }
        members.count += 1;
        scanner.space();
        if scanner.byte() == Some(b'}') {
            scanner.skip();
            return Ok(());
        }
        scanner.expect(b',')?;
        scanner.space();
    }
}

/// Past the value of `messages`, noting where each message is, so that nobody needs to look for their ends again.
fn messages(scanner: &mut Scanner, members: &mut Members) -> Result<Kind, JsonFault> {
    members.noted_count = 0;
    if scanner.byte() != Some(b'[') {
        return scanner.value();
    }
    scanner.array(|index, message, kind| {
        if kind == Kind::Object {
            members.note(index, message);
        }
    })?;
    Ok(Kind::Array)
}

/// The member that a key with its quotes names, after unescaping.
fn named(key: &[u8], escaped: bool) -> Option<Member> {
    let inner = key.get(1..key.len().saturating_sub(1))?;
    if !escaped {
        return if inner.len() <= LONGEST { Member::of(inner) } else { None };
    }
    let mut plain = [0; LONGEST];
    let length = ascii(inner, &mut plain)?;
    Member::of(plain.get(..length)?)
}

/// Unescapes into `out`; `None` if the text is longer or not ASCII, so that it names no member.
fn ascii(inner: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut length = 0;
    let mut rest = inner;
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, after) = match (byte, after) {
            (b'\\', [b'u', hex @ ..]) => {
                let (digits, after) = hex.split_at_checked(4)?;
                let code = u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
                (u8::try_from(code).ok().filter(u8::is_ascii)?, after)
            }
            // No name has a byte that the short escapes stand for.
            (b'\\', _) => return None,
            _ => (byte, after),
        };
        *out.get_mut(length)? = byte;
        length += 1;
        rest = after;
    }
    Some(length)
}

fn check_encoding(body: &[u8]) -> Result<(), JsonFault> {
    if u32::try_from(body.len()).is_err() {
        return Err(JsonFault::TooLong);
    }
    match simdutf8::basic::from_utf8(body) {
        Ok(_) => Ok(()),
        Err(_) => Err(not_utf8(body)),
    }
}

#[cold]
fn not_utf8(body: &[u8]) -> JsonFault {
    let valid = std::str::from_utf8(body).map_or_else(|fault| fault.valid_up_to(), str::len);
    JsonFault::NotUtf8 { at: crate::span::narrow(valid) }
}
