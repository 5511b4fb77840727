//! What an engine says of itself, against the rule: that it answers, its version, models and ranks. Owns these
//! sentences; must never send it a prompt.

use crate::doctor::ask::json;
use crate::doctor::look::Look;
use crate::doctor::row::{Leg, Row};
use warmpath_events::engines::probes;

/// Asks all that the gateway would ask.
pub fn reachable(look: &mut Look<'_>) {
    let mut fault = String::new();
    for probe in probes(look.wanted.engine) {
        if !(probe.is_needed)(&look.facts) {
            continue;
        }
        match look.http.get(probe.path) {
            Ok(answer) => {
                look.facts.answered = true;
                if answer.status == 200 {
                    (probe.read)(&answer.body, &mut look.facts);
                }
            }
            Err(why) => fault = why,
        }
    }
    if probes(look.wanted.engine).is_empty() {
        match look.http.get("/v1/models") {
            Ok(answer) => {
                look.facts.answered = true;
                let cards = json(&answer);
                let cards = cards["data"].as_array();
                let names = |cards: &Vec<_>| {
                    cards
                        .iter()
                        .filter_map(|card: &serde_json::Value| card["id"].as_str().map(str::to_owned))
                        .collect()
                };
                look.facts.models = cards.map(names);
            }
            Err(why) => fault = why,
        }
    }
    look.version = look.facts.version();
    let row = if look.facts.answered {
        Row::equal(Leg::Reachable, format!("http://{} answers", look.wanted.endpoint))
    } else {
        Row::not_equal(Leg::Reachable, format!("http://{} does not answer: {fault}", look.wanted.endpoint))
            .engine("start it, and let it listen where the gateway can reach it (--host, --port)")
            .rule("endpointIP and targetPort of the endpoint")
    };
    look.tell(row);
}

/// Its version, against the oldest that was looked at and the rule's.
pub fn version(look: &mut Look<'_>) {
    let (engine, oldest) = (look.wanted.engine, look.launch.oldest);
    let rule = look.wanted.exact.as_ref().and_then(|exact| exact.version);
    let by_tokens = look.wanted.is_by_tokens();
    let untold = match look.wanted.exact {
        Some(_) => "kvEngineVersion, so that salts and adapters can be named",
        None => "",
    };
    let row = match (look.version, &look.facts.version) {
        (None, None) => Row::not_run(Leg::Version, "it does not tell its version").rule(untold),
        (None, Some(text)) => {
            Row::not_run(Leg::Version, format!("its version {text} cannot be read")).rule(untold)
        }
        (Some(own), _) if oldest.is_some_and(|oldest| own < oldest) && !by_tokens => {
            let oldest = oldest.map(|oldest| oldest.to_string()).unwrap_or_default();
            Row::not_equal(
                Leg::Version,
                format!("{own} is older than {oldest}, the first whose hashes were looked at"),
            )
            .engine(format!("run {oldest} or newer"))
            .rule("\"kvHashAlgo\": \"tokens\"")
        }
        (Some(own), _) => match rule {
            Some(rule) if engine.family(rule) != engine.family(own) && !by_tokens => Row::not_equal(
                Leg::Version,
                format!("it is {own}, the rule says {rule}, which names blocks otherwise"),
            )
            .engine(format!("run {rule}"))
            .rule(format!("\"kvEngineVersion\": \"{own}\"")),
            _ => Row::equal(Leg::Version, format!("{own}{}", floor(oldest))),
        },
    };
    look.tell(row);
}

fn floor(oldest: Option<warmpath_core::engine::Version>) -> String {
    oldest.map_or_else(String::new, |oldest| format!(", not older than {oldest}"))
}

/// Whether it serves the rule's model under that name.
pub fn model(look: &mut Look<'_>) {
    let wanted = look.wanted.model.as_str();
    let row = match &look.facts.models {
        None => Row::not_run(Leg::Model, "it does not tell which models it serves"),
        Some(models) if wanted.is_empty() => {
            Row::equal(Leg::Model, format!("any; it serves {}", models.join(", ")))
        }
        Some(models) if models.iter().any(|own| own == wanted) => {
            Row::equal(Leg::Model, format!("it serves {wanted}"))
        }
        Some(models) => Row::not_equal(Leg::Model, format!("it serves {}, not {wanted}", models.join(", ")))
            .engine((look.launch.model)(wanted))
            .rule(format!("\"model_name\": \"{}\"", models.first().map_or("", String::as_str))),
    };
    look.tell(row);
}

/// Its data-parallel ranks. One that does not tell is taken at the rule's word: its publishers are dialled.
pub fn ranks(look: &mut Look<'_>) {
    let Some(exact) = &look.wanted.exact else { return };
    let rule = u32::from(exact.ranks);
    let told =
        look.facts.publishers.as_ref().and_then(|told| told.as_ref().ok()).map(|told| told.len() as u32);
    let row = match told.or(look.facts.ranks) {
        Some(own) if own != rule => Row::not_equal(Leg::Ranks, format!("it has {own}, the rule {rule}"))
            .engine(format!("run it with {rule} data-parallel rank(s)"))
            .rule(format!("\"kvDpRankCount\": {own}")),
        Some(own) => Row::equal(Leg::Ranks, format!("{own}")),
        None => Row::equal(Leg::Ranks, format!("{rule}, by the rule's word: it does not tell")),
    };
    look.tell(row);
}
