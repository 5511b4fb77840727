//! A prompt's tokens in, its block keys out, as they come. Owns the cut into blocks and the state to go on
//! from; must never name a partial block, and never allocate for a block.

use super::contract::Contract;
use super::extras::Extras;
use super::preimage::{Preimage, Scratch};
use crate::block::{BlockKey, Digest};

/// Enough to go on hashing behind the last full block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last block's digest; before the first block, the root.
    pub digest: Digest,
    /// How many blocks lie behind.
    pub blocks: u64,
}

/// Names the blocks of one prompt.
#[derive(Debug)]
pub struct Chain<'a> {
    contract: &'a Contract,
    extras: Option<&'a Extras<'a>>,
    namespace: Option<[u8; 32]>,
    at: Checkpoint,
    preimage: &'a mut Preimage,
    /// Tokens behind the last named block, always fewer than a block and its overhang.
    pending: &'a mut Vec<u32>,
}

impl<'a> Chain<'a> {
    pub(super) fn new(
        contract: &'a Contract,
        extras: &'a Extras<'a>,
        namespace: Option<[u8; 32]>,
        at: Checkpoint,
        scratch: &'a mut Scratch,
    ) -> Chain<'a> {
        let Scratch { preimage, pending } = scratch;
        pending.clear();
        pending.reserve(contract.block_size().tokens() + contract.overhang());
        let extras = Some(extras).filter(|extras| !extras.is_plain());
        Chain { contract, extras, namespace, at, preimage, pending }
    }

    /// Takes the prompt's next tokens and calls `each` with every block that they complete. Where the prompt
    /// is cut between two calls makes no difference.
    pub fn feed(&mut self, mut tokens: &[u32], mut each: impl FnMut(BlockKey, &Digest)) {
        let step = self.contract.block_size().tokens();
        let span = step + self.contract.overhang();
        while !self.pending.is_empty() {
            let (taken, rest) = tokens.split_at(tokens.len().min(span - self.pending.len()));
            self.pending.extend_from_slice(taken);
            tokens = rest;
            if self.pending.len() < span {
                return;
            }
            let mut pending = std::mem::take(self.pending);
            self.block(&pending, &mut each);
            pending.drain(..step);
            *self.pending = pending;
        }
        while tokens.len() >= span {
            self.block(&tokens[..span], &mut each);
            tokens = &tokens[step..];
        }
        self.pending.extend_from_slice(tokens);
    }

    /// Where the chain stands. Tokens behind the last full block are not part of it.
    pub fn checkpoint(&self) -> Checkpoint {
        self.at
    }

    fn block(&mut self, tokens: &[u32], each: &mut impl FnMut(BlockKey, &Digest)) {
        let size = self.contract.block_size().tokens();
        let extra = self.extras.map(|extras| extras.of_block(self.at.blocks, size));
        self.contract.hash(&mut self.at.digest, tokens, extra.as_ref(), self.preimage);
        self.at.blocks += 1;
        each(self.contract.key(&self.at.digest, self.namespace.as_ref()), &self.at.digest);
    }
}
