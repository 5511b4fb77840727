//! Endpoints of rules with exact routing beside what the event core says of them. Owns the pairing, by the
//! number of the source; must never ask the event core itself.

use std::collections::HashMap;
use std::sync::Arc;
use warmpath_core::control::{InventoryPage, KvPlane, KvReport, SourceReport};
use warmpath_core::shared::{Fence, Source, Tier};
use warmpath_core::table::{Service, Table};

/// For a process without an event core: it knows nothing and follows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoKv;

impl KvPlane for NoKv {
    fn follow(&self, _: Arc<Table>) {}

    fn report(&self) -> Option<KvReport> {
        None
    }

    fn inventory(&self, _: u32, _: u8, _: Tier, _: u64, _: usize) -> Option<InventoryPage> {
        None
    }

    fn reacquire(&self, _: u32) -> bool {
        false
    }
}

/// One endpoint of one service. Services that share a source have one each.
pub struct KvEndpoint<'a> {
    /// The service.
    pub service: &'a Service,
    /// The endpoint's index in it.
    pub index: usize,
    /// Where its blocks are known from.
    pub source: &'a Source,
    /// What the event core says of that; `None` while it does not know it.
    pub report: Option<&'a SourceReport>,
    /// Why this service leaves it out of exact routing, if it does.
    pub fence: Option<Fence>,
}

/// The endpoints of all services with exact routing whose blocks decide, in the order of their numbers.
pub fn endpoints<'a>(table: &'a Table, report: Option<&'a KvReport>) -> Vec<KvEndpoint<'a>> {
    let reports: HashMap<u32, &SourceReport> =
        report.iter().flat_map(|r| &r.sources).map(|s| (s.source, s)).collect();
    let mut services: Vec<&Arc<Service>> = table.services().collect();
    services.sort_by_key(|service| service.number);
    let of = |service: &'a Service| {
        service
            .exact
            .iter()
            .flat_map(|exact| exact.sources.iter().zip(exact.fences()).enumerate())
            .filter(|(index, _)| !service.not_by_blocks().contains(*index))
            .map(move |(index, (source, fence))| (service, index, source, fence))
    };
    let paired =
        services.into_iter().flat_map(|service| of(service)).map(|(service, index, source, fence)| {
            let report = reports.get(&source.number()).copied();
            // The event core's own word of the source is at one with the rest of its report.
            let fence = report.and_then(|report| report.fence).or(fence.filter(|own| *own == Fence::Version));
            KvEndpoint { service, index, source, report, fence }
        });
    paired.collect()
}
