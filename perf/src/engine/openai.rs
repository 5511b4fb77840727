//! OpenAI bodies: what a request asks for, and the parts every engine kind builds its answers from.
//! Pure. Must never fix a wrong request: it is refused as an engine would.

use serde_json::Value;

use super::text::{Reading, Token, digest, digest_tokens};

/// Most tokens one request may generate.
const MAX_TOKENS: u64 = 1_000_000;

/// Why a body is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Not JSON; the parser's words.
    Malformed(String),
    /// JSON that asks for something impossible; the sentence.
    Invalid(String),
}

/// What an inference request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Chat completion, else (text) completion.
    pub chat: bool,
    /// The named model.
    pub model: Option<String>,
    /// Pseudo tokens of each prompt; one choice each.
    pub prompts: Vec<Vec<u32>>,
    /// Digest of model and `cache_salt`, by which executions of equal prompts are told apart.
    pub root: u64,
    /// `cache_salt`, which keeps caches apart.
    pub salt: Option<String>,
    /// The rank asked for in the body (SGLang: `routed_dp_rank`, before `data_parallel_rank`).
    pub rank: Option<i64>,
    /// `session_id`; a header may name it instead.
    pub session: Option<String>,
    /// `vllm_xargs.kv_cache_report_mode` is `full`.
    pub report_full: bool,
    /// `sim_answer_ids`, which no real engine knows: the first tokens of the answer, so that a recorded
    /// conversation can be played again.
    pub script: Vec<u32>,
    /// Bound on generated tokens for each choice.
    pub max_tokens: Option<u64>,
    /// Generate up to the bound even past the default length.
    pub ignore_eos: bool,
    /// Server-sent events wanted.
    pub stream: bool,
    /// A final usage chunk wanted (`stream_options.include_usage`).
    pub include_usage: bool,
    /// Token ids wanted in the answer (vLLM's `return_token_ids`).
    pub return_token_ids: bool,
    /// `min_tokens`.
    pub min_tokens: Option<u64>,
    /// Options of a stream were sent, wanted or not.
    pub has_stream_options: bool,
    /// What a pair's legs are told.
    pub handshake: Handshake,
    /// Parts of a chat that are no text.
    pub media: Media,
}

/// A chat's parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Media {
    /// Those that are no text, by digests of their JSON.
    pub names: Vec<String>,
    /// Those that are.
    pub texts: usize,
}

impl Media {
    fn of(json: &Value) -> Media {
        let mut media = Media::default();
        for message in json["messages"].as_array().into_iter().flatten() {
            match &message["content"] {
                Value::Array(parts) => parts.iter().for_each(|part| media.add(part)),
                _ => media.texts += 1,
            }
        }
        media
    }

    fn add(&mut self, part: &Value) {
        match part["type"].as_str() {
            Some("image_url" | "input_audio" | "audio_url" | "video_url") => {
                let name = format!("{:016x}", digest(&[part.to_string().as_bytes()]));
                if !self.names.contains(&name) {
                    self.names.push(name);
                }
            }
            _ => self.texts += 1,
        }
    }
}

/// Members by which prefill and decode find each other, as sent; null if absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Handshake {
    /// `kv_transfer_params` (vLLM).
    pub transfer: Value,
    /// `ec_transfer_params` (vLLM).
    pub encoder: Value,
    /// `disaggregated_params` (TensorRT-LLM).
    pub disaggregated: Value,
    /// `bootstrap_host`, `bootstrap_port`, `bootstrap_room` (SGLang).
    pub bootstrap: [Value; 3],
    /// Names of all top-level members.
    pub members: Vec<String>,
}

impl Handshake {
    fn of(json: &Value) -> Handshake {
        Handshake {
            transfer: json["kv_transfer_params"].clone(),
            encoder: json["ec_transfer_params"].clone(),
            disaggregated: json["disaggregated_params"].clone(),
            bootstrap: ["bootstrap_host", "bootstrap_port", "bootstrap_room"].map(|name| json[name].clone()),
            members: json.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect(),
        }
    }
}

