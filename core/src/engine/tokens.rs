//! The gateway's own names for blocks: a 64-bit chain over token ids and extra keys that requests and events
//! both carry, for any engine, seed and hash. Owns these bytes. Nothing outside the process ever sees them.
//!
//! A block's name is XXH3-64, under a secret of the process, of the parent's name, the tokens as little-endian
//! words and the extra keys. The parent is 8 bytes, so that the event side needs no more than one word for a
//! block that an engine named. The tokens of a contract's blocks are equally many, and every extra key has a
//! tag and a length: no two blocks have the same bytes. XXH3 is not made against forgers; the secret keeps
//! them from working collisions out beforehand, and one would cost a wrong prediction, never a wrong answer.

use super::contract::{Recipe as AnyRecipe, Terms};
use super::extras::{BlockExtra, Decline};
use super::preimage::Preimage;
use crate::block::Digest;

/// How one process names blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recipe {
    secret: u64,
}

/// Tags of extra keys.
const LORA: u8 = 1;
const MEDIA: u8 = 2;
const SALT: u8 = 3;
const EMBEDS: u8 = 4;

pub(super) fn recipe(terms: &Terms<'_>) -> (AnyRecipe, Digest) {
    let recipe = Recipe { secret: terms.secret };
    (AnyRecipe::Tokens(recipe), recipe.root(terms))
}

/// Refuses what events of no engine tell.
pub(super) fn admit(extra: &BlockExtra<'_>) -> Result<(), Decline> {
    if extra.namespace.is_some() { Err(Decline::NamespaceUnseen) } else { Ok(()) }
}

impl Recipe {
    /// Chains that cut tokens differently have nothing in common.
    fn root(&self, terms: &Terms<'_>) -> Digest {
        let mut out = Preimage::default();
        out.put(b"warmpath tokens 1");
        out.put(&(terms.block_size.tokens() as u64).to_le_bytes());
        out.put(&terms.lookahead.to_le_bytes());
        out.byte(terms.bigram.into());
        Digest::of_64(out.xxh3_64(self.secret))
    }

    /// Replaces the parent `digest` by that of its block.
    pub(super) fn digest(
        &self,
        digest: &mut Digest,
        tokens: &[u32],
        extra: Option<&BlockExtra<'_>>,
        out: &mut Preimage,
    ) {
        out.digest(digest);
        let room = out.room(4 * tokens.len());
        for (word, token) in room.as_chunks_mut::<4>().0.iter_mut().zip(tokens) {
            *word = token.to_le_bytes();
        }
        out.advance(4 * tokens.len());
        if let Some(extra) = extra {
            extra_keys(out, extra);
        }
        *digest = Digest::of_64(out.xxh3_64(self.secret));
    }
}

/// The adapter by its name alone: events don't carry its path.
fn extra_keys(out: &mut Preimage, extra: &BlockExtra<'_>) {
    if let Some(lora) = extra.lora {
        tagged(out, LORA, lora.name.as_bytes());
    }
    for item in extra.media {
        tagged(out, MEDIA, item.identifier.as_bytes());
        out.put(&extra.offset_of(item).to_le_bytes());
    }
    if let Some(salt) = extra.salt {
        tagged(out, SALT, salt.as_bytes());
    }
    if let Some(embeds) = extra.embeds {
        tagged(out, EMBEDS, embeds);
    }
}

fn tagged(out: &mut Preimage, tag: u8, bytes: &[u8]) {
    out.byte(tag);
    out.put(&(bytes.len() as u64).to_le_bytes());
    out.put(bytes);
}
