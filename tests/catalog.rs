//! The records behind the catalog: a verdict stands only as long as the file that shows it is there and says the same.
//! Owns the comparison with the repository; the catalog's form is the core's. `UPDATE=1` writes digests anew, for whoever
//! has read what changed, and verdicts on real engines as the tables of their records have them.

use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use warmpath_core::catalog::{Capability, Catalog, EMBEDDED, Gate, Record, Row, Verdict};

const CATALOG: &str = "core/catalog/endpoints.json";

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// The digest that a file has; `None` where there is none.
fn digest(file: &str) -> Option<String> {
    let bytes = std::fs::read(path(file)).ok()?;
    Some(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Every record, with its row and gate.
fn records(catalog: &Catalog) -> Vec<(&Row, Gate, &Record)> {
    let mut all = Vec::new();
    for row in &catalog.rows {
        for evidence in row.capabilities.values() {
            all.extend(evidence.records.iter().map(|(gate, record)| (row, *gate, record)));
        }
        all.extend(row.promotion.iter().map(|promotion| (row, Gate::RealEngine, &promotion.record)));
    }
    all
}

/// Parts of a record of real engines that show a capability: those whose names begin so.
const PARTS: [(Capability, &str); 9] = [
    (Capability::Relay, "llama.cpp: relay"),
    (Capability::PrefixAffinity, "llama.cpp: relay and CHWBL"),
    (Capability::KvEvents, "seeds: events of both come"),
    (Capability::PrefixRouting, "seeds: conversations"),
    (Capability::CacheSalt, "seeds: cache_salt"),
    (Capability::Lora, "seeds: lora"),
    (Capability::PdRouting, "pair, "),
    (Capability::RuntimeProbe, "seeds: doctor"),
    (Capability::RuntimeProbe, "seeds: engines start"),
];

/// What a record says of a capability: a pass only if all of its parts are, of which there is one at least.
fn recorded(capability: Capability, record: &str) -> Verdict {
    let names = || PARTS.iter().filter(|(own, _)| *own == capability).map(|(_, name)| *name);
    let parts = record.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let part = cells.next()?;
        names().any(|name| part.starts_with(name)).then(|| cells.next().unwrap_or_default())
    });
    let verdicts: Vec<&str> = parts.collect();
    match (verdicts.contains(&"fail"), verdicts.iter().all(|verdict| *verdict == "pass")) {
        (true, _) => Verdict::Fail,
        (false, true) if !verdicts.is_empty() => Verdict::Pass,
        _ => Verdict::NotRun,
    }
}

/// What is wrong with a catalog beside this repository.
fn faults(text: &str) -> Vec<String> {
    let catalog = match Catalog::parse(text) {
        Ok(catalog) => catalog,
        Err(fault) => return vec![fault.to_string()],
    };
    let files = records(&catalog).into_iter().filter_map(|(row, gate, record)| fault(row, gate, record));
    files.chain(verdicts(&catalog).into_iter().filter_map(|real| real.fault())).collect()
}

/// A verdict on a real engine, beside its record.
struct Real<'a> {
    row: usize,
    capability: Capability,
    written: Verdict,
    record: &'a Record,
}

fn verdicts(catalog: &Catalog) -> Vec<Real<'_>> {
    let mut all = Vec::new();
    for (row, own) in catalog.rows.iter().enumerate() {
        for (capability, evidence) in &own.capabilities {
            let record = evidence.records.get(&Gate::RealEngine);
            let written = evidence.verdict(Gate::RealEngine);
            all.extend(record.map(|record| Real { row, capability: *capability, written, record }));
        }
    }
    all
}

impl Real<'_> {
    /// `None` where there is no such file.
    fn recorded(&self) -> Option<Verdict> {
        let text = std::fs::read_to_string(path(&self.record.file)).ok()?;
        Some(recorded(self.capability, &text))
    }

    fn fault(&self) -> Option<String> {
        let recorded = self.recorded().filter(|recorded| *recorded != self.written)?;
        let (row, capability, file) = (self.row, self.capability.word(), &self.record.file);
        Some(format!(
            "rows[{row}] {capability}: {}, but {file} says {}",
            self.written.word(),
            recorded.word()
        ))
    }
}

fn fault(row: &Row, gate: Gate, record: &Record) -> Option<String> {
    let Record { file, sha256 } = record;
    match digest(file) {
        None => return Some(format!("{file} is not there; what it showed is not_run now")),
        Some(now) if now != *sha256 => {
            return Some(format!(
                "{file} is {now}, not {sha256}; read it: if it still shows what is written, UPDATE=1 cargo test --test catalog"
            ));
        }
        Some(_) => {}
    }
    if gate != Gate::RealEngine {
        return None;
    }
    let text = std::fs::read_to_string(path(file)).unwrap_or_default();
    let (version, build) = (&row.tuple.version, row.tuple.gateway_build.as_deref());
    let is_of_tuple = build.is_some_and(|build| text.contains(&format!("warmpath {build};")));
    (!is_of_tuple || !text.contains(version.as_str()))
        .then(|| format!("{file} tells of no warmpath {build:?} before an engine {version}"))
}

