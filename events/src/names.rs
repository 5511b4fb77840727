//! Whether an engine names its blocks as its contract says. First blocks carry all that enters their names, so their
//! keys are computed here too. Owns the comparison and its counts; must never change what a block is called.

use crate::naming::{Parts, spanned};
use crate::residency::Content;
use crate::wire::Stored;
use warmpath_core::block::BlockSize;
use warmpath_core::engine::{Algo, BlockExtra, Contract, Lora, Scratch, Seed, Terms, Version};
use warmpath_core::shared::{Source, SourceSpec};
use warmpath_core::trust::{Seen, Tried};

/// So many first blocks are compared, and of all later ones each so-many-th.
const ALL_OF: u64 = 64;
const EACH: u64 = 16;

/// Seeds that engines are often started with.
const SEEDS: [&str; 4] = ["0", "1", "42", "random"];

/// Where an engine without a seed has a constant one.
const UNSEEDED: Version = Version::new(0, 29, 0);

/// A first block whose name is not the one computed.
#[derive(Clone, Debug)]
struct Sample {
    tokens: Vec<u32>,
    hash: u64,
}

/// What first blocks of one rank showed since it was last cleared: another process may follow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub plain: Seen,
    pub salted: Seen,
    pub adapter: Seen,
    met: u64,
    sample: Option<Sample>,
}

impl Names {
    /// Compares a stored block, if it is a first one and its turn has come.
    pub fn check(
        &mut self,
        hash: u64,
        event: &Stored,
        content: &Content<'_>,
        source: &Source,
        scratch: &mut Scratch,
    ) {
        let contract = &source.spec().contract;
        if content.parent.is_some() || contract.is_by_tokens() {
            return;
        }
        self.met += 1;
        if self.met > ALL_OF && !self.met.is_multiple_of(EACH) {
            return;
        }
        let Some(parts) = Parts::of(content.batch, content.extra, event.lora_name.is_some()) else { return };
        let name = event.lora_name.map(|name| content.batch.text(name));
        let adapters = source.adapters();
        let path = adapters.iter().flat_map(|all| all.iter()).find(|own| Some(own.name.as_str()) == name);
        let extra = BlockExtra {
            lora: name.map(|name| Lora { name, path: path.and_then(|own| own.path.as_deref()) }),
            media: &parts.media,
            salt: parts.salt.or(event.salt.map(|salt| content.batch.text(salt))),
            embeds: parts.embeds,
            ..BlockExtra::default()
        };
        let tokens = spanned(content);
        let Some(same) = is_named(contract, hash, &tokens, &extra, scratch) else { return };
        if !same && extra.is_plain() {
            self.sample.get_or_insert(Sample { tokens, hash });
        }
        let seen = match (extra.lora, extra.salt) {
            (Some(_), _) => &mut self.adapter,
            (None, Some(_)) => &mut self.salted,
            (None, None) => &mut self.plain,
        };
        match same {
            true => seen.same += 1,
            false => seen.other += 1,
        }
    }

    /// Whether plain blocks are named otherwise.
    pub fn differ(&self) -> bool {
        self.plain.differs()
    }

    /// What would have made the first plain block alike that was not: another hash, or a seed that engines are often
    /// started with. `seed` is the one that the gateway was given.
    pub fn tried(&self, spec: &SourceSpec, seed: Option<&str>) -> Tried {
        let Some(sample) = &self.sample else { return Tried::Nothing };
        let mut scratch = Scratch::default();
        let mut fits = |terms: &Terms<'_>| {
            let contract = spec.engine().contract(terms).ok();
            contract.and_then(|own| {
                is_named(&own, sample.hash, &sample.tokens, &BlockExtra::default(), &mut scratch)
            }) == Some(true)
        };
        let terms = |algo, seed, version| {
            let size: BlockSize = spec.contract.block_size();
            Terms { version, seed, long_seed: true, ..Terms::plain(algo, size) }
        };
        let own = spec.contract.algo();
        let others = Algo::ALL.into_iter().filter(|algo| *algo != own && *algo != Algo::Tokens);
        for algo in others {
            if fits(&terms(algo, Seed::from_environment(seed), spec.version)) {
                return Tried::Algorithm(algo.name());
            }
        }
        if let Some(seed) = SEEDS.into_iter().find(|seed| fits(&terms(own, Seed::Given(seed), spec.version)))
        {
            return Tried::Seed(seed);
        }
        match fits(&terms(own, Seed::Unset, Some(UNSEEDED))) {
            true => Tried::Seed("unset"),
            false => Tried::Nothing,
        }
    }
}

/// Whether a first block has the engine's name; `None`: it can't be computed here.
fn is_named(
    contract: &Contract,
    hash: u64,
    tokens: &[u32],
    extra: &BlockExtra<'_>,
    scratch: &mut Scratch,
) -> Option<bool> {
    if tokens.len() != contract.block_size().tokens() + contract.overhang() {
        return None;
    }
    let start = contract.start(extra).ok()?;
    let digest = contract.digest(&start.digest, tokens, extra, scratch);
    Some(contract.key(&digest, start.namespace.as_ref()).0 == hash)
}
