//! The command line of one rule: `create lb` and `delete lb`. Owns the flags, which follow from the members of a rule body,
//! and the names that scripts of the loxilb AI gateway know them by; what a member may hold is for the gateway to say.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command, Error};
use serde_json::{Map, Value, json};
use std::net::IpAddr;
use warmpath_core::rule::body::schema;

/// Members whose flag is not their name with dashes.
const NAMED: &[(&str, &str)] = &[
    ("select", "sel"),
    ("sockmap-mode", "sockMapMode"),
    ("inactivetimeout", "inactiveTimeOut"),
    ("probetimeout", "probeTimeout"),
    ("proberetries", "probeRetries"),
    ("max-stream-duration", "max_stream_duration_sec"),
    ("backend-keepalive-interval", "backend_keepalive_interval_sec"),
    ("chwbl-hash-level", "chwbl_prefix_hash_level"),
    ("chwbl-hash-flags", "chwbl_prefix_hash_flags"),
    ("chwbl-load-factor", "chwbl_mean_load_factor"),
    ("chwbl-cache-salt", "chwbl_enable_cache_salt"),
    ("pd-disagg", "pd_disagg_mode"),
    ("pd-cache-aware", "pd_cache_aware_mode"),
    ("pd-session-ttl", "pd_session_ttl_sec"),
    ("kv-warmup", "kvWarmupSec"),
    ("kv-dp-ranks", "kvDpRankCount"),
];

/// Members that the address, `--tcp` and `--attachEP` say.
const SAID: [&str; 5] = ["externalIP", "port", "portMax", "protocol", "oper"];

/// Words for numbers.
const WORDS: &[(&str, &[(&str, i64)])] = &[
    (
        "sel",
        &[
            ("rr", 0),
            ("hash", 1),
            ("priority", 2),
            ("persist", 3),
            ("lc", 4),
            ("n2", 5),
            ("n3", 6),
            ("chwbl", 8),
            ("gpuaware", 9),
            ("wrr-hash", 10),
            ("chwbl-wrr", 10),
        ],
    ),
    ("mode", &[("dnat", 0), ("onearm", 1), ("fullnat", 2), ("dsr", 3), ("fullproxy", 4), ("hostonearm", 5)]),
    ("security", &[("plain", 0), ("https", 1), ("tls", 1), ("e2ehttps", 2), ("e2etls", 2)]),
];
const ROLES: &[(&str, i64)] = &[("normal", 0), ("prefill", 1), ("decode", 2)];

/// A rule body from a command line.
#[derive(Clone, Debug, PartialEq)]
pub struct LbArgs {
    /// The body, to be posted.
    pub body: Value,
}

