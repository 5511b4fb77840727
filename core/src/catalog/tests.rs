//! The rows of this build, and texts that are no catalog.

use super::*;
use crate::engine::Engine;

const DIGEST: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A catalog of one row whose one capability has this `evidence`.
fn of(evidence: &str) -> String {
    format!(
        r#"{{"rows": [{{"tuple": {{"engine": "vllm", "version": "0.32.0", "revision": null, "artifact": "a==1",
        "model_profile": "m", "gateway_build": "g", "topology": "single_pool", "rank_count": 1}},
        "capabilities": {{"relay": {evidence}}}}}]}}"#
    )
}

fn real(verdict: &str, file: &str, digest: &str) -> String {
    of(&format!(
        r#"{{"real_engine": "{verdict}", "records": {{"real_engine": {{"file": "{file}", "sha256": "{digest}"}}}}}}"#
    ))
}

fn refused(text: &str) -> CatalogFault {
    Catalog::parse(text).expect_err(text)
}

fn problem(text: &str) -> RecordProblem {
    match refused(text) {
        CatalogFault::Record { place, problem } => {
            assert_eq!((place.row, place.capability), (0, Capability::Relay));
            problem
        }
        other => panic!("{other}"),
    }
}

fn good() -> String {
    real("pass", "perf/results/a.md", DIGEST)
}

#[test]
fn the_rows_of_this_build_are_a_catalog_and_print_as_what_they_are() {
    let catalog = Catalog::embedded().expect("the built-in catalog");
    assert!(catalog.rows.len() >= 8);
    let printed = serde_json::to_string(&catalog).expect("text");
    assert_eq!(Catalog::parse(&printed), Ok(catalog));
}

/// Whatever others report, nothing but a run of ours is a pass of ours.
#[test]
fn what_is_reported_elsewhere_was_not_run_here() {
    let catalog = Catalog::embedded().expect("the built-in catalog");
    let reported: Vec<&Row> = catalog.rows.iter().filter(|row| row.reported_elsewhere.is_some()).collect();
    assert_eq!(reported.len(), 6, "those of the other gateway's catalog");
    for row in reported {
        for capability in Capability::ALL {
            let evidence = &row.capabilities[&capability];
            assert!(Gate::ALL.into_iter().all(|gate| evidence.verdict(gate) == Verdict::NotRun), "{row:?}");
        }
    }
}

#[test]
fn what_is_not_written_was_not_run() {
    let catalog = Catalog::parse(&good()).expect("a catalog");
    let row = &catalog.rows[0];
    assert_eq!(row.capabilities.len(), Capability::ALL.len());
    let relay = &row.capabilities[&Capability::Relay];
    let verdicts = Gate::ALL.map(|gate| relay.verdict(gate));
    assert_eq!(verdicts, [Verdict::NotRun, Verdict::NotRun, Verdict::NotRun, Verdict::Pass]);
    assert!(relay.was_run() && !row.capabilities[&Capability::Lora].was_run());
}

