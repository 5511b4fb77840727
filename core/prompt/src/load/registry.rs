//! The registry of model profiles on disk: `kvprofiles/` below the configuration's root. Owns its layout, and that what
//! is published are the very bytes that were checked; what a document means is the core's. A document is read again
//! when something it is made of changed, and only then.

use super::{LARGEST, LoadFault, trusted};
use crate::profile::{self, claims};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use warmpath_core::engine::Engine;
use warmpath_core::profile::fixture::{self, Fixture, FixtureFault};
use warmpath_core::profile::registry::{Document, Fixtures, Published, Registry, Staged};
use warmpath_core::profile::{Artifact, Profile, manifest, sha256, slug};

/// The folder, below the configuration's root.
pub const FOLDER: &str = "kvprofiles";

/// Documents that are read, at most.
const DOCUMENTS_MAX: usize = 4096;

/// Fixtures of one engine that are read, at most.
const FIXTURES_MAX: usize = 256;

/// What a file or folder looked like: when it was changed, rights included (seconds, nanoseconds), and its length.
pub type Look = (PathBuf, Option<(i64, i64, u64)>);

/// The registry as it was last read.
pub struct Reader {
    root: PathBuf,
    known: BTreeMap<String, (Vec<Look>, Document)>,
    registry: Arc<Registry>,
}

impl Reader {
    /// Of the registry below `root`; nothing is read yet.
    pub fn new(root: &Path) -> Reader {
        Reader { root: root.into(), known: BTreeMap::new(), registry: Arc::default() }
    }

    /// What was published last.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Reads what came or changed, and forgets what went; whether that changes what is published.
    pub fn look(&mut self) -> bool {
        let files = documents(&self.root);
        self.known.retain(|file, _| files.contains(file));
        for file in files {
            let known = self.known.get(&file);
            let same = known.is_some_and(|(looks, _)| looks.iter().all(|look| *look == look_at(&look.0)));
            if !same {
                self.known.insert(file.clone(), read(&self.root, &file));
            }
        }
        let documents: Vec<Document> = self.known.values().map(|(_, document)| document.clone()).collect();
        let next = Registry::next(&self.registry, &documents);
        let changed = next != *self.registry;
        if changed {
            self.registry = Arc::new(next);
        }
        changed
    }

    /// The profile of a folder's model, if there is one. A document that is refused is a fault of its model: which
    /// tokens the engine makes is then not known.
    pub fn of_folder(&self, folder: &str) -> Result<Option<&Arc<Published>>, LoadFault> {
        let mut own = self.known.values().filter(|(_, document)| is_for(document, folder));
        let Some((_, document)) = own.next() else { return Ok(None) };
        if let Some(published) = self.registry.of_model(folder) {
            return Ok(Some(published));
        }
        let refused = self.registry.refused.iter().find(|refused| refused.file == document.file);
        let what = refused.map(|refused| refused.fault.clone()).unwrap_or_default();
        Err(LoadFault::Profile { file: document.file.clone(), what })
    }

    /// What the profile of a folder's model is made of, as it was when that was read.
    pub fn looks_of(&self, folder: &str) -> impl Iterator<Item = Look> + '_ {
        let own = self.known.values().filter(move |(_, document)| is_for(document, folder));
        own.flat_map(|(looks, _)| looks.iter().cloned()).collect::<Vec<_>>().into_iter()
    }

    /// Folders of models that need none of their own: their tokenizer is pinned.
    pub fn folders(&self) -> impl Iterator<Item = String> + '_ {
        let pinned = self.registry.profiles.iter().filter(|own| own.profile.tokenizer().is_some());
        pinned.flat_map(|own| own.profile.names().map(slug))
    }
}

/// What a file or folder looks like now.
pub fn look_at(path: &Path) -> Look {
    let file = std::fs::symlink_metadata(path).ok();
    (path.into(), file.map(|file| (file.ctime(), file.ctime_nsec(), file.len())))
}

fn is_for(document: &Document, folder: &str) -> bool {
    document.claims.iter().any(|name| slug(name) == folder)
}

/// The documents of a registry, by name; none where there is no registry.
fn documents(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root.join(FOLDER)).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let yaml = |name: &String| name.ends_with(".yaml") && !name.starts_with('.');
    let mut found: Vec<String> = names.filter(yaml).take(DOCUMENTS_MAX).collect();
    found.sort();
    found
}

/// Reads a document with all that it is made of. What it looked like is noted before, so that a change meanwhile is
/// seen the next time.
fn read(root: &Path, file: &str) -> (Vec<Look>, Document) {
    let path = format!("{FOLDER}/{file}");
    let mut looks = vec![look_at(root), look_at(&root.join(FOLDER)), look_at(&root.join(&path))];
    let refused = |claims, why: String| Document { file: file.into(), read: Err(why), claims };
    let bytes = match trusted::read(root, &path, warmpath_core::profile::LARGEST) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return (looks, refused(Vec::new(), "it is gone".into())),
        Err(distrust) => return (looks, refused(Vec::new(), distrust.to_string())),
    };
    let claimed = claims(&bytes);
    let read = profile::read(&bytes).map_err(|fault| fault.to_string());
    let read = read.and_then(|profile| publish(root, file, profile, sha256(&bytes), &mut looks));
    (looks, Document { file: file.into(), read: read.map(Arc::new), claims: claimed })
}

