//! SGLang's rendezvous between prefill and decode, 0.5.18 to 0.5.23: both engines get the same body at the same time,
//! and meet in a room of the prefill engine's bootstrap server. Owns the three members that say where; must never let
//! a client choose the room, which another's request could be in.

use crate::engine::pairing::encode::Encoding;
use crate::engine::pairing::{
    Body, Given, Handed, Need, Order, PairTerms, Pairing, PrefillEnd, Unpairable, print,
};
use std::net::IpAddr;
use warmpath_parser::json::{Change, Kind, Member, Rewrite, member};

pub(super) const PAIRING: Pairing = Pairing {
    order: Order::Together,
    admit,
    prefill: leg,
    decode: |body, terms, _: Option<Given<'_>>, out| leg(body, terms, out),
    read: |_, _| PrefillEnd::Ready(Handed::default()),
    stream_of: None,
    encoding: Encoding::ByAddress,
    native: "/generate",
};

/// What a client may not say of a pair: where the legs meet, and which ranks serve them, since the room already leads
/// prefill to its rank and both legs get the same body.
const REPLACED: [Change<'static>; 6] = [
    Change::Remove(Member::BootstrapHost),
    Change::Remove(Member::BootstrapPort),
    Change::Remove(Member::BootstrapRoom),
    Change::Remove(Member::RoutedDpRank),
    Change::Remove(Member::DataParallelRank),
    Change::Remove(Member::DisaggPrefillDpRank),
];

/// One room for each prompt and choice. Lists are repeated for each choice as they are (`_normalize_bootstrap_params`),
/// so that only counting on from one room keeps choices apart. A wrong `n` is the engine's to refuse.
fn admit(body: &Body<'_>) -> Result<Need, Unpairable> {
    let prompts = [Member::Prompt, Member::Text, Member::InputIds].map(|member| body.prompts(member));
    let prompts = prompts.into_iter().max().unwrap_or(1).max(1);
    let choices = u32::try_from(choices(body)).unwrap_or(u32::MAX).max(1);
    let rooms = prompts.saturating_mul(choices);
    Ok(Need { rooms, listed: prompts > 1 && choices == 1 })
}

/// `n`, of the native route in `sampling_params`.
fn choices(body: &Body<'_>) -> u64 {
    let native = body.get(Member::SamplingParams).filter(|params| params.kind == Kind::Object);
    let native = native.and_then(|params| member(body.bytes, params, "n"));
    [body.get(Member::N), native].into_iter().flatten().filter_map(|n| n.as_u64(body.bytes)).max().unwrap_or(1)
}

/// The client's request, with where the legs meet.
fn leg(body: &Body<'_>, terms: &PairTerms<'_>, out: &mut Vec<u8>) {
    let need = terms.rooms.need();
    let times = if need.listed { need.rooms } else { 1 };
    let mut rewrite = Rewrite::begin(body.bytes, body.members, &REPLACED, 64 + 80 * times as usize, out);
    let (host, port) = (terms.meeting().ip(), terms.meeting().port());
    let hosts = std::iter::repeat_n(host, times as usize);
    list(rewrite.member(Member::BootstrapHost), need.listed, hosts, |out, host| match host {
        IpAddr::V4(host) => print(out, format_args!("\"{host}\"")),
        IpAddr::V6(host) => print(out, format_args!("\"[{host}]\"")),
    });
    let ports = std::iter::repeat_n(port, times as usize);
    list(rewrite.member(Member::BootstrapPort), need.listed, ports, |out, port| print(out, format_args!("{port}")));
    let rooms = terms.rooms.all().take(times as usize);
    list(rewrite.member(Member::BootstrapRoom), need.listed, rooms, |out, room| print(out, format_args!("{room}")));
    rewrite.end();
}

/// A value, or if `listed` an array of values.
fn list<T>(out: &mut Vec<u8>, listed: bool, values: impl Iterator<Item = T>, write: impl Fn(&mut Vec<u8>, T)) {
    if listed {
        out.push(b'[');
    }
    for (at, value) in values.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(out, value);
    }
    if listed {
        out.push(b']');
    }
}
