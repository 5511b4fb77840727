//! The families of pairs of prefill and decode. Owns their table; must never judge what a shard counted.
//!
//! Names and labels are those of the loxilb AI gateway where it has them; `model` is the rule's. Of rules that are
//! gone nothing is left in any of them.

use super::Facts;
use super::family::{Family, Histograms, Listed, Samples, Total, family};
use super::text::Page;
use std::collections::BTreeMap;
use warmpath_core::control::{FIRST_BYTE_BUCKETS_US, Latency, PairCount, PairEnd, PairReport};
use warmpath_core::receipt::PairPhase;
use warmpath_core::rule::Role;

/// All of them.
pub const FAMILIES: &[Family] = &[
    family(
        "loxilb_ai_pd_requests_total",
        "Requests of pairs that ended, by model, the phase they came to, and how.",
        &Listed(&["model", "phase", "status"], requests),
    ),
    family(
        "loxilb_ai_pd_prefill_duration_seconds",
        "From a pair's first dispatch to the end of its prefill, by model.",
        &Histograms(&["model"], |f, p| latency(f, p, |report| report.prefill)),
    ),
    family(
        "loxilb_ai_pd_decode_ttft_seconds",
        "From the dispatch of a pair's decode leg to its first byte, by model.",
        &Histograms(&["model"], |f, p| latency(f, p, |report| report.decode)),
    ),
    family(
        "loxilb_ai_pd_kv_params_found_total",
        "Prefill answers that said where their blocks are, by model.",
        &ByModel(PairCount::HandedOver),
    ),
    family(
        "loxilb_ai_pd_kv_params_missing_total",
        "Requests whose prompt decode computed itself, by model.",
        &ByModel(PairCount::NotHandedOver),
    ),
    family(
        "loxilb_pd_fallback_to_normal_total",
        "Requests that a normal endpoint took whole, for want of a healthy prefill or decode endpoint.",
        &Total(|f| total(f, PairCount::FellBack)),
    ),
    family(
        "loxilb_pd_connect_failover_total",
        "Other endpoints of a role tried after a failed connection attempt.",
        &Total(|f| total(f, PairCount::ConnectFailover)),
    ),
    family(
        "loxilb_pd_prefill_ep_died_total",
        "Prefill legs that ended before their answer was whole.",
        &Total(|f| total(f, PairCount::PrefillDied)),
    ),
    family(
        "loxilb_pd_decode_ep_died_total",
        "Decode legs that ended before their answer began.",
        &Total(|f| total(f, PairCount::DecodeDied)),
    ),
    family(
        "loxilb_pd_sg_room_retry_total",
        "Pairs begun anew in a new room after their prefill leg was lost.",
        &Total(|f| total(f, PairCount::RoomRetry)),
    ),
    family(
        "loxilb_pd_sg_prefill_abort_decode_total",
        "Decode legs cancelled by their failing prefill leg.",
        &Total(|f| total(f, PairCount::DecodeAborted)),
    ),
    family(
        "loxilb_pd_sg_decode_close_drain_total",
        "Prefill legs cancelled by the end of their decode leg.",
        &Total(|f| total(f, PairCount::PrefillClosed)),
    ),
    family(
        "loxilb_pd_sg_prefill_reject_relay_total",
        "Refusals (4xx) of prefill engines that went to the client, of any kind of engine.",
        &Total(|f| total(f, PairCount::PrefillRefused)),
    ),
    family(
        "loxilb_pd_trt_ctx_early_exit_total",
        "Context answers that were the whole answer.",
        &Total(|f| total(f, PairCount::EndedEarly)),
    ),
    family(
        "warmpath_pd_orphans_total",
        "Prefills that were done and whose decode never began: their blocks stay charged for the lease.",
        &Total(|f| total(f, PairCount::Orphaned)),
    ),
    family(
        "warmpath_pd_encoded_total",
        "Images and other parts that encoders encoded for prefill.",
        &Total(|f| total(f, PairCount::Encoded)),
    ),
    family(
        "warmpath_pd_not_encoded_total",
        "Parts that were left to prefill, since no encoder would encode them.",
        &Total(|f| total(f, PairCount::NotEncoded)),
    ),
    family(
        "warmpath_pd_encode_refused_total",
        "Refusals (4xx) of encoders that went to the client.",
        &Total(|f| total(f, PairCount::EncodeRefused)),
    ),
    family(
        "warmpath_pd_transfer_path_exhausted",
        "1: pairs through this prefill endpoint keep failing for want of its blocks while probes find it well.",
        &Listed(&["ep"], exhausted),
    ),
];

fn exhausted(facts: &Facts, page: &mut Page) {
    let mut seen = BTreeMap::new();
    for service in facts.table.services().filter(|service| service.roles.is_some()) {
        let prefill = service.rule.endpoints.iter().zip(&service.endpoints);
        for (_, state) in prefill.filter(|(spec, _)| spec.role == Role::Prefill) {
            seen.insert(state.address(), state.transfers_exhausted());
        }
    }
    for (address, exhausted) in seen {
        page.sample(&[&address], u8::from(exhausted));
    }
}

fn reports<'a>(facts: &'a Facts) -> impl Iterator<Item = &'a PairReport> {
    facts.reports.iter().flat_map(|report| &report.pairs)
}

/// What all shards counted, by model. Rules of one model are summed.
fn models<'a>(facts: &'a Facts) -> BTreeMap<&'a str, Vec<&'a PairReport>> {
    let mut models: BTreeMap<&str, Vec<&PairReport>> = BTreeMap::new();
    for service in facts.table.services().filter(|service| service.roles.is_some()) {
        let own = reports(facts).filter(|report| report.service == service.number);
        models.entry(&service.rule.key.model).or_default().extend(own);
    }
    models
}

fn total(facts: &Facts, what: PairCount) -> u64 {
    reports(facts).map(|report| report.counts[what as usize]).sum()
}

/// What all shards counted of something, by model.
struct ByModel(PairCount);

impl Samples for ByModel {
    fn labels(&self) -> &'static [&'static str] {
        &["model"]
    }

    fn write(&self, facts: &Facts, page: &mut Page) {
        for (model, reports) in models(facts) {
            page.sample(&[&model], reports.iter().map(|report| report.counts[self.0 as usize]).sum::<u64>());
        }
    }
}

fn requests(facts: &Facts, page: &mut Page) {
    for (model, reports) in models(facts) {
        for phase in PairPhase::ALL {
            for end in PairEnd::ALL {
                let counts = reports.iter().map(|report| report.ended[phase as usize][end as usize]);
                page.sample(&[&model, &phase.word(), &end.word()], counts.sum::<u64>());
            }
        }
    }
}

fn latency(facts: &Facts, page: &mut Page, of: fn(&PairReport) -> Latency) {
    for (model, reports) in models(facts) {
        let counts: [u64; FIRST_BYTE_BUCKETS_US.len() + 1] =
            std::array::from_fn(|at| reports.iter().map(|report| of(report).buckets[at]).sum());
        let sum = reports.iter().map(|report| of(report).sum_us).sum();
        page.histogram(&[&model], &FIRST_BYTE_BUCKETS_US, &counts, Some(sum));
    }
}
