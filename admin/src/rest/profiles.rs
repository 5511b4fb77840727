//! Handlers of the model profiles that are published. Owns the JSON of them, which scripts of the existing gateway read.

use crate::answer::Answer;
use crate::gateway::Gateway;
use crate::refusal::Refusal;
use crate::routes::{Answered, Call, Route};
use serde_json::{Value, json};
use warmpath_core::profile::registry::Published;
use warmpath_core::profile::{Artifact, Feature, Profile};

/// Rows of profiles.
pub const ROUTES: &[Route] = &[
    Route::own("/netlox/v1/config/ai/model-profiles", list, "model profiles that rules can name"),
    Route::own("/netlox/v1/config/ai/model-profiles/{profile_id}", one, "one of them"),
];

/// All, with the generation of the registry. A document that is refused is named beside them, with its reason.
fn list(gateway: &Gateway, _: &Call) -> Answered {
    let registry = gateway.outside.data_plane.registry();
    let profiles: Vec<Value> = registry.profiles.iter().map(|own| shown(own)).collect();
    let refused = registry.refused.iter().map(|own| json!({"file": own.file, "error": own.fault}));
    Ok(Answer::json(
        200,
        &json!({
            "registryGeneration": registry.generation,
            "setDigest": registry.set_digest,
            "profiles": profiles,
            "refused": refused.collect::<Vec<_>>(),
        }),
    ))
}

fn one(gateway: &Gateway, call: &Call) -> Answered {
    let (registry, id) = (gateway.outside.data_plane.registry(), call.param("profile_id"));
    match registry.profile(id) {
        Some(published) => Ok(Answer::json(200, &shown(published))),
        None => Err(Refusal::NoProfile(id.into())),
    }
}

/// A profile; what its document leaves out is empty.
fn shown(published: &Published) -> Value {
    let profile: &Profile = &published.profile;
    let digest = |artifact: Option<Artifact<'_>>| artifact.map(|own| own.sha256.to_string());
    let words = |features: &[Feature]| features.iter().map(|own| own.word()).collect::<Vec<_>>();
    json!({
        "profileId": profile.id,
        "gen": published.generation,
        "baseModel": profile.base_model,
        "aliasPolicy": profile.alias_policy.word(),
        "allowedAliases": profile.allowed_aliases,
        "tokenizerRevision": profile.tokenizer_revision.as_deref().unwrap_or_default(),
        "tokenizerSha256": digest(profile.tokenizer()).unwrap_or_default(),
        "templateSha256": digest(profile.template()).unwrap_or_default(),
        "templateContentFormat": profile.template_content_format.map_or("", |own| own.word()),
        "rendererEngine": profile.renderer_engine.as_deref().unwrap_or_default(),
        "rendererVersion": profile.renderer_version.as_deref().unwrap_or_default(),
        "oracleEngine": profile.oracle_engine.as_deref().unwrap_or_default(),
        "oracleVersion": profile.oracle_version.as_deref().unwrap_or_default(),
        "supportedApis": profile.apis().map(|api| api.word()).collect::<Vec<_>>(),
        "supportedFeatures": words(&profile.supported_features),
        "excludedFeatures": words(&profile.excluded_features),
    })
}
