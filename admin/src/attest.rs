//! Attestation at work: which rules have a model profile, what is asked of their engines, and what the shards are told
//! of it. Owns the list of bindings and the order (a word is written before anything else is asked); must never decide
//! what an answer proves (`warmpath_core::attest` does).

pub mod ask;
mod meet;
pub mod run;
pub mod show;
mod standing;

use crate::metrics::AttestFacts;
use meet::Meeting;
use standing::Checked;
use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use warmpath_core::Nanos;
use warmpath_core::attest::{
    Answer, Ask, Binding, Cadence, Echo, EnforcementFault, Reason, State, Status, Terms, Ticket,
};
use warmpath_core::control::{DataPlane, KvReport, RankReport};
use warmpath_core::profile::binding::{self, Bound};
use warmpath_core::profile::fixture::Fixture;
use warmpath_core::shared::{AttestState, Fence, Source};
use warmpath_core::table::{Service, Table};

/// What came of challenges, by word.
const ECHOES: [&str; 4] = ["named", "contradicted", "silent", "busy"];

/// One endpoint of a bound rule.
#[derive(Clone, Debug)]
struct Member {
    address: SocketAddr,
    source: Arc<Source>,
    state: Arc<AttestState>,
    /// How often its events were lost, as the event core counts.
    losses: Option<u64>,
}

/// One rule with a model profile.
#[derive(Debug)]
struct Rule {
    service: Arc<Service>,
    bound: Arc<Bound>,
    /// The generation of the table since which it is bound so.
    since: u64,
    binding: Binding,
    members: Vec<Member>,
    fixtures: Arc<[Fixture]>,
    checked: Option<Checked>,
    /// The state and reasons that were said last.
    said: Option<(State, Vec<Reason>)>,
}

/// A question that is to be asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The number of the rule's service.
    pub service: u32,
    /// The endpoint.
    pub address: SocketAddr,
    /// Where its events are known from.
    pub source: Arc<Source>,
    /// What to ask.
    pub ticket: Ticket,
    /// What has to be proven.
    pub terms: Arc<Terms>,
    /// The fixture, of [`Ask::Tokens`].
    pub fixture: Option<Fixture>,
    /// Whom it meets while it computes.
    pub meeting: Option<Meeting>,
}

/// All bindings.
#[derive(Debug, Default)]
pub struct Attestor {
    rules: BTreeMap<u32, Rule>,
    /// Sources that a challenge is listened for on: one at a time.
    listening: HashSet<u32>,
    echoes: [u64; ECHOES.len()],
    failures: BTreeMap<Reason, u64>,
}

impl Attestor {
    /// Whether there is anything to attest.
    pub fn is_idle(&self) -> bool {
        self.rules.is_empty()
    }

    /// Follows a new table: bindings that stay keep what is proven.
    pub fn follow(&mut self, table: &Table, plane: &dyn DataPlane, cadence: Cadence, now: Nanos) {
        let mut before = std::mem::take(&mut self.rules);
        for service in table.services() {
            let Some(bound) = bound(service) else { continue };
            let older = before.remove(&service.number).filter(|own| own.bound.generation == bound.generation);
            let next = Rule::new(service, &bound, older, table.generation, plane, cadence);
            self.rules.extend(next.map(|rule| (service.number, rule)));
        }
        self.rules.values_mut().for_each(|rule| rule.enforce(now));
    }

    /// Looks at the registry and at what the shards serve by.
    pub fn stand(&mut self, plane: &dyn DataPlane, generations: Option<u64>, now: Nanos) {
        for rule in self.rules.values_mut() {
            rule.stand(plane, generations);
            rule.enforce(now);
        }
    }

    /// Takes what the event core knows: what speaks against a source, links that were lost, and what traffic proved.
    pub fn heard(&mut self, report: Option<&KvReport>, now: Nanos) {
        for rule in self.rules.values_mut() {
            rule.heard(report, now);
            rule.enforce(now);
        }
    }

    /// The questions that are due. Words are written before.
    pub fn questions(&mut self, now: Nanos) -> Vec<Question> {
        let mut due = Vec::new();
        for (service, rule) in &mut self.rules {
            rule.enforce(now);
            if !rule.binding.may_ask() {
                continue;
            }
            for (at, member) in rule.members.iter().enumerate() {
                let Some(ladder) = rule.binding.ladder(at) else { continue };
                let Some(ticket) = ladder.next(now) else { continue };
                let fixture = match ticket.ask {
                    Ask::Tokens(at) => rule.fixtures.get(at).cloned(),
                    _ => None,
                };
                due.push(Question {
                    service: *service,
                    address: member.address,
                    source: member.source.clone(),
                    ticket,
                    terms: ladder.terms().clone(),
                    fixture,
                    meeting: meet::meeting(&rule.service, member.address),
                });
            }
        }
        due
    }

