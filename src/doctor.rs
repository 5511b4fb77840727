//! The verb `doctor`: would exact routing work with this engine, or with all engines of a rule, and if not, what is
//! to be set where. Owns its arguments, which endpoints are looked at, and the exit; what is found out is in its folder.

mod alike;
pub mod ask;
mod blocks;
mod launch;
mod legs;
mod look;
mod naming;
mod publisher;
mod row;
mod show;
mod text;
mod wanted;

use clap::{Args, ValueEnum};
use look::Settings;
use row::Report;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;
use wanted::{Files, Wanted};
use warmpath_admin::RulesFile;
use warmpath_core::engine::{Algo, Engine};
use warmpath_core::environment::Environment;

/// Arguments of `doctor`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warmpath doctor --endpoint http://10.0.0.5:8000 --kind vllm --model Qwen/Qwen3-0.6B \\
    --tokenizer /etc/loxilb/tokenizers/Qwen__Qwen3-0.6B/tokenizer.json
  LLB_KV_NONE_HASH_SEED=0 warmpath doctor --rule rules.json
  warmpath doctor --rule rules.json -o json | jq '.endpoints[] | select(.exact_routing_works | not)'

Prompts of a few hundred tokens are sent to the engine, each new to its cache, and what its events tell of their
blocks is compared with what the gateway would expect under the rule; without --rule, under one that says what the
arguments say and elsewhere what a rule means by itself. Where they differ, what the engine may have been started
with is tried, and the cure is told for both sides. The seed is that of this process's environment: run it with the
LLB_KV_NONE_HASH_SEED of the gateway.

Each leg is equal, not_equal or not_run. It exits with 0 only if none is not_equal and those that prompts of token
ids need were all tried. An engine that connects to the gateway (kvZmqBind) can be looked at only while no gateway
listens there; the events of TensorRT-LLM only with --destructive, which takes them from a gateway.")]
pub struct DoctorArgs {
    /// The engine's port, as http://HOST:PORT
    #[arg(long, value_name = "URL", required_unless_present = "rule", conflicts_with = "rule")]
    endpoint: Option<String>,
    /// Kind of engine: vllm, sglang, trtllm, llamacpp
    #[arg(long, default_value = "vllm", value_parser = engine, conflicts_with = "rule")]
    kind: Engine,
    /// Model that is served [default: the engine's first]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true, conflicts_with = "rule")]
    model: String,
    /// Its tokenizer.json, or the folder of its files
    #[arg(long, value_name = "FILE", conflicts_with = "config_root")]
    tokenizer: Option<PathBuf>,
    /// Where tokenizers/MODEL/tokenizer.json is found, as for `serve`
    #[arg(long, value_name = "DIR", default_value = "/etc/loxilb")]
    config_root: PathBuf,
    /// Where it publishes, as tcp://HOST:PORT, or tcp://*:PORT if it connects to the gateway [default: as it tells]
    #[arg(long, value_name = "ADDRESS", value_parser = place, conflicts_with = "rule")]
    events: Option<Place>,
    /// Where it replays, as tcp://HOST:PORT [default: as it tells]
    #[arg(long, value_name = "ADDRESS", value_parser = place, conflicts_with = "rule")]
    replay: Option<Place>,
    /// Block hash, as in a rule's kvHashAlgo [default: what a rule of this kind means without one]
    #[arg(long, value_parser = algo, conflicts_with = "rule")]
    algo: Option<Algo>,
    /// Version that the rule names, as in its kvEngineVersion
    #[arg(long, value_name = "VERSION", conflicts_with = "rule")]
    engine_version: Option<String>,
    /// Tokens in a block, as in a rule's kvBlockSize [default: 16; trtllm 32]
    #[arg(long, value_name = "N", conflicts_with = "rule")]
    block_size: Option<u32>,
    /// Data-parallel ranks, as in a rule's kvDpRankCount [default: 1]
    #[arg(long, value_name = "N", conflicts_with = "rule")]
    ranks: Option<u32>,
    /// Look at every endpoint of every exact rule of this file, and compare those of one rule
    #[arg(long, value_name = "FILE")]
    rule: Option<PathBuf>,
    /// Take events although nobody else will then get them (trtllm)
    #[arg(long)]
    destructive: bool,
    /// Seconds that a connection and an event may take
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    patience: f64,
    /// How to print
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Form::Table)]
    output: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Table,
    Json,
}

/// A port of events, and who listens there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    host: String,
    port: u16,
    /// The gateway listens, and the engine connects.
    is_ours: bool,
}

fn engine(text: &str) -> Result<Engine, String> {
    let names: Vec<&str> = Engine::ALL.iter().map(|engine| engine.name()).collect();
    Engine::from_name(text).ok_or_else(|| format!("allowed are {}", names.join(", ")))
}

