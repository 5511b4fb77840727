//! Where an engine's events come from and whether they do: publisher or drain, replay, and what answers tell of the
//! cache. Owns these sentences.

use super::probe::Probed;
use crate::doctor::ask::{json, refusal};
use crate::doctor::look::{Look, completion};
use crate::doctor::publisher::{self, Publisher};
use crate::doctor::row::{Leg, Row};
use serde_json::Value;
use std::net::SocketAddr;
use warmpath_core::rule::KvExact;
use warmpath_core::shared::SourceSpec;
use warmpath_events::engines::{Delivery, delivery};
use warmpath_events::eventcore::{Places, places, unusable_places};
use warmpath_events::sources::Unusable;

/// Opens what the events come by. Whether probes make sense from here on.
pub fn open(look: &mut Look<'_>) -> bool {
    let Some(exact) = look.wanted.exact.clone() else {
        let row =
            Row::not_equal(Leg::Events, "it publishes no cache events: exact routing is not for this engine")
                .rule(
                    "without kvExactMode, and \"sel\": 8, which sends a prompt's beginning to one endpoint",
                );
        look.tell(row);
        return false;
    };
    match delivery(look.wanted.engine) {
        Delivery::Published => publishers(look, &exact),
        Delivery::Drained(path) => drain(look, path),
        Delivery::Never => false,
    }
}

fn publishers(look: &mut Look<'_>, exact: &KvExact) -> bool {
    if let Some(Err(Unusable::Off)) = &look.facts.publishers {
        let row = Row::not_equal(Leg::Events, "it says that it publishes no cache events")
            .engine((look.launch.events)(exact.ports.publish))
            .rule("without kvExactMode, if it is to stay so");
        look.tell(row);
        return false;
    }
    let spec = spec(look, exact);
    let unusable: Vec<String> = unusable_places(&spec, &look.facts);
    let turned = unusable.iter().find(|finding| !finding.contains("which is used"));
    if let Some(finding) = turned {
        let row = Row::not_equal(Leg::Events, finding.clone())
            .engine((look.launch.events)(exact.ports.publish))
            .rule(if exact.ports.bind { "without kvZmqBind" } else { "\"kvZmqBind\": true" });
        look.tell(row);
        return false;
    }
    for rank in 0..exact.ranks {
        let place = places(&spec, &look.facts, rank);
        match opened(look, exact, rank, &place) {
            Ok(publisher) => look.publishers.push(publisher),
            Err(why) => {
                look.publishers.clear();
                look.tell(unreached(look, exact, rank, &place, &why));
                return false;
            }
        }
    }
    look.last = vec![None; look.publishers.len()];
    true
}

/// What the gateway would make of the rule for this endpoint.
fn spec(look: &Look<'_>, exact: &KvExact) -> SourceSpec {
    SourceSpec {
        endpoint: look.wanted.endpoint,
        contract: exact.contract,
        version: exact.version,
        ports: exact.ports,
        ranks: exact.ranks,
        model: look.wanted.model.clone(),
    }
}

fn opened(look: &Look<'_>, exact: &KvExact, rank: u8, place: &Places) -> Result<Publisher, String> {
    match place.publish {
        Some(address) => Publisher::dial(address, look.settings.patience),
        None => {
            let port = exact.ports.publish.saturating_add(u16::from(rank));
            Publisher::accept(port, look.wanted.endpoint.ip(), look.settings.patience)
        }
    }
}

fn unreached(look: &Look<'_>, exact: &KvExact, rank: u8, place: &Places, why: &str) -> Row {
    let told = look.facts.publishers.as_ref().is_some_and(Result::is_ok);
    let whose = if told { "as it tells" } else { "by the rule's word: it does not tell" };
    let at = place.publish.map_or_else(|| "at the gateway".to_owned(), |at| format!("at tcp://{at}"));
    let row = Row::not_equal(Leg::Events, format!("rank {rank} is not reached {at} ({whose}): {why}"));
    let bare = row.engine((look.launch.events)(exact.ports.publish));
    match place.publish {
        Some(_) => {
            bare.rule("kvZmqPort: the port of rank 0; kvZmqBind if the engine connects to the gateway")
        }
        None => bare.rule("kvZmqPort: the port that the engine connects to; without kvZmqBind if it listens"),
    }
}

