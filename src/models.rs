//! The verb `models`: the hosts of one model made ready, up to the point where its profile is published and its engines
//! serve. Owns the arguments; each job is a file of its folder.

mod fetch;
mod files;
mod fixtures;
mod index;
mod install;
mod launch;
mod list;
mod weights;

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use warmpath_core::engine::{Engine, LaunchRole};

/// Arguments of `models`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warmpath models list
  warmpath models install --from ./models --engine vllm --models qwen3-0.6b --dry-run
  warmpath models install --from https://models.example --engine vllm --models qwen3-0.6b \\
    --hf-token-file hf.token --weights-dir /models --pull-image
  warmpath models verify-weights qwen3-0.6b /models/Qwen__Qwen3-0.6B/c1899de2 --from ./models
  warmpath models launch --engine vllm --version 0.32.0 --model Qwen/Qwen3-0.6B --snapshot /models/Qwen__Qwen3-0.6B/c1899de2
  warmpath models fixtures --engine vllm --url http://10.0.1.1:8000 --model Qwen/Qwen3-0.6B --out probes")]
pub struct ModelsArgs {
    #[command(subcommand)]
    job: Job,
}

#[derive(Subcommand, Debug)]
enum Job {
    /// What is known of each model with each engine
    List(ListArgs),
    /// Stage a model's profile, and on an engine's host its weights and image
    Install(InstallArgs),
    /// Compare a folder of weights with what is pinned
    VerifyWeights(WeightsArgs),
    /// Make probe fixtures by asking a live engine for its tokens
    Fixtures(FixtureArgs),
    /// Print the command line of an engine that can be trusted
    Launch(LaunchArgs),
}

/// Where models come from.
#[derive(Args, Debug, Clone)]
struct From {
    /// A folder or URL with models.json and the files it names
    #[arg(long, value_name = "DIR|URL")]
    from: Option<String>,
    /// SHA-256 of models.json; needed where --from is http://
    #[arg(long, value_name = "HEX")]
    sha256: Option<String>,
    /// A file of mode 0600 with an access token; the token is sent to the first host only
    #[arg(long, value_name = "FILE")]
    hf_token_file: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct ListArgs {
    #[command(flatten)]
    from: From,
    /// Only this kind of engine
    #[arg(long, value_parser = engine)]
    engine: Option<Engine>,
    /// How to print
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Form::Table)]
    output: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Table,
    Json,
    Markdown,
}

#[derive(Args, Debug)]
struct InstallArgs {
    #[command(flatten)]
    from: From,
    /// The kind of engine whose manifest is staged
    #[arg(long, value_parser = engine, default_value = "vllm")]
    engine: Engine,
    /// Ids of profiles, divided by commas
    #[arg(long, value_name = "IDS", value_delimiter = ',', required_unless_present = "list")]
    models: Vec<String>,
    /// Take candidates too, which are qualified but not supported
    #[arg(long)]
    include_candidates: bool,
    /// Fetch the pinned weights into DIR/ORG__NAME/REVISION and verify each file
    #[arg(long, value_name = "DIR")]
    weights_dir: Option<PathBuf>,
    /// Pull the engine's image by its digest
    #[arg(long)]
    pull_image: bool,
    /// Print what would be fetched and staged, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// The same as `models list`
    #[arg(long)]
    list: bool,
    /// Where the registry stands, as for `serve`
    #[arg(long, value_name = "DIR", default_value = "/etc/loxilb")]
    config_root: PathBuf,
}

#[derive(Args, Debug)]
struct WeightsArgs {
    /// The profile's id
    id: String,
    /// The folder of its files
    folder: PathBuf,
    #[command(flatten)]
    from: From,
}

#[derive(Args, Debug)]
struct FixtureArgs {
    /// The kind of engine that is asked
    #[arg(long, value_parser = engine, default_value = "vllm")]
    engine: Engine,
    /// The engine's port, as http://HOST:PORT
    #[arg(long, value_name = "URL")]
    url: String,
    /// The model's name there
    #[arg(long, value_name = "NAME")]
    model: String,
    /// Leave chats out, where the profile is for completions alone
    #[arg(long)]
    completions_only: bool,
    /// The folder that they are written into; it must not have any yet
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

#[derive(Args, Debug)]
#[command(disable_version_flag = true)]
struct LaunchArgs {
    /// The kind of engine
    #[arg(long, value_parser = engine, default_value = "vllm")]
    engine: Engine,
    /// Its version
    #[arg(long, value_name = "VERSION")]
    version: String,
    /// What it does of a request
    #[arg(long, value_name = "ROLE", value_enum, default_value_t = Role::Single)]
    role: Role,
    /// The name under which the model is served
    #[arg(long, value_name = "NAME")]
    model: String,
    /// The folder of its files
    #[arg(long, value_name = "DIR")]
    snapshot: String,
    /// The revision of these files; SGLang tells it back [default: the folder's name]
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    /// What the gateway has in LLB_KV_NONE_HASH_SEED
    #[arg(long, value_name = "SEED", default_value = "0")]
    seed: String,
    /// Tokens in a block: kvBlockSize of the rule [default: 16, for TensorRT-LLM 32]
    #[arg(long, value_name = "N")]
    block_size: Option<u64>,
    /// Where requests go
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Where events are published: kvZmqPort of the rule
    #[arg(long, default_value_t = 5557)]
    event_port: u16,
    /// Where they are replayed: kvReplayPort of the rule
    #[arg(long, default_value_t = 5657)]
    replay_port: u16,
    /// The engine's own address, for the side channel of prefill and decode
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: String,
    /// Run it by docker from this image, as NAME@sha256:DIGEST
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// More arguments for the engine, as the row of the model says
    #[arg(last = true)]
    more: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    Single,
    Prefill,
    Decode,
}

impl Role {
    const fn of_core(self) -> LaunchRole {
        match self {
            Role::Single => LaunchRole::Single,
            Role::Prefill => LaunchRole::Prefill,
            Role::Decode => LaunchRole::Decode,
        }
    }
}

/// Does the job.
pub fn run(args: &ModelsArgs) -> Result<(), String> {
    match &args.job {
        Job::List(args) => list::run(args),
        Job::Install(args) if args.list => {
            let from = args.from.clone();
            list::run(&ListArgs { from, engine: None, output: Form::Table })
        }
        Job::Install(args) => install::run(args),
        Job::VerifyWeights(args) => weights::run(args),
        Job::Fixtures(args) => fixtures::run(args),
        Job::Launch(args) => launch::run(args),
    }
}

fn engine(word: &str) -> Result<Engine, String> {
    Engine::from_name(word).ok_or_else(|| "use vllm, sglang, trtllm or llamacpp".into())
}
