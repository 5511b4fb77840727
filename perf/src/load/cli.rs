//! The command line of `warmpath bench`: arguments to a `Plan`, the run, the report on standard
//! output. Must never load a machine other than this one.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::bodies::{Bodies, Shape};
use super::{Pace, Plan, run};
use crate::Error;

const EXAMPLES: &str = "\
Examples:
  Sixteen connections for ten seconds, streamed answers:
    warmpath bench --url http://127.0.0.1:8080 --model llama --stream

  Conversations of six turns that grow to 32 KB, 64 connections, a minute:
    warmpath bench --url http://127.0.0.1:8080 --model llama --connections 64 --turns 6 --size 32768 --duration 60

  200 requests a second whatever the answers do, as JSON:
    warmpath bench --url http://127.0.0.1:8080 --model llama --rate 200 --json

  Bodies of your own, one JSON object a line:
    warmpath bench --url http://127.0.0.1:8080 --bodies bodies.jsonl --requests 1000

Every answer is checked to its last byte; the exit status is 1 when a request failed.";

/// Load a gateway or engine on this machine and measure first-token, end-to-end and inter-token time.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    /// Where to send requests; loopback only
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// Connections of the closed loop
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub connections: usize,
    /// Open loop: requests a second; latency counts from each request's due time
    #[arg(long, value_name = "N", conflicts_with = "connections")]
    pub rate: Option<f64>,
    /// Seconds in which requests are started
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    pub duration: f64,
    /// Most requests started
    #[arg(long, value_name = "N")]
    pub requests: Option<u64>,
    /// Ask for streamed answers
    #[arg(long)]
    pub stream: bool,
    /// Use /v1/completions instead of /v1/chat/completions
    #[arg(long)]
    pub completions: bool,
    /// Model name in generated bodies
    #[arg(long, default_value = "sim")]
    pub model: String,
    /// Bytes of text in a conversation's last turn
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    pub size: usize,
    /// Turns of a conversation; each sends the earlier ones again
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub turns: u64,
    /// max_tokens in generated bodies
    #[arg(long, value_name = "N")]
    pub max_tokens: Option<u64>,
    /// A file of bodies, one JSON object a line, instead of generated ones
    #[arg(long, value_name = "FILE", conflicts_with_all = ["stream", "model", "size", "turns", "max_tokens"])]
    pub bodies: Option<PathBuf>,
    /// Seed of generated bodies
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Seconds after which a request has failed
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    pub timeout: f64,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

impl BenchArgs {
    /// The plan these arguments mean; the error names the argument and what is allowed.
    pub fn plan(&self) -> Result<Plan, Error> {
        let pace = match self.rate {
            Some(rate) if (0.001..=1_000_000.0).contains(&rate) => Pace::Open { rate },
            Some(rate) => return Err(Error::new(format!("--rate is {rate}; give 0.001 to 1000000"))),
            None if (1..=60_000).contains(&self.connections) => {
                Pace::Closed { connections: self.connections }
            }
            None => {
                return Err(Error::new(format!("--connections is {}; give 1 to 60000", self.connections)));
            }
        };
        if self.turns == 0 || self.turns > 1000 {
            return Err(Error::new(format!("--turns is {}; give 1 to 1000", self.turns)));
        }
        let bodies = match &self.bodies {
            Some(file) => Bodies::read(file)?,
            None => Bodies::Generated(self.shape()),
        };
        Ok(Plan {
            target: target(&self.url)?,
            path: if self.completions { "/v1/completions" } else { "/v1/chat/completions" }.into(),
            pace,
            duration: seconds("--duration", self.duration)?,
            requests: self.requests,
            bodies,
            timeout: seconds("--timeout", self.timeout)?,
            id_prefix: format!("bench-{}-", self.seed),
            progress: true,
        })
    }

    fn shape(&self) -> Shape {
        Shape {
            chat: !self.completions,
            model: self.model.clone(),
            size: self.size,
            turns: self.turns,
            max_tokens: self.max_tokens,
            stream: self.stream,
            seed: self.seed,
        }
    }
}

