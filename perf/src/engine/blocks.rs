//! What a cache holds and says: digests, full blocks, name spaces, media, events and their log.
//! Pure data; must never name an engine: how a digest is made and how an event looks on the wire are
//! told by `kinds`.

use std::sync::Arc;

/// A block's name in full: up to 32 bytes, of which an engine publishes some.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    bytes: [u8; 32],
    length: u8,
}

impl Digest {
    /// The digest of these bytes; what is beyond 32 is dropped.
    pub fn new(bytes: &[u8]) -> Self {
        let length = bytes.len().min(32);
        let mut held = [0; 32];
        held[..length].copy_from_slice(&bytes[..length]);
        Digest { bytes: held, length: length as u8 }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The first eight bytes as a number, big-endian.
    pub fn first8(&self) -> u64 {
        number(self.bytes().iter().take(8))
    }

    /// The last eight bytes as a number, big-endian.
    pub fn last8(&self) -> u64 {
        number(self.bytes().iter().skip(self.bytes().len().saturating_sub(8)))
    }
}

fn number<'a>(bytes: impl Iterator<Item = &'a u8>) -> u64 {
    bytes.fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// An adapter, selected by its name in place of a model's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lora {
    /// Number from 1, as vLLM and TensorRT-LLM count them.
    pub id: u64,
    /// Name that requests give.
    pub name: String,
    /// Where it was loaded from.
    pub path: String,
}

/// What keeps equal tokens apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Space {
    /// The adapter.
    pub lora: Option<Lora>,
    /// The request's `cache_salt`.
    pub salt: Option<String>,
}

/// A block of tokens with its whole prefix.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// Its name.
    pub digest: Digest,
    /// The block before it.
    pub parent: Option<Digest>,
    /// Its tokens; fewer than a block only where an engine keeps a part (TensorRT-LLM).
    pub tokens: Box<[u32]>,
    /// Blocks before it.
    pub depth: usize,
    /// Its name space.
    pub space: Arc<Space>,
}

/// A run of blocks, each the parent of the next.
pub type Run = Vec<Arc<Block>>;

/// Where blocks lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Medium {
    /// The accelerator.
    Gpu,
    /// The host's memory.
    Host,
}

/// What a cache did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheEvent {
    /// A run came to lie in a medium.
    Stored {
        /// The blocks.
        blocks: Run,
        /// Where.
        medium: Medium,
        /// The request's session, if it named one.
        session: Option<String>,
    },
    /// Blocks left a medium.
    Removed {
        /// The blocks, in the order they went.
        blocks: Run,
        /// From where.
        medium: Medium,
    },
    /// A block left one medium for another.
    Moved {
        /// The block.
        block: Arc<Block>,
        /// Where it lies now.
        to: Medium,
    },
    /// Everything was forgotten.
    Cleared,
}

/// Events since the last step that published.
#[derive(Debug, Default)]
pub struct Log {
    /// Oldest first.
    pub events: Vec<CacheEvent>,
    /// Whether removals that follow each other are one event (SGLang) or one each (vLLM).
    pub gathers_removals: bool,
    /// Nobody is told, so nothing is noted.
    pub muted: bool,
    /// Session of the request at work.
    pub session: Option<String>,
}

impl Log {
    /// A run was stored; an empty one is no event.
    pub fn stored(&mut self, run: &[Arc<Block>], medium: Medium) {
        if !run.is_empty() && !self.muted {
            let session = self.session.clone().filter(|_| medium == Medium::Gpu);
            self.events.push(CacheEvent::Stored { blocks: run.to_vec(), medium, session });
        }
    }

    /// A block was removed.
    pub fn removed(&mut self, block: Arc<Block>, medium: Medium) {
        if self.muted {
            return;
        }
        if self.gathers_removals
            && let Some(CacheEvent::Removed { blocks, medium: last }) = self.events.last_mut()
            && *last == medium
        {
            return blocks.push(block);
        }
        self.events.push(CacheEvent::Removed { blocks: vec![block], medium });
    }

    /// A block moved.
    pub fn moved(&mut self, block: Arc<Block>, to: Medium) {
        if !self.muted {
            self.events.push(CacheEvent::Moved { block, to });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_a_digest_are_big_endian_numbers() {
        let digest = Digest::new(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(digest.first8(), 0x0102_0304_0506_0708);
        assert_eq!(digest.last8(), 0x0304_0506_0708_090a);
        assert_eq!(Digest::new(&[0xff, 1]).last8(), 0xff01);
        assert_ne!(Digest::new(&[0]), Digest::new(&[0, 0]));
    }
}
