//! Families of the capacity gate, of rules that have one. Must never show a rule without.

use super::text::Page;
use super::{Facts, Family, family};
use warmpath_core::rule::GateMode;
use warmpath_core::shared::Decided;
use warmpath_core::table::Service;

/// Those of the loxilb AI gateway, with a label more: the rule.
pub(super) const FAMILIES: &[Family] = &[
    family(
        "loxilb_ai_admission_decisions_total",
        "counter",
        "What the capacity gate decided of requests; with fc_mode observe also what it would have refused.",
        |f, p| {
            each(f, p, |service, labels, p| {
                for decided in Decided::ALL {
                    let labels = [labels[0], labels[1], ("reason", decided.word())];
                    p.sample("", &labels, service.admission.counted(decided));
                }
            });
        },
    ),
    family(
        "loxilb_ai_admission_inflight",
        "gauge",
        "Requests that the gate let in and that engines still work on.",
        |f, p| {
            each(f, p, |service, labels, p| {
                let labels = [labels[0], labels[1], ("role", "service")];
                p.sample("", &labels, service.admission.gate.out());
            });
        },
    ),
    family("loxilb_ai_admission_queued", "gauge", "Requests that wait for their turn.", |f, p| {
        each(f, p, |service, labels, p| p.sample("", &labels, service.admission.gate.waiting()));
    }),
    family("loxilb_ai_admission_limit", "gauge", "Ceilings that the rule sets.", |f, p| {
        each(f, p, |service, labels, p| {
            let gate = &service.rule.gate;
            let bounds = [
                ("service", gate.outstanding.value),
                ("endpoint", gate.per_endpoint.value),
                ("prefill", gate.per_prefill.value),
                ("decode", gate.per_decode.value),
            ];
            for (role, bound) in bounds.into_iter().filter(|(_, bound)| *bound > 0) {
                p.sample("", &[labels[0], labels[1], ("role", role)], bound);
            }
        });
    }),
    family(
        "loxilb_ai_admission_effective_limit",
        "gauge",
        "Requests that the gate lets in at this moment; absent while nothing bounds them.",
        |f, p| {
            each(f, p, |service, labels, p| {
                if let Some(limit) = limit(service) {
                    p.sample("", &labels, limit);
                }
            });
        },
    ),
    family(
        "loxilb_ai_admission_adapt_state",
        "gauge",
        "1 at the state of the adaptive ceiling: off, open, tightened or frozen.",
        |f, p| {
            each(f, p, |service, labels, p| {
                let now = service.admission.adapt_state(&service.rule.gate, &service.open(f.now));
                for state in ["off", "open", "tightened", "frozen"] {
                    p.sample("", &[labels[0], labels[1], ("state", state)], u8::from(state == now));
                }
            });
        },
    ),
];

/// The limit in force, if there is one.
fn limit(service: &Service) -> Option<u32> {
    Some(service.admission.gate.limit()).filter(|limit| *limit != u32::MAX)
}

fn each(facts: &Facts, page: &mut Page, sample: impl Fn(&Service, [(&str, &str); 2], &mut Page)) {
    let services = facts.table.services();
    for service in services.filter(|service| service.rule.gate.mode.value != GateMode::Off) {
        let number = service.number.to_string();
        sample(service, [("service", &number), ("rule", &service.rule.name)], page);
    }
}