fn seconds(name: &str, value: f64) -> Result<Duration, Error> {
    if !(0.001..=86_400.0).contains(&value) {
        return Err(Error::new(format!("{name} is {value}; give seconds from 0.001 to 86400")));
    }
    Ok(Duration::from_secs_f64(value))
}

/// The loopback address that an URL names. Names are resolved; one with any other address is refused.
pub fn target(url: &str) -> Result<SocketAddr, Error> {
    let rest = url.strip_prefix("http://").ok_or_else(|| {
        Error::new(format!("--url is {url}; give http://HOST:PORT, other schemes are not supported"))
    })?;
    let authority = rest.trim_end_matches('/');
    if authority.contains('/') {
        return Err(Error::new(format!("--url is {url}; give it without a path, see --completions")));
    }
    let bare = authority.rfind(':').is_none_or(|at| authority[at..].contains(']'));
    let authority = if bare { format!("{authority}:80") } else { authority.to_owned() };
    let addrs: Vec<SocketAddr> = authority
        .to_socket_addrs()
        .map_err(|e| Error::new(format!("--url names {authority}, which has no address ({e}); check it")))?
        .collect();
    if let Some(other) = addrs.iter().find(|addr| !addr.ip().is_loopback()) {
        return Err(Error::new(format!(
            "--url leads to {}, which is not a loopback address; bench only loads this machine, use 127.0.0.1 or ::1",
            other.ip()
        )));
    }
    let first = addrs.iter().find(|addr| addr.is_ipv4()).or(addrs.first());
    first
        .copied()
        .ok_or_else(|| Error::new(format!("--url names {authority}, which has no address; check it")))
}

/// Runs the load and prints its report; an error when a request failed.
pub fn run_bench(args: BenchArgs) -> Result<(), Error> {
    let report = run(args.plan()?)?;
    if args.json {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|e| Error::new(format!("the report could not be written as JSON ({e})")))?;
        println!("{text}");
    } else {
        print!("{report}");
    }
    match report.failed {
        0 => Ok(()),
        failed => Err(Error::new(format!(
            "{failed} of {} requests failed; the report counts them by kind, the server's log may say why",
            failed + report.good
        ))),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn plan(line: &str) -> Result<Plan, Error> {
        Cli::try_parse_from(format!("bench {line}").split_whitespace()).expect("known arguments").args.plan()
    }

    #[test]
    fn a_rate_makes_the_loop_open() {
        assert_eq!(plan("").unwrap().pace, Pace::Closed { connections: 16 });
        assert_eq!(plan("--rate 2.5").unwrap().pace, Pace::Open { rate: 2.5 });
        assert_eq!(plan("--completions").unwrap().path, "/v1/completions");
    }

    #[test]
    fn values_out_of_range_are_told_by_name() {
        for line in
            ["--rate 0", "--connections 0", "--turns 0", "--duration 0", "--timeout nan", "--bodies /nowhere"]
        {
            let told = plan(line).unwrap_err().to_string();
            assert!(told.contains(line.split(' ').next().unwrap()), "{told}");
        }
    }

    #[test]
    fn a_bad_line_of_bodies_is_told_with_its_place() {
        let file = std::env::temp_dir().join(format!("bodies-{}.jsonl", std::process::id()));
        std::fs::write(&file, "{\"stream\":true}\n\n{\"a\":}\n").unwrap();
        let told = Bodies::read(&file).unwrap_err().to_string();
        std::fs::remove_file(&file).unwrap();
        assert!(told.contains("line 3 column 6"), "{told}");
    }

    #[test]
    fn only_loopback_urls_are_targets() {
        assert_eq!(target("http://127.0.0.1:81/").unwrap().to_string(), "127.0.0.1:81");
        assert_eq!(target("http://[::1]:82").unwrap().to_string(), "[::1]:82");
        assert_eq!(target("http://[::1]").unwrap().port(), 80);
        assert_eq!(target("http://127.0.0.1").unwrap().port(), 80);
        for (url, word) in [
            ("http://192.0.2.1:80", "loopback"),
            ("https://127.0.0.1:80", "http://"),
            ("http://127.0.0.1:80/v1", "path"),
            ("http://127.0.0.1:x", "no address"),
        ] {
            let told = target(url).unwrap_err().to_string();
            assert!(told.contains(word), "{told}");
        }
    }
}