impl Ask {
    /// Reads a request body, and its text as this engine does.
    pub fn parse(chat: bool, body: &[u8], reading: &Reading) -> Result<Ask, Refusal> {
        let json: Value = serde_json::from_slice(body).map_err(|e| Refusal::Malformed(e.to_string()))?;
        if !json.is_object() {
            return Err(Refusal::Invalid("the body must be a JSON object".into()));
        }
        check_choices(&json)?;
        let model = json["model"].as_str().map(str::to_owned);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let salt = text(&json["cache_salt"]);
        let salted = salt.as_deref().unwrap_or_default().as_bytes();
        Ok(Ask {
            chat,
            prompts: match (chat, &json["prompt_token_ids"]) {
                // What another engine made of the messages (TensorRT-LLM).
                (true, ids @ Value::Array(_)) => prompts(ids, reading)?,
                (true, _) => vec![chat_prompt(&json, reading)?],
                (false, _) => prompts(&json["prompt"], reading)?,
            },
            root: digest(&[model.as_deref().unwrap_or_default().as_bytes(), salted]),
            salt,
            rank: json["routed_dp_rank"].as_i64().or(json["data_parallel_rank"].as_i64()),
            session: text(&json["session_id"]),
            report_full: json["vllm_xargs"]["kv_cache_report_mode"] == "full",
            script: script(&json["sim_answer_ids"])?,
            model,
            max_tokens: max_tokens(&json)?,
            ignore_eos: json["ignore_eos"].as_bool().unwrap_or(false),
            stream: json["stream"].as_bool().unwrap_or(false),
            include_usage: json["stream_options"]["include_usage"].as_bool().unwrap_or(false),
            return_token_ids: json["return_token_ids"].as_bool().unwrap_or(false),
            min_tokens: json["min_tokens"].as_u64(),
            has_stream_options: !json["stream_options"].is_null(),
            handshake: Handshake::of(&json),
            media: Media::of(&json),
        })
    }

    /// What a body that was not kept is taken to ask for: a whole answer to its digest.
    pub fn sunk(chat: bool, body: u64) -> Ask {
        Ask {
            chat,
            model: None,
            prompts: vec![vec![(body >> 32) as u32, body as u32]],
            root: 0,
            salt: None,
            rank: None,
            session: None,
            report_full: false,
            script: Vec::new(),
            max_tokens: None,
            ignore_eos: false,
            stream: false,
            include_usage: false,
            return_token_ids: false,
            min_tokens: None,
            has_stream_options: false,
            handshake: Handshake::default(),
            media: Media::default(),
        }
    }

    /// How many tokens each choice gets and why it ends, given the engine's natural length.
    pub fn length(&self, natural: u64) -> (u64, &'static str) {
        match self.max_tokens {
            Some(bound) if bound <= natural || self.ignore_eos => (bound, "length"),
            _ => (natural, "stop"),
        }
    }

    /// Digest over all prompts.
    pub fn digest(&self) -> u64 {
        self.prompts.iter().fold(self.root, |h, prompt| digest_tokens(h, prompt))
    }
}

fn check_choices(json: &Value) -> Result<(), Refusal> {
    match json.get("n") {
        None | Some(Value::Null) => Ok(()),
        Some(n) if n.as_u64() == Some(1) => Ok(()),
        Some(n) => {
            Err(Refusal::Invalid(format!("n is {n}; this simulated engine makes one choice, n must be 1")))
        }
    }
}

fn max_tokens(json: &Value) -> Result<Option<u64>, Refusal> {
    let given = json.get("max_completion_tokens").filter(|v| !v.is_null()).or_else(|| json.get("max_tokens"));
    match given {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(n) if (1..=MAX_TOKENS).contains(&n) => Ok(Some(n)),
            _ => Err(Refusal::Invalid(format!("max_tokens is {value}; it must be 1 to {MAX_TOKENS}"))),
        },
    }
}

fn chat_prompt(json: &Value, reading: &Reading) -> Result<Vec<u32>, Refusal> {
    match json["messages"].as_array() {
        Some(messages) if !messages.is_empty() => Ok(reading.chat(messages)),
        _ => Err(Refusal::Invalid("messages must be an array with at least one message".into())),
    }
}

/// A prompt is a string, an array of strings, an array of token ids or an array of such arrays.
fn prompts(prompt: &Value, reading: &Reading) -> Result<Vec<Vec<u32>>, Refusal> {
    let wrong =
        || Refusal::Invalid("prompt must be a string, strings, token ids or arrays of token ids".into());
    let many = match prompt {
        Value::String(text) => vec![reading.text(text)],
        Value::Array(items) if items.iter().all(Value::is_u64) => vec![ids(items).ok_or_else(wrong)?],
        Value::Array(items) => {
            items.iter().map(|item| one_prompt(item, reading)).collect::<Option<_>>().ok_or_else(wrong)?
        }
        _ => return Err(wrong()),
    };
    if many.iter().any(Vec::is_empty) {
        return Err(Refusal::Invalid("prompt must not be empty".into()));
    }
    Ok(many)
}

fn one_prompt(item: &Value, reading: &Reading) -> Option<Vec<u32>> {
    match item {
        Value::String(text) => Some(reading.text(text)),
        Value::Array(items) => ids(items),
        _ => None,
    }
}

