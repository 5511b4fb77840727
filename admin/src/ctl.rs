//! `warmpath ctl`: the operator's client of a running gateway, over its unix socket. Owns the verbs and what
//! they print; must never report a refused change as done (a refusal is an `Err`, hence exit code 1).

mod client;
mod explain;
mod follow;
mod kv;
mod lb;
mod service;
mod show;
mod verbs;

use crate::access;
use crate::rules_file::RulesFile;
use crate::run::{DEFAULT_ADMIN, DEFAULT_SOCKET};
use clap::{Args, Subcommand, ValueEnum};
use client::Client;
use follow::{Follow, RECEIPTS};
use serde_json::Value;
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

/// How often new receipts are asked for.
const POLL_EACH: Duration = Duration::from_millis(500);

/// Look into a running gateway and change its rules.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  warmpath ctl rules apply -f rules.json     create or replace rules, all or none
  warmpath ctl rules list                    rules in force
  warmpath ctl rules delete chat             delete the rule named chat
  warmpath ctl receipts -f                   which endpoint serves what, and why, as it happens
  warmpath ctl explain                       what was known when an endpoint was chosen
  warmpath ctl kv                            what is known of the engines' KV caches
  warmpath ctl create lb 127.0.0.1 --tcp=8080:8000 --endpoints=127.0.0.1:1 --name=chat
  warmpath ctl history chat                  its last changes; rollback chat 3 tells what going back would change
  warmpath ctl ready && echo ready           exit code 1 while the gateway is not ready")]
pub struct CtlArgs {
    /// The gateway's control socket.
    #[arg(long, global = true, default_value = DEFAULT_SOCKET, value_name = "PATH")]
    pub socket: PathBuf,
    /// Ask over TCP, at this host, instead of the socket.
    #[arg(short, long, global = true, value_name = "HOST")]
    pub server: Option<String>,
    /// The port of its admin API.
    #[arg(short, long, global = true, value_name = "PORT", default_value_t = DEFAULT_ADMIN.port())]
    pub port: u16,
    /// A file that holds the token it asks for.
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// How to print.
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// How answers are printed.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// For people.
    Table,
    /// For people with wide screens.
    Wide,
    /// The gateway's own JSON.
    Json,
}

