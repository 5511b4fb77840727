//! The engine kinds behind one closed enum: each file holds one engine's surface facts (paths, error
//! and answer shapes, metric names) with the version they were read from.
//! Must never do I/O; no file outside this folder branches on the kind.

mod contract;
mod llamacpp;
mod metrics;
pub mod pair;
pub mod sglang;
pub mod trtllm;
pub mod vllm;

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::config::{Config, Tokenize};
use super::openai::{Answer, Ask, Choice, Piece, Refusal, Usage};
use super::publish::Source;
use super::stats::Stats;
pub use contract::{Chain, Telling, Tongue};
pub use pair::{Half, Leg};
pub use vllm::hash::HashAlgo;

/// Which engine is simulated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// vLLM, 0.32 unless told.
    #[default]
    Vllm,
    /// SGLang, 0.5.23 unless told.
    Sglang,
    /// TensorRT-LLM 1.3 (trtllm-serve).
    Trtllm,
    /// llama.cpp server b11434.
    Llamacpp,
}

/// What pages are rendered from.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// How the engine was started.
    pub config: &'a Config,
    /// Its counts.
    pub stats: &'a Stats,
    /// Unix seconds of its start.
    pub started: u64,
    /// Where it tells cache events, by rank.
    pub sources: &'a [Source],
    /// Where decode knocks, if it is prefill.
    pub door: Option<SocketAddr>,
}

/// A page that changes the engine's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Takes all kept cache events (TensorRT-LLM).
    Drain,
    /// Empties the cache (SGLang).
    Flush,
}

/// A whole answer before framing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Media type; empty sends no Content-Type.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// A JSON answer without white space between its parts, as all four engines write it.
    pub fn json(status: u16, content_type: &'static str, value: &Value) -> Self {
        Reply { status, content_type, body: value.to_string().into_bytes() }
    }

    fn text(content_type: &'static str, text: String) -> Self {
        Reply { status: 200, content_type, body: text.into_bytes() }
    }

    fn empty() -> Self {
        Reply { status: 200, content_type: "", body: Vec::new() }
    }
}

