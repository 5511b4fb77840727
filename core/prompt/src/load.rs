//! A model's files: `tokenizer.json`, `tokenizer_config.json`, `chat_template.jinja` and `config.json` as model
//! repositories have them, in `tokenizers/<model>/` below the configuration's root. Owns their names, bounds and reading; the
//! only file here that touches a disk.

use crate::model::Model;
use crate::request::Policy;
use crate::template::{Template, TemplateFault};
use crate::tokenizer::{Choice, Tokenizer, TokenizerFault};
use serde_json::Value;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The largest `tokenizer.json` that is read, in bytes.
pub const LARGEST: u64 = 64 << 20;

/// Names of single special tokens, as transformers gives them to templates.
const SPECIAL: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// The files that count, in a model's folder.
pub const NAMES: [&str; 4] =
    ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json"];

/// Types of models whose chats engines encode without the template: vLLM has gpt-oss's in Harmony, and Mistral's
/// own tokenizer for mistral3.
const ENCODED: [&str; 2] = ["gpt_oss", "mistral3"];

/// Tokens that Harmony alone has all of: what tells gpt-oss by its vocabulary, where `config.json` is not there.
const HARMONY: [&str; 4] = ["<|start|>", "<|channel|>", "<|message|>", "<|return|>"];

/// The bytes of a model's files.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// `tokenizer.json`.
    pub tokenizer: Vec<u8>,
    /// `tokenizer_config.json`.
    pub config: Option<Vec<u8>>,
    /// `chat_template.jinja`, which goes before the configuration's template.
    pub template: Option<String>,
    /// `config.json`, of which only `model_type` counts.
    pub model: Option<Vec<u8>>,
}

/// Why a model can't be loaded.
#[derive(Debug)]
pub enum LoadFault {
    /// A file can't be read.
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The tokenizer.
    Tokenizer(TokenizerFault),
    /// The chat template.
    Template(TemplateFault),
    /// `tokenizer_config.json` is not what it should be.
    Config(String),
    /// `config.json` is not what it should be.
    Model(String),
    /// `tokenizer_config.json` adds a token that `tokenizer.json` does not have.
    TokenAdded(String),
}

impl fmt::Display for LoadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadFault::File { path, error } => write!(f, "{} can't be read: {error}", path.display()),
            LoadFault::Tokenizer(fault) => fault.fmt(f),
            LoadFault::Template(fault) => fault.fmt(f),
            LoadFault::Config(what) => write!(f, "tokenizer_config.json: {what}"),
            LoadFault::Model(what) => write!(f, "config.json: {what}"),
            LoadFault::TokenAdded(token) => write!(
                f,
                "tokenizer_config.json adds {token:?}, which tokenizer.json does not have; save both from \
                 one tokenizer"
            ),
        }
    }
}

impl std::error::Error for LoadFault {}

impl From<TokenizerFault> for LoadFault {
    fn from(fault: TokenizerFault) -> LoadFault {
        LoadFault::Tokenizer(fault)
    }
}

impl From<TemplateFault> for LoadFault {
    fn from(fault: TemplateFault) -> LoadFault {
        LoadFault::Template(fault)
    }
}

/// The name of a model's folder.
pub fn folder_name(model: &str) -> String {
    model.replace('/', "__")
}

/// The folder of a model below `root`: its name with `__` for each slash.
pub fn folder(root: &Path, model: &str) -> PathBuf {
    root.join("tokenizers").join(folder_name(model))
}

impl Files {
    /// Reads a folder. Only `tokenizer.json` must be there.
    pub fn read(folder: &Path) -> Result<Files, LoadFault> {
        let read = |name: &str| bytes(&folder.join(name));
        let missing = || LoadFault::File {
            path: folder.join("tokenizer.json"),
            error: io::Error::from(io::ErrorKind::NotFound),
        };
        let template = read("chat_template.jinja")?.map(String::from_utf8).transpose();
        Ok(Files {
            tokenizer: read("tokenizer.json")?.ok_or_else(missing)?,
            config: read("tokenizer_config.json")?,
            model: read("config.json")?,
            template: template.map_err(|_| LoadFault::Config("chat_template.jinja is not UTF-8".into()))?,
        })
    }

    /// A model of these files. What they say of special tokens is added to `policy`, whose own word goes first.
    pub fn model(&self, id: u64, mut policy: Policy, choice: Choice) -> Result<Model, LoadFault> {
        let config: Value = match &self.config {
            Some(bytes) => {
                serde_json::from_slice(bytes).map_err(|fault| LoadFault::Config(fault.to_string()))?
            }
            None => Value::Null,
        };
        let tokenizer = Tokenizer::load(&self.tokenizer, choice)?;
        policy.chats_by_template &= !self.is_encoded(&tokenizer)?;
        if let Some(token) = added(&config).find(|token| tokenizer.id_of(token).is_none()) {
            return Err(LoadFault::TokenAdded(token.to_string()));
        }
        for name in SPECIAL {
            let known = policy.special_tokens.iter().any(|(known, _)| known == name);
            if let Some(token) = content(&config[name]).filter(|_| !known) {
                policy.special_tokens.push((name.to_string(), token));
            }
        }
        let template = self.template.as_deref().or_else(|| template(&config));
        let template = template.map(Template::compile).transpose()?;
        if let (Some(shape), true) =
            (policy.looped, template.as_ref().is_some_and(Template::loops_over_parts))
        {
            policy.content = shape;
        }
        Ok(Model::new(id, tokenizer, template, policy))
    }
}

impl Files {
    /// Whether engines encode this model's chats by code of their own.
    fn is_encoded(&self, tokenizer: &Tokenizer) -> Result<bool, LoadFault> {
        let Some(bytes) = &self.model else {
            return Ok(HARMONY.iter().all(|token| tokenizer.id_of(token).is_some()));
        };
        let model: Value =
            serde_json::from_slice(bytes).map_err(|fault| LoadFault::Model(fault.to_string()))?;
        Ok(model["model_type"].as_str().is_some_and(|own| ENCODED.contains(&own)))
    }
}

/// A whole file, or `None` if there is none.
fn bytes(path: &Path) -> Result<Option<Vec<u8>>, LoadFault> {
    let fault = |error| LoadFault::File { path: path.to_path_buf(), error };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fault(error)),
    };
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(fault)?;
    if bytes.len() as u64 > LARGEST {
        return Err(fault(io::Error::other("it is larger than 64 MiB")));
    }
    Ok(Some(bytes))
}

/// A token is a string or an object with its content.
fn content(token: &Value) -> Option<String> {
    token.as_str().or_else(|| token["content"].as_str()).map(str::to_string)
}

fn added(config: &Value) -> impl Iterator<Item = &str> {
    let decoder = config["added_tokens_decoder"].as_object();
    decoder.into_iter().flatten().filter_map(|(_, token)| token["content"].as_str())
}

/// The template of a configuration: its own, or the one named `default` of several.
fn template(config: &Value) -> Option<&str> {
    let template = &config["chat_template"];
    let named = || template.as_array()?.iter().find(|entry| entry["name"] == "default")?["template"].as_str();
    template.as_str().or_else(named)
}
