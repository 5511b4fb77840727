//! House rules that a program can hold. Owns the list; each rule says what to do instead, and carries a
//! sample that it must refuse and one that it must let pass.

mod tree;

use tree::{File, code, files, production, read};

/// A rule over one file.
struct Rule {
    name: &'static str,
    instead: &'static str,
    /// What is wrong with a file, if anything.
    breach: fn(&File) -> Option<String>,
    /// Path and text that break it.
    bad: (&'static str, fn() -> String),
    /// Path and text that don't.
    good: (&'static str, fn() -> String),
}

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const DRAWERS: [&str; 8] = ["util", "utils", "common", "helper", "helpers", "manager", "context", "misc"];
/// Written apart, so that this file keeps its own rules.
const UNFINISHED: [&str; 4] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("todo", "!"), concat!("unimplemented", "!")];
const MACHINE_PATHS: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!(".lib", "rary")];
const REGISTRIES: [&str; 5] = [
    concat!("index.cra", "tes.io"),
    concat!("static.cra", "tes.io"),
    concat!("pypi.", "org"),
    concat!("pythonhosted.", "org"),
    concat!("proxy.golang.", "org"),
];

const RULES: &[Rule] = &[
    Rule {
        name: "header",
        instead: "open the file with //!: what it owns, what it must never do",
        breach: |file| rust(file).filter(|text| !text.starts_with("//! ")).map(|_| "no header".into()),
        bad: ("core/src/a.rs", || "use std::fmt;\n".into()),
        good: ("core/src/a.rs", || "//! Owns a; must never b.\n".into()),
    },
    Rule {
        name: "file length",
        instead: "give each idea a file of its own",
        breach: |file| {
            let lines = rust(file).map(|_| production(file).lines().count())?;
            (lines > FILE_LINES_MAX).then(|| format!("{lines} lines, at most {FILE_LINES_MAX}"))
        },
        bad: ("core/src/a.rs", || "fn a() {}\n".repeat(601)),
        good: ("core/src/a.rs", || {
            "fn a() {}\n".repeat(600) + "#[cfg(test)]\nmod tests {\n" + &"x\n".repeat(99)
        }),
    },
    Rule {
        name: "function length",
        instead: "name its parts and call them",
        breach: |file| {
            let (name, lines) = rust(file).and_then(|_| longest_function(production(file)))?;
            (lines > FUNCTION_LINES_MAX)
                .then(|| format!("{name}: {lines} lines, at most {FUNCTION_LINES_MAX}"))
        },
        bad: ("core/src/a.rs", || {
            format!("    pub fn long(\n        a: u8,\n    ) {{\n{}    }}\n", "x;\n".repeat(68))
        }),
        good: ("core/src/a.rs", || format!("fn a();\nfn b() {{}}\nfn long() {{\n{}}}\n", "x;\n".repeat(68))),
    },
    Rule {
        name: "drawers",
        instead: "name the module by what it is about",
        breach: |file| {
            let parts = rust(file).map(|_| file.path.trim_end_matches(".rs").split('/'))?;
            parts.into_iter().find(|part| DRAWERS.contains(part)).map(|part| format!("a module named {part}"))
        },
        bad: ("core/src/utils/a.rs", String::new),
        good: ("core/src/useful.rs", String::new),
    },
    Rule {
        name: "unfinished",
        instead: "do it, or file an issue",
        breach: |file| UNFINISHED.iter().find(|word| file.text.contains(*word)).map(|word| word.to_string()),
        bad: ("README.md", || UNFINISHED[0].into()),
        good: ("README.md", || "to do".into()),
    },
    Rule {
        name: "machine paths",
        instead: "write paths from the root of the repository",
        breach: |file| {
            MACHINE_PATHS.iter().find(|path| names_path(&file.text, path)).map(|path| path.to_string())
        },
        bad: ("README.md", || format!("see {}x", MACHINE_PATHS[0])),
        good: ("README.md", || format!("see perf{}x", MACHINE_PATHS[0])),
    },
    Rule {
        name: "registry hosts",
        instead: "leave the place of packages to the tools",
        breach: |file| {
            let lock = file.path.ends_with("Cargo.lock");
            REGISTRIES.iter().find(|host| !lock && file.text.contains(*host)).map(|host| host.to_string())
        },
        bad: (".ci/run", || REGISTRIES[2].into()),
        good: ("Cargo.lock", || REGISTRIES[0].into()),
    },
    Rule {
        name: "silenced lints",
        instead: "mend the cause; an #[expect] needs a reason",
        breach: |file| {
            let silenced =
                |line: &&str| code(line).contains(concat!("#[al", "low(")) && !line.contains("reason");
            rust(file).and_then(|_| production(file).lines().find(silenced)).map(|line| line.trim().into())
        },
        bad: ("core/src/a.rs", || concat!("#[al", "low(dead_code)]").into()),
        good: ("core/src/a.rs", || concat!("#[al", "low(dead_code, reason = \"why\")]").into()),
    },
];

fn rust(file: &File) -> Option<&str> {
    file.path.ends_with(".rs").then_some(file.text.as_str())
}