/// What to do.
#[derive(Subcommand, Clone, Debug)]
pub enum Verb {
    /// List, show, apply or delete rules.
    Rules {
        /// Which.
        #[command(subcommand)]
        verb: RulesVerb,
    },
    /// Whether requests are welcome; exit code 1 if not.
    Ready,
    /// What each shard is doing.
    Shards,
    /// What is known of the engines' KV caches.
    Kv(kv::KvArgs),
    /// Begin or end maintenance, or tell what still runs.
    Maintenance(service::MaintenanceArgs),
    /// Take hosts of endpoints out of service, and back.
    Endpoint {
        /// What.
        #[command(subcommand)]
        verb: service::EndpointVerb,
    },
    /// The models whose text can be tokenized, and what is wrong with them.
    Models,
    /// Where the last requests went, and why: overlap, prediction, who was passed over.
    Explain(explain::ExplainArgs),
    /// Create a rule, a probed host; persist, restore.
    Create {
        /// What.
        #[command(subcommand)]
        verb: verbs::CreateVerb,
    },
    /// Get rules, probed hosts, state.
    Get {
        /// What.
        #[command(subcommand)]
        verb: verbs::GetVerb,
    },
    /// Switch metrics.
    Set {
        /// What.
        #[command(subcommand)]
        verb: verbs::SetVerb,
    },
    /// Delete a rule, a probed host.
    Delete {
        /// What.
        #[command(subcommand)]
        verb: verbs::DeleteVerb,
    },
    /// The bodies that were applied of a rule, the last ten; with -o json to the letter.
    History {
        /// Its name or id.
        rule: String,
    },
    /// Apply one of them again; without --commit it only tells what would change.
    Rollback {
        /// Its name or id.
        rule: String,
        /// The number of the change, as `history` tells it.
        number: u64,
        /// Do it.
        #[arg(long)]
        commit: bool,
    },
    /// Write all rules as one document, which `create restore` takes.
    Save {
        /// To this file instead of the output.
        file: Option<PathBuf>,
    },
    /// Create or replace the rules of a file, as `rules apply` does.
    Apply {
        /// A JSON array of rule bodies, one body, or TOML `[[rule]]` tables.
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Make a token, and the line that lets it in; the gateway is not asked.
    Token {
        /// Whose it is, one word.
        name: String,
    },
    /// The last requests: status, endpoint, reason, model, times.
    Receipts {
        /// Go on and print new ones as they come.
        #[arg(short, long)]
        follow: bool,
        /// How many to begin with.
        #[arg(long, default_value_t = 20, value_name = "N")]
        last: u64,
    },
}

/// What to do with rules.
#[derive(Subcommand, Clone, Debug)]
pub enum RulesVerb {
    /// All rules.
    List,
    /// One rule, as JSON that can be applied again.
    Get {
        /// Its name or id.
        name: String,
    },
    /// Create or replace the rules of a file, all or none.
    Apply {
        /// A JSON array of rule bodies, one body, or TOML `[[rule]]` tables.
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Delete one rule.
    Delete {
        /// Its name or id.
        name: String,
    },
}

/// Why a verb failed: one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CtlFault(pub String);

impl fmt::Display for CtlFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CtlFault {}

impl From<String> for CtlFault {
    fn from(sentence: String) -> Self {
        CtlFault(sentence)
    }
}

impl From<io::Error> for CtlFault {
    fn from(error: io::Error) -> Self {
        CtlFault(format!("the output can't be written: {error}"))
    }
}

/// Does what the arguments say and prints to `out`. A reader that closes `out` early is no fault.
pub fn run_ctl(args: &CtlArgs, out: &mut dyn Write) -> Result<(), CtlFault> {
    let client = Client::new(args)?;
    let mut printer = Printer { output: args.output, out };
    match &args.verb {
        Verb::Rules { verb: RulesVerb::List } => list(&client, &mut printer),
        Verb::Rules { verb: RulesVerb::Get { name } } => {
            let rule = named(&client, "GET", name)?;
            printer.json(&rule)
        }
        Verb::Rules { verb: RulesVerb::Apply { file } } => apply(&client, file, &mut printer),
        Verb::Rules { verb: RulesVerb::Delete { name } } => {
            named(&client, "DELETE", name)?;
            printer.said(&format!("deleted {name}"))
        }
        Verb::Ready => ready(&client, &mut printer),
        Verb::Create { verb } => verbs::create(&client, verb, &mut printer),
        Verb::Get { verb } => verbs::get(&client, verb, &mut printer),
        Verb::Set { verb } => verbs::set(&client, verb, &mut printer),
        Verb::Delete { verb } => verbs::delete(&client, verb, &mut printer),
        Verb::History { rule } => verbs::history(&client, rule, &mut printer),
        Verb::Rollback { rule, number, commit } => {
            verbs::rollback(&client, rule, *number, *commit, &mut printer)
        }
        Verb::Save { file } => verbs::save(&client, file.as_deref(), &mut printer),
        Verb::Apply { file } => apply(&client, file, &mut printer),
        Verb::Token { name } => {
            let (token, line) = access::fresh(name)?;
            printer.text(&format!("token (told once): {token}\nline of --admin-tokens: {line}\n"))
        }
        Verb::Shards => {
            let answer = client.get("/netlox/v1/shards")?;
            printer.answer(&answer, show::shards)
        }
        Verb::Models => {
            let answer = client.get("/netlox/v1/config/ai/models")?;
            printer.answer(&answer, show::models)
        }
        Verb::Kv(args) => kv::run(&client, args.verb.as_ref(), &mut printer),
        Verb::Maintenance(args) => service::maintenance(&client, args, &mut printer),
        Verb::Endpoint { verb } => service::endpoint(&client, verb, &mut printer),
        Verb::Explain(args) => explain::run(&client, args, &mut printer),
        Verb::Receipts { follow: false, last } => {
            let answer = client.get(&format!("/netlox/v1/receipts?last={last}"))?;
            printer.answer(&answer, show::receipts)
        }
        Verb::Receipts { follow: true, last } => {
            if printer.output != Output::Json {
                printer.text(&show::receipts_head())?;
            }
            follow_stream(&client, Follow::new(&RECEIPTS, *last), show::receipt, &mut printer)
        }
    }
}

struct Printer<'a> {
    output: Output,
    out: &'a mut dyn Write,
}

impl Printer<'_> {
    fn text(&mut self, text: &str) -> Result<(), CtlFault> {
        match self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()) {
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e.into()),
            _ => Ok(()),
        }
    }

    fn json(&mut self, value: &Value) -> Result<(), CtlFault> {
        self.text(&format!("{value:#}\n"))
    }

    fn said(&mut self, sentence: &str) -> Result<(), CtlFault> {
        match self.output {
            Output::Table | Output::Wide => self.text(&format!("{sentence}\n")),
            Output::Json => self.json(&serde_json::json!({"result": "Success"})),
        }
    }

    fn answer(&mut self, answer: &Value, table: fn(&Value) -> String) -> Result<(), CtlFault> {
        match self.output {
            Output::Table | Output::Wide => self.text(&table(answer)),
            Output::Json => self.json(answer),
        }
    }
}

