//! Models from files: a thread beside the shards reads what rules and requests ask for, looks for changed files
//! and publishes the outcome. Owns what is loaded and when; must never run on a shard.

use crate::models::{Entry, Models, Wish};
use crossbeam::channel::{Receiver, RecvTimeoutError};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use warmpath_core::engine::{Engine, Looped};
use warmpath_core::profile::slug;
use warmpath_core::table::Table;
use warmpath_prompt::load::registry::{Look, Reader, look_at};
use warmpath_prompt::load::{Files, LoadFault, NAMES};
use warmpath_prompt::tokenizer::Choice;
use warmpath_prompt::{ContentShape, Policy};

/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(2);

/// Folders that are known at once, at most.
const FOLDERS_MAX: usize = 4096;

/// What the loader is told.
pub enum Told {
    /// The rules in force.
    Rules(Arc<Table>),
    /// A request asks for a model that no rule names.
    Wish(Wish),
}

/// What files looked like.
type Stamp = Vec<Look>;

/// The loader.
pub struct Loader {
    root: PathBuf,
    profiles: Reader,
    models: Models,
    /// Folders found last.
    folders: HashSet<String>,
    /// What each loaded or failed entry was made of.
    known: BTreeMap<(String, &'static str), (Engine, Stamp)>,
    /// What rules name.
    named: HashSet<Wish>,
    /// Engines of rules that name no model, whose requests may ask for any.
    open: HashSet<Engine>,
    wishes: HashSet<Wish>,
    /// Models loaded so far: each has its own number among checkpoints.
    loaded: u64,
}

impl Loader {
    /// Of the folders `tokenizers/*` and the profiles `kvprofiles/*.yaml` below `root`. Profiles are read at once.
    pub fn new(root: &Path) -> Loader {
        let mut profiles = Reader::new(root);
        profiles.look();
        Loader {
            root: root.into(),
            models: Models::under(profiles.registry().clone()),
            profiles,
            folders: HashSet::new(),
            known: BTreeMap::new(),
            named: HashSet::new(),
            open: HashSet::new(),
            wishes: HashSet::new(),
            loaded: 0,
        }
    }

