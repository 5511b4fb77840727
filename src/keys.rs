//! The verb `keys`: what an engine would name the blocks of given tokens, of a prompt or of a chat. Owns its
//! arguments, the reading of token lists and the lines it prints; the names themselves are the core's.

mod text;

use clap::{ArgGroup, Args};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use warmpath_core::block::BlockSize;
use warmpath_core::engine::{Algo, Contract, Engine, Extras, Lora, Scratch, Seed, Terms, Version};

/// Arguments of `keys`.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("source").required(true).args(["tokens", "prompt", "chat"])))]
#[command(after_help = "\
Examples:
  warmpath keys --engine-version 0.28.0 --seed 0 --tokens 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16
  warmpath keys --engine-version 0.31.0 --seed 0 --lora sql,/adapters/sql --tokens @prompts.txt
  warmpath keys --kind sglang --block-size 1 --salt tenant-a --tokens 1,2,3
  warmpath keys --engine-version 0.31.0 --seed 0 --tokenizer models/qwen3/tokenizer.json --prompt 'Once upon a time'
  warmpath keys --engine-version 0.31.0 --seed 0 --tokenizer models/qwen3/tokenizer.json --chat body.json --show-text
  warmpath keys --kind sglang --tokenizer tokenizer.json --template chat_template.jinja --chat body.json

One JSON object a line: the tokens, the key of each full block as an unsigned number, its whole digest in
hexadecimal, and with --show-text the text that was tokenized. A chat is the body of a request to
/v1/chat/completions; what the gateway would not route by blocks has no keys, and the reason is told. Beside
--tokenizer the files tokenizer_config.json, chat_template.jinja and config.json count. LLB_KV_LONG_SEED=1 takes seeds over 23 bytes.")]
pub struct KeysArgs {
    /// Kind of engine: vllm, sglang, trtllm
    #[arg(long, default_value = "vllm", value_parser = engine)]
    kind: Engine,
    /// Version of the engine, as 0.28.0; extra keys and an unset seed depend on it
    #[arg(long, value_parser = version)]
    engine_version: Option<Version>,
    /// Block hash, as in a rule's kvHashAlgo [default: what a rule of this kind means without one]
    #[arg(long, value_parser = algo)]
    algo: Option<Algo>,
    /// PYTHONHASHSEED of a vLLM engine, to the letter
    #[arg(long)]
    seed: Option<String>,
    /// Tokens in a block [default: 16; trtllm 32]
    #[arg(long, value_parser = block_size)]
    block_size: Option<BlockSize>,
    /// Token ids, as 1,2,3, or @FILE with one such list a line
    #[arg(long, value_name = "LIST|@FILE")]
    tokens: Option<String>,
    /// A completion's prompt, as text
    #[arg(long, value_name = "TEXT", requires = "tokenizer")]
    prompt: Option<String>,
    /// A chat: a file with the body of its request
    #[arg(long, value_name = "FILE", requires = "tokenizer")]
    chat: Option<PathBuf>,
    /// The model's tokenizer.json
    #[arg(long, value_name = "FILE", conflicts_with = "tokens")]
    tokenizer: Option<PathBuf>,
    /// The chat template, before the one beside the tokenizer
    #[arg(long, value_name = "FILE", requires = "chat", conflicts_with_all = ["tokens", "prompt"])]
    template: Option<PathBuf>,
    /// The day that the template prints, as 2026-12-31
    #[arg(long, value_name = "DAY", value_parser = text::day, requires = "chat", conflicts_with_all = ["tokens", "prompt"])]
    date: Option<text::Day>,
    /// Prints the text that was tokenized
    #[arg(long, requires = "tokenizer", conflicts_with = "tokens")]
    show_text: bool,
    /// cache_salt of the request
    #[arg(long)]
    salt: Option<String>,
    /// LoRA adapter; its path (root of its card in /v1/models) is hashed by vLLM from 0.31
    #[arg(long, value_name = "NAME[,PATH]")]
    lora: Option<String>,
}

fn engine(text: &str) -> Result<Engine, String> {
    Engine::from_name(text).ok_or_else(|| one_of(Engine::ALL.iter().map(|engine| engine.name())))
}

fn algo(text: &str) -> Result<Algo, String> {
    Algo::from_name(text).ok_or_else(|| one_of(Algo::ALL.iter().map(|algo| algo.name())))
}

fn one_of<'a>(words: impl Iterator<Item = &'a str>) -> String {
    format!("allowed are {}", words.collect::<Vec<_>>().join(", "))
}

