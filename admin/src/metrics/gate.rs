//! Families of the capacity gate, of rules that have one. Must never show a rule without.

use super::Facts;
use super::family::{Family, Listed, Samples, family};
use super::text::Page;
use warmpath_core::rule::GateMode;
use warmpath_core::shared::Decided;
use warmpath_core::table::Service;

/// Those of the loxilb AI gateway, with a label more: the rule.
pub const FAMILIES: &[Family] = &[
    family(
        "loxilb_ai_admission_decisions_total",
        "What the capacity gate decided of requests; with fc_mode observe also what it would have refused.",
        &Listed(&["service", "rule", "reason"], |f, p| {
            for service in gated(f) {
                for decided in Decided::ALL {
                    let count = service.admission.counted(decided);
                    p.sample(&[&service.number, &service.rule.name, &decided.word()], count);
                }
            }
        }),
    ),
    family(
        "loxilb_ai_admission_inflight",
        "Requests that the gate let in and that engines still work on.",
        &Listed(&["service", "rule", "role"], |f, p| {
            for service in gated(f) {
                let out = service.admission.gate.out();
                p.sample(&[&service.number, &service.rule.name, &"service"], out);
            }
        }),
    ),
    family(
        "loxilb_ai_admission_queued",
        "Requests that wait for their turn.",
        &Gated(|service| Some(service.admission.gate.waiting())),
    ),
    family(
        "loxilb_ai_admission_limit",
        "Ceilings that the rule sets.",
        &Listed(&["service", "rule", "role"], |f, p| gated(f).for_each(|service| ceilings(service, p))),
    ),
    family(
        "loxilb_ai_admission_effective_limit",
        "Requests that the gate lets in at this moment; absent while nothing bounds them.",
        &Gated(|service| Some(service.admission.gate.limit()).filter(|limit| *limit != u32::MAX)),
    ),
    family(
        "loxilb_ai_admission_adapt_state",
        "1 at the state of the adaptive ceiling: off, open, tightened or frozen.",
        &Listed(&["service", "rule", "state"], |f, p| {
            for service in gated(f) {
                let now = service.admission.adapt_state(&service.rule.gate, &service.open(f.now));
                for state in ["off", "open", "tightened", "frozen"] {
                    let labels: [&dyn std::fmt::Display; 3] = [&service.number, &service.rule.name, &state];
                    p.sample(&labels, u8::from(state == now));
                }
            }
        }),
    ),
    family(
        "loxilb_pd_admission_inflight",
        "Requests of rules with prefill and decode that gates let in and that engines still work on.",
        &OfPairs(|service| u64::from(service.admission.gate.out())),
    ),
    family(
        "loxilb_pd_admission_queued_total",
        "Requests of rules with prefill and decode that had to wait at a gate.",
        &OfPairs(queued),
    ),
    family(
        "loxilb_pd_admission_shed_total",
        "Requests of rules with prefill and decode that were refused at a gate without a queue.",
        &OfPairs(|service| shed(service, false)),
    ),
    family(
        "loxilb_pd_admission_overflow_shed_total",
        "Requests of rules with prefill and decode that were refused since the gate's queue was full.",
        &OfPairs(|service| shed(service, true)),
    ),
];

/// A sample of each rule with a gate that has the figure.
struct Gated(fn(&Service) -> Option<u32>);

/// A sum over rules with prefill and decode, of their gates.
struct OfPairs(fn(&Service) -> u64);

impl Samples for OfPairs {
    fn labels(&self) -> &'static [&'static str] {
        &[]
    }

    fn write(&self, facts: &Facts, page: &mut Page) {
        let services = facts.table.services().filter(|service| service.roles.is_some());
        page.sample(&[], services.map(|service| (self.0)(service)).sum::<u64>());
    }
}

/// Requests that had to wait, those that still do included.
fn queued(service: &Service) -> u64 {
    let ends = [Decided::AdmittedAfterWait, Decided::QueueTimeout, Decided::Drained, Decided::Left];
    let over: u64 = ends.map(|end| service.admission.counted(end)).iter().sum();
    over + u64::from(service.admission.gate.waiting())
}

/// Requests that a gate refused for want of a place, by whether it has a queue.
fn shed(service: &Service, has_queue: bool) -> u64 {
    let is_it = (service.rule.gate.queue.value > 0) == has_queue;
    if is_it { service.admission.counted(Decided::Capacity) } else { 0 }
}

impl Samples for Gated {
    fn labels(&self) -> &'static [&'static str] {
        &["service", "rule"]
    }

    fn write(&self, facts: &Facts, page: &mut Page) {
        for service in gated(facts) {
            if let Some(value) = (self.0)(service) {
                page.sample(&[&service.number, &service.rule.name], value);
            }
        }
    }
}

fn gated<'a>(facts: &'a Facts) -> impl Iterator<Item = &'a Service> {
    let services = facts.table.services().map(|service| &**service);
    services.filter(|service| service.rule.gate.mode.value != GateMode::Off)
}

fn ceilings(service: &Service, page: &mut Page) {
    let gate = &service.rule.gate;
    let bounds = [
        ("service", gate.outstanding.value),
        ("endpoint", gate.per_endpoint.value),
        ("prefill", gate.per_prefill.value),
        ("decode", gate.per_decode.value),
    ];
    for (role, bound) in bounds.iter().filter(|(_, bound)| *bound > 0) {
        page.sample(&[&service.number, &service.rule.name, role], bound);
    }
}
