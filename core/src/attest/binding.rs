//! A rule bound to a model profile: its endpoints' ladders together, what the shards are told of it, and the words for
//! that. Owns the order (what is taken away is written before anything else is asked), and the rule's state; must
//! never write a shared word itself.

use super::ladder::Height;
use super::{Cadence, EnforcementFault, Ladder, Parity, Reason, State, Terms};
use crate::Nanos;
use std::net::SocketAddr;
use std::sync::Arc;

/// What is known of the profile and of the rule, beside the engines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// What is wrong with the profile, its fixtures or the rule: nothing is asked of the engines.
    pub faults: Vec<Reason>,
    /// SHA-256 of the manifest, if there is one.
    pub manifest: Option<String>,
    /// Every shard serves by a table that has this binding.
    pub is_installed: bool,
}

/// What the shards are to know of one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The generation of the binding.
    pub generation: u32,
    /// The ranks that route by blocks, one bit each.
    pub ranks: u8,
    /// Why the others don't.
    pub reason: Option<Reason>,
}

/// One endpoint of the rule.
#[derive(Clone, Debug)]
struct Member {
    address: SocketAddr,
    ladder: Ladder,
    /// What the shards have, as it was read back.
    acknowledged: Option<Write>,
}

/// One rule's binding.
#[derive(Clone, Debug)]
pub struct Binding {
    generation: u32,
    cadence: Cadence,
    standing: Standing,
    members: Vec<Member>,
    fault: Option<EnforcementFault>,
    acknowledged_at: Option<Nanos>,
    was_ready: bool,
    /// The manifest became another, and it was not ready since.
    is_renewed: bool,
}

impl Binding {
    /// Of this generation, over these endpoints; of none anything is proven.
    pub fn new(
        generation: u32,
        cadence: Cadence,
        standing: Standing,
        endpoints: impl IntoIterator<Item = (SocketAddr, Arc<Terms>)>,
    ) -> Binding {
        let member =
            |(address, terms)| Member { address, ladder: Ladder::new(terms, cadence), acknowledged: None };
        Binding {
            generation,
            cadence,
            standing,
            members: endpoints.into_iter().map(member).collect(),
            fault: None,
            acknowledged_at: None,
            was_ready: false,
            is_renewed: false,
        }
    }

    /// The same over other endpoints: those of `kept` that have to prove the same as before keep what is proven.
    #[must_use]
    pub fn over(
        &self,
        endpoints: impl IntoIterator<Item = (SocketAddr, Arc<Terms>)>,
        kept: impl Fn(SocketAddr) -> bool,
    ) -> Binding {
        let mut next = Binding::new(self.generation, self.cadence, self.standing.clone(), endpoints);
        for member in &mut next.members {
            let same =
                |own: &&Member| own.address == member.address && own.ladder.terms() == member.ladder.terms();
            if let Some(own) = self.members.iter().find(same).filter(|own| kept(own.address)) {
                *member = own.clone();
            }
        }
        Binding { fault: self.fault, was_ready: self.was_ready, is_renewed: self.is_renewed, ..next }
    }

    /// What its endpoints have to prove, in their order.
    pub fn terms(&self) -> impl Iterator<Item = (SocketAddr, &Arc<Terms>)> {
        self.members.iter().map(|member| (member.address, member.ladder.terms()))
    }

    /// The place of an endpoint.
    pub fn place(&self, address: SocketAddr) -> Option<usize> {
        self.members.iter().position(|member| member.address == address)
    }

    /// Its generation.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// How many endpoints it has.
    pub fn endpoints(&self) -> usize {
        self.members.len()
    }

    /// One endpoint's ladder.
    pub fn ladder(&mut self, endpoint: usize) -> Option<&mut Ladder> {
        self.members.get_mut(endpoint).map(|member| &mut member.ladder)
    }

    /// Whether engines are to be asked: nothing beside them is wrong.
    pub fn may_ask(&self) -> bool {
        self.standing.faults.is_empty() && self.standing.is_installed && self.fault.is_none()
    }

