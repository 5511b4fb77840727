//! `warmpath`: one binary, a verb for each job. Owns the wiring of the crates and the exit codes (0 done,
//! 1 failed, 2 used wrongly); must never hold logic of its own.

mod catalog;
mod check;
mod compat;
mod completion;
mod demo;
mod doctor;
mod events;
mod keys;
mod models;
mod plane;
mod serve;
mod sizes;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// An LLM inference gateway: sends each request to the engine that holds its KV cache, at the CPU of a plain
/// proxy.
#[derive(Parser)]
#[command(version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  warmpath demo                                what exact routing is good for, side by side, here and now
  warmpath serve --rules rules.json            the gateway, with the rules of a file
  warmpath ctl rules list                      what a running gateway serves
  warmpath bench --url http://127.0.0.1:8080   load, with latencies and every answer checked
  warmpath events tail tcp://10.0.0.5:5557     what an engine says of its KV cache
  warmpath doctor --rule rules.json            whether exact routing would work with the engines of a rule
  warmpath check rules.json                    whether a rule is accepted, catalogued, and its pool verified
  warmpath catalog                             what was shown of which engine, and by which record
  warmpath compat --engine vllm --version 0.30.0   whether a version, a transport, a router go together
  warmpath replay trace.jsonl                  which policy and fleet size a recorded load asks for
  warmpath models list                         which models are known to work with which engine
  warmpath qualify --quick                     whether this machine can run it")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// See the gateway at work, on this machine
    Demo(demo::DemoArgs),
    /// Run the gateway
    Serve(serve::ServeArgs),
    /// Look into a running gateway and change its rules
    Ctl(warmpath_admin::CtlArgs),
    /// Run a simulated engine
    Engine(warmpath_perf::EngineArgs),
    /// Load a gateway or an engine, and check its answers
    Bench(warmpath_perf::BenchArgs),
    /// Name the cache blocks of given tokens as an engine would
    Keys(keys::KeysArgs),
    /// Show what engines say of their KV caches, live or from a capture
    Events(events::EventsArgs),
    /// Find out whether exact routing would work with an engine, and what is to be set where if not
    Doctor(doctor::DoctorArgs),
    /// Tell what was shown of which engine, version and model, and by which record
    Catalog(catalog::CatalogArgs),
    /// Tell of a rule whether it is accepted, its tuple in the catalog, its topology verified
    Check(check::CheckArgs),
    /// Print the completions of a shell
    Completion(completion::CompletionArgs),
    /// Ask what is reported of an engine's version, transport and router together
    Compat(compat::CompatArgs),
    /// Try policies and fleets on a recorded trace, in virtual time
    Replay(warmpath_perf::ReplayArgs),
    /// Prepare the hosts of a model: its profile, weights, probes and engines
    Models(models::ModelsArgs),
    /// Find out whether this machine can run the gateway
    Qualify(warmpath_perf::QualifyArgs),
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Demo(args) => demo::run(&args),
        Verb::Serve(args) => serve::run(&args),
        Verb::Ctl(args) => warmpath_admin::run_ctl(&args, &mut std::io::stdout()).map_err(|e| e.to_string()),
        Verb::Engine(args) => warmpath_perf::run_engine(args).map_err(|e| e.to_string()),
        Verb::Bench(args) => warmpath_perf::run_bench(args).map_err(|e| e.to_string()),
        Verb::Keys(args) => keys::run(&args),
        Verb::Events(args) => events::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Catalog(args) => catalog::run(&args),
        Verb::Check(args) => check::run(&args),
        Verb::Completion(args) => completion::run(&args),
        Verb::Compat(args) => compat::run(&args),
        Verb::Replay(args) => warmpath_perf::run_replay(&args).map_err(|e| e.to_string()),
        Verb::Models(args) => models::run(&args),
        Verb::Qualify(args) => warmpath_perf::run_qualify(&args).map_err(|e| e.to_string()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("warmpath: {sentence}");
            ExitCode::FAILURE
        }
    }
}
