//! What an engine says of itself, compared with what a rule says of it. Owns the comparison and its sentences;
//! must never fetch, nor know which engine's words mean what.

use crate::sources::{Source, Unusable};
use warmpath_core::engine::Version;
use warmpath_core::shared::{Adapter, Fence, SourceSpec};

/// What is known of one engine process. Everything may be missing: old versions tell less.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Its port answered at all.
    pub answered: bool,
    /// Its version, in its own words.
    pub version: Option<String>,
    /// The models that it serves.
    pub models: Option<Vec<String>>,
    /// Those of them that are adapters of another.
    pub adapters: Vec<Adapter>,
    /// Tokens of a block.
    pub block_size: Option<u32>,
    /// Its block hash, in the words of a rule.
    pub algorithm: Option<String>,
    /// Blocks that one rank's GPU has room for.
    pub capacity: Option<u32>,
    /// Data-parallel ranks.
    pub ranks: Option<u32>,
    /// Its publishers, if it tells.
    pub publishers: Option<Result<Vec<Source>, Unusable>>,
    /// Names the process that answered: its start.
    pub identity: Option<u64>,
}

/// What the comparison came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why the endpoint is left out, if it is.
    pub fence: Option<Fence>,
    /// Sentences with cause and cure, also of what is no reason to leave it out.
    pub findings: Vec<String>,
}

impl Verdict {
    fn fence(&mut self, fence: Fence, finding: String) {
        self.fence.get_or_insert(fence);
        self.findings.push(finding);
    }
}

const VERSION_CURE: &str = "run one version in the rule, give each a rule with its kvEngineVersion, or set \
                            kvHashAlgo to tokens";

/// Whether two versions name blocks alike, as far as that matters.
fn is_alike(spec: &SourceSpec, one: Version, other: Version) -> bool {
    let engine = spec.engine();
    spec.contract.is_by_tokens() || engine.family(one) == engine.family(other)
}

impl Facts {
    /// The version, as far as it can be read.
    pub fn version(&self) -> Option<Version> {
        self.version.as_deref().and_then(Version::read)
    }

    /// Compares with a rule's source.
    pub fn judge(&self, spec: &SourceSpec) -> Verdict {
        let mut verdict = Verdict::default();
        if !self.answered {
            verdict
                .findings
                .push(format!("{} does not answer: the rule's own ports hold until it does", spec.endpoint));
            return verdict;
        }
        self.judge_block_size(spec, &mut verdict);
        self.judge_algorithm(spec, &mut verdict);
        self.judge_model(spec, &mut verdict);
        self.judge_version(spec, &mut verdict);
        self.judge_ranks(spec, &mut verdict);
        self.judge_publishers(spec, &mut verdict);
        verdict
    }

    /// A rule's block that is several of the engine's may be right (context parallelism of vLLM multiplies it):
    /// then the events decide.
    fn judge_block_size(&self, spec: &SourceSpec, verdict: &mut Verdict) {
        let rule = spec.contract.block_size().tokens() as u32;
        let Some(own) = self.block_size.filter(|own| *own != rule && *own > 0) else { return };
        let cure = format!("set the rule's kvBlockSize to {own}, or start the engine with blocks of {rule}");
        if rule.is_multiple_of(own) {
            verdict.findings.push(format!(
                "its blocks have {own} tokens, the rule's {rule}: only events of {rule} count; {cure}"
            ));
        } else {
            verdict
                .fence(Fence::BlockSize, format!("its blocks have {own} tokens, the rule's {rule}: {cure}"));
        }
    }

    fn judge_algorithm(&self, spec: &SourceSpec, verdict: &mut Verdict) {
        let expected = crate::engines::expected_algorithm(&spec.contract);
        let (Some(own), Some(expected)) = (self.algorithm.as_deref(), expected) else { return };
        if own != expected {
            verdict.fence(
                Fence::Algorithm,
                format!(
                    "it names blocks by {own}, the rule needs {expected}: start the engine with {expected}, or \
                     set the rule's kvHashAlgo to what the engine has, or to tokens"
                ),
            );
        }
    }

    fn judge_model(&self, spec: &SourceSpec, verdict: &mut Verdict) {
        let Some(models) = self.models.as_ref().filter(|_| !spec.model.is_empty()) else { return };
        if !models.contains(&spec.model) {
            verdict.fence(
                Fence::Model,
                format!(
                    "it serves {}, not {}: take it out of the rule, or start it with that model's name",
                    models.join(", "),
                    spec.model
                ),
            );
        }
    }

    fn judge_version(&self, spec: &SourceSpec, verdict: &mut Verdict) {
        let Some(text) = &self.version else { return };
        match (self.version(), spec.version) {
            (None, _) => {
                verdict.findings.push(format!("its version {text} cannot be read: it is not compared"));
            }
            (Some(own), Some(rule)) if !is_alike(spec, own, rule) => verdict.fence(
                Fence::Version,
                format!("its version {own} names blocks otherwise than the rule's {rule}: {VERSION_CURE}"),
            ),
            _ => {}
        }
    }

    /// What is to be said where a rule that fixes no version leaves it out, since `first`, the version of the first
    /// of the rule's endpoints that told one, names blocks otherwise. Other rules may let it in.
    pub fn differs(&self, spec: &SourceSpec, first: Version) -> Option<String> {
        let own = self.version().filter(|own| spec.version.is_none() && !is_alike(spec, *own, first))?;
        Some(format!(
            "its version {own} names blocks otherwise than the first endpoint's {first} of a rule that has both, \
             which leaves it out: {VERSION_CURE}"
        ))
    }

    fn judge_ranks(&self, spec: &SourceSpec, verdict: &mut Verdict) {
        let told = self.publishers.as_ref().and_then(|p| p.as_ref().ok()).map(|p| p.len() as u32);
        let Some(own) = told.or(self.ranks).filter(|own| *own != u32::from(spec.ranks)) else { return };
        let rule = spec.ranks;
        verdict.fence(
            Fence::Ranks,
            format!(
                "it has {own} data-parallel ranks, the rule {rule}: set the rule's kvDpRankCount to {own}"
            ),
        );
    }

    fn judge_publishers(&self, spec: &SourceSpec, verdict: &mut Verdict) {
        match &self.publishers {
            Some(Err(Unusable::Off)) => verdict.fence(
                Fence::NoEvents,
                "it publishes no cache events: start it with a --kv-events-config whose publisher is zmq"
                    .into(),
            ),
            Some(Err(Unusable::Endpoint(endpoint))) => verdict.findings.push(format!(
                "it publishes at {endpoint}, which is not tcp://host:port: the rule's own ports hold"
            )),
            Some(Err(Unusable::Shape(why))) => verdict
                .findings
                .push(format!("where it publishes cannot be read ({why}): the rule's own ports hold")),
            None if crate::engines::delivery(spec.engine()) == crate::engines::Delivery::Published => {
                verdict
                    .findings
                    .push("it does not tell where it publishes: the rule's own ports hold".into());
            }
            Some(Ok(_)) | None => {}
        }
    }
}

#[cfg(test)]
mod tests;
