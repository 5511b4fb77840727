//! Hosts that are probed whichever rules name them (`config/endpoint`). Owns their JSON and what of it is refused; pure.
//!
//! The verdict counts for every endpoint at the host's address, beside what the probes of rules say.

use crate::refusal::Refusal;
use serde_json::{Map, Value, json};
use std::net::IpAddr;
use warmpath_core::SECOND;
use warmpath_core::rule::{Probe, ProbeKind};

/// Seconds of `probeDuration` where it is 0 or left out.
const DURATION: u64 = 60;
/// `inactiveReTries` where it is 0 or left out.
const RETRIES: u64 = 2;

const MEMBERS: [&str; 12] = [
    "hostName",
    "name",
    "inactiveReTries",
    "probeType",
    "probeReq",
    "probeResp",
    "probeDuration",
    "probePort",
    // Of a readback, which may be posted again.
    "currState",
    "minDelay",
    "avgDelay",
    "maxDelay",
];

/// One probed host.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// `hostName`, an address.
    pub ip: IpAddr,
    /// `name`, for people and for deletion.
    pub name: String,
    /// How it is probed; port 0 is the port of each endpoint. `None` with `probeType` `none`.
    pub probe: Option<Probe>,
    /// As it was given.
    pub body: Value,
}

impl Host {
    /// From the body of a POST or of the snapshot.
    pub fn read(body: &Value) -> Result<Host, Refusal> {
        let Some(map) = body.as_object() else {
            return Err(Refusal::NotJson("an object is expected".into()));
        };
        if let Some(name) = map.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
            let value = name.chars().take(64).collect();
            return Err(Refusal::Argument { name: "member", value, allowed: "a member of an endpoint" });
        }
        let given = Given(map);
        let ip = given.text("hostName")?.parse::<IpAddr>().map(|ip| ip.to_canonical());
        let ip = ip.map_err(|_| bad("hostName", &body["hostName"], "an IP address"))?;
        let timeout = given.number("probeDuration", 86_400, DURATION)? * SECOND;
        let retries = given.number("inactiveReTries", 100, RETRIES)? as u32;
        let port = given.number("probePort", u64::from(u16::MAX), 0)? as u16;
        let kind = given.kind()?;
        let probe = kind.map(|kind| Probe { kind, port, timeout, retries });
        Ok(Host { ip, name: given.text("name")?.to_string(), probe, body: body.clone() })
    }

    /// Whether a second POST with the members of `other` replaces this one.
    pub fn is_same(&self, other: &Host) -> bool {
        let kind = |host: &Host| host.probe.as_ref().map(|p| (std::mem::discriminant(&p.kind), p.port));
        self.ip == other.ip && self.name == other.name && kind(self) == kind(other)
    }

    /// `probeType`.
    pub fn kind_word(&self) -> &'static str {
        match self.probe.as_ref().map(|p| &p.kind) {
            None => "none",
            Some(ProbeKind::Tcp) => "tcp",
            Some(ProbeKind::Http { .. }) => "http",
        }
    }

    /// Its element in the list; `down` as its probes say.
    pub fn shown(&self, down: bool) -> Value {
        let mut shown = self.body.clone();
        let probe = self.probe.as_ref();
        shown["hostName"] = json!(self.ip.to_string());
        shown["name"] = json!(self.name);
        shown["probeType"] = json!(self.kind_word());
        shown["probePort"] = json!(probe.map_or(0, |p| p.port));
        shown["probeDuration"] = json!(probe.map_or(DURATION, |p| p.timeout / SECOND));
        shown["inactiveReTries"] = json!(probe.map_or(RETRIES, |p| u64::from(p.retries)));
        shown["currState"] = json!(if down { "nok" } else { "ok" });
        shown
    }
}

struct Given<'a>(&'a Map<String, Value>);

impl<'a> Given<'a> {
    fn text(&self, name: &'static str) -> Result<&'a str, Refusal> {
        match self.0.get(name) {
            None => Ok(""),
            Some(Value::String(text)) if text.len() <= 255 => Ok(text),
            Some(other) => Err(bad(name, other, "a string of at most 255 bytes")),
        }
    }

    fn number(&self, name: &'static str, most: u64, default: u64) -> Result<u64, Refusal> {
        match self.0.get(name).map(|value| (value, value.as_u64())) {
            None | Some((_, Some(0))) => Ok(default),
            Some((_, Some(number))) if number <= most => Ok(number),
            Some((value, _)) => Err(bad(name, value, "a whole number in its range")),
        }
    }

    fn kind(&self) -> Result<Option<ProbeKind>, Refusal> {
        let (path, contains) = (self.text("probeReq")?, self.text("probeResp")?.to_string());
        match self.text("probeType")? {
            "" | "tcp" => Ok(Some(ProbeKind::Tcp)),
            "none" => Ok(None),
            "http" if path.is_empty() || is_path(path) => {
                let path = if path.is_empty() { "/".into() } else { path.to_string() };
                Ok(Some(ProbeKind::Http { path, codes: vec![(200, 200)], contains }))
            }
            "http" => Err(bad("probeReq", &path.into(), "a path from \"/\", percent-encoded")),
            other => Err(bad("probeType", &other.into(), "tcp, http or none; others are not in this build")),
        }
    }
}

fn is_path(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic() && b != b'#')
}

fn bad(name: &'static str, value: &Value, allowed: &'static str) -> Refusal {
    Refusal::Argument { name, value: value.to_string().chars().take(64).collect(), allowed }
}
