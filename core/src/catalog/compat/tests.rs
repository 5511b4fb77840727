//! The tables of this build, and questions to them.

use super::*;
use std::collections::BTreeSet;

fn compat() -> Compat {
    Compat::embedded().expect("the built-in tables")
}

fn question(engine: Build, version: &str, configuration: Configuration) -> Question<'static> {
    Question {
        engine,
        version: Release::read(version),
        configuration,
        transport: None,
        paths: &[],
        router: None,
        flags: None,
    }
}

fn standings(question: &Question<'_>) -> Vec<(Standing, String)> {
    compat().judge(question).into_iter().map(|answer| (answer.standing, answer.row)).collect()
}

#[test]
fn rows_are_named_once_and_limits_that_cells_name_exist() {
    let compat = compat();
    let named = compat.contracts.iter().map(|row| &row.id);
    let named = named.chain(compat.minimums.iter().map(|row| &row.id));
    let named = named.chain(compat.transports.iter().map(|row| &row.id));
    let named: Vec<&String> = named.chain(compat.limits.iter().map(|row| &row.id)).collect();
    assert_eq!(named.iter().collect::<BTreeSet<_>>().len(), named.len(), "{named:?}");
    let cells = compat.transports.iter().flat_map(|row| [&row.store, &row.direct]);
    for limit in cells.flat_map(|cell| &cell.limits) {
        assert!(compat.limits.iter().any(|row| row.id == *limit), "{limit}");
    }
    let printed = serde_json::to_string(&compat).expect("text");
    assert_eq!(serde_json::from_str::<Compat>(&printed).expect("tables"), compat);
    let unknown = EMBEDDED.replacen("\"limits\"", "\"limitz\"", 1);
    assert!(serde_json::from_str::<Compat>(&unknown).is_err(), "a misspelled member");
}

#[test]
fn floors_refuse_older_versions_and_pass_their_own() {
    for (engine, configuration, below, at) in [
        (Build::Of(Engine::Vllm), Configuration::Alone, "0.28.9", "0.29.0"),
        (Build::Of(Engine::Vllm), Configuration::Epd, "0.30.0rc1", "0.30.0"),
        (Build::VllmAscend, Configuration::Epd, "0.29.0", "0.30.0rc1"),
        (Build::Of(Engine::Sglang), Configuration::Pd, "0.5.17", "0.5.18"),
        (Build::Of(Engine::Sglang), Configuration::Epd, "0.5.9", "0.5.10"),
    ] {
        let row = format!("{}-{}", engine.word(), configuration.word());
        let judged = |version| standings(&question(engine, version, configuration));
        assert_eq!(judged(below), [(Standing::Refused, row.clone())], "{below}");
        assert_eq!(judged(at), [(Standing::Works, row.clone())], "{at}");
        assert_eq!(judged("no version"), [(Standing::NotVerified, row)]);
    }
    let ascend = question(Build::VllmAscend, "9.9.9", Configuration::Store);
    assert_eq!(
        standings(&ascend),
        [(Standing::NotVerified, "vllm-ascend-store".into())],
        "no version was run"
    );
    let none = question(Build::Of(Engine::Llamacpp), "0.3.0", Configuration::Alone);
    assert_eq!(standings(&none), [(Standing::NotVerified, String::new())]);
}

#[test]
fn behind_a_router_its_flag_is_wanted_from_its_version_on() {
    let with = |version, router, flags| {
        let own =
            Question { router, flags, ..question(Build::Of(Engine::Vllm), version, Configuration::Alone) };
        compat().judge(&own).iter().map(|answer| answer.standing).collect::<Vec<_>>()
    };
    let (given, none) = (["--enable-scale-out".to_owned()], []);
    assert_eq!(with("0.29.0", Some("llm-d-router"), Some(&none)), [Standing::Works]);
    assert_eq!(with("0.30.0", None, Some(&none)), [Standing::Works]);
    assert_eq!(with("0.30.0", Some("llm-d-router"), None), [Standing::Works, Standing::Needs]);
    assert_eq!(with("0.30.0", Some("llm-d-router"), Some(&none)), [Standing::Works, Standing::Refused]);
    assert_eq!(with("0.30.0", Some("llm-d-router"), Some(&given)), [Standing::Works, Standing::Works]);
    let other = Question {
        router: Some("another"),
        ..question(Build::Of(Engine::Vllm), "0.31.0", Configuration::Epd)
    };
    assert_eq!(standings(&other)[1].0, Standing::NotVerified);
}

#[test]
fn a_cell_is_one_path() {
    let over = |engine, transport, paths: &'static [BlockPath]| {
        let own =
            Question { transport: Some(transport), paths, ..question(engine, "9.0.0", Configuration::Pd) };
        standings(&own).split_off(1)
    };
    let (store, direct) = (&[BlockPath::Store], &[BlockPath::Direct]);
    let one = |standing, row: &str| vec![(standing, row.to_owned())];
    assert_eq!(over(Build::Of(Engine::Vllm), "Auto", direct), one(Standing::Works, "tcp-vllm"));
    assert_eq!(over(Build::Of(Engine::Vllm), "EFA", store), one(Standing::Needs, "efa-vllm"));
    assert_eq!(over(Build::Of(Engine::Sglang), "rdma", store), one(Standing::NotVerified, "rdma-sglang"));
    assert_eq!(over(Build::Of(Engine::Sglang), "rdma", direct), one(Standing::Refused, "rdma-sglang"));
    assert_eq!(over(Build::VllmAscend, "musa", direct), one(Standing::Refused, "musa-any"));
    assert_eq!(
        over(Build::Of(Engine::Trtllm), "musa", direct),
        one(Standing::NotVerified, ""),
        "no row of this engine at all"
    );
    assert_eq!(over(Build::Of(Engine::Vllm), "pigeon", direct), one(Standing::NotVerified, ""));
    let both = over(Build::Of(Engine::Vllm), "tcp", &BlockPath::ALL);
    let words: Vec<Standing> = both.iter().map(|(standing, _)| *standing).collect();
    assert_eq!(
        words,
        [Standing::Works, Standing::Works, Standing::NotVerified],
        "two that work are not one that does"
    );
    let limited = over(Build::Of(Engine::Sglang), "tcp", direct);
    assert_eq!(
        limited,
        [(Standing::Works, "tcp-sglang".into()), (Standing::Needs, "sglang-tcp-ports".into())]
    );
}

#[test]
fn contracts_cover_their_versions_alone() {
    let compat = compat();
    let id = |engine, version| {
        let release = Release::read(version).expect(version);
        compat.contract(engine, &release).map(|row| row.id.clone())
    };
    assert_eq!(id(Build::Of(Engine::Vllm), "0.23.0").as_deref(), Some("vllm-kv-array-v1"));
    assert_eq!(id(Build::Of(Engine::Vllm), "0.24.0").as_deref(), Some("vllm-kv-map-v2"));
    assert_eq!(id(Build::Of(Engine::Vllm), "0.29.0"), None);
    assert_eq!(id(Build::Of(Engine::Trtllm), "1.3.0rc24").as_deref(), Some("trtllm-kv-http-preview-v1"));
    assert_eq!(id(Build::Of(Engine::Trtllm), "1.3.0rc25"), None);
    assert!(compat.is_probe_read(Build::Of(Engine::Vllm), &Release::read("0.29.0").expect("a version")));
    assert!(!compat.is_probe_read(Build::Of(Engine::Vllm), &Release::read("0.29.1").expect("a version")));
}
