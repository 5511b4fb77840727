//! What of a service changes from one moment to the next: which endpoints may serve, how loaded they are, what its gate
//! reckons with. Owns reading the shared state into plain values; must never choose, charge or change any of it.

use super::Service;
use crate::Nanos;
use crate::fleet::EndpointView;
use crate::gate::{Ceiling, endpoint_most, warmth};
use crate::rule::{Endpoint, GateMode, Selector};
use crate::shared::EndpointState;
use std::sync::Arc;

/// Whether the operator lets an endpoint serve: it has a weight in its rule, and its host is not drained.
fn serves(spec: &Endpoint, state: &EndpointState) -> bool {
    spec.weight > 0 && !state.is_drained()
}

impl Service {
    /// What a decision sees of its endpoints at `now`. Where probes leave none, they are not believed: a
    /// probe may be wrong, refusing everybody is certainly so. What requests met is believed, shortly, and an
    /// operator who drains an endpoint always.
    pub fn view(&self, now: Nanos, out: &mut Vec<EndpointView>) {
        out.clear();
        for (spec, state) in self.rule.endpoints.iter().zip(&self.endpoints) {
            out.push(EndpointView {
                available: serves(spec, state) && self.is_healthy(state, now),
                load: state.reserved(),
                queued: None,
                capacity: None,
                weight: spec.weight,
                backup: spec.backup,
            });
        }
        if out.iter().all(|e| !e.available) {
            for (view, (spec, state)) in out.iter_mut().zip(self.rule.endpoints.iter().zip(&self.endpoints)) {
                view.available = serves(spec, state) && self.admits(state, now);
            }
        }
        if self.rule.reads_load() {
            self.view_loads(now, out);
        }
    }

    /// Fills in what engines said shortly ago: what waits in them, and where the selector weighs by it, the blocks that
    /// their caches have.
    fn view_loads(&self, now: Nanos, out: &mut [EndpointView]) {
        let weighs = self.rule.selector == Selector::GpuAware;
        for (view, state) in out.iter_mut().zip(&self.endpoints) {
            let told = state.load().told(now, self.rule.gate.stale);
            view.queued = told.map(|load| load.waiting);
            view.capacity = told.filter(|_| weighs).and_then(|load| load.capacity_blocks);
        }
    }

    /// Whether its gate lets nobody in, for maintenance. A rule whose gate does not enforce goes on.
    pub fn is_closed(&self) -> bool {
        self.rule.gate.mode.value == GateMode::Enforce && self.admission.is_closed()
    }

    /// Requests that one of its endpoints may have.
    pub fn endpoint_most(&self, endpoint: usize) -> u32 {
        let gate = &self.rule.gate;
        let Some(spec) = self.rule.endpoints.get(endpoint).filter(|_| gate.mode.value == GateMode::Enforce)
        else {
            return u32::MAX;
        };
        match endpoint_most(gate, spec.role) {
            0 => u32::MAX,
            most => most,
        }
    }

    /// Whether an endpoint that could serve has as many requests as the gate allows it.
    pub fn is_full(&self) -> bool {
        let serving = self.rule.endpoints.iter().zip(&self.endpoints).enumerate();
        let full = |(index, (spec, state)): (usize, (&Endpoint, &Arc<EndpointState>))| {
            serves(spec, state) && state.reserved() >= self.endpoint_most(index)
        };
        serving.into_iter().any(full)
    }

    /// Requests that wait within its engines; `None` if none of them told in time.
    pub fn waiting_within(&self, now: Nanos) -> Option<u32> {
        let told = |state: &Arc<EndpointState>| state.load().told(now, self.rule.gate.stale);
        let told = self.endpoints.iter().filter_map(told).map(|load| load.waiting);
        told.reduce(u32::saturating_add)
    }

    /// What its gate reckons with at `now`: the endpoints that are up.
    pub fn open(&self, now: Nanos) -> Ceiling {
        let warmup = self.rule.gate.warmup.value;
        let mut open = Ceiling::default();
        for (spec, state) in self.rule.endpoints.iter().zip(&self.endpoints) {
            if serves(spec, state) && self.is_healthy(state, now) {
                open.add(spec.role, warmth(state.up_for(now), warmup));
            }
        }
        open
    }
}
