//! Keeps kernel-notes/ and the code that relies on it together, in both directions.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const PARTS: [&str; 5] =
    ["**Question.**", "**Kernel and flags.**", "**Measured.**", "**Decision.**", "**Relied on by.**"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Number to file name and text.
fn notes() -> BTreeMap<String, (String, String)> {
    let files = fs::read_dir(root().join("kernel-notes")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let read = |name: &String| fs::read_to_string(root().join("kernel-notes").join(name)).unwrap();
    names
        .filter(|name| name.starts_with(|c: char| c.is_ascii_digit()))
        .map(|name| (name.split('-').next().unwrap().to_string(), (name.clone(), read(&name))))
        .collect()
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, into);
        } else if name.ends_with(".rs") {
            into.push(path);
        }
    }
}

/// What follows each mention of the folder in a text: at least the number.
fn cited(text: &str) -> impl Iterator<Item = &str> {
    text.split("kernel-notes/").skip(1).filter_map(|rest| {
        let end =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.').unwrap_or(rest.len());
        let name = rest[..end].trim_end_matches(['.', '-']);
        name.starts_with(|c: char| c.is_ascii_digit()).then_some(name)
    })
}

#[test]
fn every_cited_note_exists_and_every_note_is_cited() {
    let notes = notes();
    let mut files = Vec::new();
    sources(&root(), &mut files);
    let mut used: BTreeMap<&String, usize> = notes.keys().map(|number| (number, 0)).collect();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for name in cited(&text) {
            let found = notes.iter().find(|(number, (whole, _))| *number == name || whole == name);
            let (number, _) = found.unwrap_or_else(|| panic!("{}: no note {name}", file.display()));
            *used.get_mut(number).unwrap() += 1;
        }
    }
    for (number, count) in used {
        assert!(count > 0, "no code cites note {number}");
    }
}

#[test]
fn every_note_names_files_that_exist_and_cite_it() {
    for (number, (name, text)) in notes() {
        let relying = text.split(PARTS[4]).nth(1).unwrap_or_else(|| panic!("{name} has no {}", PARTS[4]));
        let paths: Vec<&str> = relying.split('`').skip(1).step_by(2).collect();
        assert!(!paths.is_empty(), "{name} names no file");
        for path in paths {
            let code =
                fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{name}: {path}: {e}"));
            assert!(cited(&code).any(|cited| cited.starts_with(&number)), "{path} does not cite {number}");
        }
    }
}

#[test]
fn every_note_has_its_parts_in_order_and_a_line_in_the_readme() {
    let readme = fs::read_to_string(root().join("kernel-notes/README.md")).unwrap();
    for (number, (name, text)) in notes() {
        let places = PARTS.map(|part| text.find(part).unwrap_or_else(|| panic!("{name} has no {part}")));
        assert!(places.is_sorted(), "{name}: {PARTS:?} in this order");
        assert!(text.starts_with(&format!("# {number}: ")), "{name}: title");
        assert!(readme.contains(&format!("[{number}]({name})")), "README.md does not list {name}");
    }
}