/// The text with verdicts on real engines as their records have them.
fn filled(text: &str) -> String {
    let catalog = Catalog::parse(text).expect("a catalog");
    let mut rows: Vec<String> = text.split_inclusive("{\"tuple\"").map(str::to_owned).collect();
    for real in verdicts(&catalog) {
        let Some(recorded) = real.recorded().filter(|recorded| *recorded != Verdict::NotRun) else {
            continue;
        };
        // What stands before the first row is a part too.
        let row = &mut rows[real.row + 1];
        let (own, gate) = (format!("\"{}\": {{", real.capability.word()), "\"real_engine\": \"");
        let from =
            row.find(&own).and_then(|at| Some(at + row[at..].find(gate)? + gate.len())).expect("the gate");
        let end = from + row[from..].find('"').expect("its end");
        row.replace_range(from..end, recorded.word());
    }
    rows.concat()
}

/// The text with each digest as it is now, and verdicts on real engines as recorded; all else to the letter.
fn updated(text: &str) -> String {
    let catalog = Catalog::parse(text).expect("a catalog");
    let mut out = filled(text);
    for (_, _, Record { file, sha256 }) in records(&catalog) {
        let written = |digest: &str| format!(r#""file": "{file}", "sha256": "{digest}""#);
        if let Some(now) = digest(file) {
            out = out.replace(&written(sha256), &written(&now));
        }
    }
    out
}

#[test]
fn every_verdict_has_its_record_as_it_was() {
    let mut text = std::fs::read_to_string(path(CATALOG)).expect("the catalog");
    if std::env::var_os("UPDATE").is_some() {
        text = updated(&text);
        std::fs::write(path(CATALOG), &text).expect("the catalog is written");
    }
    let told = faults(&text);
    assert!(told.is_empty(), "{CATALOG}:\n{}", told.join("\n"));
}

#[test]
fn a_pass_without_its_record_is_told() {
    let real = "perf/results/2026-12-01-real.md";
    let own = digest(real).expect("a record");
    let record = format!(r#""real_engine": {{"file": "{real}", "sha256": "{own}"}}"#);
    let other = "perf/results/2026-12-01-text.md";
    for (was, is, told) in [
        (record.as_str(), "", "pass without a record"),
        (&record, &record.replace("-real.md", "-unreal.md"), "is not there"),
        (&own, &own.chars().rev().collect::<String>(), "UPDATE=1"),
        (&record, &record.replace(real, other).replace(&own, &digest(other).expect("a file")), "no warmpath"),
        (r#""gateway_build": "0f15c7b""#, r#""gateway_build": "0f15c7c""#, "no warmpath"),
        (r#""gateway_build": "0f15c7b""#, r#""gateway_build": null"#, "no warmpath"),
        (r#""version": "0.32.0""#, r#""version": "0.31.9""#, "no warmpath"),
    ] {
        assert!(EMBEDDED.contains(was), "{was}");
        let text =
            EMBEDDED.replacen(was, is, 1).replace("{\n        \n", "{\n").replace(",\n        \n", "\n");
        let faults = faults(&text).join("\n");
        assert!(faults.contains(told), "{is}: {faults}");
    }
}

#[test]
fn an_update_changes_digests_and_nothing_else() {
    let zeros = "0".repeat(64);
    let catalog = Catalog::parse(EMBEDDED).expect("a catalog");
    let digests = records(&catalog).into_iter().map(|(_, _, record)| &record.sha256);
    let stale = digests.fold(EMBEDDED.to_owned(), |text, digest| text.replace(digest.as_str(), &zeros));
    assert!(stale.contains(&zeros) && !faults(&stale).is_empty());
    assert_eq!(updated(&stale), updated(EMBEDDED));
    let gone = EMBEDDED.replace("-real-llama.md", "-gone.md");
    assert!(faults(&updated(&gone)).join("\n").contains("is not there"), "no update mends a missing record");
}

#[test]
fn verdicts_on_real_engines_are_those_of_their_records() {
    let table = |verdicts: [&str; 2]| {
        let [start, doctor] = verdicts;
        format!(
            "| Part | Verdict |\n|---|---|\n| seeds: engines start | {start} | 2 | 0 |\n| seeds: doctor | {doctor} | 0 | 9 |\n"
        )
    };
    let of = |verdicts| recorded(Capability::RuntimeProbe, &table(verdicts));
    assert_eq!(of(["pass", "pass"]), Verdict::Pass);
    assert_eq!(of(["pass", "fail"]), Verdict::Fail);
    assert_eq!(of(["pass", "not_run"]), Verdict::NotRun, "what was not run is no pass");
    assert_eq!(recorded(Capability::Lora, &table(["pass", "pass"])), Verdict::NotRun, "nothing of it");
    let pass = "\"real_engine\": \"pass\"";
    let lora = EMBEDDED.find("\"lora\": {").expect("lora");
    let written = lora + EMBEDDED[lora..].find(pass).expect("a pass");
    let mut other = EMBEDDED.to_owned();
    other.replace_range(written..written + pass.len(), "\"real_engine\": \"fail\"");
    assert!(faults(&other).join("\n").contains("lora: fail, but perf/results/2026-12-01-real.md says pass"));
    assert_eq!(updated(&other), updated(EMBEDDED), "filled from the record");
}
