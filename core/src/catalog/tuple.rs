//! What a row is about: one engine as it was built, before one build of the gateway, in one shape of pool. Owns the
//! components and how two tuples differ; must never hold that one version is as good as another.

use crate::engine::Engine;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Everything that evidence holds for, and nothing else: a tuple that differs in one component is another one. `None`
/// is a component that nobody told, which equals only another untold one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuple {
    /// The engine, by the word of a rule's `kvEngineType`.
    #[serde(serialize_with = "engine_word", deserialize_with = "engine")]
    pub engine: Engine,
    /// Its version, as it tells it itself.
    pub version: String,
    /// The commit of its source.
    #[serde(deserialize_with = "told")]
    pub revision: Option<String>,
    /// What was run: an image's digest, or a package as its index names it, with its version.
    #[serde(deserialize_with = "told")]
    pub artifact: Option<String>,
    /// The model, by the name of its profile, or by the name it is served under.
    #[serde(deserialize_with = "told")]
    pub model_profile: Option<String>,
    /// The gateway: a commit of this repository, or another gateway by its name and release.
    #[serde(deserialize_with = "told")]
    pub gateway_build: Option<String>,
    /// How the pool is made up.
    #[serde(deserialize_with = "told")]
    pub topology: Option<Topology>,
    /// Data-parallel ranks of each endpoint.
    #[serde(deserialize_with = "told")]
    pub rank_count: Option<u8>,
}

/// How a pool is made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topology {
    /// Each endpoint serves whole requests.
    SinglePool,
    /// Prefill and decode on different endpoints.
    PrefillDecode,
}

impl Topology {
    /// As in the catalog.
    pub const fn word(self) -> &'static str {
        match self {
            Topology::SinglePool => "single_pool",
            Topology::PrefillDecode => "prefill_decode",
        }
    }
}

/// One component of a [`Tuple`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// [`Tuple::engine`].
    Engine,
    /// [`Tuple::version`].
    Version,
    /// [`Tuple::revision`].
    Revision,
    /// [`Tuple::artifact`].
    Artifact,
    /// [`Tuple::model_profile`].
    ModelProfile,
    /// [`Tuple::gateway_build`].
    GatewayBuild,
    /// [`Tuple::topology`].
    Topology,
    /// [`Tuple::rank_count`].
    RankCount,
}

impl Component {
    /// All of them, in the order of a tuple's members.
    pub const ALL: [Component; 8] = [
        Component::Engine,
        Component::Version,
        Component::Revision,
        Component::Artifact,
        Component::ModelProfile,
        Component::GatewayBuild,
        Component::Topology,
        Component::RankCount,
    ];

    /// Its member in the catalog.
    pub const fn word(self) -> &'static str {
        match self {
            Component::Engine => "engine",
            Component::Version => "version",
            Component::Revision => "revision",
            Component::Artifact => "artifact",
            Component::ModelProfile => "model_profile",
            Component::GatewayBuild => "gateway_build",
            Component::Topology => "topology",
            Component::RankCount => "rank_count",
        }
    }
}

impl Tuple {
    /// A component as text; `None` where it is not told.
    pub fn told(&self, component: Component) -> Option<String> {
        match component {
            Component::Engine => Some(self.engine.name().to_owned()),
            Component::Version => Some(self.version.clone()),
            Component::Revision => self.revision.clone(),
            Component::Artifact => self.artifact.clone(),
            Component::ModelProfile => self.model_profile.clone(),
            Component::GatewayBuild => self.gateway_build.clone(),
            Component::Topology => self.topology.map(|topology| topology.word().to_owned()),
            Component::RankCount => self.rank_count.map(|count| count.to_string()),
        }
    }

    /// The components in which it is not `other`, in the order of [`Component::ALL`].
    pub fn differences<'a>(&'a self, other: &'a Tuple) -> impl Iterator<Item = Component> + 'a {
        Component::ALL.into_iter().filter(|component| self.told(*component) != other.told(*component))
    }
}

/// An `Option` whose member must stand there, as `null` if it must be: one that was forgotten is a fault.
fn told<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(from)
}

fn engine<'de, D: Deserializer<'de>>(from: D) -> Result<Engine, D::Error> {
    let word = String::deserialize(from)?;
    Engine::from_name(&word).ok_or_else(|| {
        let known: Vec<&str> = Engine::ALL.iter().map(|engine| engine.name()).collect();
        serde::de::Error::custom(format!("unknown engine `{word}`, expected one of {}", known.join(", ")))
    })
}

fn engine_word<S: Serializer>(engine: &Engine, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(engine.name())
}
