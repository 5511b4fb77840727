//! What an engine is compared with: one endpoint under one exact rule. Owns how a rule body becomes that; must
//! never ask an engine.

use super::DoctorArgs;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use warmpath_core::engine::{Algo, Engine};
use warmpath_core::environment::Environment;
use warmpath_core::rule::body::restore;
use warmpath_core::rule::{KvExact, Rule};
use warmpath_prompt::load::folder;

/// One endpoint under one rule.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The rule's name, for messages.
    pub rule: String,
    /// Where requests go.
    pub endpoint: SocketAddr,
    /// The rule's `kvEngineType`.
    pub engine: Engine,
    /// The rule's `model_name`; empty: any.
    pub model: String,
    /// What the rule says of exact routing; none for an engine that has no such thing.
    pub exact: Option<KvExact>,
    /// What the environment of this process says, which has to be the gateway's.
    pub environment: Environment,
    /// Why the gateway would serve the rule without exact routing: its seed is missing or too long.
    pub lacking: Option<String>,
    /// The folder of the model's files, or its `tokenizer.json`.
    pub files: Option<PathBuf>,
}

/// The wanted of each endpoint of a rule body.
pub fn of_body(body: &Value, environment: &Environment, files: &Files) -> Result<Vec<Wanted>, String> {
    let restored = restore(body, environment, || "doctor".into()).map_err(|fault| fault.to_string())?;
    let (rule, lacking) = match restored.without_exact {
        None => (restored.rule, None),
        // The rest of what the rule says can be compared all the same, under a seed that stands in.
        Some(fault) => {
            let standing = Environment { none_hash_seed: Some("0".into()), ..environment.clone() };
            let again = restore(body, &standing, || "doctor".into()).map_err(|fault| fault.to_string())?;
            (again.rule, Some(fault.to_string()))
        }
    };
    if rule.exact.is_none() && rule.engine.publishes_blocks() {
        return Err(format!(
            "the rule {:?} asks for no exact routing: give it \"kvExactMode\": 3, or ask about another",
            name(&rule)
        ));
    }
    let of = |endpoint: SocketAddr| Wanted {
        rule: name(&rule),
        endpoint,
        engine: rule.engine,
        model: rule.key.model.clone(),
        exact: rule.exact.clone(),
        environment: environment.clone(),
        lacking: lacking.clone(),
        files: files.of(&rule.key.model),
    };
    Ok(rule.endpoints.iter().map(|endpoint| of(endpoint.address)).collect())
}

/// A rule is known by its name, else by where clients connect to.
fn name(rule: &Rule) -> String {
    if rule.name.is_empty() { rule.key.vip.to_string() } else { rule.name.clone() }
}

/// The body of a rule that says what the arguments say, and elsewhere what a rule means by itself.
pub fn body(args: &DoctorArgs, endpoint: SocketAddr) -> Value {
    let engine = args.kind;
    let mut service = json!({
        "externalIP": "127.0.0.1", "port": 1, "protocol": "tcp", "mode": 4, "name": "doctor",
        "model_name": args.model, "kvEngineType": engine.name(),
    });
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            service[name] = value;
        }
    };
    if engine.publishes_blocks() {
        put("kvExactMode", Some(3.into()));
        put("kvHashAlgo", args.algo.map(|algo| algo.name().into()));
        put("kvEngineVersion", args.engine_version.clone().map(Into::into));
        put("kvBlockSize", args.block_size.map(Into::into));
        put("kvDpRankCount", args.ranks.map(Into::into));
        put("kvZmqPort", args.events.as_ref().map(|place| place.port.into()));
        put("kvZmqBind", args.events.as_ref().filter(|place| place.is_ours).map(|_| true.into()));
        put("kvReplayPort", args.replay.as_ref().map(|place| place.port.into()));
    }
    let endpoint = json!({"endpointIP": endpoint.ip().to_string(), "targetPort": endpoint.port()});
    json!({"serviceArguments": service, "endpoints": [endpoint]})
}

/// Where a model's files are.
pub enum Files {
    /// One model's.
    One(PathBuf),
    /// Every model's, below this folder, as `serve --config-root` has them.
    Root(PathBuf),
}

impl Files {
    fn of(&self, model: &str) -> Option<PathBuf> {
        match self {
            Files::One(path) => Some(path.clone()),
            Files::Root(_) if model.is_empty() => None,
            Files::Root(root) => Some(folder(root, model)).filter(|folder| Path::is_dir(folder)),
        }
    }
}

impl Wanted {
    /// Whether the rule names blocks by token ids, whatever the engine calls them.
    pub fn is_by_tokens(&self) -> bool {
        self.exact.as_ref().is_some_and(|exact| exact.contract.is_by_tokens())
    }

    /// The rule's block hash, for sentences.
    pub fn algo(&self) -> Option<Algo> {
        self.exact.as_ref().map(|exact| exact.contract.algo())
    }
}