    /// The profile, its files or the shards' tables are another. A new manifest makes all proofs worthless.
    pub fn stand(&mut self, standing: Standing) {
        let has_changed = self.standing.manifest != standing.manifest;
        let is_other = has_changed || self.standing.faults != standing.faults;
        self.is_renewed |= has_changed && self.standing.manifest.is_some();
        self.standing = standing;
        if is_other {
            self.renew();
        }
    }

    /// Everything is to be proven anew, also after a fault of enforcement: the operator changed something.
    pub fn renew(&mut self) {
        self.fault = None;
        self.members.iter_mut().for_each(|member| member.ladder.changed());
    }

    /// What is to be written now, of each endpoint whose word is another. To be done before anything is asked.
    pub fn writes(&self, now: Nanos) -> Vec<(usize, Write)> {
        let wanted = self.members.iter().map(|member| self.wanted(member, now)).enumerate();
        wanted.filter(|(at, write)| self.members[*at].acknowledged != Some(*write)).collect()
    }

    fn wanted(&self, member: &Member, now: Nanos) -> Write {
        let ladder = &member.ladder;
        let blocked = self.blocked();
        let ranks = 0..ladder.terms().ranks.min(8);
        let proven = ranks.clone().filter(|rank| blocked.is_none() && ladder.is_proven(*rank, now));
        let proven = proven.fold(0, |bits, rank| bits | 1 << rank);
        let reason = blocked.or_else(|| ranks.into_iter().find_map(|rank| ladder.reason(rank, now)));
        Write { generation: self.generation, ranks: proven, reason }
    }

    /// Why no endpoint routes by blocks, whatever is proven of it.
    fn blocked(&self) -> Option<Reason> {
        if self.fault.is_some() {
            return Some(Reason::EnforcementFault);
        }
        if !self.standing.is_installed {
            return Some(Reason::BindingDataplanePending);
        }
        self.standing.faults.first().copied().or(self.lacks_manifest())
    }

    fn lacks_manifest(&self) -> Option<Reason> {
        let is_excused = !self.cadence.require_manifest && self.cadence.functional_only;
        (self.standing.manifest.is_none() && !is_excused).then_some(Reason::ManifestMissing)
    }

    /// What was read back of a word that was written. Anything else than that is a fault, which lasts until
    /// [`Binding::renew`].
    pub fn acknowledged(&mut self, now: Nanos, endpoint: usize, back: Result<Write, EnforcementFault>) {
        let Some(at) = self.members.get(endpoint) else { return };
        let wanted = self.wanted(at, now);
        let member = &mut self.members[endpoint];
        match back {
            Ok(write) if write == wanted => {
                member.acknowledged = Some(write);
                self.acknowledged_at = Some(now);
                if self.is_acknowledged(now) {
                    self.was_ready |= self.desired(now).is_ready();
                    self.is_renewed &= !self.desired(now).is_ready();
                }
            }
            Ok(_) => self.fault = Some(EnforcementFault::DataplaneAckMismatch),
            Err(fault) => self.fault = Some(fault),
        }
    }

    fn is_acknowledged(&self, now: Nanos) -> bool {
        self.members.iter().all(|member| member.acknowledged == Some(self.wanted(member, now)))
    }

    /// What its proofs amount to.
    fn desired(&self, now: Nanos) -> State {
        let height = self.members.iter().map(|member| member.ladder.height(now)).min();
        let reached = match height.filter(|_| self.standing.faults.is_empty()) {
            None | Some(Height::Foot) => State::ProfileValidated,
            Some(Height::Oracle) => State::TokenParityNotAvailableWithApprovedOracle,
            Some(Height::Tokens) => State::TokenParityVerified,
            Some(Height::Named) if self.lacks_manifest().is_some() => State::EngineHashAttested,
            Some(Height::Named) if self.standing.manifest.is_none() => State::ReadyFunctionalOnly,
            Some(Height::Named) => State::Ready,
        };
        if self.was_ready && !reached.is_ready() { State::Degraded } else { reached }
    }

