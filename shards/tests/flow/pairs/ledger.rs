//! What the engines of a run wrote down together: who computed what, what is pinned for whom, who broke the handshake.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Blocks that prefill keeps for decode, by the number that names them.
#[derive(Clone, Debug)]
pub struct Kept {
    pub tag: String,
    pub id: String,
    pub read: bool,
    /// Which engine keeps them, and until when.
    pub at: SocketAddr,
    pub until: u64,
}

/// Where the two legs of a room are.
#[derive(Clone, Debug, Default)]
pub struct Room {
    pub tag: String,
    pub prefill: bool,
    pub decode: bool,
    /// Prefill is done with it.
    pub ready: bool,
    /// A leg left it before the other was done.
    pub broken: bool,
}

#[derive(Default, Debug)]
pub struct Ledger {
    /// Requests that prefill, decode and normal endpoints began, by the request's tag.
    pub prefills: BTreeMap<String, u32>,
    pub decodes: BTreeMap<String, u32>,
    pub wholes: BTreeMap<String, u32>,
    /// Images that encoders began, by tag.
    pub encodes: BTreeMap<String, u32>,
    /// Encodings by the name that prefill finds them by, and where.
    pub encodings: BTreeMap<String, SocketAddr>,
    /// Encodings that a prefill was told of, by tag.
    pub fetched: BTreeMap<String, usize>,
    /// Decodes that were handed nothing, by tag.
    pub alone: BTreeMap<String, u32>,
    pub kept: BTreeMap<u64, Kept>,
    pub rooms: BTreeMap<u64, Room>,
    /// Rooms that every leg of every attempt named.
    pub seen: BTreeSet<(u64, &'static str)>,
    /// Breaches of the handshake, in words.
    pub violations: Vec<String>,
    /// Legs under way.
    pub running: i64,
}

impl Ledger {
    pub fn violation(&mut self, what: String) {
        self.violations.push(what);
    }

    /// A part's leg carries an id of its own, which tells whose part it is.
    pub fn check_part_id(&mut self, tag: &str, id: &str) {
        let part = id.rsplit_once("-enc-").filter(|(_, part)| part.parse::<usize>().is_ok());
        let whose = part.map(|(whose, _)| whose).unwrap_or_default();
        let own = whose.len() == 32 && whose.bytes().all(|b| b.is_ascii_hexdigit());
        if !own && whose != format!("client-{tag}") {
            self.violation(format!("{tag}: a part is called {id}"));
        }
    }

    /// Both legs carry one id. Without one of the client's it names both addresses.
    pub fn check_id(&mut self, tag: &str, id: &str, own: SocketAddr, role: &str) {
        if id.starts_with("client-") {
            if id != format!("client-{tag}") {
                self.violation(format!("{tag}: another client's id {id}"));
            }
            return;
        }
        let form = id.strip_prefix("___prefill_addr_").and_then(|rest| rest.split_once("___decode_addr_"));
        let Some((prefill, rest)) = form else { return self.violation(format!("{tag}: the id is {id}")) };
        let Some((decode, hex)) = rest.rsplit_once('_') else {
            return self.violation(format!("{tag}: the id is {id}"));
        };
        if hex.len() != 32 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            self.violation(format!("{tag}: the id ends with {hex}"));
        }
        let side = SocketAddr::new(own.ip(), own.port() + 1000).to_string();
        if role == "prefill" && prefill != side {
            self.violation(format!("{tag}: prefill at {side} is called {prefill}"));
        }
        if decode.parse::<SocketAddr>().is_err() {
            self.violation(format!("{tag}: decode is called {decode}"));
        }
    }
}
