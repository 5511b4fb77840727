//! The words in the pages' tables of troubles: each must be one that the gateway says. Owns where these are written.

use super::PAGES;
use warmpath_core::shared::Fence;
use warmpath_core::trust::Leg;
use warmpath_perf::engine::Kind;

/// Where words of misses and reasons stand.
const MISSES: [&str; 4] = [
    include_str!("../../../core/src/decide/exact/miss.rs"),
    include_str!("../../../core/src/decline.rs"),
    include_str!("../../../core/src/engine/extras.rs"),
    include_str!("../../../core/src/decide.rs"),
];

/// First cells of the table of troubles.
fn symptoms(page: &str) -> impl Iterator<Item = &str> {
    let (_, table) = page.split_once("## If it does not").expect("a table of troubles");
    let (table, _) = table.split_once("\n## ").expect("a next section");
    table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
}

/// The words between backticks behind `what`, wherever it stands, also those after a comma or `or`.
fn after<'t>(text: &'t str, what: &str) -> Vec<&'t str> {
    let mut words = Vec::new();
    for rest in text.split(what).skip(1) {
        let mut parts = rest.split('`');
        while let (Some("" | " or "), Some(word)) = (parts.next(), parts.next()) {
            words.push(word);
        }
    }
    words
}

#[test]
fn what_the_tables_name_is_what_the_gateway_says() {
    let mut found = 0;
    for (kind, page) in PAGES {
        for symptom in symptoms(page) {
            for word in after(symptom, "fence ") {
                assert!(Fence::ALL.iter().any(|fence| fence.word() == word), "{kind:?}: no fence {word}");
            }
            for word in after(symptom, "broken ") {
                assert!(Leg::ALL.iter().any(|leg| leg.word() == word), "{kind:?}: no leg {word}");
            }
            let missed = symptom.split('`').filter_map(|word| word.strip_prefix("missed="));
            for word in missed.chain(after(symptom, "reason ")) {
                let word = word.trim();
                found += 1;
                let is_said = MISSES.iter().any(|text| text.contains(&format!("\"{word}\"")));
                assert!(is_said, "{kind:?}: nothing is missed for {word}");
            }
        }
    }
    assert!(found > 20, "{found}");
}

/// What may be broken of an engine stands on its page with its cure.
#[test]
fn every_leg_stands_on_the_pages_of_the_engines_that_have_it() {
    for (kind, page) in PAGES.iter().filter(|(kind, _)| *kind != Kind::Llamacpp) {
        let named: Vec<&str> = symptoms(page).flat_map(|symptom| after(symptom, "broken ")).collect();
        let has = |leg: &Leg| match kind {
            Kind::Vllm => *leg != Leg::SecondReader,
            Kind::Sglang => !matches!(leg, Leg::Seed | Leg::SecondReader),
            _ => !matches!(leg, Leg::Seed | Leg::Algorithm | Leg::Salt | Leg::Lora),
        };
        for leg in Leg::ALL.iter().filter(|leg| has(leg)) {
            assert!(named.contains(&leg.word()), "{kind:?}: what to do where {} is broken?", leg.word());
        }
    }
}
