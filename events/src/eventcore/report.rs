//! What the event core knows of itself, for the admin thread. Owns the words; must never change anything.

use super::EventCore;
use super::flow::Flow;
use super::rank::{Rank, Stream};
use crate::continuity::{Reason, Standing};
use crate::drain::DrainFault;
use crate::engines::{Delivery, delivery};
use warmpath_core::Nanos;
use warmpath_core::control::{InventoryPage, KvReport, RankReport, SourceReport};
use warmpath_core::shared::{Fence, Tier};
use warmpath_core::trust::{Names, Tried};
use warmpath_ring::Ring;

/// Keys of a page at most.
const PAGE_MAX: usize = 10_000;

impl<R: Ring> EventCore<R> {
    /// All that it knows; `cpu` is its thread's.
    pub fn report(&self, cpu: Nanos) -> KvReport {
        let stats = self.index.stats();
        KvReport {
            index_blocks: stats.blocks as u64,
            index_capacity: stats.capacity as u64,
            index_bytes: self.index.bytes() as u64,
            refused: stats.refused,
            cpu,
            proofs_dropped: 0,
            sources: self.flows.iter().map(|flow| self.source_report(flow)).collect(),
        }
    }

    /// A page of the keys that a rank holds on a tier; `None`: there is no such source or rank.
    pub fn inventory(
        &self,
        source: u32,
        rank: u8,
        tier: Tier,
        from: u64,
        limit: usize,
    ) -> Option<InventoryPage> {
        let rank = self.flows[self.flow(source)?].ranks.get(usize::from(rank))?;
        let Some(holder) = rank.holdings.holder(tier) else { return Some(InventoryPage::default()) };
        let (keys, next) = self.index.page(holder, from, limit.clamp(1, PAGE_MAX));
        Some(InventoryPage { keys, next, total: self.index.held(holder) as u64 })
    }

    fn source_report(&self, flow: &Flow) -> SourceReport {
        let spec = flow.source.spec();
        let transport = match delivery(spec.engine()) {
            Delivery::Drained(_) => "drain",
            _ if spec.ports.bind => "listen",
            _ => "dial",
        };
        let fence = flow.fence();
        let ranks = flow.ranks.iter().map(|rank| self.rank_report(flow, rank, fence)).collect();
        SourceReport {
            source: flow.source.number(),
            fence,
            findings: self.findings(flow),
            version: flow.facts.version.clone().unwrap_or_default(),
            transport,
            names: self.names(flow),
            ranks,
        }
    }

    /// What the events of all its ranks show.
    fn names(&self, flow: &Flow) -> Names {
        let spec = flow.source.spec();
        let is_drained = matches!(delivery(spec.engine()), Delivery::Drained(_));
        let mut all = Names { is_drained, ..Names::default() };
        let (mut wrong, mut counted) = (0, 0);
        for rank in &flow.ranks {
            let own = &rank.holdings.names;
            for (sum, seen) in
                [(&mut all.plain, own.plain), (&mut all.salted, own.salted), (&mut all.adapter, own.adapter)]
            {
                (sum.same, sum.other) = (sum.same + seen.same, sum.other + seen.other);
            }
            if all.tried == Tried::Nothing {
                all.tried = own.tried(spec, self.seed.as_deref());
            }
            wrong += rank.holdings.counts.wrong_size;
            counted += rank.holdings.counts.counted;
            all.is_partial |= !["complete", "empty"].contains(&standing(&rank.stream));
        }
        all.wrong_size = wrong > 0 && counted == 0;
        all
    }

    fn findings(&self, flow: &Flow) -> Vec<String> {
        let mut findings = [flow.verdict.findings.clone(), flow.complaints.clone()].concat();
        let spec = flow.source.spec();
        let own = |port: u16| port.checked_sub(spec.ports.publish).is_some_and(|at| at < spec.ranks.into());
        let faults = self.listen_faults.iter().filter(|(at, _)| spec.ports.bind && own(at.port()));
        findings.extend(faults.map(|(at, error)| {
            format!("cannot listen on {at} for its events: {error}; free the port, or change kvZmqPort")
        }));
        findings.extend(flow.ranks.iter().flat_map(|rank| rank_findings(rank, flow)));
        findings
    }