/// Whether `path` begins a path, not a part of a longer one.
fn names_path(text: &str, path: &str) -> bool {
    let begins = |at: usize| !text[..at].ends_with(|c: char| c.is_alphanumeric() || "._-}".contains(c));
    text.match_indices(path).any(|(at, _)| begins(at))
}

/// The longest function and its lines, from its name to its brace, as rustfmt indents them.
fn longest_function(text: &str) -> Option<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let length = |from: usize| {
        let indent: String = lines[from].chars().take_while(|c| *c == ' ').collect();
        let ends = |line: &&str| {
            line.strip_prefix(&indent)
                .is_some_and(|rest| rest == "}" || rest.ends_with(';') && !rest.starts_with(' '))
        };
        if lines[from].ends_with('}') || lines[from].ends_with(';') {
            return 1;
        }
        lines[from..].iter().position(ends).map_or(1, |end| end + 1)
    };
    let functions = (0..lines.len()).filter_map(|at| Some((function_name(lines[at])?, length(at))));
    functions.max_by_key(|(_, length)| *length)
}

fn function_name(line: &str) -> Option<String> {
    let mut rest = line.trim_start();
    for word in ["pub ", "pub(crate) ", "pub(super) ", "const ", "async ", concat!("un", "safe ")] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let name = rest.strip_prefix("fn ")?;
    Some(name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
}

#[test]
fn each_rule_refuses_its_bad_sample_and_lets_the_good_one_pass() {
    for rule in RULES {
        let file = |(path, text): (&str, fn() -> String)| File { path: path.into(), text: text() };
        assert!((rule.breach)(&file(rule.bad)).is_some(), "{} lets its bad sample pass", rule.name);
        assert_eq!((rule.breach)(&file(rule.good)), None, "{} refuses its good sample", rule.name);
    }
}

#[test]
fn the_repository_keeps_the_rules() {
    let files = files();
    assert!(files.len() > 100, "only {} files were found", files.len());
    let breaches: Vec<String> = RULES
        .iter()
        .flat_map(|rule| files.iter().map(move |file| (rule, file)))
        .filter_map(|(rule, file)| {
            let breach = (rule.breach)(file)?;
            Some(format!("{}: {} ({}); {}", file.path, breach, rule.name, rule.instead))
        })
        .collect();
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn every_flag_of_serve_is_in_the_readme() {
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_warmpath")).args(["serve", "--help"]).output();
    let help = String::from_utf8(help.expect("the binary runs").stdout).expect("text");
    let readme = read("README.md").expect("a README");
    let flags: Vec<&str> = help
        .split_whitespace()
        .map(|w| w.trim_matches(|c: char| !c.is_alphanumeric() && c != '-'))
        .filter(|w| w.starts_with("--") && w.len() > 2)
        .collect();
    assert!(flags.len() > 10, "{help}");
    for flag in flags.iter().filter(|flag| !["--help", "--version"].contains(flag)) {
        assert!(readme.contains(&format!("`{flag}")), "README.md does not tell what {flag} does");
    }
}

#[test]
fn every_metric_is_in_the_readme() {
    let tables = files().into_iter().filter(|file| file.path.starts_with("admin/src/metrics/"));
    let source: String = tables.map(|file| production(&file).to_owned()).collect();
    let readme = read("README.md").expect("a README");
    let names: Vec<&str> = source.split('"').filter(|part| is_metric(part)).collect();
    assert!(names.len() > 80, "{names:?}");
    for name in names {
        assert!(readme.contains(&format!("`{name}`")), "README.md does not tell what {name} counts");
    }
}

fn is_metric(text: &str) -> bool {
    ["warmpath_", "loxilb_"].iter().any(|p| text.starts_with(p))
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

#[test]
fn files_and_functions_named_in_the_documents_exist() {
    let files = files();
    let sources: String = files.iter().filter(|f| f.path.ends_with(".rs")).map(|f| f.text.as_str()).collect();
    for document in ["README.md", "ARCHITECTURE.md"] {
        let text = read(document).expect("the document");
        let is_path =
            |word: &&str| word.contains('/') && [".rs", ".md"].iter().any(|end| word.ends_with(end));
        for path in words(&text).filter(is_path) {
            assert!(files.iter().any(|f| f.path == path), "{document} names {path}, which is not there");
        }
    }
    let text = read("ARCHITECTURE.md").expect("the document");
    let (_, life) = text.split_once("## Life of a request").expect("the section");
    let (life, _) = life.split_once("\n## ").expect("a next section");
    let functions: Vec<&str> = words(life).filter(|word| word.contains('_')).collect();
    assert!(functions.len() > 20, "{functions:?}");
    for name in functions {
        assert!(
            sources.contains(&format!("fn {name}(")),
            "ARCHITECTURE.md names {name}, which is no function"
        );
    }
}

/// Words of a document: letters, digits and what paths are made of.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let inside = |c: char| c.is_alphanumeric() || "_-./".contains(c);
    text.split(move |c| !inside(c)).map(|word| word.trim_end_matches('.'))
}
