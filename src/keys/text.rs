//! Prompts and chats of the verb `keys`: from files to token ids, by the very code that routes. Owns the reading of
//! those files and the sentences on what can't be read or proven.

use super::KeysArgs;
use serde_json::json;
use std::path::Path;
use warmpath_prompt::load::Files;
use warmpath_prompt::request::members;
use warmpath_prompt::tokenizer::Choice;
use warmpath_prompt::{Api, Beside, Date, Decline, Model};
use warmpath_shards::loader;

/// The largest request that is read, in bytes.
const LARGEST: u64 = 64 << 20;

/// A prompt as the engine sees it.
pub struct Prompt {
    /// The rendered text of a chat, the given one of a prompt; none where the body gives token ids.
    pub text: Option<String>,
    /// Its tokens.
    pub ids: Vec<u32>,
    /// What the body says beside the prompt.
    pub beside: Beside,
}

/// Reads what `--prompt` or `--chat` gives; `None` where neither is there.
pub fn prompt(args: &KeysArgs) -> Result<Option<Prompt>, String> {
    let (api, source, body) = match (&args.prompt, &args.chat) {
        (Some(text), _) => {
            (Api::Completions, "--prompt".into(), json!({"prompt": text}).to_string().into_bytes())
        }
        (None, Some(path)) => {
            (Api::Chat, format!("--chat {}", path.display()), file("--chat", path, LARGEST)?)
        }
        (None, None) => return Ok(None),
    };
    let model = model(args)?;
    let members = members(&body).map_err(|fault| {
        format!("{source}: {fault}; give the JSON object that is sent to /v1/chat/completions")
    })?;
    let form = args.kind.tool_form(args.engine_version);
    let prompt = model.read(api, &body, &members, args.date.map(|Day(date)| date), form);
    let prompt = prompt.map_err(|why| declined(&source, why))?;
    let ids = model.ids(&prompt).map_err(|why| declined(&source, why))?;
    Ok(Some(Prompt { text: prompt.text().map(str::to_owned), ids, beside: prompt.beside }))
}

/// The model of `--tokenizer` and the files beside it, as the gateway reads a model's folder.
fn model(args: &KeysArgs) -> Result<Model, String> {
    let path = args.tokenizer.as_deref().ok_or("--tokenizer is missing; give the model's tokenizer.json")?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let beside = |name: &str| {
        let path = folder.join(name);
        if path.exists() { file(name, &path, LARGEST).map(Some) } else { Ok(None) }
    };
    let template = match &args.template {
        Some(path) => Some(file("--template", path, LARGEST)?),
        None => beside("chat_template.jinja")?,
    };
    let utf8 =
        |bytes| String::from_utf8(bytes).map_err(|_| "--template: it is not UTF-8; give a Jinja template");
    let files = Files {
        tokenizer: file("--tokenizer", path, LARGEST)?,
        config: beside("tokenizer_config.json")?,
        template: template.map(utf8).transpose()?,
        model: beside("config.json")?,
        profile: None,
    };
    let mut policy = loader::policy(args.kind);
    if args.date.is_some() {
        policy.clock = warmpath_prompt::Clock::UtcDate;
    }
    files.model(0, policy, Choice::Reference).map_err(|fault| format!("{}: {fault}", path.display()))
}

fn file(flag: &str, path: &Path, largest: u64) -> Result<Vec<u8>, String> {
    let fault = |what: String| format!("{flag} {}: {what}", path.display());
    let size = std::fs::metadata(path)
        .map_err(|error| fault(format!("{error}; give a file that can be read")))?
        .len();
    if size > largest {
        return Err(fault(format!("{size} bytes; give a file of at most {} MiB", largest >> 20)));
    }
    std::fs::read(path).map_err(|error| fault(format!("{error}; give a file that can be read")))
}

fn declined(source: &str, why: Decline) -> String {
    let cure = match why {
        Decline::NoTemplate => "give --template, or put tokenizer_config.json beside the tokenizer",
        Decline::Clock => "give --date, the day that the engine would print",
        Decline::ToolVersion => "give --engine-version",
        Decline::Tools | Decline::ToolCalls | Decline::ToolResult | Decline::TemplateKwargs => {
            "the gateway serves such a request by the rule's selector"
        }
        _ => "the gateway can't prove what the engine makes of it, and serves it by the rule's selector",
    };
    format!("{source}: there are no keys: {why} ({}); {cure}", why.word())
}

/// A day of the calendar.
#[derive(Clone, Copy, Debug)]
pub struct Day(Date);

/// Reads `2026-12-31`.
pub fn day(text: &str) -> Result<Day, String> {
    Date::read(text).map(Day).ok_or_else(|| format!("{text:?} is no day; write it as 2026-12-31"))
}