    fn rank_report(&self, flow: &Flow, rank: &Rank, fence: Option<Fence>) -> RankReport {
        let (counts, holdings) = (rank.counts(), rank.holdings.counts);
        let residency = rank.stream.residency().map(|residency| residency.counts()).unwrap_or_default();
        let poller = flow.poller.as_ref();
        let mut report = RankReport {
            standing: if fence.is_some() { "fenced" } else { standing(&rank.stream) },
            reason: reason(&rank.stream),
            blocks: rank.holdings.blocks(&self.index),
            reconnects: rank.past_reconnects + poller.map_or(0, |poller| poller.failures),
            receive_errors: counts.malformed,
            batches: counts.applied,
            stored: holdings.stored,
            removed: holdings.removed,
            cleared: counts.cleared + rank.drifts,
            schema_mismatch: counts.schema_mismatch,
            undecodable: counts.undecodable,
            rank_mismatch: counts.rank_mismatch,
            refused: holdings.refused + residency.refused,
            replays: counts.replays,
            observed: rank.holdings.observed.len() as u64,
            learned: rank.holdings.observed.learned,
            ..RankReport::default()
        };
        match &rank.stream {
            Stream::Idle => {}
            Stream::Published(published) => {
                report.connected = published.is_connected();
                report.sequence = published.feed.last_applied();
                report.last_event = published.last_event;
                report.reconnects += published.reconnects;
                report.waiting = published.feed.waiting() as u64;
            }
            Stream::Drained(drained) => {
                report.connected = poller.is_some_and(|poller| poller.is_up);
                report.sequence = drained.drain.cursor();
                report.last_event = drained.last_event;
            }
        }
        report
    }
}

fn standing(stream: &Stream) -> &'static str {
    match stream {
        Stream::Idle => "empty",
        Stream::Published(published) => match published.feed.standing() {
            Standing::Complete if published.feed.is_busy() => "since",
            Standing::Empty => "empty",
            Standing::Unproven => "unproven",
            Standing::Complete => "complete",
            Standing::Since(_) => "since",
        },
        Stream::Drained(drained) if drained.drain.is_complete() => "complete",
        Stream::Drained(drained) if drained.drain.cursor().is_some() => "since",
        Stream::Drained(_) => "empty",
    }
}

fn reason(stream: &Stream) -> &'static str {
    match stream {
        Stream::Idle => "",
        Stream::Published(published) => published.feed.reason().map_or("", |reason| match reason {
            Reason::Gap => "gap",
            Reason::ReplayHole => "replay_hole",
            Reason::ReplayFailed => "replay_failed",
            Reason::Restarted => "restarted",
            Reason::Reconnected => "reconnected",
            Reason::Regressed => "regressed",
            Reason::Undecodable => "undecodable",
        }),
        Stream::Drained(drained) => drained.drain.fault().map_or("", |fault| match fault {
            DrainFault::Gap => "drain_sequence_gap",
            DrainFault::OwnershipLost => "drain_ownership_lost",
            DrainFault::Lost => "drain_answer_lost",
        }),
    }
}

/// What a rank's own events show.
fn rank_findings(rank: &Rank, flow: &Flow) -> Vec<String> {
    let (number, counts) = (rank.number, rank.holdings.counts);
    let block = flow.source.spec().contract.block_size().tokens();
    let mut findings = Vec::new();
    match rank.fence() {
        Some(Fence::Ownership) => findings.push(format!(
            "rank {number}: events were lost or read by somebody else; stop the other reader, then restart the \
             engine or take the stream over (reacquire)"
        )),
        Some(Fence::Rank) => findings.push(format!(
            "rank {number}: its port brings events of another rank; set kvZmqPort to rank 0's port"
        )),
        Some(Fence::Groups) => findings.push(format!(
            "rank {number}: none of its layer groups has full attention, so no block stands for a prefix; use \
             another selector for this model"
        )),
        _ => {}
    }
    if counts.wrong_size > 0 {
        findings.push(format!(
            "rank {number}: {} blocks of {} tokens were not counted, the rule's have {block}; set kvBlockSize, \
             or the engine's block size",
            counts.wrong_size, counts.wrong_size_seen
        ));
    }
    if rank.drifts > 0 {
        findings.push(format!(
            "rank {number}: claimed more blocks than its GPU has room for ({}), {} times; forgotten and \
             followed anew",
            flow.source.capacity(),
            rank.drifts
        ));
    }
    let names = &rank.holdings.names;
    if names.differ() {
        findings.push(format!(
            "rank {number}: {} of {} first blocks have another name than computed here: the seed or the block hash \
             is not the rule's; compare LLB_KV_NONE_HASH_SEED with PYTHONHASHSEED of the engine, and kvHashAlgo with \
             its hash, or set kvHashAlgo to tokens",
            names.plain.other,
            names.plain.other + names.plain.same
        ));
    }
    for (what, seen) in [("a salt", names.salted), ("an adapter", names.adapter)] {
        if seen.differs() && !names.differ() {
            findings.push(format!(
                "rank {number}: first blocks with {what} have another name than computed here: set kvEngineVersion \
                 to the engine's, or kvHashAlgo to tokens"
            ));
        }
    }
    if rank.holdings.lacks_bits() {
        findings.push(format!(
            "rank {number}: the index has no room for one more holder; start the gateway with an index of more \
             holders"
        ));
    }
    findings
}
