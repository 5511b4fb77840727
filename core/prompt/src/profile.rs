//! Documents of the registry `kvprofiles/` in YAML, and what a profile changes of an engine's way with text. Owns how
//! strictly YAML is read: no member unknown or twice, no anchors, merges, tags or second documents; what members mean is
//! [`warmpath_core::profile`]'s. Must never read a file.

use crate::request::{Clock, Policy};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_saphyr::Options;
use serde_saphyr::budget::Budget;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use warmpath_core::profile::manifest::Manifest;
use warmpath_core::profile::{Api, ClockPolicy, ContentFormat, Feature, Profile, ProfileFault};

/// Reads a profile, whole or not at all.
pub fn read(yaml: &[u8]) -> Result<Profile, ProfileFault> {
    let profile: Profile = strictly(yaml)?;
    profile.check()?;
    Ok(profile)
}

/// Reads the manifest of the profile `id`, whole or not at all.
pub fn read_manifest(yaml: &[u8], id: &str) -> Result<Manifest, ProfileFault> {
    let manifest: Manifest = strictly(yaml)?;
    manifest.check(id)?;
    Ok(manifest)
}

/// The models that a document is about, if that much of it can be read: so that a refused one is not taken for an
/// absent one.
pub fn claims(yaml: &[u8]) -> Vec<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Claim {
        base_model: String,
        #[serde(default)]
        allowed_aliases: Vec<String>,
    }
    let claim: Result<Claim, _> = strictly(yaml);
    claim.map_or(Vec::new(), |claim| [vec![claim.base_model], claim.allowed_aliases].concat())
}

fn strictly<T: DeserializeOwned>(yaml: &[u8]) -> Result<T, ProfileFault> {
    let read = serde_saphyr::from_slice_with_options(yaml, options());
    read.map_err(|fault| ProfileFault::Form(one_line(&fault)))
}

fn options() -> Options {
    let mut budget = Budget::default();
    budget.max_anchors = 0;
    budget.max_aliases = 0;
    budget.max_depth = 8;
    budget.max_inclusion_depth = 0;
    budget.max_documents = 1;
    let mut options = Options::default();
    options.budget = Some(budget);
    options.duplicate_keys = DuplicateKeyPolicy::Error;
    options.merge_keys = MergeKeyPolicy::Error;
    options.strict_booleans = true;
    options
}

/// Puts what a profile says in the place of what an engine does by itself.
pub(crate) fn apply(profile: &Profile, policy: &mut Policy) {
    let render = &profile.render_policy;
    for (name, token) in [("bos_token", &render.bos_token), ("eos_token", &render.eos_token)] {
        let known = policy.special_tokens.iter().any(|(known, _)| known == name);
        if let Some(token) = token.as_ref().filter(|_| !known) {
            policy.special_tokens.push((name.into(), token.clone()));
        }
    }
    if render.clock_policy == Some(ClockPolicy::UtcDate) {
        policy.clock = Clock::UtcDate;
    }
    match profile.template_content_format {
        Some(ContentFormat::String) => policy.looped = None,
        Some(ContentFormat::Openai) => policy.content = policy.looped.take().unwrap_or(policy.content),
        None => {}
    }
    policy.chats &= profile.supports(Api::Chat);
    policy.completions &= profile.supports(Api::Completions);
    let excludes = |feature| profile.excluded_features.contains(&feature);
    policy.tools &= !excludes(Feature::Tools) && !excludes(Feature::ToolCalls);
    policy.template_kwargs &= !excludes(Feature::TemplateKwargs) && !excludes(Feature::Thinking);
}

/// What the YAML reader says, without its picture of the place.
fn one_line(fault: &serde_saphyr::Error) -> String {
    let words = fault.without_snippet().to_string();
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
