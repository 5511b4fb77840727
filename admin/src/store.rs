//! The state directory: which rules survive a crash. Owns the snapshot file, its previous copy and the order
//! of the steps that replace it; must never leave a moment at which neither an old nor a new whole snapshot
//! can be read.
//!
//! A change is `prepare` (write a temporary file, fsync), then the caller puts it in force, then `commit`
//! (keep the old as previous, rename, fsync the folder). The step that may need disk space comes first, so a
//! full disk refuses a change before anything happened; a listener that can't open leaves only a temporary
//! file to take away. A change is acknowledged after `commit`, never before.

use crate::disk::Disk;
use crate::rules::{Bindings, RuleSet};
use serde_json::{Map, Value, json};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// `kind` of the snapshot document.
const KIND: &str = "warmpath-snapshot";
/// `schema` of the snapshot document; another major number is not read.
const SCHEMA: &str = "1.1";

/// The content of the snapshot file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Grows with each accepted change.
    pub generation: u64,
    /// Rule bodies.
    pub rules: Vec<Value>,
    /// Bodies of hosts that are probed whichever rules name them.
    pub endpoints: Vec<Value>,
    /// Numbers of the rules' bindings to profiles.
    pub bindings: Bindings,
    /// Changes of each rule, by its id.
    pub history: Map<String, Value>,
}

impl Snapshot {
    /// What is to be kept of `rules`.
    pub fn of(generation: u64, rules: &RuleSet) -> Snapshot {
        let endpoints = rules.hosts.iter().map(|host| host.body.clone()).collect();
        let history = rules.entries().iter().map(|e| (e.rule.id.clone(), e.history.to_json())).collect();
        Snapshot { generation, rules: rules.bodies(), endpoints, bindings: rules.bindings(), history }
    }

    /// The document that is written, without the history: what a restore takes.
    pub fn document(&self) -> Value {
        json!({
            "kind": KIND,
            "schema": SCHEMA,
            "generation": self.generation,
            "rules": self.rules,
            "endpoints": self.endpoints,
            "bindings": self.bindings.to_json(),
        })
    }

    /// From such a document; the error says what is wrong with it.
    pub fn from_document(document: &Value) -> Result<Snapshot, String> {
        let (Some(kind), Some(schema)) = (document["kind"].as_str(), document["schema"].as_str()) else {
            return Err("kind or schema is missing".into());
        };
        if kind != KIND || schema.split('.').next() != SCHEMA.split('.').next() {
            return Err(format!("it is a {kind} of schema {schema}; this gateway reads {KIND} {SCHEMA}"));
        }
        let (Some(generation), Some(rules)) = (document["generation"].as_u64(), document["rules"].as_array())
        else {
            return Err("generation or rules is missing".into());
        };
        let endpoints = document["endpoints"].as_array().cloned().unwrap_or_default();
        let history = document["history"].as_object().cloned().unwrap_or_default();
        let bindings = Bindings::from_json(&document["bindings"])?;
        Ok(Snapshot { generation, rules: rules.clone(), endpoints, bindings, history })
    }
}

/// What was found at boot.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// No snapshot: a first start.
    Nothing,
    /// The snapshot.
    Current(Snapshot),
    /// A change was cut between two renames; it was not acknowledged. The rules before it.
    Interrupted(Snapshot),
    /// The snapshot can't be read; the previous copy, if that can.
    Damaged {
        /// The previous copy.
        previous: Option<Snapshot>,
        /// What is wrong with the snapshot.
        cause: String,
    },
}

/// A state directory held by this process.
pub struct Store {
    folder: PathBuf,
    disk: Box<dyn Disk>,
    /// Held for its advisory lock, which ends with the process however it ends.
    _lock: Option<File>,
}

impl Store {
    /// Makes the folder if absent and takes its lock.
    pub fn open(folder: &Path, disk: Box<dyn Disk>) -> Result<Store, String> {
        let fault = |what: &str, e: &dyn std::fmt::Display| {
            format!(
                "state directory {}: {what}: {e}; choose a writable one with --state-dir",
                folder.display()
            )
        };
        std::fs::create_dir_all(folder).map_err(|e| fault("can't be made", &e))?;
        let lock = File::create(folder.join("lock")).map_err(|e| fault("can't be written", &e))?;
        match lock.try_lock() {
            Ok(()) => Ok(Store { folder: folder.into(), disk, _lock: Some(lock) }),
            Err(TryLockError::WouldBlock) => Err(format!(
                "state directory {} is in use by another gateway; stop that one or give this one its own with --state-dir",
                folder.display()
            )),
            Err(TryLockError::Error(e)) => Err(fault("can't be locked", &e)),
        }
    }