    /// Follows what it is told until nobody tells any more; `publish` gets each new state.
    pub fn run(mut self, told: &Receiver<Told>, publish: impl Fn(Arc<Models>)) {
        loop {
            match told.recv_timeout(LOOK) {
                Ok(told) => self.hear(told),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            told.try_iter().for_each(|told| self.hear(told));
            self.look(&publish);
        }
    }

    /// What is known, as published.
    pub fn models(&self) -> Arc<Models> {
        Arc::new(self.models.clone())
    }

    /// Takes in what it is told, without doing anything about it yet.
    pub fn hear(&mut self, told: Told) {
        match told {
            Told::Wish(wish) => {
                if self.open.contains(&wish.engine) && self.folders.contains(&wish.folder) {
                    self.wishes.insert(wish);
                }
            }
            Told::Rules(table) => {
                self.named.clear();
                self.open.clear();
                for service in table.services() {
                    let Some(exact) = &service.rule.exact else { continue };
                    let (engine, model) = (exact.contract.engine(), &service.rule.key.model);
                    if model.is_empty() {
                        self.open.insert(engine);
                    } else {
                        self.named.insert(Wish { folder: slug(model), engine });
                    }
                }
                let open = &self.open;
                self.wishes.retain(|wish| open.contains(&wish.engine));
            }
        }
    }

    /// Nobody needs a model.
    fn is_idle(&self) -> bool {
        self.named.is_empty() && self.open.is_empty()
    }

    /// Looks at the files, loads what is wanted and new or changed, and publishes after each change.
    pub fn look(&mut self, publish: &impl Fn(Arc<Models>)) {
        let others = self.profiles.look();
        let mut folders = if self.is_idle() { HashSet::new() } else { list(&self.root.join("tokenizers")) };
        if !self.is_idle() {
            folders.extend(self.profiles.folders());
        }
        let wanted: HashSet<Wish> = self.named.union(&self.wishes).cloned().collect();
        let stays = |(folder, _): &(String, &'static str), engine: Engine| {
            folders.contains(folder) && wanted.contains(&Wish { folder: folder.clone(), engine })
        };
        let before = self.known.len();
        self.known.retain(|key, (engine, _)| stays(key, *engine));
        let gone = before != self.known.len();
        let changed = gone || others || folders != self.folders || self.is_new(&wanted);
        self.folders = folders;
        if changed {
            self.rebuild(&wanted);
            publish(Arc::new(self.models.clone()));
        }
        let there: Vec<Wish> =
            wanted.into_iter().filter(|wish| self.folders.contains(&wish.folder)).collect();
        for wish in there {
            let stamp = self.stamp(&wish.folder);
            let key = (wish.folder.clone(), wish.engine.name());
            if self.known.get(&key).is_none_or(|(_, known)| *known != stamp) {
                self.load(&wish, &stamp);
                self.known.insert(key, (wish.engine, stamp));
                publish(Arc::new(self.models.clone()));
            }
        }
    }

    /// Whether something is wanted that the published state does not show at all.
    fn is_new(&self, wanted: &HashSet<Wish>) -> bool {
        wanted.iter().any(|wish| self.models.entry(&wish.folder, wish.engine).is_none())
    }

    /// Makes the state anew of what is found and wanted, keeping what is loaded.
    fn rebuild(&mut self, wanted: &HashSet<Wish>) {
        let mut models = Models::under(self.profiles.registry().clone());
        for wish in wanted {
            let key = (wish.folder.clone(), wish.engine.name());
            let kept = self.models.entry(&wish.folder, wish.engine).filter(|_| self.known.contains_key(&key));
            models.set(&wish.folder, kept.cloned().unwrap_or_else(|| Entry::new(wish.engine)));
        }
        self.folders.iter().for_each(|folder| models.set_folder(folder, true));
        self.models = models;
    }

    fn profile_id(&self, folder: &str) -> Option<String> {
        let own = self.profiles.of_folder(folder).ok()??;
        Some(own.profile.id.clone())
    }

    /// All files that a model is made of, there or not.
    fn stamp(&self, folder: &str) -> Stamp {
        let own = self.own_folder(folder);
        let files = NAMES.iter().map(|name| look_at(&own.join(name)));
        files.chain(self.profiles.looks_of(folder)).collect()
    }

    /// Where a model's own files stand: its folder, or that of the model it is an alias of.
    fn own_folder(&self, folder: &str) -> PathBuf {
        let tokenizers = self.root.join("tokenizers");
        let own = tokenizers.join(folder);
        match self.profiles.registry().of_model(folder) {
            Some(published) if !own.is_dir() => tokenizers.join(slug(&published.profile.base_model)),
            _ => own,
        }
    }

    fn files(&self, folder: &str) -> Result<Files, LoadFault> {
        let own = self.own_folder(folder);
        match self.profiles.of_folder(folder)? {
            Some(published) => Files::read_under(&own, &self.root, &published.profile),
            None => Files::read(&own),
        }
    }

    fn load(&mut self, wish: &Wish, stamp: &Stamp) {
        self.loaded += 1;
        let before = self.models.entry(&wish.folder, wish.engine).cloned();
        let files = self.files(&wish.folder);
        let loaded = files.and_then(|files| files.model(self.loaded, policy(wish.engine), Choice::Fast));
        let bytes = stamp.iter().filter_map(|(_, file)| file.map(|(.., bytes)| bytes)).sum();
        let (model, profile, fault) = match loaded {
            Ok(model) => (Some(Arc::new(model)), self.profile_id(&wish.folder), None),
            Err(fault) => (
                before.clone().and_then(|entry| entry.model),
                before.and_then(|entry| entry.profile),
                Some(fault.to_string()),
            ),
        };
        self.models.set(&wish.folder, Entry { engine: wish.engine, model, fault, bytes, profile });
    }
}

/// How an engine turns requests into text.
pub fn policy(engine: Engine) -> Policy {
    let terms = engine.text_terms();
    let looped = match terms.looped {
        Looped::Joined => None,
        Looped::Parts => Some(ContentShape::Parts { wrap: false }),
        Looped::Wrapped => Some(ContentShape::Parts { wrap: true }),
    };
    Policy {
        engine: Some(engine),
        encoded: terms.encoded,
        content: ContentShape::Text { joiner: terms.joiner },
        joiner: terms.joiner,
        looped,
        tools: true,
        template_kwargs: terms.template_kwargs,
        names: terms.names,
        cut_header: terms.cut_header,
        ..Policy::plain()
    }
}

/// The folders below `root`; none where it can't be read.
fn list(root: &Path) -> HashSet<String> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.path().is_dir());
    folders.filter_map(|entry| entry.file_name().into_string().ok()).take(FOLDERS_MAX).collect()
}
