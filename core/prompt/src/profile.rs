//! A model profile: what its publisher pins of how text becomes tokens, as a YAML document of the registry
//! `kvprofiles/`. Owns the members, their meaning and their refusals; must never read a file, and never take a
//! document in part.
//!
//! Members that serve attestation alone (revisions, oracle, renderer) are checked and have no effect here.

use crate::request::{Clock, Policy};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use warmpath_core::engine::Engine;

/// The largest document that is read, in bytes.
pub const LARGEST: u64 = 1 << 20;

/// A profile that was accepted.
#[derive(Clone, Debug)]
pub struct Profile {
    document: Document,
}

/// A file that a profile pins: where it stands below `kvprofiles/artifacts/`, and what its bytes hash to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Artifact<'a> {
    /// A relative path without `..`, or `sha256/` and the digest.
    pub locator: &'a str,
    /// SHA-256, 64 lower-case hexadecimal digits.
    pub sha256: &'a str,
}

/// Why a document is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileFault {
    /// It is not YAML, or a member is unknown, missing or of another type.
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

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    profile_id: String,
    base_model: String,
    #[serde(default)]
    alias_policy: AliasPolicy,
    #[serde(default)]
    allowed_aliases: Vec<String>,
    tokenizer_artifact: Option<String>,
    tokenizer_sha256: Option<String>,
    template_artifact: Option<String>,
    template_sha256: Option<String>,
    template_content_format: Option<ContentFormat>,
    #[serde(default)]
    render_policy: RenderPolicy,
    supported_apis: Option<Vec<ApiWord>>,
    #[serde(default)]
    supported_features: Vec<Feature>,
    #[serde(default)]
    excluded_features: Vec<Feature>,
    model_type: Option<String>,
    #[serde(default)]
    engine_quirks: BTreeMap<String, Quirks>,
    // For people and for attestation.
    #[serde(rename = "tokenizerRevision")]
    _tokenizer_revision: Option<String>,
    #[serde(rename = "rendererEngine")]
    _renderer_engine: Option<String>,
    #[serde(rename = "rendererVersion")]
    _renderer_version: Option<String>,
    #[serde(rename = "oracleEngine")]
    _oracle_engine: Option<String>,
    #[serde(rename = "oracleVersion")]
    _oracle_version: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum AliasPolicy {
    #[default]
    BaseModelOnly,
    List,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum ContentFormat {
    String,
    Openai,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RenderPolicy {
    add_generation_prompt: Option<bool>,
    bos_token: Option<String>,
    eos_token: Option<String>,
    clock_policy: Option<ClockPolicy>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
enum ClockPolicy {
    #[serde(rename = "utc-date")]
    UtcDate,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum ApiWord {
    Chat,
    Completions,
}

/// The closed vocabulary of features.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Feature {
    Plain,
    System,
    MultiTurn,
    Tools,
    ToolCalls,
    Multimodal,
    CacheSalt,
    LoraAdapter,
    PromptEmbeds,
    Thinking,
    TemplateKwargs,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Quirks {
    completions_bos: Option<bool>,
}

impl Profile {
    /// Reads a document, whole or not at all.
    pub fn read(yaml: &[u8]) -> Result<Profile, ProfileFault> {
        let document: Document =
            serde_saphyr::from_slice(yaml).map_err(|fault| ProfileFault::Form(one_line(&fault)))?;
        document.check()?;
        Ok(Profile { document })
    }

    /// The models that a document is about, if that much of it can be read: so that a refused one is not taken
    /// for an absent one.
    pub fn claims(yaml: &[u8]) -> Vec<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Claim {
            base_model: String,
            #[serde(default)]
            allowed_aliases: Vec<String>,
        }
        let claim: Result<Claim, _> = serde_saphyr::from_slice(yaml);
        claim.map_or(Vec::new(), |claim| [vec![claim.base_model], claim.allowed_aliases].concat())
    }

    /// `profileId`.
    pub fn id(&self) -> &str {
        &self.document.profile_id
    }

    /// The names under which the model is served: `baseModel` and the aliases.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.document.base_model).chain(&self.document.allowed_aliases).map(String::as_str)
    }

    /// `tokenizer.json`, where the profile pins it.
    pub fn tokenizer(&self) -> Option<Artifact<'_>> {
        let Document { tokenizer_artifact, tokenizer_sha256, .. } = &self.document;
        Some(Artifact { locator: tokenizer_artifact.as_deref()?, sha256: tokenizer_sha256.as_deref()? })
    }

    /// The chat template, where the profile pins it.
    pub fn template(&self) -> Option<Artifact<'_>> {
        let Document { template_artifact, template_sha256, .. } = &self.document;
        Some(Artifact { locator: template_artifact.as_deref()?, sha256: template_sha256.as_deref()? })
    }

    /// `modelType`, which goes before that of `config.json`.
    pub fn model_type(&self) -> Option<&str> {
        self.document.model_type.as_deref()
    }

    /// Whether a completion's text always begins with the BOS token for this engine (`completionsBos`).
    pub fn completions_bos(&self, engine: Engine) -> bool {
        let of = |(contract, quirks): (&String, &Quirks)| {
            engine_of(contract) == Some(engine) && quirks.completions_bos == Some(true)
        };
        self.document.engine_quirks.iter().any(of)
    }

    /// Puts what the profile says in the place of what an engine does by itself.
    pub(crate) fn apply(&self, policy: &mut Policy) {
        let render = &self.document.render_policy;
        for (name, token) in [("bos_token", &render.bos_token), ("eos_token", &render.eos_token)] {
            let known = policy.special_tokens.iter().any(|(known, _)| known == name);
            if let Some(token) = token.as_ref().filter(|_| !known) {
                policy.special_tokens.push((name.into(), token.clone()));
            }
        }
        if render.clock_policy == Some(ClockPolicy::UtcDate) {
            policy.clock = Clock::UtcDate;
        }
        match self.document.template_content_format {
            Some(ContentFormat::String) => policy.looped = None,
            Some(ContentFormat::Openai) => policy.content = policy.looped.take().unwrap_or(policy.content),
            None => {}
        }
        let apis = self.document.supported_apis.as_ref();
        policy.chats &= apis.is_none_or(|apis| apis.contains(&ApiWord::Chat));
        policy.completions &= apis.is_none_or(|apis| apis.contains(&ApiWord::Completions));
        let excludes = |feature| self.document.excluded_features.contains(&feature);
        policy.tools &= !excludes(Feature::Tools) && !excludes(Feature::ToolCalls);
        policy.template_kwargs &= !excludes(Feature::TemplateKwargs) && !excludes(Feature::Thinking);
    }
}

