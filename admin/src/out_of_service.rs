//! What the operator has taken out of service until told otherwise: hosts, and with maintenance the gateway. Owns who said
//! what, how long work that runs may take, and that tables in force obey; must never end a request. A restart forgets
//! it; what a restart shall remember is said by weight 0 in a rule.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use warmpath_core::Nanos;
use warmpath_core::table::Table;

/// Seconds that what runs may take, unless said otherwise.
pub const DRAIN_SEC: u64 = 300;

/// Since when something is out of service, and until when what runs there shall have ended. Nothing is cut then: it is
/// told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// Seconds that were given.
    pub seconds: u64,
    /// When they are over.
    pub deadline: Nanos,
}

impl Drain {
    /// From `now` on.
    pub fn begun(seconds: u64, now: Nanos) -> Drain {
        Drain { seconds, deadline: now.saturating_add(seconds.saturating_mul(warmpath_core::SECOND)) }
    }

    /// Whether the time is over although something still runs.
    pub fn is_exceeded(&self, running: u64, now: Nanos) -> bool {
        running > 0 && now > self.deadline
    }
}

/// All endpoints at an address, or one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// Those at this address, whatever their port.
    Address(IpAddr),
    /// This one.
    Endpoint(SocketAddr),
}

impl Host {
    /// `10.0.0.1`, `10.0.0.1:8000`, `::1` or `[::1]:8000`.
    pub fn parse(text: &str) -> Option<Host> {
        let address = || text.parse::<IpAddr>().ok().map(|ip| Host::Address(ip.to_canonical()));
        let endpoint = || text.parse::<SocketAddr>().ok().map(Host::Endpoint);
        address().or_else(endpoint)
    }

    /// Whether an endpoint is meant.
    pub fn covers(&self, endpoint: SocketAddr) -> bool {
        match self {
            Host::Address(ip) => *ip == endpoint.ip().to_canonical(),
            Host::Endpoint(own) => *own == endpoint,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Address(ip) => write!(f, "{ip}"),
            Host::Endpoint(at) => write!(f, "{at}"),
        }
    }
}

/// All that is out of service.
#[derive(Debug, Default)]
pub struct OutOfService {
    /// The gateway, for maintenance.
    pub maintenance: Option<Drain>,
    /// What was said of hosts; an endpoint's own word goes before its address's. `None`: it serves although its address is
    /// out of service.
    hosts: Vec<(Host, Option<Drain>)>,
}

impl OutOfService {
    /// Takes a host out of service, or back. What was said of an address holds for all of its endpoints.
    pub fn set(&mut self, host: Host, drain: Option<Drain>) {
        self.hosts.retain(|(known, _)| match (host, known) {
            (Host::Address(_), Host::Endpoint(at)) => !host.covers(*at),
            _ => *known != host,
        });
        let differs = match host {
            Host::Address(_) => drain.is_some(),
            Host::Endpoint(at) => drain != self.drain_of(at),
        };
        if differs {
            self.hosts.push((host, drain));
        }
    }

    /// Whether a host was named before.
    pub fn knows(&self, host: Host) -> bool {
        self.hosts.iter().any(|(known, _)| *known == host)
    }

    /// The hosts that are out of service, in the order in which they were taken out.
    pub fn hosts(&self) -> impl Iterator<Item = (Host, Drain)> {
        self.hosts.iter().filter_map(|(host, drain)| Some((*host, (*drain)?)))
    }

    /// Since when an endpoint is out of service.
    pub fn drain_of(&self, endpoint: SocketAddr) -> Option<Drain> {
        let own = self.hosts.iter().find(|(host, _)| *host == Host::Endpoint(endpoint));
        let of_address = || self.hosts.iter().find(|(host, _)| host.covers(endpoint));
        own.or_else(of_address).and_then(|(_, drain)| *drain)
    }

    /// Makes a table obey. An endpoint that comes back is cold.
    pub fn apply(&self, table: &Table, now: Nanos) {
        for service in table.services() {
            service.admission.close(self.maintenance.is_some());
            for state in &service.endpoints {
                let drained = self.drain_of(state.address()).is_some();
                if state.is_drained() && !drained {
                    state.came_up(now);
                }
                state.set_drained(drained);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoints_own_word_goes_before_its_addresss() {
        let mut out = OutOfService::default();
        let (one, other): (SocketAddr, SocketAddr) = (([10, 0, 0, 1], 1).into(), ([10, 0, 0, 1], 2).into());
        let address = Host::parse("10.0.0.1").unwrap();
        let endpoint = Host::parse("10.0.0.1:1").unwrap();
        let drain = Drain::begun(9, 1);
        let drained = |out: &OutOfService| [one, other].map(|at| out.drain_of(at).is_some());
        out.set(endpoint, Some(drain));
        assert_eq!(drained(&out), [true, false]);
        out.set(address, Some(drain));
        assert_eq!((drained(&out), out.hosts().count()), ([true, true], 1));
        out.set(endpoint, None);
        assert_eq!((drained(&out), out.hosts().count()), ([false, true], 1));
        out.set(address, None);
        assert_eq!((drained(&out), out.hosts.len()), ([false, false], 0));
        out.set(endpoint, None);
        assert!(out.hosts.is_empty(), "nothing to remember");
    }

    #[test]
    fn hosts_are_addresses_or_endpoints() {
        let shown = |text: &str| Host::parse(text).map(|host| host.to_string());
        for text in ["10.0.0.1", "10.0.0.1:80", "::1", "[::1]:80"] {
            assert_eq!(shown(text).as_deref(), Some(text));
        }
        assert_eq!(shown("::ffff:10.0.0.1").as_deref(), Some("10.0.0.1"));
        for text in ["", "engine-1", "10.0.0.1:", "10.0.0.1:99999", "[::1]"] {
            assert_eq!(shown(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_deadline_is_exceeded_only_by_what_still_runs() {
        let drain = Drain::begun(1, 5);
        let after = 5 + warmpath_core::SECOND;
        assert!(
            !drain.is_exceeded(1, after)
                && drain.is_exceeded(1, after + 1)
                && !drain.is_exceeded(0, after + 1)
        );
    }
}
