//! This repository's way: check the JSON, go on with the turn before, tokens behind the last checkpoint, and the keys
//! of blocks, which the others don't make.

use crate::{Fault, Peer};
use std::path::Path;
use warmpath_core::block::BlockSize;
use warmpath_core::engine::{Algo, Engine, Extras, Seed, Terms, Version};
use warmpath_parser::json::{JsonLimits, Members, peek};
use warmpath_prompt::load::Files;
use warmpath_prompt::tokenizer::Choice;
use warmpath_prompt::{Api, Checkpoints, Desk, Model, Policy, Request, Scheme};

/// A model with checkpoints.
pub struct Warmpath {
    model: Model,
    scheme: Scheme,
    checkpoints: Checkpoints,
    members: Members,
    desk: Desk,
}

impl Warmpath {
    /// From a model's folder.
    pub fn new(folder: &Path) -> Result<Warmpath, Fault> {
        let files = Files::read(folder).map_err(|fault| format!("{}: {fault}", folder.display()))?;
        let model = files.model(1, Policy::plain(), Choice::Fast).map_err(|fault| fault.to_string())?;
        let terms = Terms {
            version: Some(Version::new(0, 33, 0)),
            seed: Seed::Given("0"),
            ..Terms::plain(Algo::Sha256Cbor, BlockSize::SIXTEEN)
        };
        let contract = Engine::Vllm.contract(&terms).map_err(|fault| format!("{fault:?}"))?;
        Ok(Warmpath {
            model,
            scheme: Scheme::new(contract),
            checkpoints: Checkpoints::new(256 << 20, 1),
            members: Members::new(),
            desk: Desk::default(),
        })
    }
}

impl Peer for Warmpath {
    fn name(&self) -> &'static str {
        "warmpath, with keys of blocks"
    }

    fn tokens(&mut self, body: &str) -> Result<u64, Fault> {
        peek(body.as_bytes(), &mut self.members, JsonLimits::default())?;
        let (extras, desk) = (Extras::default(), &mut self.desk);
        let request = Request { body: body.as_bytes(), members: &self.members, today: None, tools: None };
        let declined = |decline| format!("declined: {decline:?}");
        let plan = match self.model.resume(request, &self.scheme, &extras, &self.checkpoints, desk) {
            Some(plan) => plan,
            None => {
                let prompt = self.model.read_for(&self.checkpoints, Api::Chat, request).map_err(declined)?;
                self.model.plan(prompt, &self.scheme, &extras, &self.checkpoints, desk).map_err(declined)?
            }
        };
        self.model.keys(&plan, &self.scheme, &extras, &self.checkpoints, desk).map_err(declined)?;
        Ok(desk.tokens)
    }
}
