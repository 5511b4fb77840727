//! What is reported of engines, versions and transports together: floors, flags that a router in front needs, paths of
//! blocks, limits with their cures. Owns the form of `core/catalog/compatibility.json`, which is built in, and the answers
//! to one question; must never add up two paths, nor read silence as a yes: what no row names is not verified.

mod judge;
mod probe;
mod release;

pub use judge::{Answer, Question, Standing};
pub use probe::{GroupProbe, Member};
pub use release::Release;

use super::CatalogFault;
use crate::engine::Engine;
use serde::{Deserialize, Serialize};

/// The rows of this build, as text.
const EMBEDDED: &str = include_str!("../../catalog/compatibility.json");

/// All tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compat {
    /// Who says so.
    pub reported_by: String,
    /// Which form an engine's events have, by version.
    pub contracts: Vec<Contract>,
    /// The least versions, by engine and configuration.
    pub minimums: Vec<Minimum>,
    /// What moves blocks, by transport and engine.
    pub transports: Vec<Transport>,
    /// What fails although it works, with cures.
    pub limits: Vec<Limit>,
    /// Versions at which the binding of the group-forward probe was read.
    pub group_probes: Vec<ProbedVersions>,
}

/// An engine as these tables tell it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Build {
    /// One whose platform is not known, or doesn't matter.
    Of(Engine),
    /// vLLM on Ascend, with versions of its own.
    VllmAscend,
}

impl Build {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Build> {
        Engine::ALL.iter().copied().map(Build::Of).chain([Build::VllmAscend])
    }

    /// As in the tables.
    pub const fn word(self) -> &'static str {
        match self {
            Build::Of(engine) => engine.name(),
            Build::VllmAscend => "vllm-ascend",
        }
    }

    /// The engine that it is a build of.
    pub const fn engine(self) -> Engine {
        match self {
            Build::Of(engine) => engine,
            Build::VllmAscend => Engine::Vllm,
        }
    }
}

impl TryFrom<String> for Build {
    type Error = String;

    fn try_from(word: String) -> Result<Build, String> {
        Build::all().find(|build| build.word() == word).ok_or_else(|| format!("{word:?} is no engine"))
    }
}

impl From<Build> for String {
    fn from(build: Build) -> String {
        build.word().into()
    }
}

/// What an engine is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Configuration {
    /// Each endpoint serves whole requests, without a store.
    Alone,
    /// Prefill and decode, blocks sent straight from one to the other.
    Pd,
    /// With a Mooncake store, alone or as a pair.
    Store,
    /// Encode, prefill and decode.
    Epd,
}

impl Configuration {
    /// All of them.
    pub const ALL: [Configuration; 4] =
        [Configuration::Alone, Configuration::Pd, Configuration::Store, Configuration::Epd];

    /// As in the tables.
    pub const fn word(self) -> &'static str {
        ["alone", "pd", "store", "epd"][self as usize]
    }
}

/// A way that blocks take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockPath {
    /// Through a pool.
    Store,
    /// From prefill to decode.
    Direct,
}

impl BlockPath {
    /// Both.
    pub const ALL: [BlockPath; 2] = [BlockPath::Store, BlockPath::Direct];

    /// As in the tables.
    pub const fn word(self) -> &'static str {
        ["store", "direct"][self as usize]
    }
}

/// Versions that publish events in one form, first and last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// The row.
    pub id: String,
    /// Of which engine.
    pub engine: Build,
    /// The first.
    pub from: Release,
    /// The last that is known to.
    pub to: Release,
    /// The form.
    pub events: String,
}

/// The least version of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Minimum {
    /// The row.
    pub id: String,
    /// Of which engine.
    pub engine: Build,
    /// As what.
    pub configuration: Configuration,
    /// The version; `None`: no run.
    pub minimum: Option<Release>,
    /// Routers in front with which it was run, where that mattered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routers: Vec<String>,
    /// A flag that a router in front needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flag: Option<Flag>,
    /// How an encoder hands over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoder: Option<String>,
    /// The Mooncake client of the image.
    pub mooncake_client: String,
    /// Which store members go with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_members: Option<String>,
    /// What else was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A flag of the engine that a router asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flag {
    /// Which router.
    pub router: String,
    /// The flag.
    pub name: String,
    /// From which version on.
    pub from: Release,
}

/// One transport with one engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transport {
    /// The row.
    pub id: String,
    /// As Mooncake spells it; `auto` is `tcp`.
    pub transport: String,
    /// With which engine; `None`: any of those with other rows.
    pub engine: Option<Build>,
    /// Through a store.
    pub store: Cell,
    /// From prefill to decode.
    pub direct: Cell,
}

/// A transport, an engine and one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// What came of it.
    pub verdict: CellVerdict,
    /// Where, or why not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Rows of limits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
}

/// What came of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CellVerdict {
    /// Run, with blocks moving.
    Works,
    /// Only on an image that the operator builds.
    OwnImage,
    /// Refused, not rendered, or in no image.
    NotSupported,
    /// No run.
    NotVerified,
    /// The schema has no such value.
    Rejected,
}

/// What fails although it works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// The row.
    pub id: String,
    /// What happens.
    pub limit: String,
    /// What to do.
    pub cure: String,
}

/// Versions of an engine whose answers to the group-forward probe were read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbedVersions {
    /// Of which.
    pub engine: Build,
    /// Each.
    pub versions: Vec<Release>,
}

impl Compat {
    /// Those of this build.
    pub fn embedded() -> Result<Compat, CatalogFault> {
        Ok(serde_json::from_str(EMBEDDED)?)
    }

    /// The form of events of a version.
    pub fn contract(&self, engine: Build, release: &Release) -> Option<&Contract> {
        let covers = |row: &&Contract| row.engine == engine && (&row.from..=&row.to).contains(&release);
        self.contracts.iter().find(covers)
    }

    /// The floor of a configuration.
    pub fn minimum(&self, engine: Build, configuration: Configuration) -> Option<&Minimum> {
        self.minimums.iter().find(|row| (row.engine, row.configuration) == (engine, configuration))
    }

    /// The row of a transport. Rows of any engine hold for those that have rows of their own at all.
    pub fn transport(&self, engine: Build, transport: &str) -> Option<&Transport> {
        let is_known = self.transports.iter().any(|row| row.engine == Some(engine));
        let fits = |row: &&Transport| row.engine.map_or(is_known, |own| own == engine);
        self.transports.iter().filter(fits).find(|row| row.transport == transport)
    }
}

impl Transport {
    /// The cell of a path.
    pub fn cell(&self, path: BlockPath) -> &Cell {
        match path {
            BlockPath::Store => &self.store,
            BlockPath::Direct => &self.direct,
        }
    }
}

#[cfg(test)]
mod tests;
