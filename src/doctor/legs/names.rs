//! The names of an engine's blocks: their size, hash and root, the form in which they come, and what enters them beside
//! tokens. Owns the probes of token ids and these sentences.

use super::events;
use crate::doctor::blocks::{Block, HashForm};
use crate::doctor::look::{Look, completion, owned};
use crate::doctor::naming::{Found, find, fits, keys};
use crate::doctor::row::{Leg, Row};
use serde_json::Value;
use warmpath_core::engine::{Decline, Extras, Lora};

/// Blocks that a probe fills.
const BLOCKS: usize = 4;
/// Tokens of a block where nobody tells: more than this no engine has by default.
const LARGEST: usize = 256;
/// Probes that are sent: the first may be missed by a subscription that the engine has not taken in yet.
const TRIES: usize = 3;

/// A prompt of token ids, and its blocks as events told of them.
pub struct Probed {
    /// The prompt.
    pub ids: Vec<u32>,
    /// Its blocks on rank 0, in order; at least one.
    pub chain: Vec<Block>,
}

/// Probes every rank with a plain prompt; that of rank 0.
pub fn plain(look: &mut Look<'_>) -> Option<Probed> {
    let ranks = look.wanted.exact.as_ref().map_or(1, |exact| exact.ranks);
    let mut first = None;
    for rank in 0..ranks {
        match probed(look, &look.model(), look.pinned(rank), None) {
            Ok(probed) => {
                if let Some(row) = another_rank(look, rank, &probed) {
                    look.tell(row);
                    return None;
                }
                first = first.or(Some(probed));
            }
            Err(why) => {
                look.tell(silent(look, rank, &why));
                return None;
            }
        }
    }
    events::came(look);
    first
}

/// A request that was sent to one rank must be told of by that rank's publisher.
fn another_rank(look: &Look<'_>, rank: u8, probed: &Probed) -> Option<Row> {
    let exact = look.wanted.exact.as_ref()?;
    let told = probed.chain.iter().find(|block| exact.ranks > 1 && block.rank != u32::from(rank))?;
    Some(
        Row::not_equal(Leg::Events, format!("a probe of rank {rank} is told of as rank {}", told.rank))
            .rule("kvZmqPort: the port of rank 0; the others follow it one by one"),
    )
}

fn silent(look: &Look<'_>, rank: u8, why: &str) -> Row {
    let port = look.wanted.exact.as_ref().map_or(0, |exact| exact.ports.publish);
    let said = match (&look.heard.reject, look.heard.unkept) {
        (Some(reject), _) => format!("; batches came that can't be read: {reject}"),
        (None, 0) => String::new(),
        (None, unkept) => format!("; {unkept} blocks came without their tokens"),
    };
    Row::not_equal(Leg::Events, format!("rank {rank}: {why}{said}"))
        .engine((look.launch.events)(port))
        .rule("kvZmqPort: the port at which this engine publishes, not another's")
}

/// Sends prompts until the blocks of one come.
fn probed(look: &mut Look<'_>, model: &str, rank: Option<u8>, salt: Option<&str>) -> Result<Probed, String> {
    let rule = look.wanted.exact.as_ref().map_or(16, |exact| exact.contract.block_size().tokens());
    let told = look.facts.block_size.map(|own| own as usize);
    let mut size = told.unwrap_or(rule).max(1);
    let mut why = String::new();
    for _ in 0..TRIES {
        let ids = look.token_ids(BLOCKS * size + 5);
        let sent =
            match look.send("/v1/completions", &completion(model, Value::from(ids.clone()), salt), rank) {
                Ok(sent) => sent,
                Err(fault) => return Err(format!("a probe of {} token ids: {fault}", ids.len())),
            };
        look.hear_until(|heard| heard.chain(sent.since, &ids, None).len() >= BLOCKS)?;
        let chain = owned(look.heard.chain(sent.since, &ids, None));
        if !chain.is_empty() {
            return Ok(Probed { ids, chain });
        }
        why = format!("a probe of {} token ids was answered, and no event told of its blocks", ids.len());
        size = told.unwrap_or(LARGEST);
    }
    Err(why)
}

