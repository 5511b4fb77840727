//! The registry of model profiles, `kvprofiles/` below the configuration's root. Owns its layout, which document is
//! for which model, and that a pinned file is what it was pinned as; what a document means is [`Profile`]'s.

use super::{LoadFault, bytes, folder_name};
use crate::profile::{self, Artifact, Profile};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// Documents that are read, at most.
const DOCUMENTS_MAX: usize = 4096;

/// One document, accepted or not.
#[derive(Clone, Debug)]
pub struct Published {
    /// Where it stands.
    pub path: PathBuf,
    /// The profile, or why it is refused.
    pub profile: Result<Profile, String>,
    /// The folders of the models it is about.
    folders: Vec<String>,
}

/// `kvprofiles/` below `root`.
pub fn registry(root: &Path) -> PathBuf {
    root.join("kvprofiles")
}

/// The documents of a registry, by name; none where there is no registry.
pub fn documents(registry: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(registry).into_iter().flatten().flatten().map(|entry| entry.path());
    let yaml = |path: &PathBuf| path.extension().is_some_and(|end| end == "yaml") && path.is_file();
    let mut found: Vec<PathBuf> = entries.filter(yaml).take(DOCUMENTS_MAX).collect();
    found.sort();
    found
}

impl Published {
    /// Reads a document.
    pub fn read(path: &Path) -> Published {
        let text = match bytes(path, profile::LARGEST) {
            Ok(Some(text)) => text,
            Ok(None) => return Published::refused(path, "it is gone".into()),
            Err(fault) => return Published::refused(path, fault.to_string()),
        };
        match Profile::read(&text) {
            Ok(read) => {
                let folders = read.names().map(folder_name).collect();
                Published { path: path.into(), folders, profile: Ok(read) }
            }
            Err(fault) => {
                let folders = Profile::claims(&text).iter().map(|name| folder_name(name)).collect();
                Published { folders, ..Published::refused(path, fault.to_string()) }
            }
        }
    }

    fn refused(path: &Path, why: String) -> Published {
        Published { path: path.into(), profile: Err(why), folders: Vec::new() }
    }

    /// Whether it is about the model of this folder.
    pub fn is_for(&self, folder: &str) -> bool {
        self.folders.iter().any(|own| own == folder)
    }

    /// Its file's name.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// The profile of a folder's model, if there is one. A refused document, and two for one model, are a fault: which
/// tokens the engine makes is then not known.
pub fn profile_of<'a>(published: &'a [Published], folder: &str) -> Result<Option<&'a Profile>, LoadFault> {
    let mut own = published.iter().filter(|document| document.is_for(folder));
    match (own.next(), own.next()) {
        (None, _) => Ok(None),
        (Some(one), Some(other)) => Err(LoadFault::Profile {
            file: other.name(),
            what: format!("{} is about this model too; leave one of them", one.name()),
        }),
        (Some(only), None) => match &only.profile {
            Ok(profile) => Ok(Some(profile)),
            Err(what) => Err(LoadFault::Profile { file: only.name(), what: what.clone() }),
        },
    }
}

/// Where a pinned file stands.
pub fn artifact_path(registry: &Path, artifact: &Artifact<'_>) -> PathBuf {
    registry.join("artifacts").join(artifact.locator)
}

/// The bytes of a pinned file, which hash to what the profile says.
pub(super) fn pinned(registry: &Path, artifact: &Artifact<'_>) -> Result<Vec<u8>, LoadFault> {
    let path = artifact_path(registry, artifact);
    let read = bytes(&path, super::LARGEST)?.ok_or_else(|| LoadFault::missing(&path))?;
    let digest: String = Sha256::digest(&read).iter().map(|byte| format!("{byte:02x}")).collect();
    if digest == artifact.sha256 {
        return Ok(read);
    }
    Err(LoadFault::Pin { path, found: digest, wanted: artifact.sha256.into() })
}
