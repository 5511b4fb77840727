//! Files that decide how text is read, below a folder of the operator's. Owns what makes a file trusted: no symbolic
//! link on the way, a regular file of root or of this user, written by its owner alone, as its folders are. Must never
//! follow a link, nor read on past a bound.

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, open, openat};
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Why a file is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distrust {
    /// The file or folder, below the root.
    pub path: String,
    /// What is wrong with it, and the cure.
    pub what: String,
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.what)
    }
}

impl std::error::Error for Distrust {}

/// A whole file below `root`, at most `largest` bytes of it; `None` if there is none. `path` has `/` between parts.
pub fn read(root: &Path, path: &str, largest: u64) -> Result<Option<Vec<u8>>, Distrust> {
    let distrust = |path: &str, what: String| Distrust { path: path.into(), what };
    let cant =
        |path: &str, error: Errno| distrust(path, format!("can't be opened: {error}; make it readable"));
    let mut folder = match open(root, FOLDER, Mode::empty()) {
        Ok(folder) => folder,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(cant(&root.display().to_string(), error)),
    };
    check(&folder, Kind::Folder).map_err(|what| distrust(&root.display().to_string(), what))?;
    let mut done = 0;
    while let Some(length) = path.get(done..).and_then(|rest| rest.find('/')) {
        let (name, whole) = (&path[done..done + length], &path[..done + length]);
        folder = match step(&folder, name, FOLDER | OFlags::NOFOLLOW) {
            Ok(Some(next)) => next,
            Ok(None) => return Ok(None),
            Err(what) => return Err(distrust(whole, what)),
        };
        check(&folder, Kind::Folder).map_err(|what| distrust(whole, what))?;
        done += length + 1;
    }
    let opened = step(&folder, &path[done..], OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK);
    let Some(file) = opened.map_err(|what| distrust(path, what))? else { return Ok(None) };
    check(&file, Kind::File).map_err(|what| distrust(path, what))?;
    whole(file, largest).map(Some).map_err(|what| distrust(path, what))
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Folder,
}

fn step(folder: &OwnedFd, name: &str, flags: OFlags) -> Result<Option<OwnedFd>, String> {
    match openat(folder, name, flags | OFlags::CLOEXEC, Mode::empty()) {
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::NOENT) => Ok(None),
        // The kernel says either of a link in a place where none may be.
        Err(Errno::LOOP | Errno::NOTDIR) => {
            Err("a symbolic link, or no folder; put the file or folder itself there".into())
        }
        Err(error) => Err(format!("can't be opened: {error}; make it readable")),
    }
}

fn check(opened: &impl AsFd, kind: Kind) -> Result<(), String> {
    let stat = fstat(opened).map_err(|error| format!("can't be looked at: {error}"))?;
    judge(&stat, kind, rustix::process::geteuid().as_raw())
}

fn judge(stat: &Stat, kind: Kind, own: u32) -> Result<(), String> {
    let mode = Mode::from_raw_mode(stat.st_mode);
    if kind == Kind::File && FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("no regular file; put a file there".into());
    }
    if stat.st_uid != 0 && stat.st_uid != own {
        return Err(format!("owned by user {}; make root or the gateway's user its owner", stat.st_uid));
    }
    let (wide, cure) = match kind {
        Kind::File => (mode.intersects(Mode::from_raw_mode(0o133)), "chmod 644"),
        Kind::Folder => (mode.intersects(Mode::WGRP | Mode::WOTH), "chmod go-w"),
    };
    match wide {
        true => Err(format!("its mode is {:o}; {cure}", mode.as_raw_mode() & 0o7777)),
        false => Ok(()),
    }
}

fn whole(file: OwnedFd, largest: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::from(file).take(largest + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("can't be read: {error}"))?;
    match bytes.len() as u64 > largest {
        true => Err(format!("larger than {largest} bytes; this can't be what it is taken for")),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    fn folder(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("warmpath-trusted-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(root.join("a/b")).expect("a folder");
        std::fs::write(root.join("a/b/file"), b"text").expect("a file");
        set(&root, "", 0o755);
        set(&root, "a", 0o755);
        set(&root, "a/b", 0o755);
        set(&root, "a/b/file", 0o644);
        root
    }

    fn set(root: &Path, path: &str, mode: u32) {
        std::fs::set_permissions(root.join(path), PermissionsExt::from_mode(mode)).expect("its owner");
    }

    fn told(root: &Path, path: &str) -> String {
        match read(root, path, 16) {
            Ok(found) => format!("{found:?}"),
            Err(distrust) => distrust.to_string(),
        }
    }

    #[test]
    fn a_file_is_read_as_far_as_it_and_its_folders_are_trusted() {
        let root = folder("modes");
        assert_eq!(read(&root, "a/b/file", 4), Ok(Some(b"text".to_vec())));
        assert_eq!(read(&root, "a/b/other", 4), Ok(None));
        assert_eq!(read(&root, "a/c/file", 4), Ok(None));
        assert_eq!(read(&root.join("none"), "file", 4), Ok(None));
        assert!(read(&root, "a/b/file", 3).is_err_and(|e| e.to_string().contains("larger than 3 bytes")));
        for (path, mode, good, words) in [
            ("a/b/file", 0o664, 0o644, "a/b/file: its mode is 664; chmod 644"),
            ("a/b/file", 0o755, 0o644, "a/b/file: its mode is 755"),
            ("a/b", 0o775, 0o755, "a/b: its mode is 775; chmod go-w"),
            ("a", 0o757, 0o755, "a: its mode is 757"),
            ("", 0o777, 0o755, "its mode is 777"),
        ] {
            set(&root, path, mode);
            assert!(told(&root, "a/b/file").contains(words), "{}", told(&root, "a/b/file"));
            set(&root, path, good);
        }
        assert!(told(&root, "a/b").contains("no regular file"), "{}", told(&root, "a/b"));
        std::fs::remove_dir_all(&root).expect("its owner");
    }

    #[test]
    fn no_link_is_followed_wherever_it_stands() {
        let root = folder("links");
        symlink("file", root.join("a/b/link")).expect("a link");
        symlink("b", root.join("a/through")).expect("a link");
        for path in ["a/b/link", "a/through/file"] {
            assert!(told(&root, path).contains("a symbolic link"), "{path}: {}", told(&root, path));
        }
        std::fs::remove_dir_all(&root).expect("its owner");
    }

    #[test]
    fn only_root_and_the_gateways_user_are_owners() {
        let root = folder("owner");
        let file = open(root.join("a/b/file"), OFlags::RDONLY, Mode::empty()).expect("a file");
        let mut stat = fstat(&file).expect("a file");
        stat.st_uid = 1234;
        assert!(judge(&stat, Kind::File, 0).is_err_and(|what| what.contains("owned by user 1234")));
        assert_eq!(judge(&stat, Kind::File, 1234), Ok(()));
        stat.st_uid = 0;
        assert_eq!(judge(&stat, Kind::File, 1234), Ok(()));
        std::fs::remove_dir_all(&root).expect("its owner");
    }
}
