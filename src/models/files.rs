//! Files of this host: written whole, under their name only when they are, readable by all and writable by their owner.
//! Owns that a file that has the pinned bytes is left as it is.

use sha2::{Digest as _, Sha256};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Bytes copied at once.
const PIECE: usize = 1 << 20;

/// Whether the file is there and has these bytes.
pub fn has(path: &Path, sha256: &str) -> bool {
    File::open(path)
        .ok()
        .and_then(|file| copied(file, &mut io::sink()).ok())
        .is_some_and(|(found, _)| found == sha256)
}

/// Writes a whole file.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    place(path, |file| file.write_all(bytes).map_err(|e| e.to_string()))
}

/// Writes what comes from `source`, if it is this long and hashes to `sha256`; else nothing is there.
pub fn stream(path: &Path, source: Box<dyn Read>, sha256: &str, bytes: u64) -> Result<(), String> {
    place(path, |file| {
        let (found, length) = copied(source.take(bytes + 1), file).map_err(|e| e.to_string())?;
        match (length == bytes, found == sha256) {
            (true, true) => Ok(()),
            (true, false) => Err(format!("has SHA-256 {found}, {sha256} is pinned; nothing of it was kept")),
            _ => Err(format!("has {length} bytes or more, {bytes} are pinned; nothing of it was kept")),
        }
    })
}

fn place(path: &Path, fill: impl FnOnce(&mut File) -> Result<(), String>) -> Result<(), String> {
    let told = |what: String| format!("{}: {what}", path.display());
    let cant = |e: io::Error| told(format!("can't be written: {e}"));
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(told("is no file's path".into()));
    };
    DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(cant)?;
    let part = folder.join(format!(".{}.part", name.to_string_lossy()));
    let open = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&part);
    let mut file = open.map_err(cant)?;
    let done = fill(&mut file)
        .map_err(told)
        .and_then(|()| file.sync_all().and_then(|()| fs::rename(&part, path)).map_err(cant));
    if done.is_err() {
        // What is left over of it is never read.
        let _ = fs::remove_file(&part);
    }
    done
}

/// Copies all, and tells what it hashes to and how much it was.
fn copied(mut source: impl Read, target: &mut impl Write) -> io::Result<(String, u64)> {
    let (mut hash, mut piece, mut length) = (Sha256::new(), vec![0; PIECE], 0);
    loop {
        match source.read(&mut piece) {
            Ok(0) => break,
            Ok(got) => {
                hash.update(&piece[..got]);
                target.write_all(&piece[..got])?;
                length += got as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok((hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect(), length))
}
