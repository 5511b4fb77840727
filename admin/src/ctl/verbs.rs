//! The verbs that scripts of the loxilb AI gateway use: `create`, `get`, `set`, `delete`, and those of a rule's history. Own
//! their arguments and the calls they make.

use super::client::{Client, accepted, encoded};
use super::lb::LbArgs;
use super::{CtlFault, Printer, show};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

const RULES: &str = "/netlox/v1/config/loadbalancer";
const HOSTS: &str = "/netlox/v1/config/endpoint";

/// What to create.
#[derive(Subcommand, Clone, Debug)]
pub enum CreateVerb {
    /// A rule, or with --attachEP and --detachEP its endpoints.
    Lb(Box<LbArgs>),
    /// A probe of a host, whichever rules name it.
    Endpoint(HostArgs),
    /// The state on the disk, written anew.
    Persist,
    /// All rules anew from a snapshot; without --commit it only tells what would change.
    Restore {
        /// A file that `get snapshot` or `save` wrote.
        file: PathBuf,
        /// Do it.
        #[arg(long)]
        commit: bool,
    },
}

/// What to get.
#[derive(Subcommand, Clone, Debug)]
pub enum GetVerb {
    /// All rules.
    Lb,
    /// Probed hosts.
    Endpoint,
    /// Keys of the blocks that an endpoint holds.
    Kvinventory {
        /// Number of the service, as `ctl kv` shows it.
        #[arg(long, value_name = "N")]
        service_id: u32,
        /// Index of the endpoint in its rule, from 0.
        #[arg(long, value_name = "N")]
        ep_idx: u32,
    },
    /// Whether requests are welcome; exit code 1 if not.
    Ready,
    /// What this build can do, and what it lacks.
    Capabilities,
    /// Build, process, rules and shards in numbers.
    Diagnostics,
    /// Prometheus text.
    Metrics,
    /// All rules as one document.
    Snapshot,
    /// The log's level.
    Params,
}

/// What to switch.
#[derive(Subcommand, Clone, Debug)]
pub enum SetVerb {
    /// Whether metrics are served.
    Metrics {
        /// Serve them.
        #[arg(long, required_unless_present = "disable", conflicts_with = "disable")]
        enable: bool,
        /// Serve none until the next start.
        #[arg(long)]
        disable: bool,
    },
}

/// What to delete.
#[derive(Subcommand, Clone, Debug)]
pub enum DeleteVerb {
    /// A rule, by its address or --name.
    Lb {
        /// Its address; without, --name or --all says which.
        #[arg(required_unless_present_any = ["name", "all"])]
        ip: Option<String>,
        /// Its port.
        #[arg(long, value_name = "PORT", required_unless_present_any = ["name", "all"])]
        tcp: Option<u16>,
        /// Its host.
        #[arg(long)]
        host: Option<String>,
        /// Its model, where several rules share the address.
        #[arg(long)]
        model_name: Option<String>,
        /// Its name.
        #[arg(long, conflicts_with_all = ["ip", "all"])]
        name: Option<String>,
        /// All rules.
        #[arg(long, conflicts_with = "ip")]
        all: bool,
    },
    /// The probe of a host.
    Endpoint {
        /// The host's address.
        ip: String,
        /// Its name, type or port, where it has several probes.
        #[arg(long)]
        name: Option<String>,
        /// tcp, http or none.
        #[arg(long)]
        probetype: Option<String>,
        /// Where it is probed.
        #[arg(long)]
        probeport: Option<u16>,
    },
}

/// A probed host.
#[derive(Args, Clone, Debug)]
pub struct HostArgs {
    /// Its address.
    pub ip: String,
    /// Its name.
    #[arg(long)]
    pub name: Option<String>,
    /// tcp, http or none.
    #[arg(long)]
    pub probetype: Option<String>,
    /// Where it is probed; without, at the port of each endpoint.
    #[arg(long)]
    pub probeport: Option<u16>,
    /// Path of an HTTP probe.
    #[arg(long)]
    pub probereq: Option<String>,
    /// Text that its answer must contain.
    #[arg(long)]
    pub proberesp: Option<String>,
    /// Seconds between two probes.
    #[arg(long)]
    pub period: Option<u32>,
    /// Failed probes in a row that take its endpoints out.
    #[arg(long)]
    pub retries: Option<u32>,
}

/// Creates.
pub fn create(client: &Client, verb: &CreateVerb, printer: &mut Printer) -> Result<(), CtlFault> {
    match verb {
        CreateVerb::Lb(args) => done(client, "POST", RULES, &args.body.to_string(), printer),
        CreateVerb::Endpoint(args) => done(client, "POST", HOSTS, &host(args).to_string(), printer),
        CreateVerb::Persist => done(client, "POST", "/netlox/v1/config/persist", "", printer),
        CreateVerb::Restore { file, commit } => restore(client, file, *commit, printer),
    }
}