    /// Takes what came of a question.
    pub fn took(&mut self, question: &Question, answer: &Answer, now: Nanos) {
        if let Answer::Echo(echo) = answer {
            self.echoes[word(*echo)] += 1;
        }
        let Some(rule) = self.rules.get_mut(&question.service) else { return };
        let Some(ladder) = rule.binding.place(question.address).and_then(|at| rule.binding.ladder(at)) else {
            return;
        };
        if let Some(reason) = ladder.take(now, question.ticket, answer) {
            *self.failures.entry(reason).or_default() += 1;
        }
        rule.enforce(now);
    }

    /// Takes the one place of a source's listener; false while another has it.
    pub fn take_ear(&mut self, source: u32) -> bool {
        self.listening.insert(source)
    }

    /// Gives it back.
    pub fn give_ear(&mut self, source: u32) {
        self.listening.remove(&source);
    }

    /// What is known of a service's binding.
    pub fn status(&self, service: u32, now: Nanos) -> Option<Status> {
        Some(self.rules.get(&service)?.binding.status(now))
    }

    /// All of it, as metrics show it.
    pub fn facts(&self, now: Nanos) -> AttestFacts {
        let rule = |own: &Rule| (own.service.rule.id.clone(), own.binding.status(now));
        AttestFacts {
            rules: self.rules.values().map(rule).collect(),
            echoes: ECHOES.iter().copied().zip(self.echoes).collect(),
            failures: self.failures.iter().map(|(reason, count)| (*reason, *count)).collect(),
        }
    }

    /// A line for each rule whose state, or what it lacks, is another since the last look.
    pub fn news(&mut self, now: Nanos) -> Vec<String> {
        self.rules.values_mut().filter_map(|rule| rule.news(now)).collect()
    }
}

fn word(echo: Echo) -> usize {
    match echo {
        Echo::Named(_) => 0,
        Echo::OtherNames | Echo::OtherTokens | Echo::SeveralRanks => 1,
        Echo::Silent { is_busy: false } | Echo::Unanswered(_) => 2,
        Echo::Silent { is_busy: true } => 3,
    }
}

/// The binding that a service's rule has.
pub(crate) fn bound(service: &Service) -> Option<Arc<Bound>> {
    match &service.rule.exact.as_ref()?.profile.binding {
        binding::Binding::Bound(bound) => Some(bound.clone()),
        _ => None,
    }
}

impl Rule {
    fn new(
        service: &Arc<Service>,
        bound: &Arc<Bound>,
        older: Option<Rule>,
        generation: u64,
        plane: &dyn DataPlane,
        cadence: Cadence,
    ) -> Option<Rule> {
        let fixtures = standing::fixtures(service, bound, plane);
        let members = members(service)?;
        let terms = Arc::new(standing::terms(service, bound, plane, &fixtures)?);
        let endpoints = || members.iter().map(|member| (member.address, terms.clone()));
        let (since, binding, checked, said) = match older {
            Some(older) => {
                let kept = |address| number_of(&older.members, address) == number_of(&members, address);
                (older.since, older.binding.over(endpoints(), kept), older.checked, older.said)
            }
            None => {
                let mut checked = None;
                let standing = standing::standing(service, bound, plane, (&fixtures, &mut checked), false);
                (generation, Binding::new(bound.generation, cadence, standing, endpoints()), checked, None)
            }
        };
        let service = service.clone();
        Some(Rule { service, bound: bound.clone(), since, binding, members, fixtures, checked, said })
    }

    fn stand(&mut self, plane: &dyn DataPlane, generations: Option<u64>) {
        let is_installed = generations.is_some_and(|least| least >= self.since);
        let fixtures = standing::fixtures(&self.service, &self.bound, plane);
        let own = (&fixtures, &mut self.checked);
        let standing = standing::standing(&self.service, &self.bound, plane, own, is_installed);
        if let Some(terms) = standing::terms(&self.service, &self.bound, plane, &fixtures) {
            let is_same = fixtures == self.fixtures && self.binding.terms().all(|(_, own)| **own == terms);
            if !is_same {
                let terms = Arc::new(terms);
                let endpoints = self.members.iter().map(|member| (member.address, terms.clone()));
                (self.binding, self.fixtures) = (self.binding.over(endpoints, |_| false), fixtures);
                self.binding.renew();
            }
        }
        self.binding.stand(standing);
    }

