//! Evidence of last resort: the counters of engines whose answers tell nothing of their caches. Owns when they are
//! scraped and how they are read; what a window of them proves is `core::trust::counters`.
//!
//! An endpoint is asked only after requests whose answers told nothing, and only while none is in flight.

use crate::health::probe;
use crate::serve::Shared;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use warmpath_core::shared::{EndpointState, TrustState};
use warmpath_core::table::Table;
use warmpath_core::trust::counters::{Edge, Window, judge_window};
use warmpath_core::trust::{Class, Finding};
use warmpath_core::{Nanos, SECOND};

/// How often endpoints are looked at.
const LOOK_EACH: Duration = Duration::from_secs(2);

/// Time for one scrape.
const SCRAPE_TIME: Nanos = 2 * SECOND;

/// Bytes of a page of metrics.
const PAGE_MAX: usize = 8 << 20;

/// One endpoint of one service that may be asked.
#[derive(Clone)]
struct Asked {
    service: u32,
    endpoint: Arc<EndpointState>,
    trust: Arc<TrustState>,
    names: [&'static str; 2],
}

impl Asked {
    fn is_idle(&self) -> bool {
        self.endpoint.reserved() == 0
    }

    fn judged(&self) -> u64 {
        let symptoms = self.trust.symptoms();
        Finding::ALL.iter().map(|finding| u64::from(symptoms.count(|_: Class| true, *finding))).sum()
    }
}

/// The last edge of each endpoint of each service.
#[derive(Default)]
pub struct Counters {
    edges: HashMap<(u32, SocketAddr), Edge>,
}

impl Counters {
    /// Those with news that nothing judged, and nothing in flight.
    fn due(&mut self, table: &Table) -> Vec<Asked> {
        let all = all(table);
        self.edges.retain(|key, _| all.iter().any(|asked| *key == asked.key()));
        let has_news = |asked: &Asked| {
            let last = self.edges.get(&asked.key()).copied().unwrap_or_default();
            asked.is_idle() && asked.trust.untold() != last.untold
        };
        all.into_iter().filter(has_news).collect()
    }

    /// Takes an edge and judges the window that it ends.
    fn take(&mut self, asked: &Asked, edge: Edge) {
        let before = self.edges.insert(asked.key(), edge);
        let Some(before) = before else { return };
        match judge_window(&before, &edge) {
            Window::Judged(class, finding) => {
                asked.trust.judged(class, finding);
                asked.trust.window(None);
            }
            Window::Open(why) => asked.trust.window(Some(why)),
        }
        // Its own judgement is none of the next window's.
        self.edges.insert(asked.key(), Edge { judged: asked.judged(), ..edge });
    }
}

impl Asked {
    fn key(&self) -> (u32, SocketAddr) {
        (self.service, self.endpoint.address())
    }
}

fn all(table: &Table) -> Vec<Asked> {
    let mut all = Vec::new();
    for service in table.services() {
        let Some(exact) = &service.exact else { continue };
        let Some(names) = service.rule.engine.prefix_counters() else { continue };
        for (endpoint, trust) in service.endpoints.iter().zip(&exact.trust) {
            let (endpoint, trust) = (endpoint.clone(), trust.clone());
            all.push(Asked { service: service.number, endpoint, trust, names });
        }
    }
    all
}

/// Looks again and again.
pub async fn watch(gateway: Shared) {
    let mut counters = Counters::default();
    loop {
        sleep(LOOK_EACH).await;
        let due = counters.due(&gateway.borrow().table);
        for asked in due {
            if let Some(edge) = edge(&asked).await {
                counters.take(&asked, edge);
            }
        }
    }
}

/// An edge, if nothing was sent while the engine was asked.
async fn edge(asked: &Asked) -> Option<Edge> {
    let (untold, judged) = (asked.trust.untold(), asked.judged());
    let [queries, hits] = scrape(asked).await?;
    let is_still = asked.is_idle() && asked.trust.untold() == untold;
    is_still.then_some(Edge { queries, hits, untold, judged })
}

async fn scrape(asked: &Asked) -> Option<[u64; 2]> {
    let at = asked.endpoint.address();
    let (status, page) = probe::page(at, "/metrics", SCRAPE_TIME, PAGE_MAX).await.ok()?;
    let page = std::str::from_utf8(&page).ok().filter(|_| status == 200)?;
    let [queries, hits] = asked.names.map(|name| sum(page, name));
    Some([queries?, hits?])
}

/// All samples of a counter; `None` without one, or if one is not a whole number.
fn sum(page: &str, name: &str) -> Option<u64> {
    let values = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with(['{', ' ']).then(|| rest.rsplit(' ').next())?
    });
    let mut total = None;
    for value in values {
        let value = value.parse::<f64>().ok().filter(|value| value.fract() == 0.0 && *value >= 0.0)?;
        total = Some(total.unwrap_or(0) + value as u64);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_all_ranks_are_added_and_other_names_are_not() {
        let page = "# HELP a_total x\n# TYPE a_total counter\na_total{engine=\"0\",m=\"b c\"} 1.5e+03\n\
                    a_total{engine=\"1\"} 7.0\na_total_more{} 5\nb_total 3\nc_total nan\n";
        assert_eq!(sum(page, "a_total"), Some(1507));
        assert_eq!((sum(page, "b_total"), sum(page, "c_total"), sum(page, "d_total")), (Some(3), None, None));
    }
}
