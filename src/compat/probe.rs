//! The group-forward probe over a socket: one completion of one token, and whether its answer is bound to it. Must never
//! try again.

use crate::doctor::ask::{Http, json};
use std::net::ToSocketAddrs;
use std::time::{Duration, SystemTime};
use warmpath_core::catalog::compat::{Answer, Build, Compat, GroupProbe, Release, Standing};

/// How long the answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Probes; an error is a sentence why there is no answer at all.
pub fn run(
    compat: &Compat,
    engine: Build,
    version: Option<&Release>,
    at: &str,
    model: &str,
) -> Result<Answer, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("--probe {at}: {why}; write it as HOST:PORT");
    let mut found = at.to_socket_addrs().map_err(|fault| wrong(&fault))?;
    let address = found.next().ok_or_else(|| wrong(&"the name has no address"))?;
    let id = id();
    let Some(ask) = engine.engine().group_ask() else {
        let says = format!("unknown: answers of {} name no request", engine.word());
        return Ok(Answer { standing: Standing::NotVerified, row: "group_probes".into(), says });
    };
    let body = (ask.body)(model, &id);
    let http = Http { address, patience: PATIENCE };
    let lines = [format!("X-Request-Id: {id}")];
    let answer =
        http.post(ask.path, body.to_string().as_bytes(), &lines).map_err(|why| format!("{at}: {why}"))?;
    let probe = GroupProbe::read(ask, &id, &json(&answer));
    let read = version.is_some_and(|version| compat.is_probe_read(engine, version));
    let of_version = if read { "of this version" } else { "of other versions" };
    Ok(match probe {
        GroupProbe::Verified => Answer {
            standing: Standing::Works,
            row: "group_probes".into(),
            says: format!("verified: the answer is bound to the request; the binding was read {of_version}"),
        },
        GroupProbe::Unknown => Answer {
            standing: Standing::NotVerified,
            row: "group_probes".into(),
            says: format!(
                "unknown: status {}, and the answer names no request of that id; it grants nothing and withdraws nothing",
                answer.status
            ),
        },
    })
}

/// Unlike that of any other probe of this machine.
fn id() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("warmpath-{}-{}", std::process::id(), now.as_nanos())
}
