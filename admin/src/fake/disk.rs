//! A disk in memory that can stop, fail once, and forget what was not synced.

use crate::disk::Disk;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;

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
pub struct MemoryDisk(Rc<RefCell<State>>);

impl MemoryDisk {
    /// Every operation after `steps` changing ones fails, as for a process that is gone.
    pub fn stop_after(&self, steps: u32) {
        self.0.borrow_mut().steps_left = Some(steps);
    }

    /// The changing operation after `steps` more fails for want of space; later ones work again.
    pub fn fail_once_at(&self, steps: u32) {
        self.0.borrow_mut().fail_in = Some(steps);
    }

    /// Works again, with what survived: `everything` (a killed process), `what was synced` (a power loss
    /// that kept no more than it had to) or `names that were not synced` (one that kept renames but not
    /// contents).
    pub fn restart(&self, survives: &str) {
        let mut state = self.0.borrow_mut();
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
        self.0.borrow().names.keys().cloned().collect()
    }

    fn step(&self) -> io::Result<std::cell::RefMut<'_, State>> {
        let mut state = self.0.borrow_mut();
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
        let state = self.0.borrow();
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
