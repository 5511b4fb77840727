//! Active health: which endpoints are probed and how, and what a row of results means. Owns the verdict and
//! the list of probers; must never take the last endpoint out of a rule by itself (the table does not
//! believe probes that leave nobody).
//!
//! One prober for each endpoint, kind and port, however many rules ask for it; the most demanding rule sets
//! its pace. The state of an endpoint belongs to its address: a verdict counts for every rule that names it.
//! An endpoint is down while any of its probers finds it down.

pub mod probe;
pub mod run;

use crate::hosts::Host;
use std::net::SocketAddr;
use std::sync::Arc;
use warmpath_core::Nanos;
use warmpath_core::rule::{Probe, ProbeKind};
use warmpath_core::shared::EndpointState;
use warmpath_core::table::{Service, Table};

/// Successes in a row that bring an endpoint back.
pub const SUCCESSES_UP: u32 = 2;

/// What the probes of one prober came to. Starts as up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Taken out.
    pub down: bool,
    /// Results in a row that speak against the verdict.
    against: u32,
}

impl Verdict {
    /// Takes one result; true if the verdict changed. `retries` failures in a row bring down (0 counts as
    /// 1), [`SUCCESSES_UP`] successes in a row bring back.
    pub fn take(&mut self, healthy: bool, retries: u32) -> bool {
        if healthy != self.down {
            self.against = 0;
            return false;
        }
        self.against += 1;
        let enough = if self.down { SUCCESSES_UP } else { retries.max(1) };
        if self.against < enough {
            return false;
        }
        *self = Verdict { down: !self.down, against: 0 };
        true
    }
}

/// Whom a prober asks, and how: no two probers have the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The endpoint whose health it tells.
    pub endpoint: SocketAddr,
    /// Where it asks: the endpoint, on the probe's port if it has one.
    pub at: SocketAddr,
    /// How it asks.
    pub kind: ProbeKind,
}

/// How often, and how sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Bound of one probe, and from the start of one to the start of the next.
    pub timeout: Nanos,
    /// Failures in a row that bring down.
    pub retries: u32,
}

/// One prober.
#[derive(Debug)]
pub struct Prober {
    /// Whom and how.
    pub target: Target,
    /// How often.
    pub pace: Pace,
    /// What it found so far.
    pub verdict: Verdict,
    /// Why the last probe failed; `None` if it did not, or there was none yet.
    pub last_fault: Option<String>,
    state: Arc<EndpointState>,
    number: u64,
}

/// All probers.
#[derive(Debug, Default)]
pub struct Probers {
    /// Hosts that are probed whichever rules name them, from the next table on.
    pub hosts: Vec<Host>,
    all: Vec<Prober>,
    next_number: u64,
}

impl Probers {
    /// Follows a new table: probers that are still wanted go on with what they know, others end, and an
    /// endpoint without any counts as up. The numbers of new probers.
    pub fn follow(&mut self, table: &Table) -> Vec<u64> {
        let mut before = std::mem::take(&mut self.all);
        let first_new = self.next_number;
        for service in table.vips.iter().flat_map(|v| &v.services).filter(|s| s.rule.enabled) {
            for state in &service.endpoints {
                let at = state.address().ip();
                let hosts = self.hosts.iter().filter(|h| h.ip == at).filter_map(|h| h.probe.as_ref());
                let probes: Vec<Probe> = service.rule.probe.iter().chain(hosts).cloned().collect();
                probes.iter().for_each(|probe| self.want(probe, state, &mut before));
            }
        }
        before.iter().chain(&self.all).for_each(|p| self.settle(&p.state));
        self.all.iter().map(|p| p.number).filter(|n| *n >= first_new).collect()
    }

    /// Takes the result of a prober's probe at `now`; true if an endpoint's health changed.
    pub fn took(&mut self, number: u64, result: Result<(), String>, now: Nanos) -> bool {
        let Some(prober) = self.all.iter_mut().find(|p| p.number == number) else { return false };
        let changed = prober.verdict.take(result.is_ok(), prober.pace.retries);
        prober.last_fault = result.err();
        let state = prober.state.clone();
        let was = state.probed_down();
        self.settle(&state);
        if was && !state.probed_down() {
            state.came_up(now);
        }
        changed && was != state.probed_down()
    }

    /// What a prober does; `None` once it is not wanted any more.
    pub fn work(&self, number: u64) -> Option<(&Target, Pace)> {
        self.all.iter().find(|p| p.number == number).map(|p| (&p.target, p.pace))
    }

    /// The probers of an endpoint.
    pub fn of(&self, endpoint: SocketAddr) -> impl Iterator<Item = &Prober> {
        self.all.iter().filter(move |p| p.target.endpoint == endpoint)
    }

    /// Whether any endpoint at the host's address is down by the host's own probe.
    pub fn is_down(&self, host: &Host) -> bool {
        let own = |p: &&Prober| {
            let port = |probe: &Probe| if probe.port == 0 { p.target.endpoint.port() } else { probe.port };
            host.probe.as_ref().is_some_and(|h| h.kind == p.target.kind && port(h) == p.target.at.port())
        };
        self.all.iter().filter(|p| p.target.endpoint.ip() == host.ip).filter(own).any(|p| p.verdict.down)
    }

    fn want(&mut self, probe: &Probe, state: &Arc<EndpointState>, before: &mut Vec<Prober>) {
        let endpoint = state.address();
        let port = if probe.port == 0 { endpoint.port() } else { probe.port };
        let target = Target { endpoint, at: SocketAddr::new(endpoint.ip(), port), kind: probe.kind.clone() };
        let pace = Pace { timeout: probe.timeout, retries: probe.retries };
        if let Some(known) = self.all.iter_mut().find(|p| p.target == target) {
            known.pace.timeout = known.pace.timeout.min(pace.timeout);
            known.pace.retries = known.pace.retries.min(pace.retries);
        } else if let Some(at) = before.iter().position(|p| p.target == target) {
            let kept = before.swap_remove(at);
            self.all.push(Prober { pace, state: state.clone(), ..kept });
        } else {
            let number = self.next_number;
            self.next_number += 1;
            let state = state.clone();
            self.all.push(Prober {
                target,
                pace,
                verdict: Verdict::default(),
                last_fault: None,
                state,
                number,
            });
        }
    }

    fn settle(&self, state: &EndpointState) {
        state.set_probed_down(self.of(state.address()).any(|p| p.verdict.down));
    }
}

/// Whether probes find all of a rule's endpoints down, so that the table does not believe them.
pub fn disbelieved(service: &Service) -> bool {
    let all = service.rule.endpoints.iter().zip(&service.endpoints);
    let mut serving = all.filter(|(spec, state)| spec.weight > 0 && !state.is_drained());
    serving.clone().next().is_some() && serving.all(|(_, s)| s.probed_down())
}

/// Sentences about rules whose endpoints are all probed down.
pub fn warnings(table: &Table) -> Vec<String> {
    let services = table.vips.iter().flat_map(|v| &v.services);
    let sentence = |s: &Arc<Service>| {
        let (vip, name) = (s.rule.key.vip, &s.rule.name);
        format!("rule {vip} ({name}): probes find every endpoint down; they are used all the same")
    };
    services.filter(|s| disbelieved(s)).map(sentence).collect()
}

#[cfg(test)]
mod tests;