fn algo(text: &str) -> Result<Algo, String> {
    Algo::from_name(text).ok_or_else(|| format!("allowed are {}", Algo::ALL.map(Algo::name).join(", ")))
}

fn place(text: &str) -> Result<Place, String> {
    let wrong = || "write it as tcp://HOST:PORT, with a port from 1 to 65535".to_owned();
    let (host, port) =
        text.strip_prefix("tcp://").and_then(|rest| rest.rsplit_once(':')).ok_or_else(wrong)?;
    let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
    if host.is_empty() {
        return Err(wrong());
    }
    let is_ours = matches!(host, "*" | "[::]" | "0.0.0.0");
    Ok(Place { host: host.trim_matches(['[', ']']).to_owned(), port, is_ours })
}

/// Looks, prints, and fails if exact routing would not work.
pub fn run(args: &DoctorArgs) -> Result<(), String> {
    let patience = Duration::try_from_secs_f64(args.patience).ok().filter(|patience| !patience.is_zero());
    let patience = patience.ok_or_else(|| format!("--patience {}: must be seconds over 0", args.patience))?;
    let settings = Settings { patience, destructive: args.destructive };
    let all = all(args, &environment())?;
    let mut reports: Vec<Report> = all.iter().map(|wanted| legs::report(wanted, &settings)).collect();
    alike::compare(&mut reports);
    match args.output {
        Form::Table => println!("{}", show::table(&reports)),
        Form::Json => println!("{}", show::json(&reports)),
    }
    verdict(&reports)
}

/// The gateway's own reading of the environment.
fn environment() -> Environment {
    let get = |name: &str| std::env::var_os(name)?.into_string().ok();
    Environment::read(get, crate::serve::random()).0
}

/// Every endpoint that is to be looked at.
fn all(args: &DoctorArgs, environment: &Environment) -> Result<Vec<Wanted>, String> {
    let files = match &args.tokenizer {
        Some(path) => Files::One(path.clone()),
        None => Files::Root(args.config_root.clone()),
    };
    let Some(path) = &args.rule else {
        let endpoint = address(args.endpoint.as_deref().unwrap_or_default())?;
        for place in [&args.events, &args.replay].into_iter().flatten() {
            check_host(place, endpoint)?;
        }
        return wanted::of_body(&wanted::body(args, endpoint), environment, &files);
    };
    let file = RulesFile::read(path)?;
    let asks = |body: &&serde_json::Value| {
        !matches!(body["serviceArguments"]["kvExactMode"].as_u64(), None | Some(0))
    };
    let exact: Vec<_> = file.bodies.iter().filter(asks).collect();
    if exact.is_empty() {
        return Err(format!("{}: no rule asks for exact routing; give one \"kvExactMode\": 3", file.name));
    }
    let of = |body: &serde_json::Value| {
        wanted::of_body(body, environment, &files).map_err(|why| format!("{}: {why}", file.name))
    };
    exact.into_iter().map(of).collect::<Result<Vec<_>, _>>().map(|wanted| wanted.concat())
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    let wrong = |why: &str| format!("--endpoint {text:?}: {why}; write it as http://HOST:PORT");
    if bare.contains('/') {
        return Err(wrong("a path, or another scheme than http"));
    }
    let mut found = bare.to_socket_addrs().map_err(|fault| wrong(&fault.to_string()))?;
    found.next().ok_or_else(|| wrong("the name has no address"))
}

/// The gateway dials the engine's events at its endpoint's own address.
fn check_host(place: &Place, endpoint: SocketAddr) -> Result<(), String> {
    let at = (place.host.as_str(), place.port).to_socket_addrs();
    if place.is_ours || at.is_ok_and(|mut at| at.any(|at| at.ip() == endpoint.ip())) {
        return Ok(());
    }
    Err(format!(
        "tcp://{}:{} is not at {}, where the gateway dials this engine's events; let the engine publish at tcp://*:{}",
        place.host,
        place.port,
        endpoint.ip(),
        place.port
    ))
}

fn verdict(reports: &[Report]) -> Result<(), String> {
    let failing: Vec<String> = reports
        .iter()
        .filter_map(|report| {
            let legs: Vec<&str> = report.in_the_way().map(row::Leg::word).collect();
            (!legs.is_empty()).then(|| format!("{}: {}", report.endpoint, legs.join(", ")))
        })
        .collect();
    if failing.is_empty() {
        Ok(())
    } else {
        Err(format!("exact routing would not work for {}", failing.join("; ")))
    }
}

#[cfg(test)]
mod tests;
