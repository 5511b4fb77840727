//! What a request asks of one half of a pair, in each kind's words. Owns the common terms and the dispatch; must never
//! mend a handshake: what the real engine would not survive is counted by name, and answered as it answers.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::{Kind, Reply, sglang, trtllm, vllm};
use crate::engine::config::Config;
use crate::engine::faults::Faults;
use crate::engine::openai::Ask;
use crate::engine::transfer::{Pair, Role};

/// A request's part in a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leg {
    /// None.
    Alone,
    /// Prefill: its blocks are kept under this handle.
    Hold {
        /// As decode names it at the door.
        handle: String,
    },
    /// Decode: takes the blocks of a handle.
    Take {
        /// The door.
        at: String,
        /// As prefill named it.
        handle: String,
    },
    /// Prefill: waits for decode in these rooms, one for each prompt.
    Meet {
        /// Their numbers.
        rooms: Vec<u64>,
    },
    /// Encoder: keeps the encoding of a part of this name.
    Encode {
        /// As prefill names it too.
        name: String,
    },
    /// Decode: joins prefill in these rooms.
    Join {
        /// The door.
        at: String,
        /// Their numbers.
        rooms: Vec<u64>,
    },
}

/// One half of a pair, as a handshake sees it.
#[derive(Debug)]
pub struct Half<'a> {
    /// How the engine was started.
    pub config: &'a Config,
    /// How it is half of a pair.
    pub pair: Pair,
    /// Where decode knocks.
    pub door: Option<SocketAddr>,
    /// The process, by the name that it goes by in transfers.
    pub engine_id: String,
    /// A number that no other request of the process has.
    pub serial: u64,
    /// What the caller did wrong.
    pub violations: Vec<&'static str>,
}

impl Half<'_> {
    /// Counts something that the caller did wrong.
    pub fn blame(&mut self, name: &'static str) {
        self.violations.push(name);
    }

    /// As [`Half::blame`], where the request goes on without a transfer.
    pub fn alone(&mut self, name: &'static str) -> Leg {
        self.blame(name);
        Leg::Alone
    }

    /// A plain request: what a decode engine may get, and a prefill engine not.
    pub fn plain(&mut self) -> Leg {
        match self.pair.role {
            Role::Prefill | Role::Encode => self.alone("missing_params"),
            Role::Decode => Leg::Alone,
        }
    }

    /// A handle as both engines name it.
    pub fn handle(engine_id: &str, name: &str) -> String {
        format!("{engine_id}/{name}")
    }
}

impl Kind {
    /// A request's part in a transfer; the error is the engine's refusal.
    pub fn leg(self, half: &mut Half<'_>, ask: &Ask) -> Result<Leg, Reply> {
        match self {
            Kind::Vllm => vllm::pair::leg(half, ask),
            Kind::Sglang => sglang::pair::leg(half, ask),
            Kind::Trtllm => trtllm::pair::leg(half, ask),
            Kind::Llamacpp => Ok(Leg::Alone),
        }
    }

    /// Whether it can be half of a pair.
    pub fn pairs(self) -> bool {
        self != Kind::Llamacpp
    }

    /// Whether it can be an encoder.
    pub fn encodes(self) -> bool {
        self == Kind::Vllm
    }

    /// What a prefill answer says about what is kept; null if nothing is said.
    pub fn handed(self, half: &Half<'_>, leg: &Leg, ask: &Ask, faults: &Faults) -> Value {
        let handle = match leg {
            Leg::Hold { handle } => handle,
            Leg::Encode { name } => return vllm::encode::handed(half, name),
            _ => return Value::Null,
        };
        let mut handed = match self {
            Kind::Vllm => vllm::pair::handed(half, handle, ask),
            Kind::Trtllm => trtllm::pair::handed(half, handle, ask),
            Kind::Sglang | Kind::Llamacpp => Value::Null,
        };
        if let (Some(bytes), Some(members)) = (faults.pd_pad, handed.as_object_mut()) {
            members.insert("sim_padding".into(), json!("x".repeat(bytes)));
        }
        handed
    }

    /// How many tokens prefill makes and why it ends, where its request does not say so.
    pub fn prefill_length(self, leg: &Leg, asked: (u64, &'static str)) -> (u64, &'static str) {
        match (self, leg) {
            // The context phase stops after its first token by itself (TensorRT-LLM); a prefill server makes one (SGLang).
            (Kind::Trtllm, Leg::Hold { .. }) | (Kind::Sglang, Leg::Meet { .. }) if asked.0 > 1 => {
                (1, "length")
            }
            _ => asked,
        }
    }

    /// Whether prefill keeps its blocks when it ended so: the context phase of TensorRT-LLM does not when all is said.
    pub fn keeps_after(self, finish: &str) -> bool {
        self != Kind::Trtllm || matches!(finish, "length" | "not_finished")
    }

    /// The answer of a leg whose other leg failed it.
    pub fn transfer_failed(self, why: &str) -> Reply {
        let words = match self {
            Kind::Vllm => format!("KV transfer failed: {why}"),
            Kind::Sglang => format!("KVTransferError: {why}"),
            Kind::Trtllm | Kind::Llamacpp => format!("KV cache transfer of the context failed: {why}"),
        };
        self.error(500, "InternalServerError", &words)
    }
}
