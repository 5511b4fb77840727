//! The questions that each engine's file answers. Owns the list and what silence means: an engine that has no
//! such thing; must never hold an answer of an engine.

use super::attest::Questions;
use super::contract::{ContractFault, Recipe, Terms};
use super::launch::{LaunchAsk, LaunchFault, LaunchFlags, LaunchLine};
use super::pairing::Pairing;
use super::telemetry::Telemetry;
use super::text::{Looped, Named, TextTerms};
use super::{Algo, GroupAsk, Version};
use crate::block::{BlockSize, Digest};

/// What starts an engine, or why nothing does.
pub(super) type Launch = fn(&LaunchAsk<'_>) -> Result<LaunchLine, LaunchFault>;

/// One engine's answers.
pub(super) struct Answers {
    /// As in a rule's `kvEngineType`.
    pub name: &'static str,
    /// Block hashes that its blocks can be named by; without a version, all that any has.
    pub algorithms: fn(Option<Version>) -> &'static [Algo],
    /// What a rule that names no algorithm means.
    pub rule_default: Option<Algo>,
    /// What the engine itself uses unless its operator chose, where that is another.
    pub own_default: Option<Algo>,
    /// Tokens in a block where a rule does not say.
    pub block_size: BlockSize,
    /// It publishes events at a port of its own, one for each rank.
    pub event_port: bool,
    /// Prefill and decode meet at a port of the prefill engine.
    pub bootstrap_port: bool,
    /// A rank that holds a block has all blocks before it.
    pub prefix_closed: bool,
    /// A request can name its rank in `X-Data-Parallel-Rank`.
    pub takes_rank: bool,
    /// The base model and the adapter that a request's `model` names together, if it does.
    pub split_model: fn(&str) -> Option<(&str, &str)>,
    /// How it hands text to a chat template.
    pub text: TextTerms,
    /// How prefill and decode serve a request together.
    pub pairing: Option<Pairing>,
    /// Where it tells its load.
    pub telemetry: Option<Telemetry>,
    /// What it is asked before a rule with a model profile routes by its blocks.
    pub questions: Option<Questions>,
    /// How it shows that an answer is bound to its request.
    pub group_ask: Option<GroupAsk>,
    /// The line that starts it so that it can be trusted.
    pub launch: Option<Launch>,
    /// The folder of its probe fixtures within a profile's; empty: that itself.
    pub probe_folder: &'static str,
    /// The arguments that decide what its caches look like.
    pub flags: LaunchFlags,
    /// Which versions name all blocks alike: equal numbers, equal names.
    pub family: fn(Version) -> usize,
    /// Refuses terms that no version can have.
    pub check: fn(&Terms<'_>) -> Result<(), ContractFault>,
    /// The same way to name blocks as that version has it, where it was agreed on without one.
    pub told: fn(Recipe, Version) -> Recipe,
    /// How its own blocks are named, and from which root; asked only for one of its algorithms.
    pub recipe: fn(&Terms<'_>) -> Result<(Recipe, Digest), ContractFault>,
}

impl Answers {
    /// Those of an engine that publishes nothing.
    pub const SILENT: Answers = Answers {
        name: "",
        algorithms: |_| &[],
        rule_default: None,
        own_default: None,
        block_size: BlockSize::SIXTEEN,
        event_port: false,
        bootstrap_port: false,
        prefix_closed: false,
        takes_rank: false,
        split_model: |_| None,
        // Text parts are joined before any template sees them, as in TensorRT-LLM.
        text: TextTerms {
            joiner: "\n",
            looped: Looped::Joined,
            encoded: &["gpt_oss", "mistral3"],
            names: Named::Nobody,
            cut_header: None,
            template_kwargs: false,
            tools: |_| None,
        },
        pairing: None,
        telemetry: None,
        questions: None,
        group_ask: None,
        launch: None,
        probe_folder: "",
        flags: LaunchFlags::NONE,
        family: |_| 0,
        check: |_| Ok(()),
        told: |recipe, _| recipe,
        recipe: |_| Err(ContractFault::SeedUnset),
    };
}
