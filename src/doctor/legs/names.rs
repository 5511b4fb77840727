//! The names of an engine's blocks: their size, hash and root, and the form in which they come. Owns these sentences;
//! what is tried is in `naming`.

use super::probe::Probed;
use crate::doctor::blocks::{Block, HashForm};
use crate::doctor::launch::Guess;
use crate::doctor::look::Look;
use crate::doctor::naming::{Found, find};
use crate::doctor::row::{Leg, Row};

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

fn other_algorithm(look: &Look<'_>, guess: &Guess, rule: &str) -> Row {
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

fn other_root(look: &Look<'_>, guess: &Guess, seed: Option<&str>) -> Row {
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
