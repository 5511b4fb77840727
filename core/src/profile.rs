//! A model profile: what its publisher pins of how text becomes tokens. Owns the members of a profile's document,
//! their meaning and their refusals; must never read a file, and never take a document in part.
//!
//! The document is one of the registry `kvprofiles/` of the loxilb AI gateway; who reads it is the crate of prompts.
//! What is published of all documents is [`registry`]; what a rule makes of one is [`binding`].

pub mod admission;
pub mod binding;
pub mod fixture;
pub mod manifest;
pub mod registry;

use crate::engine::Engine;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt;

/// The largest document that is read, in bytes.
pub const LARGEST: u64 = 1 << 20;

/// Bytes of an id or a model's name, at most: they become labels and names of files.
const NAME_MAX: usize = 127;

/// A document. [`Profile::check`] says whether it may be published.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Profile {
    /// The id that a rule's `kvModelProfile` names: letters, digits, and `. _ -` behind the first.
    #[serde(rename = "profileId")]
    pub id: String,
    /// The canonical name under which engines serve the model.
    pub base_model: String,
    /// Under which other names it is served.
    #[serde(default)]
    pub alias_policy: AliasPolicy,
    /// These, where the policy is `list`.
    #[serde(default)]
    pub allowed_aliases: Vec<String>,
    /// The revision of the model's repository that the tokenizer is from; compared with the manifest's.
    pub tokenizer_revision: Option<String>,
    tokenizer_artifact: Option<String>,
    tokenizer_sha256: Option<String>,
    template_artifact: Option<String>,
    template_sha256: Option<String>,
    /// How engines hand `content` to the template.
    pub template_content_format: Option<ContentFormat>,
    /// What the template gets beside messages.
    #[serde(default)]
    pub render_policy: RenderPolicy,
    /// Which renderer the template was validated with.
    pub renderer_engine: Option<String>,
    /// Its version.
    pub renderer_version: Option<String>,
    /// Which engine gave the expected token ids of the fixtures.
    pub oracle_engine: Option<String>,
    /// Its version.
    pub oracle_version: Option<String>,
    /// The APIs it is for; left out: both, as far as the model allows.
    pub supported_apis: Option<Vec<Api>>,
    /// What requests may use, for people.
    #[serde(default)]
    pub supported_features: Vec<Feature>,
    /// What requests may not use if they are to be routed by blocks.
    #[serde(default)]
    pub excluded_features: Vec<Feature>,
    /// `model_type`, which goes before that of `config.json`.
    pub model_type: Option<String>,
    /// What engines do otherwise, by the id of their contract.
    #[serde(default)]
    pub engine_quirks: BTreeMap<String, Quirks>,
}

/// Under which names a model is served beside its canonical one.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum AliasPolicy {
    /// None.
    #[default]
    BaseModelOnly,
    /// Those of `allowedAliases`.
    List,
}

/// How engines hand `content` to a template.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ContentFormat {
    /// As a string.
    String,
    /// As a list of parts.
    Openai,
}

/// What a template gets beside messages.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenderPolicy {
    /// Must not be false where chats are supported.
    pub add_generation_prompt: Option<bool>,
    /// The text of `bos_token`.
    pub bos_token: Option<String>,
    /// The text of `eos_token`.
    pub eos_token: Option<String>,
    /// Whether the template may print the date, and which.
    pub clock_policy: Option<ClockPolicy>,
}

/// Which date a template may print.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum ClockPolicy {
    /// The one in UTC, in which the engines run.
    #[serde(rename = "utc-date")]
    UtcDate,
}

/// An API that prompts come by.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
}

/// The closed vocabulary of features.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Feature {
    /// One message of a user.
    Plain,
    /// A system message.
    System,
    /// Several turns.
    MultiTurn,
    /// Definitions of tools.
    Tools,
    /// Calls of tools, and their results.
    ToolCalls,
    /// Parts that are no text.
    Multimodal,
    /// `cache_salt`.
    CacheSalt,
    /// Adapters.
    LoraAdapter,
    /// `prompt_embeds`.
    PromptEmbeds,
    /// Reasoning of earlier answers.
    Thinking,
    /// `chat_template_kwargs`.
    TemplateKwargs,
}

/// What an engine does otherwise with this model.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Quirks {
    /// A completion's text always begins with the BOS token.
    pub completions_bos: Option<bool>,
}

