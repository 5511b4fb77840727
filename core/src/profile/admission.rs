//! Whether a rule may be bound to the profile that it names. Owns these refusals, their status and their cure; pure.

use super::binding::digest;
use super::registry::{Published, Registry};
use super::{Api, Profile};
use crate::rule::{KvExact, Rule};
use std::fmt;
use std::sync::Arc;

/// A rule that may be bound.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// To this profile.
    pub published: Arc<Published>,
    /// The digest of the binding.
    pub digest: String,
}

/// Why a rule can't be bound as it asks to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdmissionFault {
    /// No profile of this id is published.
    Unpublished {
        /// The id.
        id: String,
        /// Why its document is refused, where one of this name is staged.
        refused: Option<String>,
    },
    /// The rule serves every model.
    NoModel {
        /// The profile it names.
        id: String,
    },
    /// The profile is of other models.
    NotServed {
        /// The profile.
        id: String,
        /// The rule's model.
        model: String,
        /// The models it is about.
        names: String,
    },
    /// The profile leaves out an API that the rule routes by blocks.
    Api {
        /// The profile.
        id: String,
        /// The API.
        api: Api,
    },
    /// Chats can't be rendered as this engine does.
    Renderer {
        /// The profile.
        id: String,
        /// What is missing.
        what: String,
    },
    /// There is no tokenizer of the rule's model.
    NoTokenizer {
        /// The profile.
        id: String,
        /// The rule's model.
        model: String,
    },
}

impl AdmissionFault {
    /// The HTTP status.
    pub const fn status(&self) -> u16 {
        match self {
            AdmissionFault::NoTokenizer { .. } => 412,
            _ => 400,
        }
    }

    /// A word for programs, stable.
    pub const fn code(&self) -> &'static str {
        match self {
            AdmissionFault::Unpublished { .. } => "profile_not_published",
            AdmissionFault::NoModel { .. } => "profile_without_model",
            AdmissionFault::NotServed { .. } => "profile_of_another_model",
            AdmissionFault::Api { .. } => "profile_api_unsupported",
            AdmissionFault::Renderer { .. } => "profile_renderer_missing",
            AdmissionFault::NoTokenizer { .. } => "KV_EXACT_TOKENIZER_UNLOADABLE",
        }
    }

    /// The member that is wrong.
    pub const fn member(&self) -> &'static str {
        match self {
            AdmissionFault::NoModel { .. } => "serviceArguments.model_name",
            _ => "serviceArguments.kvModelProfile",
        }
    }
}

impl fmt::Display for AdmissionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.member())?;
        match self {
            AdmissionFault::Unpublished { id, refused: None } => write!(
                f,
                "{id:?} is not a published model-prompt profile; stage it with warmpath models install, or name one \
                 of GET /netlox/v1/config/ai/model-profiles"
            ),
            AdmissionFault::Unpublished { id, refused: Some(why) } => {
                write!(f, "{id:?} is not a published model-prompt profile: its document is refused: {why}")
            }
            AdmissionFault::NoModel { id } => write!(
                f,
                "empty, but the profile {id:?} is of one model; write its name, as the engines serve it"
            ),
            AdmissionFault::NotServed { id, model, names } => write!(
                f,
                "the profile {id:?} does not serve the model {model:?}, but {names}; name the profile of that model, or \
                 add the name to allowedAliases"
            ),
            AdmissionFault::Api { id, api } => write!(
                f,
                "the profile {id:?} has no {0} in supportedApis; set kvExactApiMode to what it supports, or add {0} \
                 once it is validated",
                api.word()
            ),
            AdmissionFault::Renderer { id, what } => write!(
                f,
                "the profile {id:?} has no validated renderer of chats: {what}; or set kvExactApiMode to completions"
            ),
            AdmissionFault::NoTokenizer { id, model } => write!(
                f,
                "there is no tokenizer of {model:?}: the profile {id:?} pins none and its folder below tokenizers/ has \
                 none; pin tokenizerArtifact"
            ),
        }
    }
}

impl std::error::Error for AdmissionFault {}

/// What the rule names, if it may be bound to it; `None` where it names none.
pub fn admit(rule: &Rule, registry: &Registry) -> Result<Option<Admitted>, AdmissionFault> {
    let Some(exact) = rule.exact.as_ref().filter(|exact| !exact.profile.id.is_empty()) else {
        return Ok(None);
    };
    let (id, model) = (exact.profile.id.clone(), rule.key.model.as_str());
    let Some(published) = registry.profile(&id) else {
        let refused = registry.refused.iter().find(|refused| refused.file == format!("{id}.yaml"));
        return Err(AdmissionFault::Unpublished { refused: refused.map(|own| own.fault.clone()), id });
    };
    let profile = &published.profile;
    if model.is_empty() {
        return Err(AdmissionFault::NoModel { id });
    }
    if !profile.serves(model) {
        let names = profile.names().collect::<Vec<_>>().join(", ");
        return Err(AdmissionFault::NotServed { id, model: model.into(), names });
    }
    check_apis(exact, profile)?;
    if !published.has_tokenizer {
        return Err(AdmissionFault::NoTokenizer { id, model: model.into() });
    }
    let digest = digest(exact, model, profile, &published.digest);
    Ok(Some(Admitted { published: published.clone(), digest }))
}

fn check_apis(exact: &KvExact, profile: &Profile) -> Result<(), AdmissionFault> {
    let surfaces = exact.profile.declared.surfaces(Some(profile));
    let unsupported = |api: &Api| surfaces.has(*api) && !profile.supports(*api);
    if let Some(api) = [Api::Chat, Api::Completions].into_iter().find(unsupported) {
        return Err(AdmissionFault::Api { id: profile.id.clone(), api });
    }
    match surfaces.chat.then(|| missing_renderer(exact, profile)).flatten() {
        Some(what) => Err(AdmissionFault::Renderer { id: profile.id.clone(), what }),
        None => Ok(()),
    }
}

/// What keeps chats from being rendered as this engine does.
fn missing_renderer(exact: &KvExact, profile: &Profile) -> Option<String> {
    let engine = exact.contract.engine();
    let own = profile.model_type.as_deref();
    if let Some(own) = own.filter(|own| engine.text_terms().encoded.contains(own)) {
        return Some(format!("{} encodes chats of modelType {own} by code of its own", engine.name()));
    }
    if profile.template().is_none() {
        return Some("pin templateArtifact".into());
    }
    let named = profile.renderer_engine.as_deref().is_some_and(|name| !name.is_empty());
    (!named).then(|| "name rendererEngine".into())
}
