//! The repository's own files as text, for the tests that hold its rules. Owns which files those are; must
//! never read what is built or ignored.

use std::path::{Path, PathBuf};

/// A file.
pub struct File {
    /// Its path from the root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All text files, in the order of their paths.
pub fn files() -> Vec<File> {
    let mut paths = Vec::new();
    gather(root(), &mut paths);
    paths.sort();
    paths.into_iter().filter_map(|path| Some(File { text: read(&path)?, path })).collect()
}

/// The text of a file; `None` if it is not text.
pub fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(root().join(path)).ok()
}

fn gather(folder: &Path, paths: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder that can be read") {
        let path: PathBuf = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let ours = name == ".ci" || name == ".gitignore" || !name.starts_with('.');
        if !ours || name == "target" || name.ends_with("-state") {
            continue;
        }
        match path.is_dir() {
            true => gather(&path, paths),
            false => paths.extend(path.strip_prefix(root()).map(|p| p.to_string_lossy().replace('\\', "/"))),
        }
    }
}

/// The text without the tests in it: up to the first inline test module, nothing of a test file.
pub fn production(file: &File) -> &str {
    let tests = ["/tests/", "/tests.rs", "_tests.rs", "/benches/", "/examples/", "/fuzz/", "/fake"];
    if file.path.starts_with("tests/") || tests.iter().any(|part| file.path.contains(part)) {
        return "";
    }
    let inline = file.text.find("#[cfg(test)]\nmod tests {");
    &file.text[..inline.unwrap_or(file.text.len())]
}

/// A line without its comment.
pub fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}
