//! What an engine says of itself beside what rule and manifest say of it. Owns the comparison; must never know by which
//! path or member an engine tells something (`core/src/engine/` does).

use super::{Reason, Terms};
use crate::engine::Engine;
use crate::profile::manifest::Manifest;

/// What the operator deployed, as far as an engine can be compared with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deployed {
    /// The engine's version, to the letter.
    pub engine_version: String,
    /// The model's revision, compared where the engine tells one.
    pub model_revision: Option<String>,
    /// Type of the weights, likewise.
    pub dtype: Option<String>,
}

impl Deployed {
    /// As the manifest of a profile says it, with the arguments as `engine` reads them. `auto` says nothing.
    pub fn of(manifest: &Manifest, engine: Engine) -> Deployed {
        Deployed {
            engine_version: manifest.engine_version.clone(),
            model_revision: manifest.model_revision.clone(),
            dtype: manifest.geometry(engine).dtype.filter(|dtype| dtype != "auto"),
        }
    }
}

/// What an engine says of itself. Everything may be missing: engines and versions tell differently much.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Its version, in its own words.
    pub version: Option<String>,
    /// The models that it serves.
    pub models: Vec<String>,
    /// The revision of the model.
    pub revision: Option<String>,
    /// Tokens of a block.
    pub block_size: Option<u32>,
    /// Its block hash.
    pub algorithm: Option<String>,
    /// Data-parallel ranks.
    pub ranks: Option<u32>,
    /// Whether it publishes events.
    pub publishes: Option<bool>,
    /// The port at which rank 0 does.
    pub event_port: Option<u16>,
    /// Type of the weights.
    pub dtype: Option<String>,
    /// Names the process that answered: its start.
    pub started: Option<u64>,
}

impl Told {
    /// Why an engine that says this is not the one that the rule and its manifest name; `None`: nothing contradicts, and
    /// it tells all that an engine of its kind has to.
    pub fn contradicts(&self, terms: &Terms) -> Option<Reason> {
        let lacks = terms.engine.questions().and_then(|questions| questions.lacks(self));
        lacks.or_else(|| self.identity(terms)).or_else(|| self.geometry(terms))
    }

    fn identity(&self, terms: &Terms) -> Option<Reason> {
        let is_served = terms.model.is_empty() || self.models.contains(&terms.model);
        let is_deployed = terms.deployed.as_ref().is_none_or(|own| {
            is(self.version.as_deref(), Some(&own.engine_version))
                && is(self.revision.as_deref(), own.model_revision.as_deref())
        });
        (!is_served || !is_deployed).then_some(Reason::IdentityMismatch)
    }

    fn geometry(&self, terms: &Terms) -> Option<Reason> {
        let deployed = terms.deployed.as_ref();
        let fits = is(self.block_size, Some(terms.block_size))
            && is(self.ranks, Some(terms.ranks.into()))
            && is(self.event_port, terms.event_port)
            && is(self.algorithm.as_deref(), terms.algorithm.as_deref())
            && is(self.dtype.as_deref(), deployed.and_then(|own| own.dtype.as_deref()))
            && self.publishes != Some(false);
        (!fits).then_some(Reason::EngineGeometryMismatch)
    }
}

/// Whether what is told is what is wanted, where both are known. What an engine has to tell is asked apart.
fn is<T: PartialEq>(told: Option<T>, wanted: Option<T>) -> bool {
    told.zip(wanted).is_none_or(|(told, wanted)| told == wanted)
}
