//! How an engine is started so that it can be trusted: what is asked for, and the command line that is told. Owns the
//! forms; what an engine's line has in it stands in that engine's file.

use super::{Engine, Version};
use std::fmt;

/// Arguments by what they say, in the form with `-`; `None`: this engine has none for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchFlags {
    /// Tokens in a block.
    pub block_size: Option<&'static str>,
    /// Data-parallel ranks.
    pub ranks: Option<&'static str>,
    /// Type of the model's numbers.
    pub dtype: Option<&'static str>,
    /// Tokens of prompt and answer together, at most.
    pub max_len: Option<&'static str>,
}

impl LaunchFlags {
    /// No arguments at all.
    pub const NONE: LaunchFlags = LaunchFlags { block_size: None, ranks: None, dtype: None, max_len: None };
}

/// What an engine does of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchRole {
    /// All of it.
    Single,
    /// The prompt.
    Prefill,
    /// The answer.
    Decode,
}

impl LaunchRole {
    /// As on a command line.
    pub const fn word(self) -> &'static str {
        match self {
            LaunchRole::Single => "single",
            LaunchRole::Prefill => "prefill",
            LaunchRole::Decode => "decode",
        }
    }
}

/// What is to be started.
#[derive(Clone, Copy, Debug)]
pub struct LaunchAsk<'a> {
    /// The engine's version.
    pub version: Version,
    /// What it does of a request.
    pub role: LaunchRole,
    /// The name under which the model is served.
    pub model: &'a str,
    /// The folder of its files.
    pub snapshot: &'a str,
    /// The revision of these files; SGLang tells it back.
    pub revision: Option<&'a str>,
    /// What the gateway has in `LLB_KV_NONE_HASH_SEED`.
    pub seed: &'a str,
    /// Tokens in a block.
    pub block_size: u64,
    /// Where requests go.
    pub port: u16,
    /// Where events are published.
    pub event_port: u16,
    /// Where they are replayed.
    pub replay_port: u16,
    /// The engine's own address, for the side channel of a transfer.
    pub host: &'a str,
}

/// A line that starts an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchLine {
    /// Variables of its environment.
    pub env: Vec<(&'static str, String)>,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// A file that it reads: its name and its text.
    pub file: Option<(&'static str, String)>,
}

/// Why there is no such line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchFault {
    /// This engine tells nothing of its cache: no profile vouches for it.
    NoEvents(Engine),
    /// Older than what was looked at.
    TooOld {
        /// The engine.
        engine: Engine,
        /// What was asked for.
        asked: Version,
        /// The oldest that was looked at.
        floor: Version,
    },
    /// Not in that role.
    Role {
        /// The engine.
        engine: Engine,
        /// The role.
        role: LaunchRole,
    },
    /// The block size is fixed to another.
    BlockSize {
        /// The engine.
        engine: Engine,
        /// What was asked for.
        asked: u64,
        /// What it has.
        only: u64,
    },
    /// The revision is needed.
    NoRevision(Engine),
}

impl fmt::Display for LaunchFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaunchFault::NoEvents(engine) => write!(
                f,
                "{} tells nothing of its cache, so no profile can be proven against it; route it by \"sel\": 8",
                engine.name()
            ),
            LaunchFault::TooOld { engine, asked, floor } => {
                write!(f, "{} {asked} was never looked at; use {floor} or later", engine.name())
            }
            LaunchFault::Role { engine, role } => {
                write!(f, "there is no evidence of {} as {}; use --role single", engine.name(), role.word())
            }
            LaunchFault::BlockSize { engine, asked, only } => {
                write!(
                    f,
                    "{} has blocks of {only} tokens here, not {asked}; use --block-size {only}",
                    engine.name()
                )
            }
            LaunchFault::NoRevision(engine) => write!(
                f,
                "{} is asked for the revision that it serves; give it with --revision",
                engine.name()
            ),
        }
    }
}

impl std::error::Error for LaunchFault {}

impl LaunchLine {
    /// More arguments.
    pub(super) fn args<'a>(&mut self, more: impl IntoIterator<Item = &'a str>) {
        self.argv.extend(more.into_iter().map(str::to_string));
    }

    /// More variables.
    pub(super) fn env(&mut self, name: &'static str, value: impl Into<String>) {
        self.env.push((name, value.into()));
    }
}