/// A file that a profile pins: where it stands below `kvprofiles/artifacts/`, and what its bytes hash to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Artifact<'a> {
    /// A relative path without `..`, or `sha256/` and the digest.
    pub locator: &'a str,
    /// SHA-256, 64 lower-case hexadecimal digits.
    pub sha256: &'a str,
}

/// Why a document of the registry is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileFault {
    /// It is not YAML, or a member is unknown, missing, twice or of another type.
    Form(String),
    /// A member's value means nothing, or contradicts another.
    Member {
        /// Its name.
        name: &'static str,
        /// What is wrong with which value.
        problem: String,
        /// What to write instead.
        cure: &'static str,
    },
}

impl fmt::Display for ProfileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProfileFault::Form(what) => f.write_str(what),
            ProfileFault::Member { name, problem, cure } => write!(f, "{name}: {problem}; {cure}"),
        }
    }
}

impl std::error::Error for ProfileFault {}

impl Api {
    /// As in `supportedApis`.
    pub const fn word(self) -> &'static str {
        match self {
            Api::Chat => "chat",
            Api::Completions => "completions",
        }
    }
}

impl AliasPolicy {
    /// As in `aliasPolicy`.
    pub const fn word(self) -> &'static str {
        match self {
            AliasPolicy::BaseModelOnly => "base_model_only",
            AliasPolicy::List => "list",
        }
    }
}

impl ContentFormat {
    /// As in `templateContentFormat`.
    pub const fn word(self) -> &'static str {
        match self {
            ContentFormat::String => "string",
            ContentFormat::Openai => "openai",
        }
    }
}

impl Feature {
    /// As in `supportedFeatures`.
    pub const fn word(self) -> &'static str {
        match self {
            Feature::Plain => "plain",
            Feature::System => "system",
            Feature::MultiTurn => "multi_turn",
            Feature::Tools => "tools",
            Feature::ToolCalls => "tool_calls",
            Feature::Multimodal => "multimodal",
            Feature::CacheSalt => "cache_salt",
            Feature::LoraAdapter => "lora_adapter",
            Feature::PromptEmbeds => "prompt_embeds",
            Feature::Thinking => "thinking",
            Feature::TemplateKwargs => "template_kwargs",
        }
    }
}

impl Profile {
    /// The names under which the model is served: `baseModel` and the aliases.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.base_model).chain(&self.allowed_aliases).map(String::as_str)
    }

    /// Whether engines serve the model under this name.
    pub fn serves(&self, model: &str) -> bool {
        self.names().any(|name| name == model)
    }

    /// Whether it is for this API, as far as it says.
    pub fn supports(&self, api: Api) -> bool {
        self.supported_apis.as_ref().is_none_or(|apis| apis.contains(&api))
    }

    /// The APIs it is for.
    pub fn apis(&self) -> impl Iterator<Item = Api> + '_ {
        [Api::Chat, Api::Completions].into_iter().filter(|api| self.supports(*api))
    }

    /// `tokenizer.json`, where the profile pins it.
    pub fn tokenizer(&self) -> Option<Artifact<'_>> {
        artifact(&self.tokenizer_artifact, &self.tokenizer_sha256)
    }

    /// The chat template, where the profile pins it.
    pub fn template(&self) -> Option<Artifact<'_>> {
        artifact(&self.template_artifact, &self.template_sha256)
    }

    /// Whether a completion's text always begins with the BOS token for this engine (`completionsBos`).
    pub fn completions_bos(&self, engine: Engine) -> bool {
        let of = |(contract, quirks): (&String, &Quirks)| {
            engine_of(contract) == Some(engine) && quirks.completions_bos == Some(true)
        };
        self.engine_quirks.iter().any(of)
    }

    /// Whether each member means something, and none contradicts another.
    pub fn check(&self) -> Result<(), ProfileFault> {
        check_id("profileId", &self.id)?;
        for name in self.names() {
            check_model(name)?;
        }
        if self.alias_policy == AliasPolicy::BaseModelOnly && !self.allowed_aliases.is_empty() {
            let problem = format!("{:?} under aliasPolicy base_model_only", self.allowed_aliases);
            return fault("allowedAliases", problem, "set aliasPolicy to list");
        }
        check_artifact("tokenizerArtifact", &self.tokenizer_artifact, &self.tokenizer_sha256)?;
        check_artifact("templateArtifact", &self.template_artifact, &self.template_sha256)?;
        if self.supported_apis.as_ref().is_some_and(Vec::is_empty) {
            return fault("supportedApis", "empty".into(), "write chat, completions or both");
        }
        if self.supports(Api::Chat) && self.render_policy.add_generation_prompt == Some(false) {
            let problem = "false, with chats supported".into();
            return fault("renderPolicy.addGenerationPrompt", problem, "set it to true");
        }
        let both = self.supported_features.iter().find(|own| self.excluded_features.contains(own));
        if let Some(feature) = both {
            let problem = format!("{} is both supported and excluded", feature.word());
            return fault("excludedFeatures", problem, "name it in one of the two lists");
        }
        self.check_quirks()
    }

    fn check_quirks(&self) -> Result<(), ProfileFault> {
        for (contract, quirks) in &self.engine_quirks {
            let Some(engine) = engine_of(contract) else {
                let problem = format!("{contract:?} is no engine's contract");
                return fault("engineQuirks", problem, "write a contract's id, as sglang-kv-rank-v1");
            };
            let other = |(other, theirs): &(&String, &Quirks)| {
                engine_of(other) == Some(engine) && theirs.completions_bos != quirks.completions_bos
            };
            if let Some((other, _)) = self.engine_quirks.iter().find(other) {
                let problem = format!("completionsBos differs between {contract} and {other}");
                return fault("engineQuirks", problem, "say the same for all contracts of one engine");
            }
        }
        Ok(())
    }
}

