//! What enters the names of blocks beside tokens: a request's salt, its adapter. Owns these probes and their sentences.

use super::probe::{Probed, probed};
use crate::doctor::blocks::Block;
use crate::doctor::look::Look;
use crate::doctor::naming::{fits, keys};
use crate::doctor::row::{Leg, Row};
use warmpath_core::engine::{Decline, Extras, Lora};

/// A prompt with a salt.
pub fn salt(look: &mut Look<'_>, plain: &Probed) {
    let salt = format!("doctor-{:x}", look.mark() >> 32);
    let extras = Extras { salt: Some(&salt), ..Extras::default() };
    let row = match named(look, &look.model(), plain, Some(&salt), &extras) {
        Ok(()) => Row::equal(Leg::Salt, "a salted probe has the names that the gateway gives it"),
        Err(Unnamed::Declined(why)) => {
            Row::not_run(Leg::Salt, format!("the gateway leaves salted requests to the selector: {why}"))
                .rule(versioned(why))
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
                .rule(versioned(why))
        }
        Err(Unnamed::Silent(why)) => Row::not_run(Leg::Lora, why),
        Err(Unnamed::Otherwise) => {
            Row::not_equal(Leg::Lora, format!("a probe of {name} has other names than the gateway gives it"))
                .rule("kvEngineVersion: the engine's own, or \"kvHashAlgo\": \"tokens\"")
        }
    };
    look.tell(row);
}

/// What lets the gateway name what depends on the version, where neither rule nor engine tells it.
fn versioned(why: Decline) -> &'static str {
    if why == Decline::VersionUnknown { "kvEngineVersion: the engine's own" } else { "" }
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
    // As the gateway does it: by the version of the rule, else by the one that the engine tells.
    let told = look.version.filter(|_| exact.version.is_none());
    let contract = told.map_or(exact.contract, |version| exact.contract.told(version));
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
