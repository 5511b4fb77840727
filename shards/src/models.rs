//! The models whose text can be tokenized, as shards read them: an immutable map, replaced as a whole. Owns the
//! lookup by name; must never read a file (the loader does).

use std::collections::HashMap;
use std::sync::Arc;
use warmpath_core::control::{ModelReport, ModelState};
use warmpath_core::decline::Decline;
use warmpath_core::engine::Engine;
use warmpath_core::profile::registry::Registry;
use warmpath_core::profile::slug;
use warmpath_prompt::Model;

/// All models known.
#[derive(Clone, Default)]
pub struct Models {
    /// By folder: a model's name with `__` for each slash.
    folders: HashMap<String, Folder>,
    /// The profiles that are published, and the documents that are not.
    pub registry: Arc<Registry>,
}

/// One folder below `tokenizers/`, or one that a rule asks for and that is not there.
#[derive(Clone, Default)]
struct Folder {
    exists: bool,
    entries: Vec<Entry>,
}

/// A model as one kind of engine serves it.
#[derive(Clone)]
pub struct Entry {
    /// Whose way with text it has.
    pub engine: Engine,
    /// The model, once loaded; the older one while newer files can't be read.
    pub model: Option<Arc<Model>>,
    /// Why its files, as they are now, can't be loaded.
    pub fault: Option<String>,
    /// Bytes of its files.
    pub bytes: u64,
    /// `profileId` of the profile it was loaded by.
    pub profile: Option<String>,
}

/// A model that a request asks for and that nobody loaded yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wish {
    /// Its folder's name.
    pub folder: String,
    /// Whose way with text.
    pub engine: Engine,
}

impl Models {
    /// None yet, with these profiles.
    pub fn under(registry: Arc<Registry>) -> Models {
        Models { registry, ..Models::default() }
    }

    /// The model of this name for this engine.
    pub fn find(&self, model: &str, engine: Engine) -> Result<&Arc<Model>, Decline> {
        let folder = match model.contains('/') {
            true => self.folders.get(&slug(model)),
            false => self.folders.get(model),
        };
        let folder = folder.filter(|folder| folder.exists).ok_or(Decline::NoTokenizer)?;
        let entry = folder.entries.iter().find(|entry| entry.engine == engine);
        match entry {
            None => Err(Decline::TokenizerLoading),
            Some(Entry { model: Some(model), .. }) => Ok(model),
            Some(Entry { fault: Some(_), .. }) => Err(Decline::TokenizerFailed),
            Some(_) => Err(Decline::TokenizerLoading),
        }
    }

    /// Says whether there is a folder of this name.
    pub fn set_folder(&mut self, folder: &str, exists: bool) {
        self.folders.entry(folder.into()).or_default().exists = exists;
    }

    /// Puts an entry in place of the one of the same engine.
    pub fn set(&mut self, folder: &str, entry: Entry) {
        let folder = self.folders.entry(folder.into()).or_default();
        folder.entries.retain(|old| old.engine != entry.engine);
        folder.entries.push(entry);
    }

    /// What is known of one.
    pub fn entry(&self, folder: &str, engine: Engine) -> Option<&Entry> {
        self.folders.get(folder)?.entries.iter().find(|entry| entry.engine == engine)
    }

    /// Makes the calling thread ready for each model that was not among those `before`.
    pub fn warm(&self, before: &Models) {
        let is_new = |model: &&Arc<Model>| !before.loaded().any(|old| Arc::ptr_eq(old, model));
        self.loaded().filter(is_new).for_each(|model| model.tokenizer().warm());
    }

    fn loaded(&self) -> impl Iterator<Item = &Arc<Model>> {
        let entries = self.folders.values().flat_map(|folder| &folder.entries);
        entries.filter_map(|entry| entry.model.as_ref())
    }

    /// What is known of each, by name.
    pub fn reports(&self) -> Vec<ModelReport> {
        let of = |(name, folder): (&String, &Folder)| -> Vec<ModelReport> {
            folder.entries.iter().map(|entry| entry.report(name, folder.exists)).collect()
        };
        let mut reports: Vec<ModelReport> = self.folders.iter().flat_map(of).collect();
        reports.sort_by(|a, b| (&a.folder, a.engine.name()).cmp(&(&b.folder, b.engine.name())));
        reports
    }
}

impl Entry {
    /// One that nothing is known of yet.
    pub fn new(engine: Engine) -> Entry {
        Entry { engine, model: None, fault: None, bytes: 0, profile: None }
    }

    fn report(&self, folder: &str, exists: bool) -> ModelReport {
        let state = match (&self.model, &self.fault) {
            _ if !exists => ModelState::Absent,
            (Some(_), _) => ModelState::Loaded,
            (None, Some(_)) => ModelState::Failed,
            (None, None) => ModelState::Loading,
        };
        let report =
            ModelReport { folder: folder.into(), engine: self.engine, state, ..ModelReport::absent() };
        let Some(model) = self.model.as_ref().filter(|_| exists) else {
            return ModelReport { fault: self.fault.clone(), bytes: self.bytes, ..report };
        };
        let boundaries = model.tokenizer().boundaries();
        let why = |(token, why): (&str, Option<&warmpath_prompt::tokenizer::Unsafe>)| {
            Some(format!("{token}: {}", why?))
        };
        let safe = boundaries.safe();
        ModelReport {
            fault: self.fault.clone(),
            bytes: self.bytes,
            profile: self.profile.clone(),
            safe_tokens: safe,
            no_safe: if safe > 0 { None } else { boundaries.tokens().find_map(why) },
            fast_refused: model.tokenizer().refusal().map(ToString::to_string),
            renders_whole: model.renders_anew().map(|why| format!("every turn is rendered whole: {why}")),
            diverged: model.tokenizer().refusal() == Some(&warmpath_prompt::tokenizer::Refusal::Diverged),
            ..report
        }
    }
}