impl Document {
    fn check(&self) -> Result<(), ProfileFault> {
        check_id(&self.profile_id)?;
        if self.base_model.is_empty() || self.allowed_aliases.iter().any(String::is_empty) {
            return fault("baseModel", "a model without a name".into(), "write the served model's name");
        }
        if self.alias_policy == AliasPolicy::BaseModelOnly && !self.allowed_aliases.is_empty() {
            let problem = format!("{:?} under aliasPolicy base_model_only", self.allowed_aliases);
            return fault("allowedAliases", problem, "set aliasPolicy to list");
        }
        check_artifact("tokenizerArtifact", &self.tokenizer_artifact, &self.tokenizer_sha256)?;
        check_artifact("templateArtifact", &self.template_artifact, &self.template_sha256)?;
        let chats = self.supported_apis.as_ref().is_none_or(|apis| apis.contains(&ApiWord::Chat));
        if chats && self.render_policy.add_generation_prompt == Some(false) {
            let problem = "false, with chats supported".into();
            return fault("renderPolicy.addGenerationPrompt", problem, "set it to true");
        }
        let both = self.supported_features.iter().find(|own| self.excluded_features.contains(own));
        if let Some(feature) = both {
            let problem = format!("{feature:?} is both supported and excluded");
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

fn fault<T>(name: &'static str, problem: String, cure: &'static str) -> Result<T, ProfileFault> {
    Err(ProfileFault::Member { name, problem, cure })
}

/// The engine that a contract's id, as `sglang-kv-rank-v1`, begins with.
fn engine_of(contract: &str) -> Option<Engine> {
    Engine::from_name(contract.split_once('-')?.0)
}

fn check_id(id: &str) -> Result<(), ProfileFault> {
    let inner = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if id.starts_with(|c: char| c.is_ascii_alphanumeric()) && id.chars().all(inner) {
        return Ok(());
    }
    fault("profileId", format!("{id:?}"), "use letters, digits, and . _ - behind the first")
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
    if digest.len() != 64 || !digest.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        return fault(name, format!("SHA-256 {digest:?}"), "write 64 lower-case hexadecimal digits");
    }
    let safe = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    if !locator.split('/').all(safe) {
        return fault(name, format!("{locator:?}"), "write a path below kvprofiles/artifacts, without ..");
    }
    match locator.strip_prefix("sha256/") {
        Some(named) if named != digest => {
            fault(name, format!("{locator:?} is not its SHA-256 {digest}"), "pin the digest that it names")
        }
        _ => Ok(()),
    }
}

/// What the YAML reader says, without its picture of the place.
fn one_line(fault: &serde_saphyr::Error) -> String {
    let words = fault.without_snippet().to_string();
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
