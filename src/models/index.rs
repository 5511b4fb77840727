//! `models.json`: which files a model has, where they come from and what they hash to. Owns its form and what of it is
//! refused; must never be trusted beyond the hashes that it names.

use serde::Deserialize;
use std::collections::BTreeMap;
use warmpath_core::engine::Engine;
use warmpath_core::profile::{is_safe_path, is_sha256};

/// The only form there is.
const FORM: &str = "warmpath-models-1";

/// The largest `models.json` that is read, in bytes: some thousand files of weights.
pub const LARGEST: u64 = 16 << 20;

/// What comes with this program: models that were looked at, without files.
const BUILT_IN: &str = include_str!("../../core/catalog/models.json");

/// All of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    form: String,
    /// The models, in the order they are listed.
    pub models: Vec<Model>,
}

/// One model.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Model {
    /// Its profile's id.
    pub id: String,
    /// The name under which it is served.
    pub base_model: String,
    /// The revision of its repository; what comes with this program may leave it open.
    pub revision: Option<String>,
    /// The profile's document.
    pub profile: Option<Pinned>,
    /// `tokenizer.json`.
    pub tokenizer: Option<Pinned>,
    /// The chat template.
    pub template: Option<Pinned>,
    /// The files that an engine serves.
    pub weights: Option<Weights>,
    /// What is known of it with each engine, by the engine's name.
    pub engines: BTreeMap<String, Row>,
}

/// A file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pinned {
    /// Where it stands: a path below the folder or URL of `models.json`, or a URL.
    pub from: String,
    /// SHA-256 of its bytes.
    pub sha256: String,
}

/// A model with one kind of engine.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Row {
    /// The engine's version.
    pub version: String,
    /// Its image, without tag and digest; none: there is none to pull.
    pub image: Option<String>,
    /// The image's digest.
    pub image_digest: Option<String>,
    /// How far it was qualified.
    pub state: State,
    /// Why it is not supported, or by which record it is.
    pub reason: Option<String>,
    /// How much memory it wants, for people.
    pub memory: Option<String>,
    /// Arguments that this model needs beside those of `warmpath models launch`.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// The manifest of the engine.
    pub manifest: Option<Pinned>,
    /// Its probes.
    #[serde(default)]
    pub fixtures: Vec<Probe>,
}

/// One probe.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// What its files are named by.
    pub name: String,
    /// The request.
    pub request: Pinned,
    /// The tokens that must come back.
    pub expect: Pinned,
}

/// Files of weights.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weights {
    /// Below what they stand: a path or a URL.
    pub from: String,
    /// The files.
    pub files: Vec<WeightFile>,
}

/// One of them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightFile {
    /// Its path, there and here.
    pub path: String,
    /// SHA-256 of its bytes.
    pub sha256: String,
    /// How many they are.
    pub bytes: u64,
}

/// How far a model was qualified with an engine.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Supported.
    Validated,
    /// Qualified, not supported.
    Candidate,
    /// It can't work; the reason says why.
    Blocked,
}

impl State {
    /// As in `state`.
    pub const fn word(self) -> &'static str {
        match self {
            State::Validated => "validated",
            State::Candidate => "candidate",
            State::Blocked => "blocked",
        }
    }
}

impl Index {
    /// What comes with this program.
    pub fn built_in() -> Result<Index, String> {
        Index::read(BUILT_IN.as_bytes(), "the list built in")
    }

    /// Reads one, whole or not at all; `name` is what it is called in the refusal.
    pub fn read(bytes: &[u8], name: &str) -> Result<Index, String> {
        let index: Index = serde_json::from_slice(bytes).map_err(|e| format!("{name}: {e}"))?;
        if index.form != FORM {
            return Err(format!("{name}: form is {:?}; this program reads {FORM}", index.form));
        }
        for model in &index.models {
            model.check().map_err(|what| format!("{name}: {}: {what}", model.id))?;
        }
        Ok(index)
    }

