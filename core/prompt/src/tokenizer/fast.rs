//! The fast tokenizers. Owns which of the two reads a file: this repository's, whose tables no text makes grow, where it
//! knows the kind, else `fastokens` without its threads. `fastokens` 0.3 sizes its pools by the CPUs of the thread that
//! first builds one, once in a process's life, and offers no other way.

use super::EncodeFault;
use super::byte_level::{ByteLevel, Recent};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

pub(super) enum Fast {
    Own(Box<ByteLevel>),
    Crate(Box<fastokens::Tokenizer>),
}

impl Fast {
    /// This repository's, if it can read the file.
    pub(super) fn own(document: &Value) -> Option<Fast> {
        ByteLevel::read(document).map(|own| Fast::Own(Box::new(own)))
    }

    /// The crate's, built on a thread that may use one CPU only and ends with the building.
    pub(super) fn foreign(document: Value) -> Result<Fast, String> {
        let build = || {
            pin().map_err(|fault| format!("its building thread can't be bound to one CPU: {fault}"))?;
            if fastokens::fanout::threads() > 1 {
                return Err("it has started threads already".to_string());
            }
            fastokens::Tokenizer::from_json(document).map_err(|fault| fault.to_string())
        };
        let built = std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().name("tokenizer-load".into());
            builder.spawn_scoped(scope, build).map(|thread| thread.join())
        });
        let mut tokenizer = match built {
            Ok(Ok(tokenizer)) => tokenizer?,
            Ok(Err(_)) => return Err("it panics on this file".to_string()),
            Err(fault) => return Err(format!("its building thread can't be started: {fault}")),
        };
        tokenizer.set_truncation(None);
        tokenizer.set_padding(None);
        Ok(Fast::Crate(Box::new(tokenizer)))
    }

    pub(super) fn encode(
        &self,
        text: &str,
        recent: &mut Recent,
        out: &mut Vec<u32>,
    ) -> Result<(), EncodeFault> {
        match self {
            Fast::Own(own) => own.encode(text, recent, out),
            Fast::Crate(tokenizer) => {
                let ids = tokenizer.encode(text).map_err(|fault| EncodeFault(fault.to_string()))?;
                out.extend_from_slice(&ids);
            }
        }
        Ok(())
    }
}

/// Binds this thread to the first CPU that it may use.
fn pin() -> rustix::io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let mut one = CpuSet::new();
    if let Some(first) = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)) {
        one.set(first);
    }
    sched_setaffinity(None, &one)
}
