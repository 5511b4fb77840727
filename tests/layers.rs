//! The order of the crates, held by their manifests and sources. Owns the table of who may know whom; what it
//! forbids is in ARCHITECTURE.md as an absence.

mod tree;

use std::collections::BTreeMap;
use tree::{File, code, files, production, read};

/// Folder, and the folders it may depend on, in the order of the workspace: leaves first.
const ORDER: &[(&str, &[&str])] = &[
    ("parser", &[]),
    ("shards/ring", &[]),
    ("core", &["parser"]),
    ("core/prompt", &["parser", "core"]),
    ("kvindex", &["core"]),
    ("events", &["parser", "core", "kvindex", "shards/ring"]),
    ("shards", &["parser", "core", "kvindex", "shards/ring"]),
    ("admin", &["parser", "core"]),
    ("perf", &["parser", "core", "kvindex", "shards", "shards/ring"]),
    // Wiring: it picks the driver, and hands the messages of `core::control` from one side to the other.
    ("", &["core", "kvindex", "shards", "shards/ring", "events", "admin", "perf"]),
];

/// The only files that may hold `unsafe`.
const UNSAFE: &[&str] = &["shards/ring/src/uring/", "shards/ring/src/tcp_info.rs", "kvindex/src/publish.rs"];

/// Crates whose atomics and locks stand in one file.
const SHARED: &[(&str, &str)] =
    &[("core/src/", "core/src/shared"), ("core/prompt/src/", "core/prompt/src/shared.rs")];

/// Crates without clock, thread and socket.
const PURE: &[&str] = &["core/src/", "parser/src/", "kvindex/src/"];

fn manifest(folder: &str) -> toml::Table {
    let path = if folder.is_empty() { "Cargo.toml".into() } else { format!("{folder}/Cargo.toml") };
    read(&path).unwrap_or_else(|| panic!("{path} is missing")).parse().expect("a manifest")
}

/// The folder of a package of this workspace.
fn folder_of(package: &str) -> Option<String> {
    let workspace = manifest("");
    let dependency = workspace["workspace"]["dependencies"].get(package)?;
    Some(dependency.get("path")?.as_str()?.to_string())
}

fn dependencies(folder: &str, sections: &[&str]) -> Vec<String> {
    let manifest = manifest(folder);
    let tables = sections.iter().filter_map(|section| manifest.get(*section)?.as_table());
    tables.flat_map(|table| table.keys()).filter_map(|name| folder_of(name)).collect()
}

#[test]
fn every_crate_is_in_the_table_and_in_the_order_of_the_workspace() {
    let workspace = manifest("");
    let members = workspace["workspace"]["members"].as_array().expect("members");
    let members: Vec<&str> = members.iter().filter_map(|m| m.as_str()).collect();
    let table: Vec<&str> = ORDER.iter().map(|(folder, _)| *folder).filter(|f| !f.is_empty()).collect();
    assert_eq!(members, table);
}

#[test]
fn a_crate_knows_only_those_the_table_allows_and_they_come_before_it() {
    for (at, (folder, allowed)) in ORDER.iter().enumerate() {
        for known in dependencies(folder, &["dependencies", "build-dependencies", "dev-dependencies"]) {
            assert!(
                allowed.contains(&known.as_str()),
                "{folder:?} depends on {known}; it may on {allowed:?}"
            );
            assert!(ORDER[..at].iter().any(|(before, _)| *before == known), "{known} comes after {folder:?}");
        }
    }
}

#[test]
fn packages_carry_the_prefix_and_their_folders_name() {
    for (folder, _) in ORDER.iter().filter(|(folder, _)| !folder.is_empty()) {
        let name = format!("warmpath-{}", folder.rsplit('/').next().unwrap_or_default());
        assert_eq!(manifest(folder)["package"]["name"].as_str(), Some(name.as_str()));
        assert_eq!(folder_of(&name).as_deref(), Some(*folder));
    }
}

#[test]
fn crates_from_outside_are_named_once_or_have_one_version() {
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (folder, _) in ORDER {
        for section in ["dependencies", "dev-dependencies"] {
            let manifest = manifest(folder);
            let Some(table) = manifest.get(section).and_then(|s| s.as_table()) else { continue };
            for (name, value) in table {
                let version = value.as_str().or_else(|| value.get("version")?.as_str());
                versions.entry(name.clone()).or_default().push(version.unwrap_or("workspace").into());
            }
        }
    }
    for (name, mut found) in versions {
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 1, "{name} is asked for as {found:?}; name it in the workspace");
    }
}

#[test]
fn simulated_engines_and_the_load_generator_know_no_crate_of_ours() {
    let ours = |file: &&File| ["perf/src/engine/", "perf/src/load/"].iter().any(|p| file.path.starts_with(p));
    let files = files();
    assert!(files.iter().filter(ours).count() > 20);
    for file in files.iter().filter(ours) {
        assert!(!file.text.contains("warmpath_"), "{} imports a crate of the gateway", file.path);
    }
}

#[test]
fn shards_and_admin_don_t_know_each_other() {
    for file in files().iter().filter(|f| f.path.ends_with(".rs")) {
        for (inside, forbidden) in [("admin/src/", "warmpath_shards"), ("shards/src/", "warmpath_admin")] {
            assert!(!file.path.starts_with(inside) || !file.text.contains(forbidden), "{}", file.path);
        }
    }
}

/// Lines of code that hold `word` as a word.
fn lines<'f>(text: &'f str, word: &str) -> Vec<&'f str> {
    let whole = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let holds = |line: &&str| {
        let code = code(line);
        code.match_indices(word).any(|(at, _)| {
            whole(code[..at].chars().next_back()) && whole(code[at + word.len()..].chars().next())
        })
    };
    text.lines().filter(holds).collect()
}

#[test]
fn unsafe_stands_only_in_the_listed_files() {
    let word = concat!("un", "safe");
    for file in files().iter().filter(|f| f.path.ends_with(".rs") && f.path != "tests/layers.rs") {
        let listed = UNSAFE.iter().any(|allowed| file.path.starts_with(allowed));
        let found = lines(production(file), word);
        assert!(listed || found.is_empty(), "{}: {}; only {UNSAFE:?} may", file.path, found[0]);
    }
}

#[test]
fn atomics_and_locks_of_core_and_prompt_stand_in_one_place_each() {
    for (folder, shared) in SHARED {
        let apart = |f: &&File| f.path.starts_with(folder) && !f.path.starts_with(shared);
        for file in files().iter().filter(apart) {
            for word in ["atomic", "Mutex", "RwLock", "OnceLock"] {
                let found = lines(production(file), word);
                assert_eq!(found, [""; 0], "{}: shared state belongs in {shared}", file.path);
            }
        }
    }
}

#[test]
fn pure_crates_have_no_clock_thread_or_socket() {
    let outside = ["Instant", "SystemTime", "spawn", "TcpStream", "TcpListener", "UdpSocket"];
    for file in files().iter().filter(|f| PURE.iter().any(|pure| f.path.starts_with(pure))) {
        for word in outside {
            let found = lines(production(file), word);
            assert!(found.is_empty(), "{}: {found:?}; take it as an argument", file.path);
        }
    }
}

#[test]
fn a_word_is_found_in_code_and_not_in_comments_or_longer_words() {
    let text = "let spawn = 1;\nrespawn();\n// spawn\nthread::spawn(x)\nspawn_local()";
    assert_eq!(lines(text, "spawn"), ["let spawn = 1;", "thread::spawn(x)"]);
}
