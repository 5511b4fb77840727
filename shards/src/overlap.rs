//! Who holds how much of a prompt: index, promises and loads together, as the candidates of one decision. Owns
//! the lookup; must never choose.

use std::sync::Arc;
use warmpath_core::Nanos;
use warmpath_core::decide::exact::{self, Candidate};
use warmpath_core::fleet::EndpointView;
use warmpath_core::rule::{KvExact, RankMode};
use warmpath_core::shared::{Destination, Promises, Source, Tier};
use warmpath_core::table::ExactService;
use warmpath_core::trust::State;
use warmpath_kvindex::{HolderSet, Reader, View};

/// What lookups are made with, in memory that is used again.
pub struct Overlap {
    reader: Reader,
    promises: Arc<Promises>,
    /// By bit of the index.
    runs: Vec<u32>,
    candidates: Vec<Candidate>,
}

/// One prompt, and who may serve it.
pub struct Prompt<'a> {
    /// Its keys, first to last.
    pub keys: &'a [u64],
    /// The rule's terms.
    pub terms: &'a KvExact,
    /// Its sources.
    pub exact: &'a ExactService,
    /// Its endpoints at this moment.
    pub fleet: &'a [EndpointView],
    /// The rank that the client itself asks for.
    pub rank: Option<u8>,
    /// The time.
    pub now: Nanos,
}

impl Overlap {
    /// With an empty memory.
    pub fn new(reader: Reader, promises: Arc<Promises>) -> Overlap {
        let runs = vec![0; reader.bits()];
        Overlap { reader, promises, runs, candidates: Vec::new() }
    }

    /// The promises that this and all other shards share.
    pub fn promises(&self) -> &Promises {
        &self.promises
    }

    /// The candidates, ascending by endpoint and rank.
    pub fn candidates(&mut self, prompt: &Prompt<'_>) -> &[Candidate] {
        self.candidates.clear();
        let view = self.reader.view();
        let asked = holders(prompt, &view);
        match prompt.terms.contract.engine().is_prefix_closed() {
            true => view.jump(prompt.keys, &asked, &mut self.runs),
            false => view.walk(prompt.keys, &asked, &mut self.runs),
        }
        let sources = prompt.exact.sources.iter().zip(prompt.exact.fences());
        for (endpoint, (source, fence)) in sources.enumerate() {
            let first = self.candidates.len();
            for rank in ranks(prompt) {
                let runs = runs(source, rank, &view, &self.runs);
                let fenced = fence.is_some();
                self.candidates.push(Candidate { fenced, ..candidate(prompt, endpoint, source, rank, runs) });
            }
            leave_out_untrusted(prompt, endpoint, &mut self.candidates[first..]);
            leave_out_unproven(prompt, endpoint, &mut self.candidates[first..]);
        }
        drop(view);
        if !names_ranks(prompt.terms) {
            exact::union(&mut self.candidates);
        }
        self.add_promised(prompt);
        &self.candidates
    }

    /// The candidates of the last look.
    pub fn last(&self) -> &[Candidate] {
        &self.candidates
    }

    fn add_promised(&mut self, prompt: &Prompt<'_>) {
        let held = self.candidates.iter().map(|c| c.runs[0]).max().unwrap_or(0);
        let promised = self.promises.look(prompt.keys, held, prompt.now);
        if promised.is_empty() {
            return;
        }
        for candidate in &mut self.candidates {
            let source = prompt.exact.sources[usize::from(candidate.endpoint)].number();
            let run = |rank| promised.run(Destination { source, rank }, candidate.runs[0]);
            candidate.promised = run(candidate.rank).max(run(exact::ANY_RANK));
        }
    }
}

/// Whether a decision is for a rank: there are several, the rule tells them apart, and the engine takes one.
fn names_ranks(terms: &KvExact) -> bool {
    terms.ranks == 1 || terms.rank_mode == RankMode::Pin && terms.contract.engine().takes_rank()
}

/// The ranks that may serve: all, or the one that the client names.
fn ranks(prompt: &Prompt<'_>) -> std::ops::Range<u8> {
    match prompt.rank {
        Some(rank) => rank..rank.saturating_add(1),
        None => 0..prompt.terms.ranks,
    }
}

/// The index's holders of all that may serve. A bit that serves another holder by now has another name.
fn holders(prompt: &Prompt<'_>, view: &View<'_>) -> HolderSet {
    let mut asked = HolderSet::empty();
    for source in &prompt.exact.sources {
        for rank in ranks(prompt) {
            for tier in Tier::ALL {
                asked_bit(source, rank, tier, view).into_iter().for_each(|bit| asked.insert(bit));
            }
        }
    }
    asked
}

fn asked_bit(source: &Source, rank: u8, tier: Tier, view: &View<'_>) -> Option<usize> {
    let bit = source.bit(rank, tier)?;
    (view.name(bit) == Some(source.holder_name(rank, tier))).then_some(bit)
}

/// The leading blocks of one rank by tier; a tier without a holder has what is nearer.
fn runs(source: &Source, rank: u8, view: &View<'_>, by_bit: &[u32]) -> [u32; Tier::ALL.len()] {
    let mut nearer = 0;
    Tier::ALL.map(|tier| {
        let run = asked_bit(source, rank, tier, view).and_then(|bit| by_bit.get(bit).copied());
        nearer = run.unwrap_or(0).max(nearer);
        nearer
    })
}

fn candidate(
    prompt: &Prompt<'_>,
    endpoint: usize,
    source: &Source,
    rank: u8,
    runs: [u32; Tier::ALL.len()],
) -> Candidate {
    let view = prompt.fleet.get(endpoint);
    Candidate {
        endpoint: endpoint as u16,
        rank,
        runs,
        spread: 0,
        promised: 0,
        load: view.map_or(0, |view| view.load),
        rank_load: source.reserved(rank),
        capacity: source.capacity(),
        held: source.blocks(rank),
        available: view.is_some_and(|view| view.available),
        backup: view.is_some_and(|view| view.backup),
        fenced: false,
        untrusted: false,
        unproven: None,
    }
}

/// Leaves out an endpoint that takes requests by load alone, but for a probe now and again, which only one that
/// seems to hold something can be.
fn leave_out_untrusted(prompt: &Prompt<'_>, endpoint: usize, ranks: &mut [Candidate]) {
    let Some(trust) = prompt.exact.trust.get(endpoint).filter(|own| own.state() == State::LoadOnly) else {
        return;
    };
    let seems_to_hold = ranks.iter().any(|c| c.runs[0] > 0 && c.available && !c.fenced);
    if seems_to_hold && trust.take_probe(prompt.now) {
        return;
    }
    ranks.iter_mut().for_each(|c| (c.fenced, c.untrusted) = (true, true));
}

/// Leaves out the ranks of which not all is proven that the rule's model profile asks for.
fn leave_out_unproven(prompt: &Prompt<'_>, endpoint: usize, ranks: &mut [Candidate]) {
    let Some(attested) = &prompt.exact.attested else { return };
    for candidate in ranks {
        if let Err(reason) = attested.admits(endpoint, candidate.rank) {
            (candidate.fenced, candidate.unproven) = (true, Some(reason));
        }
    }
}
