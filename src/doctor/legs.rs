//! The legs, in the order in which they are looked at: what an engine says of itself, its events, the names of its
//! blocks, its text. Owns the order and what is left out when something before it fails.

mod beside;
mod events;
mod names;
mod probe;
mod said;
mod texts;

use super::look::{Look, Settings};
use super::row::{Leg, Report, Row};
use super::wanted::Wanted;

/// Looks at one endpoint.
pub fn report(wanted: &Wanted, settings: &Settings) -> Report {
    let mut look = Look::new(wanted, settings);
    said::reachable(&mut look);
    if look.facts.answered {
        said::version(&mut look);
        said::model(&mut look);
        if wanted.exact.is_some() {
            said::ranks(&mut look);
        }
        if events::open(&mut look) {
            by_blocks(&mut look);
        }
    }
    let family = look.version.map(|version| wanted.engine.family(version));
    let mut rows = look.rows;
    let is_exact = wanted.exact.is_some();
    for leg in ALL {
        let is_of_one = is_exact || matches!(leg, Leg::Reachable | Leg::Version | Leg::Model | Leg::Events);
        if is_of_one && !rows.iter().any(|row| row.leg == *leg) {
            rows.push(Row::not_run(*leg, "a leg before it has to be in order first"));
        }
    }
    rows.sort_by_key(|row| row.leg);
    Report {
        endpoint: wanted.endpoint.to_string(),
        kind: wanted.engine.name(),
        rule: wanted.rule.clone(),
        is_by_tokens: wanted.is_by_tokens(),
        family,
        rows,
    }
}

const ALL: &[Leg] = &[
    Leg::Reachable,
    Leg::Version,
    Leg::Model,
    Leg::Ranks,
    Leg::Events,
    Leg::Replay,
    Leg::BlockSize,
    Leg::Algorithm,
    Leg::Root,
    Leg::HashForm,
    Leg::Salt,
    Leg::Lora,
    Leg::Tokenizer,
    Leg::Template,
    Leg::Usage,
];

/// What needs blocks of prompts that were sent for it.
fn by_blocks(look: &mut Look<'_>) {
    let Some(probed) = probe::plain(look) else { return };
    names::block_size(look, &probed);
    names::algorithm_and_root(look, &probed);
    names::hash_form(look);
    events::replay(look);
    events::usage(look, &probed);
    beside::salt(look, &probed);
    beside::lora(look, &probed);
    texts::tokenizer_and_template(look, &probed);
}