#[test]
fn a_gate_that_was_run_has_a_record_and_no_other_has() {
    for verdict in ["pass", "fail"] {
        assert!(Catalog::parse(&real(verdict, "perf/results/a.md", DIGEST)).is_ok());
        let bare = of(&format!(r#"{{"fixture": "{verdict}"}}"#));
        assert!(matches!(problem(&bare), RecordProblem::Missing(found) if found.word() == verdict));
        let elsewhere = real(verdict, "perf/results/a.md", DIGEST).replacen("real_engine", "fixture", 1);
        assert!(matches!(problem(&elsewhere), RecordProblem::Missing(_)), "one gate's record is no other's");
    }
    for verdict in ["not_run", "n_a"] {
        let told = problem(&real(verdict, "perf/results/a.md", DIGEST));
        assert!(matches!(told, RecordProblem::Unasked(found) if found.word() == verdict));
    }
}

#[test]
fn a_record_is_a_file_of_its_gates_place_with_a_digest() {
    for file in
        ["", "/perf/results/a.md", "perf/results/../a.md", "perf/results/", "core/tests/a.rs", "perf/results"]
    {
        assert_eq!(problem(&real("pass", file, DIGEST)), RecordProblem::File(file.into()));
    }
    let fixture = |file: &str| real("pass", file, DIGEST).replace("real_engine", "fixture");
    assert_eq!(problem(&fixture("perf/results/a.md")), RecordProblem::File("perf/results/a.md".into()));
    for file in ["core/tests/vectors/a.json", "tests/e2e/a.rs", "events/src/engines/tests.rs"] {
        assert!(Catalog::parse(&fixture(file)).is_ok(), "{file}");
    }
    for digest in ["", &DIGEST[1..], &DIGEST.to_uppercase(), &DIGEST.replace('0', "g")] {
        let told = problem(&real("pass", "perf/results/a.md", digest));
        assert_eq!(told, RecordProblem::Digest(digest.into()));
    }
}

#[test]
fn unknown_and_missing_members_and_words_are_told_with_their_line() {
    for (was, is, told) in [
        ("\"rows\"", "\"row\"", "unknown field `row`, expected `rows`"),
        ("\"artifact\"", "\"image\"", "unknown field `image`"),
        (r#""artifact": "a==1","#, "", "missing field `artifact`"),
        ("\"relay\"", "\"rely\"", "unknown variant `rely`, expected one of `relay`"),
        (
            "\"pass\"",
            "\"passed\"",
            "unknown variant `passed`, expected one of `pass`, `fail`, `not_run`, `n_a`",
        ),
        ("\"vllm\"", "\"VLLM\"", "unknown engine `VLLM`, expected one of vllm, sglang, trtllm, llamacpp"),
        ("\"single_pool\"", "\"pool\"", "unknown variant `pool`"),
        ("\"rank_count\": 1", "\"rank_count\": 256", "expected u8"),
        ("\"sha256\"", "\"sha\"", "unknown field `sha`"),
        ("{\"real_engine\": \"pass\"", "{\"real\": \"pass\"", "unknown field `real`"),
        ("\"capabilities\"", "\"reported_elsewhere\": {}, \"capabilities\"", "missing field `by`"),
    ] {
        let text = good();
        assert!(text.contains(was), "{was}");
        let fault = refused(&text.replacen(was, is, 1));
        assert!(matches!(fault, CatalogFault::Form { line: 1..=3, column: 1.., .. }), "{fault:?}");
        assert!(fault.to_string().contains(told), "{fault}");
    }
}

#[test]
fn nothing_is_said_twice() {
    let relay = r#"{"fixture": "n_a"}, "relay": {"fixture": "not_run"}"#;
    assert!(refused(&of(relay)).to_string().contains("\"relay\" comes twice"));
    let text = good();
    let (head, row) = text.split_once('[').expect("rows");
    let row = row.trim_end_matches("]}");
    assert_eq!(
        refused(&format!("{head}[{row}, {row}]}}")),
        CatalogFault::DuplicateTuple { row: 1, first: 0 }
    );
    let other = row.replacen("\"g\"", "\"h\"", 1);
    assert!(Catalog::parse(&format!("{head}[{row}, {other}]}}")).is_ok(), "another build, another tuple");
}

#[test]
fn reported_gates_are_four_words() {
    let reported = |gates: &str| {
        good().replacen(
            "\"capabilities\"",
            &format!(
                r#""reported_elsewhere": {{"by": "b", "contract": "c", "promotion": "candidate",
                "capabilities": {{"lora": "{gates}"}}}}, "capabilities""#
            ),
            1,
        )
    };
    assert!(Catalog::parse(&reported("pass/fail/not_run/n_a")).is_ok());
    for gates in ["", "pass", "pass/pass/pass", "pass/pass/pass/pass/pass", "pass/pass/pass/ok"] {
        let fault = refused(&reported(gates)).to_string();
        assert!(fault.contains(&format!("`{gates}` is not four of pass, fail, not_run, n_a")), "{fault}");
    }
}

/// A change of any one component is no match, and names that component.
#[test]
fn only_the_very_tuple_is_found() {
    let catalog = Catalog::parse(&good()).expect("a catalog");
    let row = &catalog.rows[0];
    assert_eq!(catalog.find(&row.tuple), Lookup::Found(row));
    let change = |change: fn(&mut Tuple)| {
        let mut tuple = row.tuple.clone();
        change(&mut tuple);
        tuple
    };
    let changed: [(Component, Tuple); 8] = [
        (Component::Engine, change(|tuple| tuple.engine = Engine::Sglang)),
        (Component::Version, change(|tuple| tuple.version = "0.32.1".into())),
        (Component::Revision, change(|tuple| tuple.revision = Some("abc".into()))),
        (Component::Artifact, change(|tuple| tuple.artifact = None)),
        (Component::ModelProfile, change(|tuple| tuple.model_profile = Some("n".into()))),
        (Component::GatewayBuild, change(|tuple| tuple.gateway_build = Some("h".into()))),
        (Component::Topology, change(|tuple| tuple.topology = Some(Topology::PrefillDecode))),
        (Component::RankCount, change(|tuple| tuple.rank_count = Some(2))),
    ];
    assert_eq!(changed.each_ref().map(|(component, _)| *component), Component::ALL);
    for (component, tuple) in &changed {
        assert_eq!(catalog.find(tuple), Lookup::Absent { nearest: vec![(row, *component)] });
    }
    let far = change(|tuple| {
        tuple.version = "0.31.0".into();
        tuple.rank_count = None;
    });
    assert_eq!(catalog.find(&far), Lookup::Absent { nearest: Vec::new() });
}

#[test]
fn a_promotion_has_a_record_of_its_own_and_gates_give_none() {
    assert_eq!(Catalog::parse(&good()).expect("a catalog").rows[0].promotion, None);
    let promoted = |promotion: &str| {
        good().replace(r#""capabilities""#, &format!(r#""promotion": {promotion}, "capabilities""#))
    };
    let record = |file: &str| {
        format!(r#"{{"word": "validated", "record": {{"file": "{file}", "sha256": "{DIGEST}"}}}}"#)
    };
    let promotion =
        Catalog::parse(&promoted(&record("perf/results/a.md"))).expect("a catalog").rows[0].promotion.clone();
    assert_eq!(promotion.map(|own| own.word.word()), Some("validated"));
    let fault = refused(&promoted(&record("README.md")));
    assert!(matches!(fault, CatalogFault::Promotion { row: 0, problem: RecordProblem::File(_) }), "{fault}");
    refused(&promoted(r#"{"word": "validated"}"#));
    refused(&promoted(&record("perf/results/a.md").replace("validated", "supported")));
}
