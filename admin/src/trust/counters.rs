//! Evidence of last resort: the counters of engines whose answers tell nothing of their caches. Owns when they are worth
//! a question, and the windows between two answers; what a window proves is `core::trust::counters`, asking is
//! `crate::telemetry`.
//!
//! An endpoint is asked only after requests whose answers told nothing, and only while none is in flight.

use std::sync::Arc;
use warmpath_core::shared::TrustState;
use warmpath_core::trust::counters::{Edge, Window, judge_window};
use warmpath_core::trust::{Class, Finding};

/// One endpoint as one rule sees it.
#[derive(Clone, Debug)]
pub struct Watched {
    service: u32,
    trust: Arc<TrustState>,
    /// Where the window now open began.
    edge: Option<Edge>,
}

impl Watched {
    /// Of a service, by its number.
    pub fn new(service: u32, trust: Arc<TrustState>) -> Watched {
        Watched { service, trust, edge: None }
    }

    /// Goes on with the window of the same service, if `before` has it.
    pub fn follow(&mut self, before: &[Watched]) {
        let same = before.iter().find(|known| known.service == self.service);
        self.edge = same.and_then(|known| known.edge);
    }

    /// The number of its service.
    pub fn service(&self) -> u32 {
        self.service
    }

    /// Whether requests ended that nothing judged.
    pub fn has_news(&self) -> bool {
        self.trust.untold() != self.edge.unwrap_or_default().untold
    }

    /// The edge of this moment, without the engine's counters.
    pub fn now(&self) -> Edge {
        Edge { untold: self.trust.untold(), judged: self.judged(), ..Edge::default() }
    }

    /// Takes the counters, asked for at `asked` while nothing was in flight then or since, and judges the window that
    /// they end.
    pub fn took(&mut self, asked: Edge, [queries, hits]: [u64; 2]) {
        if self.trust.untold() != asked.untold {
            return;
        }
        let edge = Edge { queries, hits, ..asked };
        if let Some(before) = self.edge {
            let window = judge_window(&before, &edge);
            if let Window::Judged(class, finding) = window {
                self.trust.judged(class, finding);
            }
            self.trust.window(match window {
                Window::Judged(..) => None,
                Window::Open(why) => Some(why),
            });
        }
        // Its own judgement is none of the next window's.
        self.edge = Some(Edge { judged: self.judged(), ..edge });
    }

    fn judged(&self) -> u64 {
        let symptoms = self.trust.symptoms();
        Finding::ALL.iter().map(|finding| u64::from(symptoms.count(|_: Class| true, *finding))).sum()
    }
}
