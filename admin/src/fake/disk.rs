//! Disks for tests: one in memory that can stop, fail once, and forget what was not synced; a real one that
//! hangs.

use crate::disk::{Disk, RealDisk};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Content now and content that is durable.
#[derive(Clone, Default)]
struct FileState {
    content: Vec<u8>,
    durable: Vec<u8>,
}

#[derive(Default)]
struct State {
    files: Vec<FileState>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    steps_left: Option<u32>,
    fail_in: Option<u32>,
}

/// The disk; clones share it.
#[derive(Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<State>>);

impl MemoryDisk {
    /// Every operation after `steps` changing ones fails, as for a process that is gone.
    pub fn stop_after(&self, steps: u32) {
        self.0.lock().unwrap().steps_left = Some(steps);
    }

    /// The changing operation after `steps` more fails for want of space; later ones work again.
    pub fn fail_once_at(&self, steps: u32) {
        self.0.lock().unwrap().fail_in = Some(steps);
    }

    /// Works again, with what survived: `everything` (a killed process), `what was synced` (a power loss
    /// that kept no more than it had to) or `names that were not synced` (one that kept renames but not
    /// contents).
    pub fn restart(&self, survives: &str) {
        let mut state = self.0.lock().unwrap();
        state.steps_left = None;
        if survives != "everything" {
            for file in &mut state.files {
                file.content = file.durable.clone();
            }
        }
        match survives {
            "what was synced" => state.names = state.durable_names.clone(),
            _ => state.durable_names = state.names.clone(),
        }
    }

    /// Names of its files.
    pub fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().names.keys().cloned().collect()
    }

    fn step(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.0.lock().unwrap();
        match state.fail_in.as_mut() {
            Some(0) => {
                state.fail_in = None;
                return Err(io::ErrorKind::StorageFull.into());
            }
            Some(left) => *left -= 1,
            None => {}
        }
        match state.steps_left.as_mut() {
            Some(0) => return Err(io::Error::other("stopped")),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(state)
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk for MemoryDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let state = self.0.lock().unwrap();
        let at = *state.names.get(&name(path)).ok_or_else(missing)?;
        Ok(state.files[at].content.clone())
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut state = self.step()?;
        let fresh = state.files.len();
        let at = *state.names.entry(name(path)).or_insert(fresh);
        if at == fresh {
            state.files.push(FileState::default());
        }
        state.files[at].content = content.to_vec();
        Ok(())
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.step()?;
        let at = *state.names.get(&name(path)).ok_or_else(missing)?;
        state.files[at].durable = state.files[at].content.clone();
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.step()?;
        let at = state.names.remove(&name(from)).ok_or_else(missing)?;
        state.names.insert(name(to), at);
        Ok(())
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        let mut state = self.step()?;
        state.durable_names = state.names.clone();
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.step()?;
        state.names.remove(&name(path)).map(|_| ()).ok_or_else(missing)
    }
}

/// A real disk whose fsync can be made to hang; clones share it.
#[derive(Clone, Default)]
pub struct HangingDisk(Arc<(Mutex<Hang>, Condvar)>);

#[derive(Default)]
struct Hang {
    hangs: bool,
    waiting: usize,
}

impl HangingDisk {
    /// From now on fsync hangs, or goes on.
    pub fn hang(&self, hangs: bool) {
        self.0.0.lock().unwrap().hangs = hangs;
        self.0.1.notify_all();
    }

    /// How many fsyncs hang.
    pub fn waiting(&self) -> usize {
        self.0.0.lock().unwrap().waiting
    }

    fn pass(&self) {
        let mut hang = self.0.0.lock().unwrap();
        hang.waiting += 1;
        hang = self.0.1.wait_while(hang, |hang| hang.hangs).unwrap();
        hang.waiting -= 1;
    }
}

impl Disk for HangingDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        RealDisk.read(path)
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        RealDisk.write(path, content)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.pass();
        RealDisk.sync_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.pass();
        RealDisk.sync_folder(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }
}