    /// All that is known, in the words of `kvexactstatus`.
    pub fn status(&self, now: Nanos) -> Status {
        let desired = self.desired(now);
        let enforced = match desired {
            _ if self.fault.is_some() => State::EnforcementFault,
            _ if !self.standing.is_installed => State::PendingDataplaneContract,
            State::Degraded if !self.is_acknowledged(now) => State::Degrading,
            // What is proven counts once the shards have it.
            state if state.is_ready() && !self.is_acknowledged(now) => State::PendingDataplaneContract,
            state => state,
        };
        Status {
            desired,
            enforced,
            reasons: self.reasons(now),
            enforcement: self.enforcement(now),
            endpoints: self.rows(now),
        }
    }

    fn reasons(&self, now: Nanos) -> Vec<Reason> {
        let mut reasons: Vec<Reason> = self.fault.map(|_| Reason::EnforcementFault).into_iter().collect();
        reasons.extend(&self.standing.faults);
        if !self.standing.is_installed {
            reasons.push(Reason::BindingDataplanePending);
        }
        if self.members.is_empty() && self.standing.faults.is_empty() {
            reasons.push(Reason::NoEndpoints);
        }
        if self.standing.faults.is_empty() {
            reasons.extend(self.lacks_manifest());
            reasons.extend(self.members.iter().flat_map(|member| member.ladder.reasons(now)));
        }
        if self.is_renewed {
            reasons.push(Reason::ManifestChanged);
        }
        let mut seen = Vec::new();
        reasons.retain(|reason| {
            !seen.contains(reason) && {
                seen.push(*reason);
                true
            }
        });
        reasons
    }

    fn enforcement(&self, now: Nanos) -> Enforcement {
        let fenced = |member: &Member| member.acknowledged.is_none_or(|write| write.ranks == 0);
        Enforcement {
            desired: self.members.iter().any(|member| self.wanted(member, now).ranks > 0),
            enforced: !self.members.iter().all(fenced),
            fault: self.fault,
            acknowledged_at: self.acknowledged_at,
        }
    }

    fn rows(&self, now: Nanos) -> Vec<EndpointStatus> {
        let row = |member: &Member| {
            let write = self.wanted(member, now);
            let ladder = &member.ladder;
            let rank = |rank: u8| RankStatus {
                is_exact: member.acknowledged.is_some_and(|own| own.ranks & 1 << rank != 0),
                reason: if write.ranks & 1 << rank != 0 {
                    None
                } else {
                    self.blocked().or(ladder.reason(rank, now))
                },
            };
            EndpointStatus {
                address: member.address,
                parity: ladder.parity(),
                version: ladder.told().and_then(|told| told.version.clone()),
                reasons: ladder.reasons(now),
                ranks: (0..ladder.terms().ranks.min(8)).map(rank).collect(),
            }
        };
        self.members.iter().map(row).collect()
    }
}

/// What a rule's binding is worth at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// By what is proven.
    pub desired: State,
    /// By what the shards have.
    pub enforced: State,
    /// Why not more; also what is under way. None twice.
    pub reasons: Vec<Reason>,
    /// What the shards were told.
    pub enforcement: Enforcement,
    /// By endpoint.
    pub endpoints: Vec<EndpointStatus>,
}

/// What was ordered of the shards, and what they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enforcement {
    /// Some rank is to be routed to by blocks.
    pub desired: bool,
    /// Some rank is.
    pub enforced: bool,
    /// Why the two may differ.
    pub fault: Option<EnforcementFault>,
    /// When a word was last read back as it was written.
    pub acknowledged_at: Option<Nanos>,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointStatus {
    /// Where it serves.
    pub address: SocketAddr,
    /// How its tokens are known.
    pub parity: Parity,
    /// Its version, in its own words.
    pub version: Option<String>,
    /// Why not all of it is proven.
    pub reasons: Vec<Reason>,
    /// By rank.
    pub ranks: Vec<RankStatus>,
}

/// One rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankStatus {
    /// Requests go to it by blocks.
    pub is_exact: bool,
    /// Why not.
    pub reason: Option<Reason>,
}