    /// The model of this id.
    pub fn model(&self, id: &str) -> Result<&Model, String> {
        let known = || self.models.iter().map(|model| model.id.as_str()).collect::<Vec<_>>().join(", ");
        let found = self.models.iter().find(|model| model.id == id);
        found.ok_or_else(|| format!("no model has the id {id:?}; there are {}", known()))
    }
}

impl Model {
    fn check(&self) -> Result<(), String> {
        if !is_safe_path(&self.id) || self.id.contains('/') {
            return Err("an id has letters, digits, and . _ - behind the first".into());
        }
        let mut revision = self.revision.iter().filter(|own| !is_safe_path(own) || own.contains('/'));
        if let Some(revision) = revision.next() {
            return Err(format!("revision {revision:?}: use letters, digits, and . _ -"));
        }
        let rows = self.engines.values();
        let pins =
            rows.clone().flat_map(|row| row.fixtures.iter().flat_map(|own| [&own.request, &own.expect]));
        let pins = pins.chain(rows.filter_map(|row| row.manifest.as_ref()));
        let own = [&self.profile, &self.tokenizer, &self.template].into_iter().flatten();
        if let Some(pin) = pins.chain(own).find(|pin| !is_sha256(&pin.sha256)) {
            return Err(format!("{}: sha256 {:?} is no SHA-256", pin.from, pin.sha256));
        }
        for (name, row) in &self.engines {
            Engine::from_name(name).ok_or_else(|| format!("{name:?} is no engine"))?;
            if row.state != State::Validated && row.reason.is_none() {
                return Err(format!("{name} is {} without a reason", row.state.word()));
            }
            if let Some(probe) =
                row.fixtures.iter().find(|own| !is_safe_path(&own.name) || own.name.contains('/'))
            {
                return Err(format!("the fixture {:?} can't be a file's name", probe.name));
            }
        }
        let weights = self.weights.iter().flat_map(|weights| &weights.files);
        match weights.clone().find(|file| !is_safe_path(&file.path) || !is_sha256(&file.sha256)) {
            Some(file) => Err(format!("the weights {:?} have no safe path and SHA-256", file.path)),
            None => Ok(()),
        }
    }

    /// What is known of it with this engine.
    pub fn row(&self, engine: Engine) -> Result<&Row, String> {
        let known = || self.engines.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let row = self.engines.get(engine.name());
        row.ok_or_else(|| {
            format!("{}: nothing is known of it with {}; with {}", self.id, engine.name(), known())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_in_can_be_read() {
        let index = Index::built_in().expect("it is sound");
        assert!(index.models.iter().all(|model| model.weights.is_none() && !model.engines.is_empty()));
    }

    #[test]
    fn an_index_is_taken_whole_or_not_at_all() {
        let pin = "0".repeat(64);
        let good = format!(
            r#"{{"form": "warmpath-models-1", "models": [{{"id": "a", "baseModel": "org/a", "revision": "r1",
            "profile": {{"from": "a.yaml", "sha256": "{pin}"}},
            "weights": {{"from": "w", "files": [{{"path": "x/y.bin", "sha256": "{pin}", "bytes": 1}}]}},
            "engines": {{"vllm": {{"version": "0.32.0", "state": "blocked", "reason": "no"}}}}}}]}}"#
        );
        let read = |text: &str| Index::read(text.as_bytes(), "models.json").map(|_| ());
        assert_eq!(read(&good), Ok(()));
        for (from, to, words) in [
            ("models-1", "models-2", "this program reads"),
            ("\"a\"", "\"../a\"", "an id has"),
            ("\"r1\"", "\"r/1\"", "revision"),
            ("vllm", "ollama", "is no engine"),
            (", \"reason\": \"no\"", "", "blocked without a reason"),
            ("x/y.bin", "../y.bin", "no safe path"),
            ("\"bytes\": 1", "\"bytes\": 1, \"mode\": 7", "unknown field"),
            (&format!("\"a.yaml\", \"sha256\": \"{pin}\""), "\"a.yaml\", \"sha256\": \"0\"", "is no SHA-256"),
        ] {
            assert!(good.contains(from), "{from}");
            let fault = read(&good.replacen(from, to, 1)).expect_err(to);
            assert!(fault.contains(words), "{fault}");
        }
    }
}