/// The size that its events have.
pub fn block_size(look: &mut Look<'_>, probed: &Probed) {
    let Some(rule) = look.wanted.exact.as_ref().map(|exact| exact.contract.block_size().tokens()) else {
        return;
    };
    let own = probed.chain[0].tokens.len();
    let row = if own == rule {
        Row::equal(Leg::BlockSize, format!("{own} tokens"))
    } else {
        Row::not_equal(Leg::BlockSize, format!("its events have {own} tokens, the rule {rule}"))
            .engine((look.launch.block_size)(rule as u32))
            .rule(format!("\"kvBlockSize\": {own}"))
    };
    look.tell(row);
}

/// Hash and root together, since only both make a name.
pub fn algorithm_and_root(look: &mut Look<'_>, probed: &Probed) {
    let chain: Vec<&Block> = probed.chain.iter().collect();
    let found = find(look.wanted, look.version, &probed.ids, &chain);
    let rows = if look.wanted.is_by_tokens() { by_tokens(look, &found) } else { by_hash(look, &found) };
    rows.into_iter().for_each(|row| look.tell(row));
}

/// Where the rule names blocks by tokens, the engine's own names are only translated.
fn by_tokens(look: &Look<'_>, found: &Found) -> [Row; 2] {
    let own = match found {
        Found::Otherwise(guess) => format!("its own are {}", guess.says()),
        _ => "its own names are not known, and need not be".into(),
    };
    let word = look.wanted.algo().map_or("tokens", |algo| algo.name());
    let expected = look
        .wanted
        .exact
        .as_ref()
        .and_then(|exact| warmpath_events::engines::expected_algorithm(&exact.contract));
    let other =
        look.facts.algorithm.as_deref().filter(|own| expected.is_some_and(|expected| *own != expected));
    let algorithm = match other {
        Some(other) => Row::not_equal(
            Leg::Algorithm,
            format!("it names blocks by {other}, whose events leave tokens out"),
        )
        .engine((look.launch.algorithm)(expected.unwrap_or_default())),
        None => Row::equal(Leg::Algorithm, format!("{word}: names by token ids; {own}")),
    };
    [algorithm, Row::equal(Leg::Root, format!("{word} needs none of the engine's"))]
}

fn by_hash(look: &Look<'_>, found: &Found) -> [Row; 2] {
    let rule = look.wanted.algo().map_or("", |algo| algo.name());
    let seed = look.wanted.environment.none_hash_seed.as_deref();
    match found {
        Found::AsTheRule => {
            let root =
                seed.map_or_else(|| "that of no seed".to_owned(), |seed| format!("PYTHONHASHSEED={seed}"));
            let root = if (look.launch.root)(seed).is_empty() { "the engine has none".into() } else { root };
            [
                Row::equal(Leg::Algorithm, format!("{rule}: all blocks of a probe have the same name")),
                Row::equal(Leg::Root, root),
            ]
        }
        Found::Otherwise(guess) => [other_algorithm(look, guess, rule), other_root(look, guess, seed)],
        Found::Nothing(tried) => [untold_algorithm(look, rule), unknown_root(look, seed, *tried)],
    }
}

fn other_algorithm(look: &Look<'_>, guess: &crate::doctor::launch::Guess, rule: &str) -> Row {
    let own = guess.algo.map_or(guess.own, |algo| algo.name());
    if own == rule && !guess.dynamo {
        return Row::equal(Leg::Algorithm, format!("{rule}, found by trying"));
    }
    Row::not_equal(
        Leg::Algorithm,
        format!("it names blocks by {}, the rule by {rule}; found by trying", guess.says()),
    )
    .engine((look.launch.algorithm)(rule))
    .rule(match guess.dynamo {
        true => "\"kvHashAlgo\": \"tokens\"".to_owned(),
        false => format!("\"kvHashAlgo\": \"{own}\", or \"tokens\""),
    })
}

