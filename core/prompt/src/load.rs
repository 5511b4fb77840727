//! A model's files: `tokenizer.json`, `tokenizer_config.json`, `chat_template.jinja` and `config.json` as model
//! repositories have them, in `tokenizers/<model>/` below the configuration's root, and what a profile pins. Owns
//! their names, bounds and reading; the only module here that touches a disk.

pub mod registry;
mod trusted;

use crate::model::Model;
use crate::request::{CompletionsBos, Policy};
use crate::template::{Template, TemplateFault, Verified};
use crate::tokenizer::{Choice, Tokenizer, TokenizerFault};
use serde_json::Value;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use trusted::Distrust;
use warmpath_core::profile::{Profile, slug};

/// The largest `tokenizer.json` that is read, in bytes.
pub const LARGEST: u64 = 64 << 20;

/// Names of single special tokens, as transformers gives them to templates.
const SPECIAL: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// The files that count, in a model's folder.
pub const NAMES: [&str; 4] =
    ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json"];

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
    /// The model's profile, where one is published.
    pub profile: Option<Profile>,
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
    /// A file of the registry is not trusted.
    Distrust(Distrust),
    /// The tokenizer.
    Tokenizer(TokenizerFault),
    /// The chat template.
    Template(TemplateFault),
    /// `tokenizer_config.json` is not what it should be.
    Config(String),
    /// `config.json` is not what it should be.
    Model(String),
    /// A profile is refused, or says what the files don't bear out.
    Profile {
        /// Its file.
        file: String,
        /// Why.
        what: String,
    },
    /// A pinned file has other bytes.
    Pin {
        /// Which.
        path: PathBuf,
        /// What its bytes hash to.
        found: String,
        /// What the profile pins.
        wanted: String,
    },
    /// `tokenizer_config.json` adds a token that `tokenizer.json` does not have.
    TokenAdded(String),
}

impl fmt::Display for LoadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadFault::File { path, error } => write!(f, "{} can't be read: {error}", path.display()),
            LoadFault::Distrust(distrust) => distrust.fmt(f),
            LoadFault::Tokenizer(fault) => fault.fmt(f),
            LoadFault::Template(fault) => fault.fmt(f),
            LoadFault::Config(what) => write!(f, "tokenizer_config.json: {what}"),
            LoadFault::Model(what) => write!(f, "config.json: {what}"),
            LoadFault::Profile { file, what } => write!(f, "kvprofiles/{file}: {what}"),
            LoadFault::Pin { path, found, wanted } => write!(
                f,
                "{} has SHA-256 {found}, the profile pins {wanted}; stage the pinned file, or publish a profile \
                 of this one",
                path.display()
            ),
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

/// The folder of a model below `root`: its name with `__` for each slash.
pub fn folder(root: &Path, model: &str) -> PathBuf {
    root.join("tokenizers").join(slug(model))
}

impl Files {
    /// Reads a folder. Only `tokenizer.json` must be there.
    pub fn read(folder: &Path) -> Result<Files, LoadFault> {
        let path = folder.join("tokenizer.json");
        let tokenizer = bytes(&path, LARGEST)?.ok_or_else(|| LoadFault::missing(&path))?;
        Ok(Files { tokenizer, ..Files::beside(folder)? })
    }

    /// What stands beside `tokenizer.json`, as far as it is there.
    fn beside(folder: &Path) -> Result<Files, LoadFault> {
        let read = |name: &str| bytes(&folder.join(name), LARGEST);
        let template = read("chat_template.jinja")?.map(String::from_utf8).transpose();
        Ok(Files {
            tokenizer: Vec::new(),
            config: read("tokenizer_config.json")?,
            model: read("config.json")?,
            template: template.map_err(|_| LoadFault::Config("chat_template.jinja is not UTF-8".into()))?,
            profile: None,
        })
    }

