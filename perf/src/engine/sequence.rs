//! One prompt with the tokens computed after it, its blocks and what it holds of a cache. A generated
//! token is computed, and so belongs here, in the step after the one that gave it. Must never look into
//! a cache.

use std::sync::Arc;

use super::blocks::{Block, Digest, Space};
use super::cache::Lease;
use super::kinds::Chain;

/// A growing run of computed tokens.
#[derive(Debug)]
pub struct Sequence {
    tokens: Vec<u32>,
    blocks: Vec<Arc<Block>>,
    /// After the last full block.
    chain: Chain,
    block_size: usize,
    space: Arc<Space>,
    prompt: usize,
    /// What it holds of its rank's cache, once it began.
    pub lease: Option<Lease>,
}

impl Sequence {
    /// A prompt.
    pub fn new(prompt: &[u32], block_size: usize, chain: Chain, space: Arc<Space>) -> Self {
        let (tokens, length) = (prompt.to_vec(), prompt.len());
        let mut sequence =
            Sequence { tokens, blocks: Vec::new(), chain, block_size, space, prompt: length, lease: None };
        sequence.fill();
        sequence
    }

    /// One token more.
    pub fn push(&mut self, token: u32) {
        self.tokens.push(token);
        self.fill();
    }

    fn fill(&mut self) {
        loop {
            let start = self.blocks.len() * self.block_size;
            let Some(tokens) = self.tokens.get(start..start + self.block_size) else { return };
            let digest = self.chain.next(tokens);
            self.blocks.push(Arc::new(self.block(digest, tokens)));
        }
    }

    fn block(&self, digest: Digest, tokens: &[u32]) -> Block {
        Block {
            digest,
            parent: self.blocks.last().map(|block| block.digest),
            tokens: tokens.into(),
            depth: self.blocks.len(),
            space: self.space.clone(),
        }
    }

    /// Tokens computed.
    pub fn computed(&self) -> usize {
        self.tokens.len()
    }

    /// The full blocks.
    pub fn full(&self) -> &[Arc<Block>] {
        &self.blocks
    }

    /// The blocks that the first `tokens` of the prompt fill.
    pub fn within(&self, tokens: usize) -> &[Arc<Block>] {
        &self.blocks[..(tokens / self.block_size).min(self.blocks.len())]
    }

    /// Blocks of the prompt that a cache may spare computing: never its last token.
    pub fn sparable(&self) -> &[Arc<Block>] {
        self.within(self.prompt.saturating_sub(1))
    }

    /// Tokens of the prompt.
    pub fn prompt(&self) -> usize {
        self.prompt
    }

    /// All blocks, an unfilled one at the end included.
    pub fn full_and_part(&self) -> Vec<Arc<Block>> {
        let rest = &self.tokens[self.blocks.len() * self.block_size..];
        let part = (!rest.is_empty()).then(|| Arc::new(self.block(self.chain.clone().next(rest), rest)));
        self.blocks.iter().cloned().chain(part).collect()
    }

    /// Whether the next token fills a block.
    pub fn about_to_fill(&self) -> bool {
        (self.tokens.len() + 1).is_multiple_of(self.block_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_fill_as_tokens_come_and_a_part_names_no_later_block() {
        let chain = Chain::Llamacpp(0);
        let mut sequence = Sequence::new(&[1, 2, 3, 4, 5], 2, chain, Arc::new(Space::default()));
        assert_eq!((sequence.full().len(), sequence.sparable().len()), (2, 2));
        assert!(sequence.about_to_fill());
        assert_eq!(sequence.full_and_part().len(), 3);
        sequence.push(6);
        assert_eq!(sequence.full_and_part().len(), 3);
        assert_eq!(sequence.full()[2].parent, Some(sequence.full()[1].digest));
        assert_eq!((sequence.computed(), sequence.prompt(), sequence.full()[2].depth), (6, 5, 2));
    }

    #[test]
    fn a_prompt_of_whole_blocks_may_not_be_spared_whole() {
        let sequence = Sequence::new(&[1, 2, 3, 4], 2, Chain::Llamacpp(0), Arc::new(Space::default()));
        assert_eq!((sequence.full().len(), sequence.sparable().len()), (2, 1));
    }
}