fn other_root(look: &Look<'_>, guess: &crate::doctor::launch::Guess, seed: Option<&str>) -> Row {
    if (look.launch.root)(seed).is_empty() {
        return Row::equal(Leg::Root, "the engine has none");
    }
    if look.wanted.lacking.is_none() && guess.seed.as_deref() == seed {
        return Row::equal(Leg::Root, (look.launch.root)(seed));
    }
    let has =
        guess.seed.as_ref().map_or_else(|| "no seed".to_owned(), |seed| format!("PYTHONHASHSEED={seed}"));
    let ours = seed.map_or_else(|| "none".to_owned(), |seed| format!("{seed:?}"));
    let gateway = match &guess.seed {
        Some(seed) => format!("start the gateway with LLB_KV_NONE_HASH_SEED={seed}, or \"kvHashAlgo\": \"tokens\""),
        None => "start the gateway without LLB_KV_NONE_HASH_SEED, with the rule's kvEngineVersion, or \"kvHashAlgo\": \
                 \"tokens\""
            .into(),
    };
    Row::not_equal(
        Leg::Root,
        format!("it has {has}, the gateway's LLB_KV_NONE_HASH_SEED is {ours}; found by trying"),
    )
    .engine((look.launch.root)(seed.or(Some("0"))))
    .rule(gateway)
}

/// What the engine says must do where no trial tells.
fn untold_algorithm(look: &Look<'_>, rule: &str) -> Row {
    match look.facts.algorithm.as_deref() {
        Some(own) if own == rule => Row::equal(Leg::Algorithm, format!("{own}, as it says")),
        Some(own) => Row::not_equal(
            Leg::Algorithm,
            format!("it says that it names blocks by {own}, the rule by {rule}"),
        )
        .engine((look.launch.algorithm)(rule))
        .rule("\"kvHashAlgo\": \"tokens\""),
        None => Row::not_run(
            Leg::Algorithm,
            "no hash that was tried gives its names, and it does not say its own",
        )
        .engine((look.launch.algorithm)(rule))
        .rule("\"kvHashAlgo\": \"tokens\""),
    }
}

fn unknown_root(look: &Look<'_>, seed: Option<&str>, tried: usize) -> Row {
    let why = format!(
        "none of {tried} combinations of hash and seed gives its names: a seed of its own, or a random one, as before 0.29 \
         without PYTHONHASHSEED and always with xxhash"
    );
    if (look.launch.root)(seed).is_empty() {
        return Row::not_equal(Leg::Root, format!("none of {tried} forms gives its names"))
            .rule("\"kvHashAlgo\": \"tokens\"");
    }
    Row::not_equal(Leg::Root, why)
        .engine((look.launch.root)(seed.or(Some("0"))))
        .rule("LLB_KV_NONE_HASH_SEED: the engine's, to the letter; or \"kvHashAlgo\": \"tokens\"")
}

/// Both are read; other programs may ask for one.
pub fn hash_form(look: &mut Look<'_>) {
    let row = match look.heard.form {
        Some(HashForm::Int) => Row::equal(Leg::HashForm, "integers"),
        Some(HashForm::Bytes(length)) => Row::equal(Leg::HashForm, format!("byte strings of {length}")),
        None => Row::not_run(Leg::HashForm, "no event with a hash came"),
    };
    look.tell(row);
}