impl Kind {
    /// The kind's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Vllm => "vllm",
            Kind::Sglang => "sglang",
            Kind::Trtllm => "trtllm",
            Kind::Llamacpp => "llamacpp",
        }
    }

    /// Default tokens per cache block: vLLM 16, TensorRT-LLM 32; llama.cpp reuses token by token.
    /// SGLang's own default is a page of 1, but its attention backends ask for more.
    pub fn block_size(self) -> usize {
        match self {
            Kind::Vllm | Kind::Sglang => 16,
            Kind::Llamacpp => 1,
            Kind::Trtllm => 32,
        }
    }

    /// The Server header's value.
    pub fn server(self) -> &'static str {
        if self == Kind::Llamacpp { "llama.cpp" } else { "uvicorn" }
    }

    /// True where header names are written in capitals (cpp-httplib) and not in small letters
    /// (uvicorn), and no Date header is sent.
    pub fn is_httplib(self) -> bool {
        self == Kind::Llamacpp
    }

    /// Media type of JSON answers.
    pub fn json_type(self) -> &'static str {
        if self == Kind::Llamacpp { "application/json; charset=utf-8" } else { "application/json" }
    }

    /// Media type of event streams.
    pub fn stream_type(self) -> &'static str {
        if self == Kind::Llamacpp { "text/event-stream" } else { "text/event-stream; charset=utf-8" }
    }

    /// The inference route of a path: chat or completion.
    pub fn inference(self, path: &str) -> Option<bool> {
        match (self, path) {
            (_, "/v1/chat/completions") => Some(true),
            (_, "/v1/completions") => Some(false),
            (Kind::Llamacpp, "/chat/completions") => Some(true),
            _ => None,
        }
    }

    /// True for the paths that `health` faults concern.
    pub fn is_health(self, path: &str) -> bool {
        match self {
            Kind::Vllm => path == "/health" || path == "/ping",
            Kind::Sglang => matches!(path, "/health" | "/health_generate" | "/ready" | "/ping"),
            Kind::Trtllm => matches!(path, "/health" | "/health_generate"),
            Kind::Llamacpp => matches!(path, "/health" | "/v1/health"),
        }
    }

    /// Whether the engine checks the model's name (vLLM answers 404, the others serve it).
    pub fn checks_model(self) -> bool {
        self == Kind::Vllm
    }

    /// The answer of a page that is no inference: GET surfaces, wrong method, unknown path.
    pub fn page(self, method: &str, path: &str, body: &[u8], view: View) -> Reply {
        let reads = method == "GET" || (method == "HEAD" && self.is_httplib());
        let page = match self {
            Kind::Vllm => vllm::page(path, view),
            Kind::Sglang => sglang::page(path, view),
            Kind::Trtllm => trtllm::page(path, view),
            Kind::Llamacpp => llamacpp::page(path, view),
        };
        let posts =
            self.inference(path).is_some() || self.tokenizes(path) || self.command("POST", path).is_some();
        match page {
            Some(page) if reads => page,
            _ if method == "POST" && self.tokenizes(path) => self.tokenize(body, view.config),
            Some(_) => self.wrong_method(),
            None if posts => self.wrong_method(),
            None => self.not_found(),
        }
    }

    /// What a request for this page changes.
    pub fn command(self, method: &str, path: &str) -> Option<Command> {
        match (self, method, path) {
            (Kind::Trtllm, "POST", "/kv_cache_events") => Some(Command::Drain),
            (Kind::Sglang, "GET" | "POST", "/flush_cache") => Some(Command::Flush),
            _ => None,
        }
    }

    /// The answer to a flush.
    pub fn flushed(self) -> Reply {
        Reply::text("text/plain; charset=utf-8", "Cache flushed.\n".into())
    }

    fn tokenizes(self, path: &str) -> bool {
        match self {
            Kind::Trtllm => false,
            Kind::Sglang => matches!(path, "/tokenize" | "/v1/tokenize"),
            Kind::Vllm | Kind::Llamacpp => path == "/tokenize",
        }
    }

    /// Pseudo tokens of a text: `content` for llama.cpp, `prompt` for the others.
    fn tokenize(self, body: &[u8], config: &Config) -> Reply {
        let (reading, how) = (&config.reading, config.pretence.tokenize);
        if how == Tokenize::Broken {
            return self.failure(500);
        }
        let Ok(json) = serde_json::from_slice::<Value>(body) else {
            return self.refuse(&Refusal::Malformed("the body is not JSON".into()));
        };
        let mut ids = match json["messages"].as_array() {
            Some(messages) => reading.chat(messages),
            None => reading.text(json["content"].as_str().or(json["prompt"].as_str()).unwrap_or_default()),
        };
        if let Some(last) = ids.last_mut().filter(|_| how == Tokenize::Flipped) {
            *last ^= 1;
        }
        let value = match self {
            _ if how == Tokenize::Odd => json!({"tokens": ids}),
            Kind::Llamacpp => json!({"tokens": ids}),
            _ => {
                json!({"count": ids.len(), "max_model_len": MAX_MODEL_LEN, "tokens": ids, "token_strs": null})
            }
        };
        Reply::json(200, self.json_type(), &value)
    }

    fn wrong_method(self) -> Reply {
        match self {
            Kind::Llamacpp => self.not_found(),
            _ => Reply::json(405, self.json_type(), &json!({"detail": "Method Not Allowed"})),
        }
    }

    fn not_found(self) -> Reply {
        match self {
            Kind::Llamacpp => self.error(404, "not_found_error", "File Not Found"),
            _ => Reply::json(404, self.json_type(), &json!({"detail": "Not Found"})),
        }
    }

    /// The health answer under the `fail` switch.
    pub fn unhealthy(self) -> Reply {
        match self {
            Kind::Llamacpp => self.error(503, "unavailable_error", "Loading model"),
            _ => Reply { status: 503, ..Reply::empty() },
        }
    }

    /// An error in the engine's shape.
    pub fn error(self, status: u16, name: &str, message: &str) -> Reply {
        let value = match self {
            Kind::Vllm => json!({"error": {"message": message, "type": name, "param": null, "code": status}}),
            Kind::Sglang | Kind::Trtllm => {
                json!({"object": "error", "message": message, "type": name, "param": null, "code": status})
            }
            Kind::Llamacpp => json!({"error": {"message": message, "type": name, "code": status}}),
        };
        Reply::json(status, self.json_type(), &value)
    }

    /// The error that the `status` and `fail_next` switches give.
    pub fn failure(self, status: u16) -> Reply {
        let name = if self == Kind::Llamacpp { "server_error" } else { "InternalServerError" };
        self.error(status, name, "simulated failure")
    }

    /// A refused body: 400, but llama.cpp answers bad JSON with 500.
    pub fn refuse(self, refusal: &Refusal) -> Reply {
        match (self, refusal) {
            (Kind::Llamacpp, Refusal::Malformed(words)) => self.error(500, "server_error", words),
            (Kind::Llamacpp, Refusal::Invalid(words)) => self.error(400, "invalid_request_error", words),
            (_, Refusal::Malformed(words) | Refusal::Invalid(words)) => {
                self.error(400, "BadRequestError", words)
            }
        }
    }

    /// The answer to an unknown model.
    pub fn unknown_model(self, model: &str) -> Reply {
        self.error(404, "NotFoundError", &format!("The model `{model}` does not exist."))
    }

    /// The answer's id from the client's request id (which only vLLM takes over) or a fresh number.
    pub fn answer_id(self, ask: &Ask, request_id: Option<&str>, fresh: u64) -> String {
        let hex = format!("{:016x}{fresh:016x}", fresh.rotate_left(32));
        let prefix = if ask.chat || self == Kind::Llamacpp { "chatcmpl" } else { "cmpl" };
        match (self, request_id) {
            (Kind::Vllm, Some(id)) => format!("{prefix}-{id}"),
            (Kind::Vllm, None) => format!("{prefix}-{}", &hex[16..]),
            (Kind::Sglang, _) => hex,
            (Kind::Trtllm | Kind::Llamacpp, _) => format!("{prefix}-{hex}"),
        }
    }

    /// A whole answer.
    pub fn whole(self, answer: &Answer, choices: &[Choice], usage: Usage) -> Value {
        match self {
            Kind::Vllm => vllm::whole(answer, choices, usage),
            Kind::Sglang => sglang::whole(answer, choices, usage),
            Kind::Trtllm => trtllm::whole(answer, choices, usage),
            Kind::Llamacpp => llamacpp::whole(answer, choices, usage),
        }
    }

    /// One event of a stream.
    pub fn chunk(self, answer: &Answer, piece: Piece) -> Value {
        match self {
            Kind::Vllm => vllm::chunk(answer, piece),
            Kind::Sglang => sglang::chunk(answer, piece),
            Kind::Trtllm => trtllm::chunk(answer, piece),
            Kind::Llamacpp => llamacpp::chunk(answer, piece),
        }
    }

    /// True where the finish reason comes in an event of its own after the last token.
    pub fn finishes_apart(self) -> bool {
        matches!(self, Kind::Sglang | Kind::Llamacpp)
    }
}

/// The context length that the simulated engines state, in tokens.
const MAX_MODEL_LEN: u64 = 131_072;

/// `usage` with its members in vLLM's order.
fn usage_json(usage: Usage) -> Value {
    let details = match usage.is_mute {
        true => Value::Null,
        false => json!({"cached_tokens": usage.cached}),
    };
    json!({
        "prompt_tokens": usage.prompt,
        "total_tokens": usage.prompt + usage.generated,
        "completion_tokens": usage.generated,
        "prompt_tokens_details": details,
    })
}

/// The first model's name.
fn first_model<'a>(view: &View<'a>) -> &'a str {
    view.config.models.first().map_or("", String::as_str)
}