/// Each event is given away once: nothing is taken unless the person said so.
fn drain(look: &mut Look<'_>, path: &str) -> bool {
    if !look.settings.destructive {
        let row = Row::not_run(
            Leg::Events,
            format!(
                "POST {path} gives each event away once: a gateway that reads it would lose it. Say --destructive"
            ),
        );
        look.tell(row);
        return false;
    }
    match look.http.post(path, b"", &[]) {
        Ok(answer) if answer.status == 200 => true,
        Ok(answer) => {
            let row = Row::not_equal(Leg::Events, format!("POST {path} {}", refusal(&answer)));
            look.tell(row.engine((look.launch.events)(0)));
            false
        }
        Err(why) => {
            look.tell(Row::not_equal(Leg::Events, format!("POST {path}: {why}")));
            false
        }
    }
}

/// Where events come from, once some came.
pub fn came(look: &mut Look<'_>) {
    let Some(exact) = look.wanted.exact.clone() else { return };
    let row = match delivery(look.wanted.engine) {
        Delivery::Drained(path) => Row::equal(Leg::Events, format!("drained by POST {path}; events came")),
        _ => {
            let spec = spec(look, &exact);
            let of = |rank| match places(&spec, &look.facts, rank).publish {
                Some(at) => format!("tcp://{at} (dialled)"),
                None => format!(
                    "port {} (the engine connects)",
                    exact.ports.publish.saturating_add(u16::from(rank))
                ),
            };
            let all: Vec<String> = (0..exact.ranks).map(of).collect();
            Row::equal(Leg::Events, format!("{}; events came", all.join(", ")))
        }
    };
    look.tell(row);
}

/// Whether a batch that came can be had again.
pub fn replay(look: &mut Look<'_>) {
    let Some(exact) = look.wanted.exact.clone() else { return };
    if delivery(look.wanted.engine) != Delivery::Published {
        look.tell(Row::not_run(Leg::Replay, "there is none: what is drained can't be had again"));
        return;
    }
    let spec = spec(look, &exact);
    let Some(at) = places(&spec, &look.facts, 0).replay else {
        let row = Row::not_run(
            Leg::Replay,
            "neither engine nor rule names a replay port: after a lost message all is forgotten",
        )
        .engine((look.launch.replay)())
        .rule("\"kvReplayPort\": the port of rank 0, where the engine does not tell it");
        look.tell(row);
        return;
    };
    let row = replayed(look, at);
    look.tell(row);
}

fn replayed(look: &Look<'_>, at: SocketAddr) -> Row {
    let Some(last) = look.last.first().and_then(Option::as_ref) else {
        return Row::not_run(Leg::Replay, "no batch of rank 0 came that could be asked for again");
    };
    let wrong = |why: String| {
        Row::not_equal(Leg::Replay, format!("tcp://{at}: {why}"))
            .engine((look.launch.replay)())
            .rule("kvReplayPort: the port of rank 0")
    };
    match publisher::replay(at, last.seq, look.settings.patience) {
        Err(why) => wrong(why),
        Ok(batches) => match batches.iter().find(|batch| batch.seq == last.seq) {
            Some(batch) if batch.bytes == last.bytes => {
                Row::equal(Leg::Replay, format!("tcp://{at} gave batch {} again", last.seq))
            }
            Some(_) => wrong(format!("batch {} came again as another: is it this engine's?", last.seq)),
            None => wrong(format!("batch {} did not come again", last.seq)),
        },
    }
}

/// Whether an answer tells how much was cached, and as much as its blocks say.
pub fn usage(look: &mut Look<'_>, probed: &Probed) {
    let body = completion(&look.model(), Value::from(probed.ids.clone()), None);
    let answer =
        match look.http.post("/v1/completions", body.to_string().as_bytes(), &look.lines(look.pinned(0))) {
            Ok(answer) if answer.status == 200 => json(&answer),
            Ok(answer) => return look.tell(Row::not_run(Leg::Usage, refusal(&answer))),
            Err(why) => return look.tell(Row::not_run(Leg::Usage, why)),
        };
    let tokens: usize = probed.chain.iter().map(|block| block.tokens.len()).sum();
    let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    let row = match cached {
        None => Row::not_run(
            Leg::Usage,
            "answers do not tell how many tokens were cached, so predictions can't be checked",
        )
        .engine(look.launch.usage),
        Some(cached) if cached == tokens as u64 => Row::equal(
            Leg::Usage,
            format!("the probe sent again had {cached} tokens cached, as its blocks say"),
        ),
        Some(cached) => Row::not_equal(
            Leg::Usage,
            format!("the probe sent again had {cached} tokens cached, its blocks say {tokens}"),
        )
        .engine("prefix caching on, and one cache behind the port: no proxy over several engines"),
    };
    look.tell(row);
}