/// A prompt with a salt.
pub fn salt(look: &mut Look<'_>, plain: &Probed) {
    let salt = format!("doctor-{:x}", look.mark() >> 32);
    let extras = Extras { salt: Some(&salt), ..Extras::default() };
    let row = match named(look, &look.model(), plain, Some(&salt), &extras) {
        Ok(()) => Row::equal(Leg::Salt, "a salted probe has the names that the gateway gives it"),
        Err(Unnamed::Declined(why)) => {
            Row::not_run(Leg::Salt, format!("the gateway leaves salted requests to the selector: {why}"))
                .rule(versioned(look, why))
        }
        Err(Unnamed::Silent(why)) => Row::not_run(Leg::Salt, why),
        Err(Unnamed::Otherwise) => {
            Row::not_equal(Leg::Salt, "a salted probe has other names than the gateway gives it")
                .engine("a version of the rule's family: salts are hashed otherwise from one to the next")
                .rule("kvEngineVersion: the engine's own, or \"kvHashAlgo\": \"tokens\"")
        }
    };
    look.tell(row);
}

/// A prompt under its first adapter: the others are named in the same way.
pub fn lora(look: &mut Look<'_>, plain: &Probed) {
    let adapters = look.facts.adapters.clone();
    let Some(adapter) = adapters.first() else {
        look.tell(Row::not_run(Leg::Lora, "it serves no adapter"));
        return;
    };
    let lora = Lora { name: &adapter.name, path: adapter.path.as_deref() };
    let extras = Extras { lora: Some(lora), ..Extras::default() };
    let name = &adapter.name;
    let row = match named(look, name, plain, None, &extras) {
        Ok(()) => Row::equal(Leg::Lora, format!("a probe of {name} has the names that the gateway gives it")),
        Err(Unnamed::Declined(why)) => {
            Row::not_run(Leg::Lora, format!("the gateway leaves requests of adapters to the selector: {why}"))
                .rule(versioned(look, why))
        }
        Err(Unnamed::Silent(why)) => Row::not_run(Leg::Lora, why),
        Err(Unnamed::Otherwise) => {
            Row::not_equal(Leg::Lora, format!("a probe of {name} has other names than the gateway gives it"))
                .rule("kvEngineVersion: the engine's own, or \"kvHashAlgo\": \"tokens\"")
        }
    };
    look.tell(row);
}

/// What lets the gateway name what depends on the version, where the rule has none.
fn versioned(look: &Look<'_>, why: Decline) -> String {
    match look.version.filter(|_| why == Decline::VersionUnknown) {
        Some(own) => format!("\"kvEngineVersion\": \"{own}\""),
        None => String::new(),
    }
}

/// Why a probe has not the names that were expected.
enum Unnamed {
    /// The gateway names no such blocks.
    Declined(Decline),
    /// No blocks of it came.
    Silent(String),
    /// They have other names.
    Otherwise,
}

/// Compares the names of a probe with `extras`. Under names by tokens, what must come is the text beside the tokens;
/// under a hash that differs already for plain prompts nothing can be said.
fn named(
    look: &mut Look<'_>,
    model: &str,
    plain: &Probed,
    salt: Option<&str>,
    extras: &Extras<'_>,
) -> Result<(), Unnamed> {
    let silent = |why: &str| Unnamed::Silent(why.to_owned());
    let exact = look.wanted.exact.clone().ok_or_else(|| silent("the rule asks for no exact routing"))?;
    let contract = exact.contract;
    let chain: Vec<&Block> = plain.chain.iter().collect();
    let by_tokens = contract.is_by_tokens();
    let own = keys(&contract, &plain.ids, &Extras::default()).unwrap_or_default();
    if !by_tokens && !fits(&own, &chain) {
        return Err(silent("plain prompts have other names already"));
    }
    keys(&contract, &plain.ids, extras).map_err(Unnamed::Declined)?;
    let probed = probed(look, model, look.pinned(0), salt).map_err(Unnamed::Silent)?;
    let chain: Vec<&Block> = probed.chain.iter().collect();
    let fits = if by_tokens {
        let text = salt.or(extras.lora.map(|lora| lora.name)).unwrap_or_default();
        chain.first().is_some_and(|block| block.texts.iter().any(|own| own == text))
    } else {
        keys(&contract, &probed.ids, extras).is_ok_and(|keys| fits(&keys, &chain))
    };
    if fits { Ok(()) } else { Err(Unnamed::Otherwise) }
}