fn publish(
    root: &Path,
    file: &str,
    profile: Profile,
    digest: String,
    looks: &mut Vec<Look>,
) -> Result<Published, String> {
    let pinned = [profile.tokenizer(), profile.template()];
    for artifact in pinned.iter().flatten() {
        looks.push(look_at(&root.join(artifact_path(artifact))));
    }
    for artifact in pinned.iter().flatten() {
        self::pinned(root, artifact).map_err(|fault| fault.to_string())?;
    }
    let folder = |name: &str| root.join("tokenizers").join(slug(name)).join("tokenizer.json");
    let staged = |name: &str| {
        let look = look_at(&folder(name));
        let there = look.1.is_some();
        (look, there)
    };
    let folders: Vec<(Look, bool)> = profile.names().map(staged).collect();
    let has_tokenizer = profile.tokenizer().is_some() || folders.iter().any(|(_, there)| *there);
    looks.extend(folders.into_iter().map(|(look, _)| look));
    Ok(Published {
        file: file.into(),
        generation: 0,
        digest,
        has_tokenizer,
        manifest: manifest(root, &profile.id, looks),
        fixtures: fixtures(root, &profile.id, looks),
        profile,
    })
}

fn manifest(root: &Path, id: &str, looks: &mut Vec<Look>) -> Option<Result<Staged, String>> {
    let path = format!("{FOLDER}/manifests/{id}.yaml");
    looks.push(look_at(&root.join(FOLDER).join("manifests")));
    looks.push(look_at(&root.join(&path)));
    let bytes = match trusted::read(root, &path, manifest::LARGEST) {
        Ok(bytes) => bytes?,
        Err(distrust) => return Some(Err(distrust.to_string())),
    };
    let read = profile::read_manifest(&bytes, id).map_err(|fault| format!("{path}: {fault}"));
    Some(read.map(|manifest| Staged { manifest, identity: sha256(&bytes) }))
}

fn fixtures(root: &Path, id: &str, looks: &mut Vec<Look>) -> Fixtures {
    let mut all = Fixtures::default();
    for engine in Engine::ALL.iter().copied().filter(|engine| engine.publishes_blocks()) {
        let folder = fixture_folder(id, engine);
        looks.push(look_at(&root.join(&folder)));
        let names = probes(&root.join(&folder));
        for name in &names {
            looks.push(look_at(&root.join(format!("{folder}/{name}.request.json"))));
            looks.push(look_at(&root.join(format!("{folder}/{name}.expect.json"))));
        }
        if !names.is_empty() {
            let read = names.iter().map(|name| read_fixture(root, &folder, name)).collect();
            all.by_engine.insert(engine.name(), read);
        }
    }
    all
}

/// The folder of an engine's probes, below the configuration's root.
pub fn fixture_folder(id: &str, engine: Engine) -> String {
    match engine.probe_folder() {
        "" => format!("{FOLDER}/probefixtures/{id}"),
        own => format!("{FOLDER}/probefixtures/{id}/{own}"),
    }
}

/// The names of the probes of a folder, numbers in their order.
fn probes(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<String> =
        names.filter_map(|name| Some(name.strip_suffix(".request.json")?.to_string())).collect();
    found.sort_by_key(|name| (name.parse::<u64>().unwrap_or(u64::MAX), name.clone()));
    found.truncate(FIXTURES_MAX);
    found
}

fn read_fixture(root: &Path, folder: &str, name: &str) -> Result<Fixture, FixtureFault> {
    let form = |what: String| FixtureFault::Form { name: name.into(), what };
    let read = |end: &str| {
        let path = format!("{folder}/{name}.{end}");
        let bytes =
            trusted::read(root, &path, fixture::LARGEST).map_err(|distrust| form(distrust.to_string()))?;
        bytes.ok_or_else(|| form(format!("{name}.{end} is missing")))
    };
    Fixture::read(name, read("request.json")?, &read("expect.json")?)
}

/// Where a pinned file stands, below the configuration's root.
pub fn artifact_path(artifact: &Artifact<'_>) -> String {
    format!("{FOLDER}/artifacts/{}", artifact.locator)
}

/// The bytes of a pinned file, which hash to what the profile says.
pub(super) fn pinned(root: &Path, artifact: &Artifact<'_>) -> Result<Vec<u8>, LoadFault> {
    let path = artifact_path(artifact);
    let read = trusted::read(root, &path, LARGEST).map_err(LoadFault::Distrust)?;
    let read = read.ok_or_else(|| LoadFault::missing(&root.join(&path)))?;
    let found = sha256(&read);
    match found == artifact.sha256 {
        true => Ok(read),
        false => Err(LoadFault::Pin { path: root.join(&path), found, wanted: artifact.sha256.into() }),
    }
}
