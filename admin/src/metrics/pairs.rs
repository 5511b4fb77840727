//! The families of pairs of prefill and decode. Owns their table; must never judge what a shard counted.
//!
//! Names and labels are those of the loxilb AI gateway where it has them; `model` is the rule's. Of rules that are
//! gone nothing is left in any of them.

use super::{Facts, Family, family, seconds};
use crate::metrics::text::Page;
use std::collections::BTreeMap;
use warmpath_core::control::{FIRST_BYTE_BUCKETS_US, Latency, PairCount, PairEnd, PairReport};
use warmpath_core::receipt::PairPhase;
use warmpath_core::rule::Role;

/// All of them.
pub const FAMILIES: &[Family] = &[
    family(
        "loxilb_ai_pd_requests_total",
        "counter",
        "Requests of pairs that ended, by model, the phase they came to, and how.",
        requests,
    ),
    family(
        "loxilb_ai_pd_prefill_duration_seconds",
        "histogram",
        "From a pair's first dispatch to the end of its prefill, by model.",
        |f, p| latency(f, p, |report| report.prefill),
    ),
    family(
        "loxilb_ai_pd_decode_ttft_seconds",
        "histogram",
        "From the dispatch of a pair's decode leg to its first byte, by model.",
        |f, p| latency(f, p, |report| report.decode),
    ),
    family(
        "loxilb_ai_pd_kv_params_found_total",
        "counter",
        "Prefill answers that said where their blocks are, by model.",
        |f, p| by_model(f, p, PairCount::HandedOver),
    ),
    family(
        "loxilb_ai_pd_kv_params_missing_total",
        "counter",
        "Requests whose prompt decode computed itself, by model.",
        |f, p| by_model(f, p, PairCount::NotHandedOver),
    ),
    family(
        "loxilb_pd_fallback_to_normal_total",
        "counter",
        "Requests that a normal endpoint took whole, for want of a healthy prefill or decode endpoint.",
        |f, p| total(f, p, PairCount::FellBack),
    ),
    family(
        "loxilb_pd_connect_failover_total",
        "counter",
        "Other endpoints of a role tried after a failed connection attempt.",
        |f, p| total(f, p, PairCount::ConnectFailover),
    ),
    family(
        "loxilb_pd_prefill_ep_died_total",
        "counter",
        "Prefill legs that ended before their answer was whole.",
        |f, p| total(f, p, PairCount::PrefillDied),
    ),
    family(
        "loxilb_pd_decode_ep_died_total",
        "counter",
        "Decode legs that ended before their answer began.",
        |f, p| total(f, p, PairCount::DecodeDied),
    ),
    family(
        "loxilb_pd_sg_room_retry_total",
        "counter",
        "Pairs begun anew in a new room after their prefill leg was lost.",
        |f, p| total(f, p, PairCount::RoomRetry),
    ),
    family(
        "loxilb_pd_sg_prefill_abort_decode_total",
        "counter",
        "Decode legs cancelled by their failing prefill leg.",
        |f, p| total(f, p, PairCount::DecodeAborted),
    ),
    family(
        "loxilb_pd_sg_decode_close_drain_total",
        "counter",
        "Prefill legs cancelled by the end of their decode leg.",
        |f, p| total(f, p, PairCount::PrefillClosed),
    ),
    family(
        "loxilb_pd_sg_prefill_reject_relay_total",
        "counter",
        "Refusals (4xx) of prefill engines that went to the client, of any kind of engine.",
        |f, p| total(f, p, PairCount::PrefillRefused),
    ),
    family(
        "loxilb_pd_trt_ctx_early_exit_total",
        "counter",
        "Context answers that were the whole answer.",
        |f, p| total(f, p, PairCount::EndedEarly),
    ),
    family(
        "warmpath_pd_orphans_total",
        "counter",
        "Prefills that were done and whose decode never began: their blocks stay charged for the lease.",
        |f, p| total(f, p, PairCount::Orphaned),
    ),
    family(
        "warmpath_pd_encoded_total",
        "counter",
        "Images and other parts that encoders encoded for prefill.",
        |f, p| total(f, p, PairCount::Encoded),
    ),
    family(
        "warmpath_pd_not_encoded_total",
        "counter",
        "Parts that were left to prefill, since no encoder would encode them.",
        |f, p| total(f, p, PairCount::NotEncoded),
    ),
    family(
        "warmpath_pd_encode_refused_total",
        "counter",
        "Refusals (4xx) of encoders that went to the client.",
        |f, p| total(f, p, PairCount::EncodeRefused),
    ),
    family(
        "warmpath_pd_transfer_path_exhausted",
        "gauge",
        "1: pairs through this prefill endpoint keep failing for want of its blocks while probes find it well.",
        exhausted,
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
        page.sample("", &[("ep", &address.to_string())], u64::from(exhausted));
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

fn total(facts: &Facts, page: &mut Page, what: PairCount) {
    page.sample("", &[], reports(facts).map(|report| report.counts[what as usize]).sum::<u64>());
}

fn by_model(facts: &Facts, page: &mut Page, what: PairCount) {
    for (model, reports) in models(facts) {
        let count: u64 = reports.iter().map(|report| report.counts[what as usize]).sum();
        page.sample("", &[("model", model)], count);
    }
}

fn requests(facts: &Facts, page: &mut Page) {
    for (model, reports) in models(facts) {
        for phase in PairPhase::ALL {
            for end in PairEnd::ALL {
                let count: u64 =
                    reports.iter().map(|report| report.ended[phase as usize][end as usize]).sum();
                let labels = [("model", model), ("phase", phase.word()), ("status", end.word())];
                page.sample("", &labels, count);
            }
        }
    }
}

fn latency(facts: &Facts, page: &mut Page, of: fn(&PairReport) -> Latency) {
    for (model, reports) in models(facts) {
        let mut below = 0;
        for (place, bound) in FIRST_BYTE_BUCKETS_US.iter().map(|bound| seconds(*bound)).enumerate() {
            below += reports.iter().map(|report| of(report).buckets[place]).sum::<u64>();
            page.sample("_bucket", &[("model", model), ("le", &bound)], below);
        }
        let last = FIRST_BYTE_BUCKETS_US.len();
        below += reports.iter().map(|report| of(report).buckets[last]).sum::<u64>();
        page.sample("_bucket", &[("model", model), ("le", "+Inf")], below);
        let sum: u64 = reports.iter().map(|report| of(report).sum_us).sum();
        page.sample("_sum", &[("model", model)], seconds(sum));
        page.sample("_count", &[("model", model)], below);
    }
}
