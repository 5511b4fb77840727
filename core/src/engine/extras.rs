//! What names a block beside its tokens: adapter, media, salt, prompt embeddings, namespace. Owns these values
//! and which of them a block carries; how each enters the hash is the engine files'.

use std::fmt;

/// Everything beside tokens that a request's blocks are named by. The default is a plain text request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras<'a> {
    /// The LoRA adapter.
    pub lora: Option<Lora<'a>>,
    /// Media items in the order of their offsets, none overlapping another.
    pub media: &'a [Media<'a>],
    /// The body's `cache_salt`.
    pub salt: Option<&'a str>,
    /// For each block from the first on, SHA-256 of the embeddings of its positions.
    pub embeds: &'a [[u8; 32]],
    /// SGLang's `extra_key`.
    pub namespace: Option<&'a str>,
}

/// A LoRA adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lora<'a> {
    /// Its name, which requests use as model and events carry.
    pub name: &'a str,
    /// Where the engine loaded it from: `root` of its card in `GET /v1/models`. In no event.
    pub path: Option<&'a str>,
}

/// One image, audio clip or other item that stands for a run of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Media<'a> {
    /// The engine's name for the content.
    pub identifier: &'a str,
    /// Its first token, counted from the beginning of the prompt; in events, of the block, and negative when
    /// it began in an earlier one.
    pub offset: i64,
    /// How many tokens it stands for.
    pub length: u32,
}

/// What one block carries of [`Extras`].
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockExtra<'a> {
    /// The LoRA adapter: in every block.
    pub lora: Option<Lora<'a>>,
    /// The media items that overlap the block.
    pub media: &'a [Media<'a>],
    /// What to take off a media item's offset so that it counts from the block's first token.
    pub media_origin: i64,
    /// The salt: only in the first block.
    pub salt: Option<&'a str>,
    /// The block's embeddings.
    pub embeds: Option<&'a [u8; 32]>,
    /// SGLang's `extra_key`: in every block.
    pub namespace: Option<&'a str>,
}

impl<'a> Extras<'a> {
    /// Whether tokens alone name the blocks.
    pub fn is_plain(&self) -> bool {
        self.lora.is_none()
            && self.media.is_empty()
            && self.salt.is_none()
            && self.embeds.is_empty()
            && self.namespace.is_none()
    }

    /// What the `index`-th block of `size` tokens carries.
    pub fn of_block(&self, index: u64, size: usize) -> BlockExtra<'a> {
        let begin = (index as i64).saturating_mul(size as i64);
        let end = begin.saturating_add(size as i64);
        let first = self.media.partition_point(|item| item.end() <= begin);
        let beyond = self.media.partition_point(|item| item.offset < end).max(first);
        BlockExtra {
            lora: self.lora,
            media: &self.media[first..beyond],
            media_origin: begin,
            salt: self.salt.filter(|_| index == 0),
            embeds: usize::try_from(index).ok().and_then(|index| self.embeds.get(index)),
            namespace: self.namespace,
        }
    }

    /// All of it at once, to judge whether it can be hashed at all.
    pub(super) fn whole(&self) -> BlockExtra<'a> {
        BlockExtra {
            lora: self.lora,
            media: self.media,
            media_origin: 0,
            salt: self.salt,
            embeds: self.embeds.first(),
            namespace: self.namespace,
        }
    }
}

impl Media<'_> {
    fn end(&self) -> i64 {
        self.offset.saturating_add(i64::from(self.length))
    }
}

impl BlockExtra<'_> {
    /// Bytes of the longest text. It bounds the memory that hashing takes.
    pub(super) fn longest(&self) -> usize {
        let lora = self.lora.map_or(0, |lora| lora.name.len().max(lora.path.map_or(0, str::len)));
        let media = self.media.iter().map(|item| item.identifier.len()).max().unwrap_or(0);
        let texts = [self.salt, self.namespace].map(|text| text.map_or(0, str::len));
        lora.max(media).max(texts[0]).max(texts[1])
    }

    /// A media item's offset from the block's first token.
    pub(super) fn offset_of(&self, item: &Media<'_>) -> i64 {
        item.offset.wrapping_sub(self.media_origin)
    }

    /// Whether tokens alone name the block.
    pub fn is_plain(&self) -> bool {
        self.lora.is_none()
            && self.media.is_empty()
            && self.salt.is_none()
            && self.embeds.is_none()
            && self.namespace.is_none()
    }
}