/// Refuses versions before the oldest that was looked at.
pub(super) fn since(engine: Engine, asked: Version, floor: Version) -> Result<(), LaunchFault> {
    if asked < floor { Err(LaunchFault::TooOld { engine, asked, floor }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(version: &str, role: LaunchRole) -> LaunchAsk<'static> {
        LaunchAsk {
            version: Version::read(version).expect("a version"),
            role,
            model: "org/m",
            snapshot: "/models/org__m/abc",
            revision: Some("abc"),
            seed: "0",
            block_size: 16,
            port: 8000,
            event_port: 5557,
            replay_port: 5657,
            host: "10.0.1.1",
        }
    }

    fn line(engine: Engine, ask: LaunchAsk<'_>) -> String {
        let line = engine.launch(&ask).expect("a line");
        let env: Vec<String> = line.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        [env, line.argv].concat().join(" ")
    }

    #[test]
    fn a_line_has_what_makes_the_engine_agree_and_nothing_of_another_role() {
        use LaunchRole::{Decode, Prefill, Single};
        let (vllm, sglang, trtllm) = (Engine::Vllm, Engine::Sglang, Engine::Trtllm);
        let events = "--kv-events-config";
        for (engine, version, role, with, without) in [
            (vllm, "0.32.0", Single, ["PYTHONHASHSEED=0", events], ["--kv-transfer-config", "UCX_TLS"]),
            (
                vllm,
                "0.32.0",
                Single,
                ["--prefix-caching-hash-algo sha256_cbor", "--block-size 16"],
                ["5600", "\""],
            ),
            (
                vllm,
                "0.32.0",
                Single,
                ["--enable-prompt-tokens-details", "--prefix-match-unit 16"],
                ["x", "decode"],
            ),
            (
                vllm,
                "0.23.0",
                Single,
                ["--enable-prefix-caching", "/models/org__m/abc"],
                ["--prefix-match-unit", "x"],
            ),
            (vllm, "0.32.0", Prefill, [events, "kv_producer"], ["kv_consumer", "x"]),
            (
                vllm,
                "0.32.0",
                Decode,
                ["kv_consumer", "VLLM_NIXL_SIDE_CHANNEL_HOST=10.0.1.1"],
                [events, "kv_producer"],
            ),
            (
                sglang,
                "0.5.19",
                Single,
                ["--page-size 16", "--revision abc"],
                ["--disaggregation-mode", "PYTHONHASHSEED"],
            ),
            (sglang, "0.5.19", Single, ["--enable-cache-report", events], ["--disaggregation", "x"]),
            (sglang, "0.5.19", Prefill, ["--disaggregation-mode prefill", events], ["mode decode", "x"]),
            (
                sglang,
                "0.5.19",
                Decode,
                ["--disaggregation-mode decode", "mooncake"],
                [events, "bootstrap-port"],
            ),
            (
                trtllm,
                "1.2.1",
                Single,
                ["--backend pytorch", "--extra_llm_api_options kv.yaml"],
                [events, "5557"],
            ),
        ] {
            let mut asked = ask(version, role);
            if engine == trtllm {
                asked.block_size = 32;
            }
            let told = line(engine, asked);
            assert!(with.iter().all(|part| told.contains(part)), "{told}");
            let absent = |part: &&str| *part == "x" || *part == "\"" || !told.contains(*part);
            assert!(without.iter().all(absent), "{told}");
        }
        let file = trtllm.launch(&LaunchAsk { block_size: 32, ..ask("1.2.1", Single) }).expect("a line").file;
        let (name, text) = file.expect("options");
        assert_eq!(name, "kv.yaml");
        assert!(
            text.contains("enable_block_reuse: true") && text.contains("event_buffer_max_size: "),
            "{text}"
        );
    }

    #[test]
    fn what_can_not_be_vouched_for_has_no_line() {
        let told =
            |engine: Engine, asked: LaunchAsk<'_>| engine.launch(&asked).expect_err("no line").to_string();
        for (engine, version, role, words) in [
            (Engine::Llamacpp, "0.3.0", LaunchRole::Single, "tells nothing of its cache"),
            (Engine::Vllm, "0.22.1", LaunchRole::Single, "use 0.23.0 or later"),
            (Engine::Sglang, "0.5.17", LaunchRole::Single, "use 0.5.18 or later"),
            (Engine::Trtllm, "1.2.0", LaunchRole::Single, "use 1.2.1 or later"),
            (Engine::Trtllm, "1.2.1", LaunchRole::Prefill, "no evidence of trtllm as prefill"),
            (Engine::Trtllm, "1.2.1", LaunchRole::Single, "blocks of 32 tokens"),
        ] {
            assert!(told(engine, ask(version, role)).contains(words), "{}", told(engine, ask(version, role)));
        }
        let bare = LaunchAsk { revision: None, ..ask("0.5.19", LaunchRole::Single) };
        assert!(told(Engine::Sglang, bare).contains("--revision"));
    }
}
