//! The verb `events`: what engines say of their KV caches, live or from a capture. Owns its arguments; must
//! never decode or order events itself, which is the crate `events`' work.

mod anomaly;
mod capture;
mod drained;
mod inventory;
mod line;
mod poll_drain;
mod print;
mod replay;
mod tail;
mod watcher;

use clap::{Args, Subcommand, ValueEnum};
use std::fmt;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;
use warmpath_events::wire::HashBytes;

/// Arguments of `events`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warmpath events tail tcp://10.0.0.5:5557 --replay tcp://10.0.0.5:5558
  warmpath events replay capture.jsonl --keys 4")]
pub struct EventsArgs {
    #[command(subcommand)]
    deed: Deed,
}

#[derive(Subcommand, Debug)]
enum Deed {
    /// Show an engine's events as they come, with gaps and whatever else is not in order
    Tail(TailArgs),
    /// Tell which blocks a capture leaves in the cache, and what was not in order
    Replay(ReplayArgs),
}

/// Arguments of `events tail`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warmpath events tail tcp://10.0.0.5:5557
  warmpath events tail tcp://10.0.0.5:5557 --replay tcp://10.0.0.5:5558 --topic kv-events
  warmpath events tail tcp://10.0.0.5:5557 --json --for 60 | jq -r 'select(.what == \"anomaly\").text'
  warmpath events tail --kind trtllm --endpoint http://10.0.0.5:8000 --destructive --count 10

ADDRESS is the endpoint of the engine's --kv-events-config, with the engine's host for *, and
the rank added to the port. Listening there takes nothing from anybody. With --replay, the
history that the engine still has comes first and gaps are filled, as the gateway does it.

TensorRT-LLM gives each event away once: whoever reads steals from the gateway, which then has
to clear what it knows of this engine. So --kind trtllm asks for --destructive, and shows all
events of the last answer even if --count is passed by them.")]
pub struct TailArgs {
    /// The engine's event publisher (vllm, sglang)
    #[arg(value_name = "ADDRESS", value_parser = tcp)]
    #[arg(required_unless_present = "endpoint", conflicts_with = "endpoint")]
    address: Option<HostPort>,
    /// The engine's replay socket
    #[arg(long, value_name = "ADDRESS", value_parser = tcp, conflicts_with = "endpoint")]
    replay: Option<HostPort>,
    /// Take only messages whose topic begins like this
    #[arg(long, default_value = "", hide_default_value = true)]
    topic: String,
    /// Kind of engine
    #[arg(long, value_enum, default_value_t = Kind::Vllm)]
    kind: Kind,
    /// The engine's HTTP address (trtllm), as http://HOST:PORT
    #[arg(long, value_parser = http)]
    endpoint: Option<HostPort>,
    /// Read events although nobody else will then get them (trtllm)
    #[arg(long)]
    destructive: bool,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
    /// End after so many events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after so many seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    time: Option<Duration>,
}

/// Arguments of `events replay`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warmpath events replay capture.jsonl
  warmpath events replay capture.jsonl --keys 0 --strict
  warmpath events replay drained.json --json | jq '.publishers[].inventory[].blocks'

A capture has one JSON object a line. A batch is
  {\"topic\": \"kv\", \"seq\": 7, \"payload_hex\": \"93cb41…\"}
as it came from the socket; \"endpoint\" tells publishers of one topic apart. Objects without
payload_hex and seq are passed over. An answer of TensorRT-LLM's /kv_cache_events, bare or as
the member kv_cache_events of an object, counts too, on one line or as the whole file.

Batches are taken in the order of the file, as the gateway takes them from an engine without a
replay socket: a gap, a sequence that goes back and a batch that can't be decoded each clear
what was known of the publisher. A block stored twice need not be a fault: vLLM does it where a
hit stops one block short.")]
pub struct ReplayArgs {
    /// The capture
    file: PathBuf,
    /// Kind of engine: which 8 bytes name a block whose hash is a byte string
    #[arg(long, value_enum, default_value_t = Zmq::Vllm)]
    kind: Zmq,
    /// Keys to print of each row, in ascending order [default: all]
    #[arg(long, value_name = "N")]
    keys: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Fail if anything was not in order
    #[arg(long)]
    strict: bool,
}

/// Engines whose events can be shown live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Vllm,
    Sglang,
    Trtllm,
}

/// Engines that publish over ZeroMQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Zmq {
    Vllm,
    Sglang,
}

impl Zmq {
    fn naming(self) -> HashBytes {
        match self {
            Zmq::Vllm => HashBytes::Last,
            Zmq::Sglang => HashBytes::First,
        }
    }
}

/// A host and a port, as they stand in an address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HostPort(String);