/// Gets.
pub fn get(client: &Client, verb: &GetVerb, printer: &mut Printer) -> Result<(), CtlFault> {
    match verb {
        GetVerb::Lb => super::list(client, printer),
        GetVerb::Endpoint => printer.answer(&client.get(&format!("{HOSTS}/all"))?, show::hosts),
        GetVerb::Kvinventory { service_id, ep_idx } => {
            let path = format!(
                "/netlox/v1/config/ai/kv/inventory?service_id={service_id}&ep_idx={ep_idx}&limit=100000"
            );
            printer.json(&client.get(&path)?)
        }
        GetVerb::Ready => super::ready(client, printer),
        GetVerb::Capabilities => {
            printer.answer(&client.get("/netlox/v1/status/capabilities")?, show::capabilities)
        }
        GetVerb::Diagnostics => printer.json(&client.get("/netlox/v1/diagnostics")?),
        GetVerb::Metrics => printer.text(&client.text("/netlox/v1/metrics")?),
        GetVerb::Snapshot => printer.json(&client.get("/netlox/v1/config/snapshot")?),
        GetVerb::Params => printer.json(&client.get("/netlox/v1/config/params")?),
    }
}

/// Switches.
pub fn set(client: &Client, verb: &SetVerb, printer: &mut Printer) -> Result<(), CtlFault> {
    let SetVerb::Metrics { enable, .. } = verb;
    let method = if *enable { "POST" } else { "DELETE" };
    done(client, method, "/netlox/v1/config/metrics", "", printer)
}

/// Deletes.
pub fn delete(client: &Client, verb: &DeleteVerb, printer: &mut Printer) -> Result<(), CtlFault> {
    let path = match verb {
        DeleteVerb::Lb { all: true, .. } => format!("{RULES}/all"),
        DeleteVerb::Lb { name: Some(name), .. } => format!("{RULES}/name/{}", encoded(name)),
        DeleteVerb::Lb { ip, tcp, host, model_name, .. } => {
            let host = host.iter().map(|host| format!("/hosturl/{}", encoded(host))).collect::<String>();
            let ip = encoded(ip.as_deref().unwrap_or(""));
            let place = format!("externalipaddress/{ip}/port/{}/protocol/tcp", tcp.unwrap_or(0));
            format!("{RULES}{host}/{place}{}", query(&[("model_name", model_name.clone())]))
        }
        DeleteVerb::Endpoint { ip, name, probetype, probeport } => {
            let members = [
                ("name", name.clone()),
                ("probe_type", probetype.clone()),
                ("probe_port", probeport.map(|port| port.to_string())),
            ];
            format!("{HOSTS}/epipaddress/{}{}", encoded(ip), query(&members))
        }
    };
    done(client, "DELETE", &path, "", printer)
}

/// The bodies that were applied of a rule.
pub fn history(client: &Client, rule: &str, printer: &mut Printer) -> Result<(), CtlFault> {
    let answer = client.get(&format!("{RULES}/id/{}/history", id_of(client, rule)?))?;
    printer.answer(&answer, show::history)
}

/// Applies one of them again, or tells what that would change.
pub fn rollback(
    client: &Client,
    rule: &str,
    number: u64,
    commit: bool,
    printer: &mut Printer,
) -> Result<(), CtlFault> {
    let mode = if commit { "commit" } else { "dry-run" };
    let id = id_of(client, rule)?;
    let path = format!("{RULES}/id/{id}/rollback?number={number}&mode={mode}");
    let (status, answer) = client.call("POST", &path, "")?;
    printer.answer(&accepted(status, answer)?, show::rollback)
}

/// Writes all rules as one document to a file, or to the output.
pub fn save(client: &Client, file: Option<&Path>, printer: &mut Printer) -> Result<(), CtlFault> {
    let snapshot = client.get("/netlox/v1/config/snapshot")?;
    let Some(file) = file else { return printer.json(&snapshot) };
    std::fs::write(file, format!("{snapshot:#}\n"))
        .map_err(|e| format!("{} can't be written: {e}", file.display()))?;
    printer.said(&format!("saved to {}", file.display()))
}

fn restore(client: &Client, file: &Path, commit: bool, printer: &mut Printer) -> Result<(), CtlFault> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| format!("{} can't be read: {e}; name a saved snapshot", file.display()))?;
    let mode = if commit { "commit" } else { "dry-run" };
    let (status, answer) = client.call("POST", &format!("/netlox/v1/config/restore?mode={mode}"), &text)?;
    printer.answer(&accepted(status, answer)?, show::restore)
}

/// The id of a rule by its name or id, as it stands in a path.
fn id_of(client: &Client, rule: &str) -> Result<String, CtlFault> {
    let found = super::named(client, "GET", rule)?;
    let id = found["serviceArguments"]["id"].as_str().unwrap_or(rule);
    Ok(encoded(id).to_string())
}

fn done(
    client: &Client,
    method: &str,
    path: &str,
    body: &str,
    printer: &mut Printer,
) -> Result<(), CtlFault> {
    let (status, answer) = client.call(method, path, body)?;
    accepted(status, answer)?;
    printer.said("done")
}

fn host(args: &HostArgs) -> Value {
    let mut host = Map::new();
    host.insert("hostName".into(), json!(args.ip));
    for (name, value) in [
        ("name", args.name.as_ref().map(|v| json!(v))),
        ("probeType", args.probetype.as_ref().map(|v| json!(v))),
        ("probePort", args.probeport.map(|v| json!(v))),
        ("probeReq", args.probereq.as_ref().map(|v| json!(v))),
        ("probeResp", args.proberesp.as_ref().map(|v| json!(v))),
        ("probeDuration", args.period.map(|v| json!(v))),
        ("inactiveReTries", args.retries.map(|v| json!(v))),
    ] {
        host.extend(value.map(|value| (name.to_string(), value)));
    }
    Value::Object(host)
}

fn query(members: &[(&str, Option<String>)]) -> String {
    let given = members.iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
    let pairs: Vec<String> = given.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}
