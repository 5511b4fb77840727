//! What is published of the registry of profiles, as one immutable value. Owns which of several documents count: one
//! that is refused leaves the others alone, and two that are about one model are both refused, since which of them
//! tells the engine's tokens is then not known. Must never read a file.

use super::fixture::{Fixture, FixtureFault};
use super::manifest::Manifest;
use super::{Profile, sha256, slug};
use crate::control::RefusedProfile;
use crate::engine::Engine;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All that is published. Replaced as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Registry {
    /// Grows by one with each change of the set of profiles while the process lives; 0 until the first one.
    pub generation: u32,
    /// SHA-256 over ids and digests of the profiles, hexadecimal; empty where there are none.
    pub set_digest: String,
    /// By id.
    pub profiles: Vec<Arc<Published>>,
    /// Documents that are not published, by name, each with its reason.
    pub refused: Vec<RefusedProfile>,
}

/// A profile that is published, and what stands beside its document.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// The document's file, below `kvprofiles/`.
    pub file: String,
    /// What it says.
    pub profile: Profile,
    /// The registry's generation since which it says so.
    pub generation: u32,
    /// SHA-256 of the document and thereby of the files it pins, hexadecimal.
    pub digest: String,
    /// Whether there is a tokenizer: a pinned one, or one in the folder of its model.
    pub has_tokenizer: bool,
    /// The manifest; `None` where none is staged, a sentence where it can't be used.
    pub manifest: Option<Result<Staged, String>>,
    /// The probes of each engine that there are some for.
    pub fixtures: Fixtures,
}

/// A manifest, and which one.
#[derive(Clone, Debug, PartialEq)]
pub struct Staged {
    /// What it says.
    pub manifest: Manifest,
    /// Its identity: SHA-256 of the file's bytes, hexadecimal.
    pub identity: String,
}

/// Probes by engine; why there are none, where there should be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fixtures {
    /// By the engine's name.
    pub by_engine: BTreeMap<&'static str, Result<Vec<Fixture>, FixtureFault>>,
}

impl Fixtures {
    /// Those for this engine, in the order of their names; never empty.
    pub fn of(&self, engine: Engine) -> Result<&[Fixture], &FixtureFault> {
        match self.by_engine.get(engine.name()) {
            Some(Ok(fixtures)) if !fixtures.is_empty() => Ok(fixtures),
            Some(Err(fault)) => Err(fault),
            _ => Err(&FixtureFault::Missing),
        }
    }
}

/// A document that was read, before it is compared with the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Its file, below `kvprofiles/`.
    pub file: String,
    /// What would be published of it, or why it is refused.
    pub read: Result<Arc<Published>, String>,
    /// The models it is about, even if it is refused, as far as that can be read.
    pub claims: Vec<String>,
}

impl Registry {
    /// What is published of `documents`, after `before`. The same value where nothing changed.
    pub fn next(before: &Registry, documents: &[Document]) -> Registry {
        let conflicts: Vec<Option<String>> = documents.iter().map(|own| conflict(own, documents)).collect();
        let mut profiles: Vec<Arc<Published>> = Vec::new();
        let mut refused = Vec::new();
        for (document, conflict) in documents.iter().zip(conflicts) {
            match (&document.read, conflict) {
                (Ok(published), None) => profiles.push(published.clone()),
                (Ok(_), Some(fault)) => refused.push(RefusedProfile { file: document.file.clone(), fault }),
                (Err(fault), _) => {
                    refused.push(RefusedProfile { file: document.file.clone(), fault: fault.clone() });
                }
            }
        }
        profiles.sort_by(|a, b| a.profile.id.cmp(&b.profile.id));
        refused.sort_by(|a, b| a.file.cmp(&b.file));
        let set_digest = set_digest(&profiles);
        let generation = before.generation + u32::from(set_digest != before.set_digest);
        for profile in &mut profiles {
            let since = match before.profile(&profile.profile.id) {
                Some(older) if older.digest == profile.digest => older.generation,
                _ => generation,
            };
            if profile.generation != since {
                *profile = Arc::new(Published { generation: since, ..Published::clone(profile) });
            }
        }
        Registry { generation, set_digest, profiles, refused }
    }

    /// The profile of this id.
    pub fn profile(&self, id: &str) -> Option<&Arc<Published>> {
        self.profiles.iter().find(|published| published.profile.id == id)
    }

    /// The profile that is about this model, by name or alias.
    pub fn of_model(&self, model: &str) -> Option<&Arc<Published>> {
        let folder = slug(model);
        self.profiles.iter().find(|published| published.profile.names().any(|name| slug(name) == folder))
    }
}

/// Why a document can't count beside the others.
fn conflict(own: &Document, all: &[Document]) -> Option<String> {
    let id = |document: &Document| Some(document.read.as_ref().ok()?.profile.id.clone());
    let others = || all.iter().filter(|other| other.file != own.file);
    if let Some(other) = others().find(|other| id(other).is_some() && id(other) == id(own)) {
        let id = id(own).unwrap_or_default();
        return Some(format!(
            "profileId: {} has {id:?} too; give each its own, or leave one of them",
            other.file
        ));
    }
    let folders = |document: &Document| document.claims.iter().map(|name| slug(name)).collect::<Vec<_>>();
    let mine = folders(own);
    let shared = |other: &Document| folders(other).into_iter().find(|folder| mine.contains(folder));
    let (other, folder) = others().find_map(|other| Some((other, shared(other)?)))?;
    Some(format!("{} is about the model {folder} too; leave one of them", other.file))
}

fn set_digest(profiles: &[Arc<Published>]) -> String {
    if profiles.is_empty() {
        return String::new();
    }
    let line = |own: &Arc<Published>| format!("{} {}\n", own.profile.id, own.digest);
    sha256(profiles.iter().map(line).collect::<String>().as_bytes())
}
