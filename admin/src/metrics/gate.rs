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
];

/// A sample of each rule with a gate that has the figure.
struct Gated(fn(&Service) -> Option<u32>);

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
