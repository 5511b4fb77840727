//! The verb `compat`: what is reported of an engine's version, transport and router together, asked before an image is
//! chosen. Owns its arguments, layout and exit code; the rows and what follows from them are the core's.

mod probe;

use clap::{Args, ValueEnum};
use serde_json::json;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use warmpath_core::catalog::compat::{
    Answer, BlockPath, Build, Compat, Configuration, Question, Release, Standing,
};

/// Arguments of `compat`.
#[derive(Args, Debug)]
#[command(
    disable_version_flag = true,
    after_help = "\
Examples:
  warmpath compat --engine vllm --version 0.30.0
  warmpath compat --engine sglang --version 0.5.18 --configuration pd --transport tcp --path direct
  warmpath compat --engine vllm --version 0.31.0 --router llm-d-router --flag=--enable-scale-out
  warmpath compat --engine vllm --probe 10.0.0.5:8000 --model llama

A line for each thing: works, needs (something of you), not_verified (no run: nothing refuses it, nothing says
it works), refused; with the row of the catalog that says so. A cell is one path: two --path are not verified
together, whatever each is. It exits with 0 only if no line is not_verified or refused.

--probe sends one completion of one token through an address, a router or a gateway, and tells whether what
comes back is bound to the request. Unknown grants nothing and withdraws nothing."
)]
pub struct CompatArgs {
    /// Engine: vllm, vllm-ascend, sglang, trtllm, llamacpp
    #[arg(long, value_parser = build)]
    engine: Build,
    /// Its version
    #[arg(long, value_parser = release)]
    version: Option<Release>,
    /// As what: alone, pd, store, epd [default: pd with --path direct, store with --path store, else alone]
    #[arg(long, value_parser = configuration)]
    configuration: Option<Configuration>,
    /// What moves blocks: auto, tcp, rdma, efa, ascend, hip, musa, maca
    #[arg(long, value_name = "NAME", requires = "path")]
    transport: Option<String>,
    /// Which way they take: store, direct; may be given twice
    #[arg(long, value_parser = path, requires = "transport")]
    path: Vec<BlockPath>,
    /// The router in front: llm-d-router, vllm-router, sglang-gateway
    #[arg(long, value_name = "NAME")]
    router: Option<String>,
    /// A flag that the engine is started with; may be given many times
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    flag: Vec<String>,
    /// Send a request through this address
    #[arg(long, value_name = "HOST:PORT", requires = "model")]
    probe: Option<String>,
    /// The model of that request
    #[arg(long, value_name = "NAME", requires = "probe")]
    model: Option<String>,
    /// How to print
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Form::Table)]
    output: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Table,
    Json,
}

fn build(word: &str) -> Result<Build, String> {
    known(word, &Build::all().collect::<Vec<_>>(), Build::word)
}

fn configuration(word: &str) -> Result<Configuration, String> {
    known(word, &Configuration::ALL, Configuration::word)
}

fn path(word: &str) -> Result<BlockPath, String> {
    known(word, &BlockPath::ALL, BlockPath::word)
}

fn release(text: &str) -> Result<Release, String> {
    Release::read(text).ok_or_else(|| "write it as 0.30.0 or 0.30.0rc1".to_owned())
}

fn known<T: Copy>(word: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, String> {
    let names = || all.iter().map(|own| name(*own)).collect::<Vec<_>>().join(", ");
    all.iter().copied().find(|own| name(*own) == word).ok_or_else(|| format!("allowed are {}", names()))
}

/// Prints the answers; an error if one is no yes.
pub fn run(args: &CompatArgs) -> Result<(), String> {
    let compat = Compat::embedded().map_err(|fault| format!("the built-in catalog: {fault}"))?;
    let mut answers = compat.judge(&question(args));
    if let (Some(address), Some(model)) = (&args.probe, &args.model) {
        answers.push(probe::run(&compat, args.engine, args.version.as_ref(), address, model)?);
    }
    let text = match args.output {
        Form::Table => table(&answers),
        Form::Json => {
            let shown: Vec<_> = answers
                .iter()
                .map(|own| json!({"standing": own.standing.word(), "row": own.row, "says": own.says}))
                .collect();
            json!({"reported_by": compat.reported_by, "answers": shown}).to_string() + "\n"
        }
    };
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|fault| format!("the answers can't be written: {fault}"))?;
    let open: Vec<&str> = answers
        .iter()
        .filter(|own| own.standing >= Standing::NotVerified)
        .map(|own| own.standing.word())
        .collect();
    if open.is_empty() { Ok(()) } else { Err(format!("not all of it is known to work: {}", open.join(", "))) }
}

fn question(args: &CompatArgs) -> Question<'_> {
    let meant = match (args.path.contains(&BlockPath::Store), args.path.contains(&BlockPath::Direct)) {
        (true, _) => Configuration::Store,
        (false, true) => Configuration::Pd,
        (false, false) => Configuration::Alone,
    };
    Question {
        engine: args.engine,
        version: args.version.clone(),
        configuration: args.configuration.unwrap_or(meant),
        transport: args.transport.as_deref(),
        paths: &args.path,
        router: args.router.as_deref(),
        flags: (!args.flag.is_empty()).then_some(&args.flag[..]),
    }
}

fn table(answers: &[Answer]) -> String {
    let mut out = String::new();
    for Answer { standing, row, says } in answers {
        let row = if row.is_empty() { "no row" } else { row };
        let _ = writeln!(out, "{:<13} {row:<18} {says}", standing.word());
    }
    out
}
