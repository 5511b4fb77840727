//! How far each endpoint of a rule is trusted, and which leg may be broken, beside what the event core saw. Owns the
//! pairing and the JSON of it; must never decide what follows.

pub(crate) mod counters;
pub(crate) mod voice;

use crate::kv::KvEndpoint;
use serde_json::{Map, Value, json};
use warmpath_core::trust::counters::Open;
use warmpath_core::trust::{Class, Finding, Leg, Legs, Symptoms, Trust, legs};

/// One endpoint's.
pub struct EndpointTrust {
    /// State, and answers that are remembered.
    pub trust: Trust,
    /// Answers since it was last let in.
    pub symptoms: Symptoms,
    /// What may be broken.
    pub legs: Legs,
    /// Windows of the engine's counters that were judged, and those that proved nothing by reason.
    pub windows: (u32, [u32; Open::ALL.len()]),
}

impl EndpointTrust {
    /// Of an endpoint with what the event core tells of it.
    pub fn of(endpoint: &KvEndpoint<'_>) -> EndpointTrust {
        let exact = endpoint.service.exact.as_ref();
        let state = exact.and_then(|exact| exact.trust.get(endpoint.index));
        let symptoms = state.map(|state| state.symptoms()).unwrap_or_default();
        let names = endpoint.report.map(|report| report.names).unwrap_or_default();
        let fence = endpoint.report.and_then(|report| report.fence);
        EndpointTrust {
            trust: state.map(|state| state.now()).unwrap_or_default(),
            legs: legs(&symptoms, &names, fence),
            symptoms,
            windows: state.map(|state| state.windows()).unwrap_or_default(),
        }
    }

    /// How often a finding was made.
    pub fn count(&self, finding: Finding) -> u32 {
        self.symptoms.count(|_: Class| true, finding)
    }

    /// As in status.
    pub fn json(&self) -> Value {
        let (judged, agreed) = self.trust.judged();
        let count = |finding: &Finding| (finding.word().to_owned(), json!(self.count(*finding)));
        json!({
            "state": self.trust.state().word(),
            "judged": judged,
            "agreed": agreed,
            "legs": self.legs.iter().map(Leg::word).collect::<Vec<_>>(),
            "cures": self.legs.iter().map(Leg::cure).collect::<Vec<_>>(),
            "windows": self.windows_json(),
            "answers": Finding::ALL.iter().map(count).collect::<Map<_, _>>(),
        })
    }

    fn windows_json(&self) -> Value {
        let (judged, open) = self.windows;
        let open = Open::ALL.iter().map(|why| (why.word().to_owned(), json!(open[*why as usize])));
        let judged = ("judged".to_owned(), json!(judged));
        std::iter::once(judged).chain(open).collect::<Map<_, _>>().into()
    }
}
