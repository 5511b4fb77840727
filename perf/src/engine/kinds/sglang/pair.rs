//! SGLang's rendezvous: `bootstrap_host`, `bootstrap_port` and `bootstrap_room`, one each or lists for a batch. Must
//! never bring two legs together that were not told the same.

use serde_json::Value;

use crate::engine::kinds::pair::{Half, Leg};
use crate::engine::kinds::{Kind, Reply};
use crate::engine::openai::Ask;
use crate::engine::transfer::Role;

/// `disaggregation_bootstrap_port` when unset.
const PORT: u64 = 8998;

/// Reads the triple; a server of either mode refuses a request without it.
pub fn leg(half: &mut Half<'_>, ask: &Ask) -> Result<Leg, Reply> {
    let [host, port, room] = &ask.handshake.bootstrap;
    let count = ask.prompts.len();
    let refuse = |half: &mut Half<'_>, name: &'static str, words: &str| {
        half.blame(name);
        Err(Kind::Sglang.error(400, "BadRequestError", words))
    };
    if host.is_null() || room.is_null() {
        return refuse(half, "triple_missing", "Disaggregated request received without bootstrap room id.");
    }
    let lists = [host, port, room].into_iter().filter_map(Value::as_array);
    if lists.into_iter().any(|list| list.len() != count) {
        return refuse(half, "room_list", "bootstrap members must be one for each prompt");
    }
    let Some(rooms) = rooms(room, count) else {
        return refuse(half, "room_range", "bootstrap_room must be an integer from 0 to 2^63 - 1");
    };
    let mut seen = rooms.clone();
    seen.sort_unstable();
    seen.dedup();
    if seen.len() < rooms.len() {
        return refuse(half, "room_reused", "bootstrap_room must be unique");
    }
    let (Some(host), Some(port)) = (first(host).as_str(), first(port).as_u64().or(Some(PORT))) else {
        return refuse(half, "triple_missing", "bootstrap_host must be a string");
    };
    if half.pair.role == Role::Decode {
        return Ok(Leg::Join { at: format!("{host}:{port}"), rooms });
    }
    check_place(half, host, port);
    Ok(Leg::Meet { rooms })
}

/// Of a list the first: one request has one prefill engine.
fn first(value: &Value) -> &Value {
    value.get(0).unwrap_or(value)
}

/// A number counts up by the prompts (`_normalize_bootstrap_params`); a list names each.
fn rooms(room: &Value, count: usize) -> Option<Vec<u64>> {
    let number = |value: &Value| value.as_u64().filter(|room| *room < 1 << 63);
    match room {
        Value::Array(list) => list.iter().map(number).collect(),
        room => {
            let first = number(room)?;
            Some((0..count as u64).map(|more| first.wrapping_add(more)).collect())
        }
    }
}

/// Prefill does not look at where decode was sent to; decode would find nobody there.
fn check_place(half: &mut Half<'_>, host: &str, port: u64) {
    let Some(door) = half.door else { return };
    let plain = host.trim_start_matches('[').trim_end_matches(']');
    if plain != door.ip().to_string() && plain != half.config.host {
        half.blame("host_mismatch");
    }
    if port != u64::from(door.port()) {
        half.blame("port_mismatch");
    }
}
