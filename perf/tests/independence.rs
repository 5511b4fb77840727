//! The simulated engines share no code with the gateway: no source file of theirs names one of its
//! crates. The load generator keeps the same rule.

use std::path::{Path, PathBuf};

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(folder).expect("the folder is there").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

#[test]
fn engines_and_load_import_no_crate_of_the_gateway() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files: Vec<PathBuf> = ["engine", "load"].iter().flat_map(|part| sources(&src.join(part))).collect();
    assert!(files.len() > 20);
    for file in files.into_iter().chain([src.join("wire.rs"), src.join("error.rs")]) {
        let text = std::fs::read_to_string(&file).expect("a source file");
        assert!(!text.contains("warmpath_"), "{} names a crate of the workspace", file.display());
    }
}
