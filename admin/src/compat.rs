//! The catalog's floors before the engines of rules: what the operator is told of versions below them. Owns the sentences
//! and when they are said; must never keep a rule from being served by them: they are others' floors, and what a version
//! does is found out with the engine itself.

use crate::serve::Shared;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::sleep;
use warmpath_core::catalog::compat::{Build, Compat, Configuration, Question, Release, Standing};
use warmpath_core::table::{Service, Table};

/// How often versions are looked at.
const LOOK_EACH: Duration = Duration::from_secs(2);

/// A sentence for each rule and version below its floor, with the row that says so: of the version that the rule fixes
/// before its engine told one, then of that.
pub fn warnings(table: &Table) -> BTreeSet<String> {
    let Ok(compat) = Compat::embedded() else { return BTreeSet::new() };
    table.services().flat_map(|service| of_service(&compat, service)).collect()
}

fn of_service(compat: &Compat, service: &Service) -> Vec<String> {
    let rule = &service.rule;
    let sources = service.exact.iter().flat_map(|exact| &exact.sources);
    let told = sources.filter_map(|source| source.version().or(source.spec().version));
    let refused = told.flat_map(|version| {
        let question = Question {
            engine: Build::Of(rule.engine),
            version: Release::read(&version.to_string()),
            configuration: if rule.disaggregation.is_some() {
                Configuration::Pd
            } else {
                Configuration::Alone
            },
            transport: None,
            paths: &[],
            router: None,
            flags: None,
        };
        let answers = compat.judge(&question);
        answers.into_iter().filter(|answer| answer.standing == Standing::Refused)
    });
    let sentence = |answer: warmpath_core::catalog::compat::Answer| {
        format!(
            "rule {} (service {}): {} (catalog row {}, reported elsewhere)",
            rule.name, service.number, answer.says, answer.row
        )
    };
    refused.map(sentence).collect()
}

/// Says each sentence when it begins to be true.
pub async fn watch(gateway: Shared) {
    let mut said = BTreeSet::new();
    loop {
        let now = warnings(&gateway.borrow().table);
        let say = gateway.borrow().outside.say;
        now.difference(&said).for_each(|sentence| say(&format!("[CATALOG] {sentence}")));
        said = now;
        sleep(LOOK_EACH).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::body;
    use serde_json::json;
    use warmpath_core::engine::Version;
    use warmpath_core::environment::Environment;
    use warmpath_core::rule::body::parse;

    fn table(fixed: Option<&str>) -> Table {
        let mut given = body("old", 9100);
        let arguments = &mut given["serviceArguments"];
        (arguments["kvExactMode"], arguments["kvHashAlgo"]) = (json!(3), json!("tokens"));
        if let Some(version) = fixed {
            arguments["kvEngineVersion"] = json!(version);
        }
        let rule = parse(&given, &Environment::default(), || "old".into()).expect("a rule");
        Table::next(&Table::default(), vec![rule], &mut 0, 0)
    }

    #[test]
    fn a_version_below_its_floor_is_told_with_the_row() {
        assert!(warnings(&table(None)).is_empty(), "of a version that nobody knows nothing is said");
        assert!(warnings(&table(Some("0.29.0"))).is_empty());
        let told: Vec<String> = warnings(&table(Some("0.28.0"))).into_iter().collect();
        assert!(told.len() == 1 && told[0].contains("0.29.0 or newer, not 0.28.0"), "{told:?}");
        assert!(told[0].starts_with("rule old (service ") && told[0].contains("row vllm-alone"), "{told:?}");
    }

    #[test]
    fn what_the_engine_tells_counts_once_it_does() {
        let table = table(None);
        let service = table.services().next().expect("a service");
        let source = &service.exact.as_ref().expect("exact").sources[0];
        source.set_version(Some(Version::new(0, 23, 0)));
        assert_eq!(warnings(&table).len(), 1);
        source.set_version(Some(Version::new(0, 32, 0)));
        assert!(warnings(&table).is_empty());
    }
}