    /// Reads a folder of which a profile pins some files in the registry below `root`. Where the tokenizer is pinned,
    /// none must be there.
    pub fn read_under(folder: &Path, root: &Path, profile: &Profile) -> Result<Files, LoadFault> {
        let mut files = match profile.tokenizer() {
            Some(artifact) => {
                Files { tokenizer: registry::pinned(root, &artifact)?, ..Files::beside(folder)? }
            }
            None => Files::read(folder)?,
        };
        if let Some(artifact) = profile.template() {
            let template = String::from_utf8(registry::pinned(root, &artifact)?);
            files.template =
                Some(template.map_err(|_| LoadFault::profile(profile, "the template is not UTF-8"))?);
        }
        files.profile = Some(profile.clone());
        Ok(files)
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
        policy.chats_by_template &= !self.is_encoded(&tokenizer, policy.encoded)?;
        if let Some(profile) = &self.profile {
            crate::profile::apply(profile, &mut policy);
        }
        if let Some(token) = added(&config).find(|token| tokenizer.id_of(token).is_none()) {
            return Err(LoadFault::TokenAdded(token.to_string()));
        }
        for name in SPECIAL {
            let known = policy.special_tokens.iter().any(|(known, _)| known == name);
            if let Some(token) = content(&config[name]).filter(|_| !known) {
                policy.special_tokens.push((name.to_string(), token));
            }
        }
        self.quirks(&tokenizer, &mut policy)?;
        let template = self.template.as_deref().or_else(|| template(&config));
        let verified = template.and_then(Verified::of);
        // transformers takes another template for requests with tools where the configuration has one.
        let other = self.template.is_none() && named(&config, "tool_use").is_some();
        policy.tools &= verified.is_some_and(|own| own.tools) && !other;
        policy.kwargs = verified.map_or(&[], |own| own.kwargs);
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
    fn is_encoded(&self, tokenizer: &Tokenizer, encoded: &[&str]) -> Result<bool, LoadFault> {
        if let Some(own) = self.profile.as_ref().and_then(|profile| profile.model_type.as_deref()) {
            return Ok(encoded.contains(&own));
        }
        let Some(bytes) = &self.model else {
            return Ok(HARMONY.iter().all(|token| tokenizer.id_of(token).is_some()));
        };
        let model: Value =
            serde_json::from_slice(bytes).map_err(|fault| LoadFault::Model(fault.to_string()))?;
        Ok(model["model_type"].as_str().is_some_and(|own| encoded.contains(&own)))
    }

    /// `completionsBos`: the token that the profile or `tokenizer_config.json` names as `bos_token`.
    fn quirks(&self, tokenizer: &Tokenizer, policy: &mut Policy) -> Result<(), LoadFault> {
        let (Some(profile), Some(engine)) = (&self.profile, policy.engine) else { return Ok(()) };
        if !profile.completions_bos(engine) {
            return Ok(());
        }
        let bos = policy.special_tokens.iter().find(|(name, _)| name == "bos_token");
        let id = bos.and_then(|(_, token)| tokenizer.id_of(token));
        let missing = "completionsBos, but neither renderPolicy.bosToken nor tokenizer_config.json names a token \
                       that tokenizer.json has";
        policy.completions_bos =
            CompletionsBos::Always(id.ok_or_else(|| LoadFault::profile(profile, missing))?);
        Ok(())
    }
}

impl LoadFault {
    fn missing(path: &Path) -> LoadFault {
        LoadFault::File { path: path.into(), error: io::Error::from(io::ErrorKind::NotFound) }
    }

    fn profile(profile: &Profile, what: &str) -> LoadFault {
        LoadFault::Profile { file: profile.id.clone(), what: what.into() }
    }
}

/// A whole file, or `None` if there is none.
fn bytes(path: &Path, largest: u64) -> Result<Option<Vec<u8>>, LoadFault> {
    let fault = |error| LoadFault::File { path: path.to_path_buf(), error };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fault(error)),
    };
    let mut bytes = Vec::new();
    file.take(largest + 1).read_to_end(&mut bytes).map_err(fault)?;
    if bytes.len() as u64 > largest {
        return Err(fault(io::Error::other(format!("it is larger than {} MiB", largest >> 20))));
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
    config["chat_template"].as_str().or_else(|| named(config, "default"))
}

/// The template of a name, where a configuration has several.
fn named<'a>(config: &'a Value, name: &str) -> Option<&'a str> {
    config["chat_template"].as_array()?.iter().find(|entry| entry["name"] == name)?["template"].as_str()
}
