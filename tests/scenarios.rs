//! The table of scenarios names only tests that exist. Owns reading `tests/scenarios.md`; what a test proves is the test's.

use std::path::Path;

/// What stands between backticks, in order.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Whether a file has a function of this name.
fn has(text: &str, name: &str) -> bool {
    text.lines()
        .any(|line| line.trim_start().trim_start_matches("async ").starts_with(&format!("fn {name}(")))
}

#[test]
fn each_scenario_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = std::fs::read_to_string(root.join("tests/scenarios.md")).unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() > 30, "{} rows", rows.len());
    for row in rows {
        let cell = row.rsplit('|').nth(1).unwrap();
        let mut file = String::new();
        let mut tests = 0;
        for word in quoted(cell) {
            if word.contains('/') {
                file = std::fs::read_to_string(root.join(word)).unwrap_or_else(|why| panic!("{word}: {why}"));
            } else {
                assert!(has(&file, word), "{word} is in none of the files of: {row}");
                tests += 1;
            }
        }
        assert!(tests > 0 || cell.contains("none: "), "no test: {row}");
    }
}

#[test]
fn a_name_that_is_not_there_is_seen() {
    assert!(has("    fn a(x: u8) {\n", "a") && !has("fn ab() {}\n// fn a\n", "a"));
    assert_eq!(quoted("`f`: `a`, `b`"), ["f", "a", "b"]);
}