impl clap::Args for LbArgs {
    fn augment_args(command: Command) -> Command {
        let command = command
            .arg(Arg::new("ip").required(true).value_name("IP").help("Address that clients connect to"))
            .arg(
                Arg::new("tcp")
                    .long("tcp")
                    .required(true)
                    .value_name("PORT:TARGET")
                    .help("Port that clients connect to, and port of the endpoints"),
            )
            .arg(
                Arg::new("endpoints")
                    .long("endpoints")
                    .required(true)
                    .value_delimiter(',')
                    .value_name("IP:WEIGHT,…")
                    .help("Engines with their weights; an IPv6 address in brackets"),
            )
            .arg(
                Arg::new("ep-role")
                    .long("ep-role")
                    .value_delimiter(',')
                    .value_name("ROLE,…")
                    .help("normal, prefill or decode, in the order of the endpoints"),
            )
            .arg(
                Arg::new("nixl-port")
                    .long("nixl-port")
                    .value_delimiter(',')
                    .value_name("PORT,…")
                    .help("Side channel of each endpoint, in their order"),
            )
            .arg(
                switch("attachEP")
                    .conflicts_with("detachEP")
                    .help("Add the endpoints to the rule that is there"),
            )
            .arg(switch("detachEP").help("Take the endpoints away from it"));
        members().into_iter().fold(command, |command, member| command.arg(member.flag()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for LbArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<LbArgs, Error> {
        Ok(LbArgs { body: body(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.body = body(matches)?;
        Ok(())
    }
}

/// A member of `serviceArguments` as a flag.
struct Member {
    flag: String,
    name: String,
    schema: Value,
}

impl Member {
    fn flag(&self) -> Arg {
        let meaning = self.schema["description"].as_str().unwrap_or("").to_string();
        let arg = Arg::new(self.flag.clone()).long(self.flag.clone()).help(meaning);
        match self.schema["type"].as_str() {
            Some("boolean") => {
                arg.num_args(0..=1).require_equals(true).default_missing_value("true").value_name("BOOL")
            }
            Some("integer") => arg.value_name("N").allow_hyphen_values(true),
            Some("string") => arg.value_name("TEXT"),
            _ => arg.value_name("JSON"),
        }
    }

    fn value(&self, given: &str) -> Result<Value, Error> {
        let words = WORDS.iter().find(|(name, _)| *name == self.name).map(|(_, words)| *words);
        if let Some((_, number)) = words.into_iter().flatten().find(|(word, _)| *word == given) {
            return Ok(json!(number));
        }
        match self.schema["type"].as_str() {
            Some("string") => Ok(json!(given)),
            _ => serde_json::from_str(given).map_err(|_| wrong(&self.flag, given)),
        }
    }
}

/// The members that may be set, in the order of the table.
fn members() -> Vec<Member> {
    let schema = schema();
    let properties = schema["properties"]["serviceArguments"]["properties"].as_object();
    let settable = properties
        .into_iter()
        .flatten()
        .filter(|(name, member)| !SAID.contains(&name.as_str()) && member["readOnly"] != true);
    settable
        .map(|(name, schema)| {
            let known = NAMED.iter().find(|(_, member)| *member == name.as_str());
            let flag = known.map_or_else(|| dashed(name), |(flag, _)| flag.to_string());
            Member { flag, name: name.clone(), schema: schema.clone() }
        })
        .collect()
}

/// `kvExactApiMode` and `fc_mode` as `kv-exact-api-mode` and `fc-mode`.
fn dashed(name: &str) -> String {
    let mut dashed = String::new();
    for letter in name.chars() {
        match letter {
            '_' => dashed.push('-'),
            upper if upper.is_ascii_uppercase() => dashed.extend(['-', upper.to_ascii_lowercase()]),
            other => dashed.push(other),
        }
    }
    dashed
}

fn body(matches: &ArgMatches) -> Result<Value, Error> {
    let (port, target) = ports(one(matches, "tcp"))?;
    let mut service = Map::new();
    service.insert("externalIP".into(), json!(one(matches, "ip")));
    service.insert("port".into(), json!(port));
    service.insert("protocol".into(), json!("tcp"));
    service.insert("mode".into(), json!(4));
    for member in members() {
        if let Some(given) = matches.get_one::<String>(&member.flag) {
            service.insert(member.name.clone(), member.value(given)?);
        }
    }
    for (flag, oper) in [("attachEP", 1), ("detachEP", 2)] {
        if matches.get_flag(flag) {
            service.insert("oper".into(), json!(oper));
        }
    }
    Ok(json!({"serviceArguments": service, "endpoints": endpoints(matches, target)?}))
}

fn endpoints(matches: &ArgMatches, target: u16) -> Result<Vec<Value>, Error> {
    let list = |flag: &str| matches.get_many::<String>(flag).into_iter().flatten().collect::<Vec<_>>();
    let mut endpoints = list("endpoints")
        .into_iter()
        .map(|given| endpoint(given, target).ok_or_else(|| wrong("endpoints", given)))
        .collect::<Result<Vec<Value>, Error>>()?;
    let (roles, side_ports) = (list("ep-role"), list("nixl-port"));
    for (flag, count) in [("ep-role", roles.len()), ("nixl-port", side_ports.len())] {
        if count > endpoints.len() {
            return Err(wrong(flag, &format!("{count} for {} endpoints", endpoints.len())));
        }
    }
    for (endpoint, role) in endpoints.iter_mut().zip(roles) {
        let number = ROLES.iter().find(|(word, _)| word == role).map(|(_, number)| *number);
        endpoint["ep_role"] = json!(number.ok_or_else(|| wrong("ep-role", role))?);
    }
    for (endpoint, port) in endpoints.iter_mut().zip(side_ports) {
        endpoint["nixl_port"] = json!(port.parse::<u16>().map_err(|_| wrong("nixl-port", port))?);
    }
    Ok(endpoints)
}

/// `IP:WEIGHT`, or an address alone, whose weight is 1.
fn endpoint(given: &str, target: u16) -> Option<Value> {
    let bare = |ip: &str| ip.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
    let (ip, weight) = match (bare(given), given.rsplit_once(':')) {
        (Some(ip), _) => (ip, 1),
        (None, Some((ip, weight))) => (bare(ip)?, weight.parse::<u16>().ok()?),
        (None, None) => return None,
    };
    Some(json!({"endpointIP": ip.to_string(), "targetPort": target, "weight": weight}))
}

/// `PORT:TARGET`.
fn ports(given: &str) -> Result<(u16, u16), Error> {
    let ports =
        given.split_once(':').and_then(|(port, target)| Some((port.parse().ok()?, target.parse().ok()?)));
    ports.ok_or_else(|| wrong("tcp", given))
}

fn one<'a>(matches: &'a ArgMatches, name: &str) -> &'a str {
    matches.get_one::<String>(name).map_or("", String::as_str)
}

fn switch(name: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue)
}

fn wrong(flag: &str, given: &str) -> Error {
    let mut error = Error::new(ErrorKind::InvalidValue);
    error.insert(ContextKind::InvalidArg, ContextValue::String(format!("--{flag}")));
    error.insert(ContextKind::InvalidValue, ContextValue::String(given.into()));
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    fn read(words: &[&str]) -> Result<Value, String> {
        let command = LbArgs::augment_args(Command::new("lb"));
        let matches = command.try_get_matches_from(["lb"].iter().chain(words)).map_err(|e| e.to_string())?;
        LbArgs::from_arg_matches(&matches).map(|args| args.body).map_err(|e| e.to_string())
    }

    #[test]
    fn a_line_for_the_loxilb_gateway_becomes_its_body() {
        let line = "10.0.0.9 --tcp=80:8000 --endpoints=10.0.1.1:1,[::1]:2 --mode=fullproxy --select=chwbl --monitor \
             --probetype=http --probereq=/health --chwbl-load-factor=150 --model-name=m --sse-mode \
             --max-stream-duration=60 --ep-role=prefill,decode --nixl-port=5600,5601 --pd-disagg \
             --kv-exact-mode=1 --kv-dp-ranks=2 --fc-mode=enforce --fc-max-outstanding=64 --cb-enable=false \
             --kv-exact-api-mode=completions";
        let body = read(&line.split_whitespace().collect::<Vec<_>>()).unwrap();
        let service = json!({
            "externalIP": "10.0.0.9", "port": 80, "protocol": "tcp", "mode": 4, "sel": 8, "monitor": true,
            "probetype": "http", "probereq": "/health", "chwbl_mean_load_factor": 150, "model_name": "m",
            "sse_mode": true, "max_stream_duration_sec": 60, "pd_disagg_mode": true, "kvExactMode": 1,
            "kvDpRankCount": 2, "fc_mode": "enforce", "fc_max_outstanding": 64, "cb_enable": false,
            "kvExactApiMode": "completions",
        });
        let given = body["serviceArguments"].as_object().unwrap();
        assert_eq!(given, service.as_object().unwrap());
        assert_eq!(
            body["endpoints"],
            json!([
                {"endpointIP": "10.0.1.1", "targetPort": 8000, "weight": 1, "ep_role": 1, "nixl_port": 5600},
                {"endpointIP": "::1", "targetPort": 8000, "weight": 2, "ep_role": 2, "nixl_port": 5601},
            ])
        );
    }

    #[test]
    fn every_member_that_may_be_set_has_a_flag_of_its_own() {
        let members = members();
        let mut flags: Vec<&str> = members.iter().map(|m| m.flag.as_str()).collect();
        assert!(flags.len() > 80 && flags.contains(&"kv-model-profile"), "{flags:?}");
        flags.sort_unstable();
        let count = flags.len();
        flags.dedup();
        assert_eq!(flags.len(), count);
        for (flag, _) in NAMED {
            assert!(flags.contains(flag), "{flag} names no member");
        }
    }

    #[test]
    fn what_can_not_be_read_is_named() {
        let base = ["10.0.0.9", "--tcp=80:8000", "--endpoints=10.0.1.1:1"];
        for (more, flag) in [
            ("--tcp=80", "--tcp"),
            ("--ep-role=prefil", "--ep-role"),
            ("--ep-role=prefill,decode", "--ep-role"),
            ("--nixl-port=x", "--nixl-port"),
            ("--kv-block-size=x", "--kv-block-size"),
            ("--select=fastest", "--select"),
        ] {
            let words = base.iter().copied().filter(|w| !w.starts_with(flag)).chain([more]);
            let fault = read(&words.collect::<Vec<_>>()).unwrap_err();
            assert!(fault.contains(flag), "{more}: {fault}");
        }
        assert!(read(&[&base[..], &["--attachEP", "--detachEP"]].concat()).is_err());
        assert_eq!(read(&[&base[..], &["--detachEP"]].concat()).unwrap()["serviceArguments"]["oper"], 2);
    }
}
