//! The `tokenizers` crate alone: the text is rendered here, in no time of its own worth the name, and encoded whole.

use crate::{Fault, Peer};
use serde_json::Value;
use std::path::Path;

/// The tokenizer.
pub struct Reference(tokenizers::Tokenizer);

impl Reference {
    /// From a model's folder.
    pub fn new(folder: &Path) -> Result<Reference, Fault> {
        tokenizers::Tokenizer::from_file(folder.join("tokenizer.json")).map(Reference)
    }
}

impl Peer for Reference {
    fn name(&self) -> &'static str {
        "tokenizers alone (ChatML by hand)"
    }

    fn tokens(&mut self, body: &str) -> Result<u64, Fault> {
        let body: Value = serde_json::from_str(body)?;
        let mut text = String::new();
        for message in body["messages"].as_array().into_iter().flatten() {
            let of = |name: &str| message[name].as_str().unwrap_or_default();
            text += &format!("<|im_start|>{}\n{}<|im_end|>\n", of("role"), of("content"));
        }
        text += "<|im_start|>assistant\n";
        Ok(self.0.encode_fast(text.as_str(), false)?.get_ids().len() as u64)
    }
}
