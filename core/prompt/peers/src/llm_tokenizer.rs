//! The `llm-tokenizer` crate, as the smg router uses it: parse the body, render the template, encode; with its caches
//! of whole texts and of beginnings, and without.

use crate::{Fault, Peer};
use ::llm_tokenizer::chat_template::ChatTemplateParams;
use ::llm_tokenizer::traits::Tokenizer;
use ::llm_tokenizer::{CacheConfig, CachedTokenizer, HuggingFaceTokenizer};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// One of both ways.
pub struct LlmTokenizer {
    name: &'static str,
    tokenizer: Arc<dyn Tokenizer>,
}

impl LlmTokenizer {
    /// Without caches.
    pub fn plain(folder: &Path) -> Result<LlmTokenizer, Fault> {
        Ok(LlmTokenizer { name: "llm-tokenizer, no cache", tokenizer: Arc::new(loaded(folder)?) })
    }

    /// With both caches, each with as much memory as checkpoints have here.
    pub fn cached(folder: &Path) -> Result<LlmTokenizer, Fault> {
        let config = CacheConfig {
            l0_max_memory: 256 << 20,
            enable_l1: true,
            l1_max_memory: 256 << 20,
            ..CacheConfig::default()
        };
        let cached = CachedTokenizer::new(Arc::new(loaded(folder)?), config);
        Ok(LlmTokenizer { name: "llm-tokenizer, cached", tokenizer: Arc::new(cached) })
    }
}

fn loaded(folder: &Path) -> Result<HuggingFaceTokenizer, Fault> {
    let file = folder.join("tokenizer.json");
    let tokenizer = HuggingFaceTokenizer::from_file(&file.to_string_lossy())?;
    println!("llm-tokenizer encodes by {:?}", tokenizer.encode_path());
    Ok(tokenizer)
}

impl Peer for LlmTokenizer {
    fn name(&self) -> &'static str {
        self.name
    }

    fn tokens(&mut self, body: &str) -> Result<u64, Fault> {
        let mut body: Value = serde_json::from_str(body)?;
        let messages = body["messages"].take();
        let messages = messages.as_array().ok_or("no messages")?;
        let params = ChatTemplateParams { add_generation_prompt: true, ..ChatTemplateParams::default() };
        let text = self.tokenizer.apply_chat_template(messages, params)?;
        Ok(self.tokenizer.encode(&text, false)?.token_ids().len() as u64)
    }
}
