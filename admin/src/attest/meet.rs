//! A challenge of an engine that meets its decode engine while it computes: both legs, as a client's request would be
//! sent. Owns who meets whom; the bodies are the engine file's (`core/src/engine/pairing.rs`).

use super::Question;
use std::net::SocketAddr;
use warmpath_core::engine::pairing::{Order, Pin};
use warmpath_core::rule::Role;
use warmpath_core::table::Service;

/// Where the second leg goes, and where the two meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// A decode endpoint.
    pub decode: SocketAddr,
    /// The prefill endpoint's bootstrap server.
    pub bootstrap: SocketAddr,
}

/// The meeting that a prefill endpoint of a rule needs; `None`: it answers alone.
pub fn meeting(service: &Service, prefill: SocketAddr) -> Option<Meeting> {
    let own = service.rule.disaggregation?;
    service.rule.engine.pairing().filter(|pairing| pairing.order == Order::Together)?;
    let decode = service.rule.endpoints.iter().find(|endpoint| endpoint.role == Role::Decode)?;
    Some(Meeting { decode: decode.address, bootstrap: SocketAddr::new(prefill.ip(), own.bootstrap_port) })
}

/// The bodies of both legs, prefill's first, in a room that leads to this rank; `None`: no pair can be made of it.
pub fn legs(
    question: &Question,
    meeting: &Meeting,
    body: &[u8],
    rank: Option<u8>,
    random: u64,
) -> Option<[Vec<u8>; 2]> {
    let pin = rank.map(|rank| Pin { rank, of: question.terms.ranks });
    question.terms.engine.pairing()?.legs(body, meeting.bootstrap, pin, random)
}