    fn heard(&mut self, report: Option<&KvReport>, now: Nanos) {
        for (at, member) in self.members.iter_mut().enumerate() {
            let Some(ladder) = self.binding.ladder(at) else { continue };
            let number = member.source.number();
            let known = report.and_then(|report| report.sources.iter().find(|own| own.source == number));
            let drained = known.iter().flat_map(|own| &own.ranks).find_map(|rank| drained(rank.reason));
            ladder.source(drained.or(member.source.fence().map(against)));
            if let Some(known) = known {
                // A drained stream has no link: a new process shows by its numbers, which clear what was known.
                let cleared = known.transport == "drain";
                let lost = |rank: &RankReport| rank.reconnects + if cleared { rank.cleared } else { 0 };
                let losses = known.ranks.iter().map(lost).sum();
                // Another process may have begun: it is asked before it is routed to again.
                if member.losses.replace(losses).is_some_and(|before| before != losses) {
                    ladder.changed();
                }
            }
            for rank in 0..ladder.terms().ranks {
                let routed = member.state.routed_at(rank);
                if routed > 0 {
                    ladder.routed(routed.min(now), rank);
                }
            }
        }
    }

    /// Writes what the shards are to know, and reads it back.
    fn enforce(&mut self, now: Nanos) {
        for (at, write) in self.binding.writes(now) {
            let back = match (&self.service.exact, self.members.get(at)) {
                (None, _) => Err(EnforcementFault::NoDataplaneSetter),
                (_, None) => Err(EnforcementFault::BindingStateMissing),
                (Some(_), Some(member)) => Ok(member.state.write(write)),
            };
            self.binding.acknowledged(now, at, back);
        }
    }

    fn news(&mut self, now: Nanos) -> Option<String> {
        let status = self.binding.status(now);
        // A proof that is renewed in time is no news.
        let reasons: Vec<Reason> =
            status.reasons.into_iter().filter(|reason| *reason != Reason::ChallengeCadence).collect();
        let next = (status.enforced, reasons);
        if self.said.as_ref() == Some(&next) {
            return None;
        }
        let (name, number) = (&self.service.rule.name, self.service.number);
        let before = self.said.as_ref().map_or("", |(state, _)| state.word());
        let arrow = if before.is_empty() { "" } else { " -> " };
        let why: Vec<String> =
            next.1.iter().map(|reason| format!("{} ({})", reason.word(), reason.cure())).collect();
        let colon = if why.is_empty() { "" } else { ": " };
        let line = format!(
            "[KV_ATTEST] rule {name} (service {number}), profile {}: {before}{arrow}{}{colon}{}",
            self.bound.profile,
            next.0.word(),
            why.join(", ")
        );
        self.said = Some(next);
        Some(line)
    }
}

/// The endpoints whose blocks decide, each with its word.
fn members(service: &Service) -> Option<Vec<Member>> {
    let exact = service.exact.as_ref()?;
    let attested = exact.attested.as_ref()?;
    let decides = |at: &usize| !service.not_by_blocks().contains(*at);
    let member = |at: usize| {
        let (source, state) = (exact.sources.get(at)?.clone(), attested.endpoints.get(at)?.clone());
        Some(Member { address: source.spec().endpoint, source, state, losses: None })
    };
    (0..exact.sources.len()).filter(decides).map(member).collect()
}

/// The source of an endpoint: another one proves itself anew.
fn number_of(members: &[Member], address: SocketAddr) -> Option<u32> {
    members.iter().find(|member| member.address == address).map(|member| member.source.number())
}

/// What the event core's fence says, in the words of attestation.
fn against(fence: Fence) -> Reason {
    match fence {
        Fence::Model | Fence::Version => Reason::IdentityMismatch,
        Fence::NoEvents => Reason::AdapterUnavailable,
        Fence::Ownership => Reason::DrainOwnershipLost,
        Fence::Drift => Reason::RuntimeFault,
        Fence::BlockSize | Fence::Algorithm | Fence::Ranks | Fence::Rank | Fence::Groups => {
            Reason::EngineGeometryMismatch
        }
    }
}

/// The same of a drained stream.
fn drained(reason: &str) -> Option<Reason> {
    match reason {
        "drain_sequence_gap" => Some(Reason::DrainSequenceGap),
        "drain_ownership_lost" => Some(Reason::DrainOwnershipLost),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