/// SHA-256 of `bytes`, 64 lower-case hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether `text` is a SHA-256 as everything of the registry writes it.
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// A model's name as a folder's: `__` for each slash. Two models of one folder are one model.
pub fn slug(model: &str) -> String {
    model.replace('/', "__")
}

/// Whether `path` is relative, and neither leaves its folder nor names a hidden file.
pub fn is_safe_path(path: &str) -> bool {
    let safe = |part: &str| {
        part.starts_with(|c: char| c != '.')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    path.split('/').all(safe)
}

fn fault<T>(name: &'static str, problem: String, cure: &'static str) -> Result<T, ProfileFault> {
    Err(ProfileFault::Member { name, problem, cure })
}

/// The engine that a contract's id, as `sglang-kv-rank-v1`, begins with.
fn engine_of(contract: &str) -> Option<Engine> {
    Engine::from_name(contract.split_once('-')?.0)
}

fn artifact<'a>(locator: &'a Option<String>, sha256: &'a Option<String>) -> Option<Artifact<'a>> {
    Some(Artifact { locator: locator.as_deref()?, sha256: sha256.as_deref()? })
}

fn check_id(member: &'static str, id: &str) -> Result<(), ProfileFault> {
    let inner = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let begins = id.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins && id.len() <= NAME_MAX && id.chars().all(inner) {
        return Ok(());
    }
    fault(member, format!("{id:?}"), "use letters, digits, and . _ - behind the first, 127 at most")
}

fn check_model(name: &str) -> Result<(), ProfileFault> {
    let member = "baseModel, allowedAliases";
    if name.is_empty() {
        return fault(member, "a model without a name".into(), "write the served model's name");
    }
    if name.len() > NAME_MAX || name.chars().any(char::is_control) {
        return fault(member, format!("{name:?}"), "use at most 127 bytes without control characters");
    }
    Ok(())
}

fn check_artifact(
    name: &'static str,
    locator: &Option<String>,
    digest: &Option<String>,
) -> Result<(), ProfileFault> {
    let (locator, digest) = match (locator, digest) {
        (None, None) => return Ok(()),
        (Some(locator), Some(digest)) => (locator, digest),
        _ => return fault(name, "a file and its SHA-256 belong together".into(), "give both or none"),
    };
    if !is_sha256(digest) {
        return fault(name, format!("SHA-256 {digest:?}"), "write 64 lower-case hexadecimal digits");
    }
    if !is_safe_path(locator) {
        return fault(name, format!("{locator:?}"), "write a path below kvprofiles/artifacts, without ..");
    }
    match locator.strip_prefix("sha256/") {
        Some(named) if named != digest => {
            fault(name, format!("{locator:?} is not its SHA-256 {digest}"), "pin the digest that it names")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