fn version(text: &str) -> Result<Version, String> {
    Version::read(text).ok_or_else(|| "no version; write it as 0.28.0".into())
}

fn block_size(text: &str) -> Result<BlockSize, String> {
    let tokens = text.parse().ok().and_then(BlockSize::new);
    tokens.ok_or_else(|| format!("allowed are 1 to {} tokens", BlockSize::MOST))
}

/// Prints the keys of each list of tokens, or of the one prompt. Nothing is printed unless all could be read and
/// named.
pub fn run(args: &KeysArgs) -> Result<(), String> {
    let long_seed = std::env::var_os("LLB_KV_LONG_SEED").is_some_and(|value| value == "1");
    let lines = answer(args, long_seed)?;
    io::stdout().write_all(lines.as_bytes()).or_else(|fault| match fault.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(format!("the keys can't be written: {fault}")),
    })
}

fn answer(args: &KeysArgs, long_seed: bool) -> Result<String, String> {
    let contract = contract(args, long_seed)?;
    let lora = args.lora.as_deref().map(adapter);
    let extras = Extras { lora, salt: args.salt.as_deref(), ..Extras::default() };
    let Some(prompt) = text::prompt(args)? else {
        return lines(&contract, &extras, &lists(args.tokens.as_deref().unwrap_or_default())?, None);
    };
    let salt = match (extras.salt, prompt.beside.salt.as_deref()) {
        (Some(_), Some(own)) => {
            return Err(format!("--salt: the chat has its own cache_salt {own:?}; leave one of them out"));
        }
        (given, own) => given.or(own),
    };
    let extras = Extras { salt, namespace: prompt.beside.namespace.as_deref(), ..extras };
    lines(&contract, &extras, &[prompt.ids], prompt.text.as_deref().filter(|_| args.show_text))
}

fn contract(args: &KeysArgs, long_seed: bool) -> Result<Contract, String> {
    let Some(algo) = args.algo.or(args.kind.rule_default()) else {
        return Err(format!("{} publishes no cache events, so its blocks have no keys", args.kind.name()));
    };
    let block_size = args.block_size.unwrap_or(args.kind.rule_block_size());
    let seed = args.seed.as_deref().map_or(Seed::Unset, Seed::Given);
    let terms = Terms { version: args.engine_version, seed, long_seed, ..Terms::plain(algo, block_size) };
    args.kind.contract(&terms).map_err(|fault| format!("{fault} ({})", fault.code()))
}

fn adapter(text: &str) -> Lora<'_> {
    match text.split_once(',') {
        Some((name, path)) => Lora { name, path: Some(path) },
        None => Lora { name: text, path: None },
    }
}

/// The lists of `--tokens`, from the command line or from a file.
fn lists(argument: &str) -> Result<Vec<Vec<u32>>, String> {
    let Some(file) = argument.strip_prefix('@') else {
        return list(argument).map(|list| vec![list]).map_err(|fault| fault.at("--tokens"));
    };
    let text = std::fs::read_to_string(file)
        .map_err(|fault| format!("{file}: {fault}; give a file with one list of token ids a line"))?;
    file_lists(file, &text)
}

/// Blank lines are left out.
fn file_lists(file: &str, text: &str) -> Result<Vec<Vec<u32>>, String> {
    let mut lists = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        lists.push(list(line).map_err(|fault| fault.at(&format!("{file}, line {}", index + 1)))?);
    }
    if lists.is_empty() {
        return Err(format!("{file} has no token ids; write one list a line, as 1,2,3"));
    }
    Ok(lists)
}

/// What is wrong with a list, and where.
struct ListFault {
    /// In characters from 1.
    column: usize,
    found: String,
}

impl ListFault {
    fn at(&self, place: &str) -> String {
        let ListFault { column, found } = self;
        format!(
            "{place}, column {column}: {found:?} is no token id; write ids from 0 to {} as 1,2,3",
            u32::MAX
        )
    }
}

/// A list of token ids parted by commas, blanks around them allowed, also in brackets as in a JSON body.
fn list(text: &str) -> Result<Vec<u32>, ListFault> {
    let bare = text.trim();
    let bare = bare.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(bare);
    if bare.trim().is_empty() && text.trim().starts_with('[') {
        return Ok(Vec::new());
    }
    bare.split(',').map(|part| id(text, part)).collect()
}

/// The id that `part`, a piece of `text`, holds.
fn id(text: &str, part: &str) -> Result<u32, ListFault> {
    let found = part.trim();
    let digits = !found.is_empty() && found.bytes().all(|byte| byte.is_ascii_digit());
    found.parse().ok().filter(|_| digits).ok_or_else(|| {
        let blanks = part.len() - part.trim_start().len();
        let begin = part.as_ptr() as usize - text.as_ptr() as usize + blanks;
        ListFault { column: text[..begin].chars().count() + 1, found: found.to_owned() }
    })
}