fn ids(items: &[Value]) -> Option<Vec<u32>> {
    items.iter().map(|item| item.as_u64().and_then(|id| u32::try_from(id).ok())).collect()
}

fn script(value: &Value) -> Result<Vec<u32>, Refusal> {
    let wrong = || Refusal::Invalid("sim_answer_ids must be token ids".into());
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => ids(items).ok_or_else(wrong),
        _ => Err(wrong()),
    }
}

/// What all parts of one answer share.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Answer id with the kind's prefix.
    pub id: String,
    /// Unix seconds.
    pub created: u64,
    /// The model named.
    pub model: String,
    /// Chat completion, else completion.
    pub chat: bool,
    /// Whether token ids are shown.
    pub token_ids: bool,
    /// What is handed over to decode, or by an encoder to prefill; null if nothing.
    pub handed: Value,
    /// It is an encoder's.
    pub encodes: bool,
}

impl Answer {
    /// The `object` member of a whole answer or of a chunk.
    pub fn object(&self, chunk: bool) -> &'static str {
        match (self.chat, chunk) {
            (true, true) => "chat.completion.chunk",
            (true, false) => "chat.completion",
            (false, _) => "text_completion",
        }
    }
}

/// One finished choice.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Its number, from 0.
    pub index: usize,
    /// The prompt it answers.
    pub prompt: Vec<u32>,
    /// What was generated.
    pub tokens: Vec<Token>,
    /// `length` or `stop`.
    pub finish: &'static str,
}

impl Choice {
    /// The generated text.
    pub fn text(&self) -> String {
        self.tokens.iter().map(|token| token.text).collect()
    }

    /// The generated ids.
    pub fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }
}

/// Token counts of one answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Prompt tokens.
    pub prompt: u64,
    /// Of these, from the prefix cache.
    pub cached: u64,
    /// Generated tokens.
    pub generated: u64,
    /// The cached ones are not told: vLLM without `--enable-prompt-tokens-details`.
    pub is_mute: bool,
}

/// One event of a stream before it takes the kind's shape.
#[derive(Debug, Clone, Copy)]
pub enum Piece<'a> {
    /// A chat stream's first event: who speaks.
    Role,
    /// A generated token, with the reason when it is the last and the kind tells it there.
    Token(usize, Token, Option<&'a str>),
    /// The end of a choice in an event of its own.
    Finish(usize, &'a str),
    /// The final usage event.
    Usage(Usage),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(chat: bool, body: &str) -> Result<Ask, Refusal> {
        Ask::parse(chat, body.as_bytes(), &Reading::default())
    }

    #[test]
    fn prompts_take_every_openai_form() {
        let count =
            |body: &str| parse(false, body).map(|ask| ask.prompts.iter().map(Vec::len).collect::<Vec<_>>());
        assert_eq!(count(r#"{"prompt":"a b"}"#), Ok(vec![2]));
        assert_eq!(count(r#"{"prompt":["a b","c"]}"#), Ok(vec![2, 1]));
        assert_eq!(count(r#"{"prompt":[5,6,7]}"#), Ok(vec![3]));
        assert_eq!(count(r#"{"prompt":[[5],[6,7]]}"#), Ok(vec![1, 2]));
        for bad in
            [r#"{}"#, r#"{"prompt":[]}"#, r#"{"prompt":[5,"a"]}"#, r#"{"prompt":[-1]}"#, r#"{"prompt":""}"#]
        {
            assert!(matches!(count(bad), Err(Refusal::Invalid(_))), "{bad}");
        }
        assert!(matches!(count("{"), Err(Refusal::Malformed(_))));
    }

    #[test]
    fn length_and_reason() {
        let ask = |body| parse(false, body).unwrap();
        assert_eq!(ask(r#"{"prompt":"a"}"#).length(16), (16, "stop"));
        assert_eq!(ask(r#"{"prompt":"a","max_tokens":4}"#).length(16), (4, "length"));
        assert_eq!(ask(r#"{"prompt":"a","max_tokens":40}"#).length(16), (16, "stop"));
        assert_eq!(ask(r#"{"prompt":"a","max_tokens":40,"ignore_eos":true}"#).length(16), (40, "length"));
        assert!(parse(false, r#"{"prompt":"a","max_tokens":0}"#).is_err());
        assert!(parse(false, r#"{"prompt":"a","n":2}"#).is_err());
    }

    #[test]
    fn salt_and_model_change_the_root() {
        let root = |body| parse(false, body).unwrap().root;
        assert_ne!(root(r#"{"prompt":"a","model":"x"}"#), root(r#"{"prompt":"a","model":"y"}"#));
        assert_ne!(root(r#"{"prompt":"a"}"#), root(r#"{"prompt":"a","cache_salt":"t"}"#));
    }
}
