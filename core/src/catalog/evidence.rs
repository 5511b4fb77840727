//! What was shown of a tuple, gate by gate, and by which record. Owns the words; must never read anything but `pass` as
//! pass: what is not written was not run.

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// A thing that the gateway does with an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// Answers and streams come through as the engine gave them.
    Relay,
    /// Prompts of one beginning go to one endpoint (`sel` 8).
    PrefixAffinity,
    /// What its cache holds is known from its events.
    KvEvents,
    /// Requests go where most of their prompt's blocks are held, and find there what was predicted.
    PrefixRouting,
    /// The same for prompts under a `cache_salt`.
    CacheSalt,
    /// The same for prompts of an adapter.
    Lora,
    /// Prefill and decode on two endpoints.
    PdRouting,
    /// What the engine is, as it is asked while it runs.
    RuntimeProbe,
}

impl Capability {
    /// All of them, in the order they are shown.
    pub const ALL: [Capability; 8] = [
        Capability::Relay,
        Capability::PrefixAffinity,
        Capability::KvEvents,
        Capability::PrefixRouting,
        Capability::CacheSalt,
        Capability::Lora,
        Capability::PdRouting,
        Capability::RuntimeProbe,
    ];

    /// As in the catalog.
    pub const fn word(self) -> &'static str {
        match self {
            Capability::Relay => "relay",
            Capability::PrefixAffinity => "prefix_affinity",
            Capability::KvEvents => "kv_events",
            Capability::PrefixRouting => "prefix_routing",
            Capability::CacheSalt => "cache_salt",
            Capability::Lora => "lora",
            Capability::PdRouting => "pd_routing",
            Capability::RuntimeProbe => "runtime_probe",
        }
    }
}

/// A kind of evidence, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// The engine's source was read.
    Source,
    /// Vectors that its own code made, or captures of it.
    Fixture,
    /// A simulated engine behind the gateway.
    Synthetic,
    /// The engine itself behind the gateway.
    RealEngine,
}

impl Gate {
    /// All of them.
    pub const ALL: [Gate; 4] = [Gate::Source, Gate::Fixture, Gate::Synthetic, Gate::RealEngine];

    /// As in the catalog.
    pub const fn word(self) -> &'static str {
        match self {
            Gate::Source => "source",
            Gate::Fixture => "fixture",
            Gate::Synthetic => "synthetic",
            Gate::RealEngine => "real_engine",
        }
    }
}

/// What came of a gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It was shown.
    #[serde(rename = "pass")]
    Pass,
    /// It was tried, and was not so.
    #[serde(rename = "fail")]
    Fail,
    /// Nobody tried.
    #[default]
    #[serde(rename = "not_run")]
    NotRun,
    /// There is nothing to try.
    #[serde(rename = "n_a")]
    NotApplicable,
}

impl Verdict {
    const ALL: [Verdict; 4] = [Verdict::Pass, Verdict::Fail, Verdict::NotRun, Verdict::NotApplicable];

    /// As in the catalog.
    pub const fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::NotRun => "not_run",
            Verdict::NotApplicable => "n_a",
        }
    }

    /// Whether somebody tried, of which there is a record.
    pub const fn was_run(self) -> bool {
        matches!(self, Verdict::Pass | Verdict::Fail)
    }
}

/// What was shown of one capability here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Evidence {
    source: Verdict,
    fixture: Verdict,
    synthetic: Verdict,
    real_engine: Verdict,
    /// The file that shows it, for each gate that was run.
    #[serde(deserialize_with = "unique")]
    pub records: BTreeMap<Gate, Record>,
}

impl Evidence {
    /// What came of a gate.
    pub const fn verdict(&self, gate: Gate) -> Verdict {
        match gate {
            Gate::Source => self.source,
            Gate::Fixture => self.fixture,
            Gate::Synthetic => self.synthetic,
            Gate::RealEngine => self.real_engine,
        }
    }

    /// Whether any gate was run.
    pub fn was_run(&self) -> bool {
        Gate::ALL.into_iter().any(|gate| self.verdict(gate).was_run())
    }
}

/// A file of this repository, and which text of it was meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// From the root of the repository.
    pub file: String,
    /// SHA-256 of its bytes, 64 lower-case hexadecimal digits.
    pub sha256: String,
}

/// How far a tuple is supported here, and what decided it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promotion {
    /// How far.
    pub word: PromotionWord,
    /// The file that tells who decided it by which gates, below `perf/results/`.
    pub record: Record,
}

/// How far a tuple is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromotionWord {
    /// It was seen.
    Observed,
    /// It is to be.
    Candidate,
    /// It is.
    Validated,
    /// It can't be.
    Blocked,
    /// It was.
    Deprecated,
}

impl PromotionWord {
    /// As in the catalog.
    pub const fn word(self) -> &'static str {
        ["observed", "candidate", "validated", "blocked", "deprecated"][self as usize]
    }
}

/// What somebody else says of the tuple. It counts for nothing here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reported {
    /// Who, and where.
    pub by: String,
    /// Their name for the engine's contract.
    pub contract: String,
    /// Their verdict on the whole, in their word.
    pub promotion: String,
    /// Their gates.
    #[serde(deserialize_with = "unique")]
    pub capabilities: BTreeMap<Capability, ReportedGates>,
}

/// Four verdicts in the order of [`Gate::ALL`], as one text: `pass/pass/not_run/pass`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ReportedGates([Verdict; 4]);

impl TryFrom<String> for ReportedGates {
    type Error = String;

    fn try_from(text: String) -> Result<ReportedGates, String> {
        let verdict = |word: &str| Verdict::ALL.into_iter().find(|verdict| verdict.word() == word);
        let verdicts: Option<Vec<Verdict>> = text.split('/').map(verdict).collect();
        let four = verdicts.and_then(|verdicts| verdicts.try_into().ok());
        four.map(ReportedGates).ok_or_else(|| {
            format!("`{text}` is not four of pass, fail, not_run, n_a with slashes between them")
        })
    }
}

impl From<ReportedGates> for String {
    fn from(gates: ReportedGates) -> String {
        gates.0.map(Verdict::word).join("/")
    }
}

/// A map in which no key comes twice: of two verdicts on one thing the later would win unseen.
pub(super) fn unique<'de, D, K, V>(from: D) -> Result<BTreeMap<K, V>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Ord + Serialize,
    V: Deserialize<'de>,
{
    from.deserialize_map(Unique(PhantomData))
}

struct Unique<K, V>(PhantomData<(K, V)>);

impl<'de, K: Deserialize<'de> + Ord + Serialize, V: Deserialize<'de>> Visitor<'de> for Unique<K, V> {
    type Value = BTreeMap<K, V>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<BTreeMap<K, V>, A::Error> {
        let mut map = BTreeMap::new();
        while let Some(key) = members.next_key()? {
            if map.contains_key(&key) {
                let key = serde_json::to_string(&key).unwrap_or_default();
                return Err(A::Error::custom(format!("{key} comes twice; leave one of them out")));
            }
            map.insert(key, members.next_value()?);
        }
        Ok(map)
    }
}