/// One JSON object a line for each list, with `text` if there is one to be shown.
fn lines(
    contract: &Contract,
    extras: &Extras<'_>,
    lists: &[Vec<u32>],
    text: Option<&str>,
) -> Result<String, String> {
    let (mut lines, mut scratch) = (String::new(), Scratch::default());
    for tokens in lists {
        let (mut keys, mut digests) = (Vec::new(), Vec::new());
        let mut chain = contract
            .chain(extras, &mut scratch)
            .map_err(|reason| format!("there are no keys: {reason} ({})", reason.word()))?;
        chain.feed(tokens, |key, digest| {
            keys.push(key.0);
            digests.push(digest.to_string());
        });
        let text = text.map_or(String::new(), |text| format!(r#","text":{}"#, serde_json::Value::from(text)));
        // Debug of numbers and of hexadecimal text is JSON.
        writeln!(lines, r#"{{"tokens":{tokens:?},"keys":{keys:?},"digests":{digests:?}{text}}}"#)
            .map_err(|fault| fault.to_string())?;
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        keys: KeysArgs,
    }

    fn answer(words: &str) -> Result<String, String> {
        let cli = Cli::try_parse_from(std::iter::once("keys").chain(words.split(' ')));
        super::answer(&cli.map_err(|fault| fault.to_string())?.keys, false)
    }

    /// The root of seed 0 and the key of ids 0 to 12 at block size 1 are vectors of vLLM 0.23.
    #[test]
    fn keys_are_the_engines() {
        let line =
            answer("--engine-version 0.28.0 --algo sha256 --seed 0 --block-size 1 --tokens 0,1").unwrap();
        let begin =
            r#"{"tokens":[0, 1],"keys":[8108991018325583606, 12042960255621000548],"digests":["8a8ca157f1"#;
        assert!(line.starts_with(begin), "{line}");
        assert!(line.ends_with("\"]}\n"), "{line}");
        let line = answer("--kind sglang --block-size 2 --tokens 11,7930,15849").unwrap();
        let key = (-8303153819391199254i64).cast_unsigned();
        assert!(line.starts_with(&format!(r#"{{"tokens":[11, 7930, 15849],"keys":[{key}],"#)), "{line}");
    }

    #[test]
    fn what_cannot_be_named_is_told_with_cause_and_cure() {
        for (words, part) in [
            ("--tokens 1", "KV_EXACT_SEED_UNSET"),
            ("--seed 000000000000000000000000 --tokens 1", "KV_EXACT_SEED_TOO_LONG"),
            ("--kind llamacpp --tokens 1", "publishes no cache events"),
            ("--kind sglang --algo sha256_cbor --tokens 1", "sglang has no block hash sha256_cbor"),
            ("--kind ollama --tokens 1", "allowed are vllm, sglang, trtllm, llamacpp"),
            ("--block-size 0 --tokens 1", "allowed are 1 to 4096"),
            ("--engine-version 0.31.0 --seed 0 --lora sql --tokens 1", "lora_path_unknown"),
            ("--seed 0 --salt s --tokens 1", "version_unknown"),
            ("--seed 0 --tokens 1,x", "--tokens, column 3: \"x\" is no token id"),
            ("--seed 0 --tokens @/nowhere/tokens", "/nowhere/tokens: "),
        ] {
            let fault = answer(words).unwrap_err();
            assert!(fault.contains(part), "{words}: {fault}");
        }
    }

    #[test]
    fn lists_of_a_file_are_read_line_by_line() {
        assert_eq!(file_lists("f", "1,2\n\n [3, 4] \n[]\n").unwrap(), [vec![1, 2], vec![3, 4], vec![]]);
        for (text, part) in [
            ("1,2\n3, é,4\n", "f, line 2, column 4: \"é\" is no token id"),
            ("1,,2", "f, line 1, column 3: \"\""),
            ("1,+2", "column 3: \"+2\""),
            ("4294967296", "column 1: \"4294967296\" is no token id; write ids from 0 to 4294967295"),
            ("é,1,-1", "column 1"),
            ("[1,2", "column 1: \"[1\""),
            (" \n", "f has no token ids"),
        ] {
            let fault = file_lists("f", text).unwrap_err();
            assert!(fault.contains(part), "{text:?}: {fault}");
        }
    }
}