    /// A store on a disk that is no real one.
    #[cfg(test)]
    pub(crate) fn on(disk: Box<dyn Disk>) -> Store {
        Store { folder: "state".into(), disk, _lock: None }
    }

    /// Reads what is there.
    pub fn load(&self) -> Result<Found, String> {
        let previous = || self.read(&self.previous()).ok().flatten();
        match self.read(&self.current()) {
            Ok(Some(snapshot)) => Ok(Found::Current(snapshot)),
            Ok(None) => Ok(previous().map_or(Found::Nothing, Found::Interrupted)),
            Err(Unreadable::Damaged(cause)) => Ok(Found::Damaged { previous: previous(), cause }),
            Err(Unreadable::Refused(sentence)) => Err(sentence),
        }
    }

    /// Writes the snapshot beside the current one, durable. On an error nothing is left behind.
    pub fn prepare(&self, snapshot: &Snapshot) -> io::Result<()> {
        let written =
            self.disk.write(&self.next(), &encode(snapshot)).and_then(|()| self.disk.sync_file(&self.next()));
        if written.is_err() {
            let _ = self.abandon();
        }
        written
    }

    /// Makes the prepared snapshot the current one, durable.
    pub fn commit(&self) -> io::Result<()> {
        match self.disk.rename(&self.current(), &self.previous()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        self.disk.rename(&self.next(), &self.current())?;
        self.disk.sync_folder(&self.folder)
    }

    /// Takes a prepared snapshot away. A leftover does no harm: it is never read, and the next one replaces
    /// it.
    pub fn abandon(&self) -> io::Result<()> {
        self.disk.remove(&self.next())
    }

    /// Puts a damaged snapshot aside and says where.
    pub fn quarantine(&self, stamp: u64) -> Result<PathBuf, String> {
        let aside = self.folder.join(format!("snapshot.json.damaged-{stamp}"));
        self.disk
            .rename(&self.current(), &aside)
            .map_err(|e| format!("{}: can't be put aside: {e}", self.current().display()))?;
        Ok(aside)
    }

    /// The snapshot file.
    pub fn current(&self) -> PathBuf {
        self.folder.join("snapshot.json")
    }

    fn previous(&self) -> PathBuf {
        self.folder.join("snapshot.json.prev")
    }

    fn next(&self) -> PathBuf {
        self.folder.join("snapshot.json.next")
    }

    fn read(&self, path: &Path) -> Result<Option<Snapshot>, Unreadable> {
        match self.disk.read(path) {
            Ok(bytes) => decode(path, &bytes).map(Some),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Unreadable::Refused(format!(
                "{}: can't be read: {e}; make it readable for this user",
                path.display()
            ))),
        }
    }
}

enum Unreadable {
    /// Not what this program wrote: cut, or changed by something else.
    Damaged(String),
    /// Sound, but not for this program; or no right to read it.
    Refused(String),
}

fn encode(snapshot: &Snapshot) -> Vec<u8> {
    let mut document = snapshot.document();
    document["history"] = snapshot.history.clone().into();
    let mut text = format!("{document:#}").into_bytes();
    text.push(b'\n');
    text
}

fn decode(path: &Path, bytes: &[u8]) -> Result<Snapshot, Unreadable> {
    let name = path.display();
    let damaged = |cause: &dyn std::fmt::Display| Unreadable::Damaged(format!("{name}: {cause}"));
    let document: Value = serde_json::from_slice(bytes).map_err(|e| damaged(&e))?;
    match (document["kind"].as_str(), document["schema"].as_str()) {
        (Some(kind), Some(schema))
            if kind != KIND || schema.split('.').next() != SCHEMA.split('.').next() =>
        {
            Err(Unreadable::Refused(format!(
                "{name} is a {kind} of schema {schema}; this gateway reads {KIND} {SCHEMA}: start it with the version that wrote the file or with another --state-dir"
            )))
        }
        _ => Snapshot::from_document(&document).map_err(|cause| damaged(&cause)),
    }
}

#[cfg(test)]
mod tests;