fn list(client: &Client, printer: &mut Printer) -> Result<(), CtlFault> {
    let answer = client.get("/netlox/v1/config/loadbalancer/all")?;
    printer.answer(&answer, if printer.output == Output::Wide { show::rules_wide } else { show::rules })
}

/// Asks by name, then by id.
fn named(client: &Client, method: &str, name: &str) -> Result<Value, CtlFault> {
    let name = client::encoded(name);
    let by = |kind| client.call(method, &format!("/netlox/v1/config/loadbalancer/{kind}/{name}"), "");
    let (status, answer) = match by("name")? {
        (404, unknown) => match by("id")? {
            (404, _) => (404, unknown),
            other => other,
        },
        other => other,
    };
    client::accepted(status, answer)
}

fn apply(client: &Client, path: &std::path::Path, printer: &mut Printer) -> Result<(), CtlFault> {
    let file = RulesFile::read(path)?;
    let bodies = Value::Array(file.bodies.clone());
    let (status, answer) = client.call("POST", "/netlox/v1/rules", &bodies.to_string())?;
    if status == 200 {
        let changed = answer["changed"].as_u64().unwrap_or(0);
        let unchanged = (file.bodies.len() as u64).saturating_sub(changed);
        return printer.said(&format!("{changed} created or replaced, {unchanged} unchanged"));
    }
    let sentence = client::reason(status, &answer);
    Err(CtlFault(match (answer["rule"].as_u64(), answer["member"].as_str()) {
        (Some(index), Some(member)) => file.sentence(index as usize, member, &sentence),
        _ => sentence,
    }))
}

fn ready(client: &Client, printer: &mut Printer) -> Result<(), CtlFault> {
    let (status, answer) = client.call("GET", "/netlox/v1/status/ready", "")?;
    if !matches!(status, 200 | 503) {
        return Err(CtlFault(client::reason(status, &answer)));
    }
    printer.answer(&answer, show::ready)?;
    match status {
        200 => Ok(()),
        _ => Err(CtlFault("the gateway is not ready".into())),
    }
}

/// Prints what comes, a line or some each, until its reader leaves.
fn follow_stream(
    client: &Client,
    mut follow: Follow,
    line: fn(&Value) -> String,
    printer: &mut Printer,
) -> Result<(), CtlFault> {
    loop {
        let answer = client.get(&follow.path())?;
        for record in follow.fresh(&answer) {
            let line = match printer.output {
                Output::Table | Output::Wide => line(&record),
                Output::Json => format!("{record}\n"),
            };
            match printer.out.write_all(line.as_bytes()) {
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                done => done?,
            }
        }
        printer.text("")?;
        std::thread::sleep(POLL_EACH);
    }
}

#[cfg(test)]
pub(crate) mod tests;