/// Why the keys of one request can't be known. The request goes on by the next tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decline {
    /// The engine's version, which decides how extras are hashed, is unknown.
    VersionUnknown,
    /// The adapter's path is hashed (vLLM from 0.31) and not known.
    LoraPathUnknown,
    /// The adapter's namespace has a random part (SGLang).
    LoraRandom,
    /// Pickled media: the bytes depend on which strings the engine shares between items.
    MediaPickled,
    /// The engine replaces media tokens by values of its own (SGLang).
    MediaUnknown,
    /// Two equal strings in a pickle: the bytes depend on whether they are one object.
    StringsAlike,
    /// Media or embeddings under look-ahead hashing.
    LookaheadMedia,
    /// Longer than 64 KiB: no engine takes such names, and a pickle would no longer be one frame.
    TooLong,
    /// Blocks of another namespace look the same in events, and would not be hit.
    NamespaceUnseen,
    /// The contract names blocks by tokens alone.
    TokensOnly,
}

impl Decline {
    /// A word for metrics and explanations.
    pub const fn word(self) -> &'static str {
        match self {
            Decline::VersionUnknown => "version_unknown",
            Decline::LoraPathUnknown => "lora_path_unknown",
            Decline::LoraRandom => "lora_random",
            Decline::MediaPickled => "media_pickled",
            Decline::MediaUnknown => "media_unknown",
            Decline::StringsAlike => "strings_alike",
            Decline::LookaheadMedia => "lookahead_media",
            Decline::TooLong => "too_long",
            Decline::NamespaceUnseen => "namespace_unseen",
            Decline::TokensOnly => "tokens_only",
        }
    }
}

impl fmt::Display for Decline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Decline::VersionUnknown => {
                "how extra keys are hashed depends on the engine's version, which is unknown"
            }
            Decline::LoraPathUnknown => "this engine hashes the adapter's path, which is unknown",
            Decline::LoraRandom => "this engine gives each load of an adapter a random name",
            Decline::MediaPickled => "pickled hashes of media depend on the engine's memory",
            Decline::MediaUnknown => "this engine replaces media tokens by values of its own",
            Decline::StringsAlike => "pickled hashes of two equal strings depend on the engine's memory",
            Decline::LookaheadMedia => "media and embeddings under look-ahead hashing are not known",
            Decline::TooLong => "a block's extra keys are longer than 64 KiB",
            Decline::NamespaceUnseen => "this engine's events don't tell namespaces apart",
            Decline::TokensOnly => "this contract names blocks by their tokens alone",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_carries_what_overlaps_it() {
        let media = [
            Media { identifier: "a", offset: 4, length: 8 },
            Media { identifier: "b", offset: 14, length: 30 },
        ];
        let extras = Extras { media: &media, salt: Some("s"), ..Extras::default() };
        let seen: Vec<_> = (0..4)
            .map(|index| {
                let block = extras.of_block(index, 16);
                let names: String = block.media.iter().map(|m| m.identifier).collect();
                (names, block.media_origin, block.salt.is_some(), block.is_plain())
            })
            .collect();
        assert_eq!(seen[0], ("ab".into(), 0, true, false));
        assert_eq!(seen[1], ("b".into(), 16, false, false));
        assert_eq!(seen[2], ("b".into(), 32, false, false));
        assert_eq!(seen[3], (String::new(), 48, false, true));
    }

    #[test]
    fn an_item_ends_before_the_block_after_its_last_token() {
        let media = [Media { identifier: "a", offset: 0, length: 16 }];
        let extras = Extras { media: &media, ..Extras::default() };
        assert_eq!(extras.of_block(0, 16).media.len(), 1);
        assert_eq!(extras.of_block(1, 16).media.len(), 0);
        assert_eq!(extras.of_block(u64::MAX, 4096).media.len(), 0);
    }
}