impl HostPort {
    /// Tries each address of the name, `patience` long.
    fn dial(&self, patience: Duration) -> io::Result<TcpStream> {
        let mut fault = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for at in self.0.to_socket_addrs()? {
            match TcpStream::connect_timeout(&at, patience) {
                Ok(stream) => return Ok(stream),
                Err(refused) => fault = refused,
            }
        }
        Err(fault)
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn tcp(text: &str) -> Result<HostPort, String> {
    host_port(text, "tcp://")
}

fn http(text: &str) -> Result<HostPort, String> {
    host_port(text.strip_suffix('/').unwrap_or(text), "http://")
}

fn host_port(text: &str, scheme: &str) -> Result<HostPort, String> {
    let rest = text.strip_prefix(scheme).ok_or_else(|| format!("write it as {scheme}HOST:PORT"))?;
    match rest.rsplit_once(':') {
        Some(("*" | "[::]" | "0.0.0.0", _)) => {
            Err("the engine listens on all its addresses; name one of them".into())
        }
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) => {
            Ok(HostPort(rest.to_owned()))
        }
        _ => Err(format!("write it as {scheme}HOST:PORT, with a port from 1 to 65535")),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds <= 1e9);
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "allowed are seconds over 0, as 60 or 0.5".into())
}

/// Runs it. Ends the process with 2 where the flags don't fit each other.
pub fn run(args: &EventsArgs) -> Result<(), String> {
    match &args.deed {
        Deed::Replay(args) => replay::run(args),
        Deed::Tail(args) => match deed(args) {
            Ok(Tail::Published(wanted)) => tail::run(&wanted),
            Ok(Tail::Drained(wanted)) => poll_drain::run(&wanted),
            Err(sentence) => {
                clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, format!("{sentence}\n")).exit()
            }
        },
    }
}

/// What `events tail` was asked for.
#[derive(Debug)]
enum Tail {
    Published(tail::Wanted),
    Drained(poll_drain::Wanted),
}

/// How much to show, and how.
#[derive(Clone, Copy, Debug)]
struct Extent {
    json: bool,
    count: Option<u64>,
    time: Option<Duration>,
}

fn deed(args: &TailArgs) -> Result<Tail, String> {
    let extent = Extent { json: args.json, count: args.count, time: args.time };
    let kind = match args.kind {
        Kind::Trtllm => return drained(args, extent).map(Tail::Drained),
        Kind::Vllm => Zmq::Vllm,
        Kind::Sglang => Zmq::Sglang,
    };
    match &args.address {
        Some(address) if !args.destructive => Ok(Tail::Published(tail::Wanted {
            address: address.clone(),
            replay: args.replay.clone(),
            topic: args.topic.clone(),
            naming: kind.naming(),
            extent,
        })),
        _ => Err("--endpoint and --destructive are for --kind trtllm; \
                  other engines publish: give the ADDRESS of the publisher, as tcp://HOST:PORT"
            .into()),
    }
}

fn drained(args: &TailArgs, extent: Extent) -> Result<poll_drain::Wanted, String> {
    let Some(endpoint) = args.endpoint.clone().filter(|_| args.replay.is_none()) else {
        return Err(
            "--kind trtllm has no publisher; give its HTTP address with --endpoint http://HOST:PORT \
                    and nothing else"
                .into(),
        );
    };
    if !args.destructive {
        return Err(format!(
            "POST http://{endpoint}/kv_cache_events is a destructive read: each event goes to one reader, and \
             a gateway that drains this engine loses it and must clear what it knows; if that is wanted, say \
             --destructive"
        ));
    }
    Ok(poll_drain::Wanted { endpoint, extent })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        events: EventsArgs,
    }

    fn refusal(words: &str) -> String {
        let cli = match Cli::try_parse_from(std::iter::once("events").chain(words.split(' '))) {
            Ok(cli) => cli,
            Err(fault) => return fault.to_string(),
        };
        match cli.events.deed {
            Deed::Tail(args) => deed(&args).expect_err("a refusal"),
            Deed::Replay(_) => panic!("{words} is accepted"),
        }
    }

    #[test]
    fn flags_that_do_not_fit_are_refused_with_the_cure() {
        for (words, part) in [
            ("tail", "ADDRESS"),
            ("tail 10.0.0.5:5557", "write it as tcp://HOST:PORT"),
            ("tail tcp://*:5557", "name one of them"),
            ("tail tcp://a:0", "a port from 1 to 65535"),
            ("tail tcp://a:1 --replay http://a:2", "write it as tcp://HOST:PORT"),
            ("tail tcp://a:1 --for 0", "allowed are seconds over 0"),
            ("tail tcp://a:1 --for inf", "allowed are seconds over 0"),
            ("tail tcp://a:1 --count 0", "0 is not in 1.."),
            ("tail tcp://a:1 --destructive", "are for --kind trtllm"),
            ("tail --endpoint http://a:1", "are for --kind trtllm"),
            ("tail tcp://a:1 --kind trtllm", "--endpoint http://HOST:PORT"),
            ("tail --kind trtllm --endpoint http://a:1", "say --destructive"),
            ("tail --kind trtllm --endpoint https://a:1 --destructive", "write it as http://HOST:PORT"),
            ("tail tcp://a:1 --kind llamacpp", "possible values: vllm, sglang, trtllm"),
            ("replay f --keys x", "invalid digit"),
        ] {
            let told = refusal(words);
            assert!(told.contains(part), "{words}: {told}");
        }
    }
}
