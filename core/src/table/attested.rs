//! What decisions read of a rule's proofs: attestation, and trust. Owns which words are kept from one table to the next,
//! those of the same source, and of the same binding; must never write one.

use super::ExactService;
use crate::attest::Reason;
use crate::profile::binding::Binding;
use crate::rule::Rule;
use crate::shared::{AttestState, Source, TrustState};
use std::sync::Arc;

/// The words of a rule whose blocks have to be vouched for before they route anything.
#[derive(Debug)]
pub struct Attested {
    /// That of the binding; 0: nothing is bound.
    pub generation: u32,
    /// Why nothing is.
    pub unbound: Option<Reason>,
    /// By endpoint index.
    pub endpoints: Vec<Arc<AttestState>>,
}

impl Attested {
    /// Of a rule over these sources; `None` where it needs no proof.
    pub(super) fn of(rule: &Rule, sources: &[Arc<Source>], older: Option<&ExactService>) -> Option<Attested> {
        let (generation, unbound) = match &rule.exact.as_ref()?.profile.binding {
            Binding::Legacy => return None,
            Binding::RequiresMigration => (0, Some(Reason::RestoredProfileLessRequiresMigration)),
            Binding::Unresolved(_) => (0, Some(Reason::ProfileResolutionFault)),
            Binding::Bound(bound) => (bound.generation, None),
        };
        let kept = |source: &Arc<Source>| {
            let older = older.filter(|_| unbound.is_none())?;
            let attested = older.attested.as_ref().filter(|own| own.generation == generation)?;
            let at = older.sources.iter().position(|own| own.number() == source.number())?;
            attested.endpoints.get(at).cloned()
        };
        let endpoints = sources.iter().map(|source| kept(source).unwrap_or_default()).collect();
        Some(Attested { generation, unbound, endpoints })
    }

    /// Whether this rank of this endpoint may be routed to by blocks, or why not.
    pub fn admits(&self, endpoint: usize, rank: u8) -> Result<(), Reason> {
        if let Some(reason) = self.unbound {
            return Err(reason);
        }
        let state = self.endpoints.get(endpoint).ok_or(Reason::BindingDataplanePending)?;
        state.admits(self.generation, rank)
    }
}

/// That of the rule before, if it named the very source: another one has to prove itself anew.
pub(super) fn trust(source: &Arc<Source>, older: Option<&ExactService>) -> Arc<TrustState> {
    let kept = older.and_then(|older| {
        let at = older.sources.iter().position(|own| own.number() == source.number())?;
        older.trust.get(at).cloned()
    });
    kept.unwrap_or_default()
}
