//! Where a rank's events are: what the engine tells, within what the rule says. Owns that order of precedence;
//! must never dial.

use crate::facts::Facts;
use crate::sources::{Address, Source};
use std::net::SocketAddr;
use warmpath_core::shared::SourceSpec;

/// Where a rank's events are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Where it publishes; `None`: it connects to us.
    pub publish: Option<SocketAddr>,
    /// Where it can be asked again.
    pub replay: Option<SocketAddr>,
    /// The rank that its batches name.
    pub rank: u32,
}

/// A rank's places. The engine's own word for where it publishes holds, where it gives one; for the replay, the
/// rule's.
pub fn places(spec: &SourceSpec, facts: &Facts, rank: u8) -> Places {
    let told = told(facts, rank);
    let at = |port: u16| SocketAddr::new(spec.endpoint.ip(), port);
    let own = |base: u16| at(base.saturating_add(u16::from(rank)));
    let dialled = |address: Option<&Address>| match address {
        Some(Address::Dial { port, .. }) => Some(at(*port)),
        _ => None,
    };
    let publish = dialled(told.map(|source| &source.publish)).unwrap_or(own(spec.ports.publish));
    let replay = match spec.ports.replay {
        0 => dialled(told.and_then(|source| source.replay.as_ref())),
        base => Some(own(base)),
    };
    let rank = told.map_or(u32::from(rank), |source| source.rank);
    Places { publish: (!spec.ports.bind).then_some(publish), replay, rank }
}

/// What of the engine's word does not go with the rule.
pub fn unusable_places(spec: &SourceSpec, facts: &Facts) -> Vec<String> {
    let mut findings = Vec::new();
    for rank in 0..spec.ranks {
        let Some(told) = told(facts, rank) else { continue };
        let rule = spec.ports.publish.saturating_add(u16::from(rank));
        match (&told.publish, spec.ports.bind) {
            (Address::Listen { host, port }, false) => findings.push(format!(
                "rank {rank} connects to tcp://{host}:{port}, the gateway dials: set the rule's kvZmqBind, or \
                 let the engine publish at tcp://*:{rule}"
            )),
            (Address::Dial { port, .. }, true) => findings.push(format!(
                "rank {rank} listens on port {port}, and so does the gateway, by the rule's kvZmqBind: take it \
                 out, or let the engine connect to tcp://GATEWAY:{rule}"
            )),
            (Address::Dial { port, .. }, false) if *port != rule => findings.push(format!(
                "rank {rank} publishes at port {port}, which is used; the rule's kvZmqPort says {rule}"
            )),
            _ => {}
        }
    }
    findings
}

fn told(facts: &Facts, rank: u8) -> Option<&Source> {
    facts.publishers.as_ref()?.as_ref().ok()?.get(usize::from(rank))
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmpath_core::engine::{Algo, Engine, Terms};
    use warmpath_core::rule::KvPorts;

    fn spec(ports: KvPorts) -> SourceSpec {
        let terms = Terms::plain(Algo::Tokens, warmpath_core::block::BlockSize::SIXTEEN);
        let contract = Engine::Vllm.contract(&terms).expect("a contract");
        let endpoint = "10.0.0.1:8000".parse().expect("an address");
        SourceSpec { endpoint, contract, version: None, ports, ranks: 2, model: String::new() }
    }

    fn telling(publish: Address, replay: Option<Address>) -> Facts {
        let source = |rank| Source {
            rank,
            publish: publish.clone(),
            replay: replay.clone(),
            topic: String::new(),
            block_size: None,
        };
        Facts { publishers: Some(Ok(vec![source(4), source(5)])), ..Facts::default() }
    }

    fn dial(port: u16) -> Address {
        Address::Dial { host: None, port }
    }

    fn at(port: u16) -> Option<SocketAddr> {
        Some(SocketAddr::from(([10, 0, 0, 1], port)))
    }

    #[test]
    fn the_rules_ports_count_by_rank_until_the_engine_tells_its_own() {
        let rule = spec(KvPorts { publish: 6000, replay: 0, bind: false });
        let silent = places(&rule, &Facts::default(), 1);
        assert_eq!(silent, Places { publish: at(6001), replay: None, rank: 1 });
        let told = telling(dial(7000), Some(dial(7100)));
        assert_eq!(places(&rule, &told, 1), Places { publish: at(7000), replay: at(7100), rank: 5 });
        assert_eq!(unusable_places(&rule, &told).len(), 2);
        let fixed = spec(KvPorts { publish: 7000, replay: 8000, bind: false });
        assert_eq!(places(&fixed, &told, 1).replay, at(8001));
    }

    #[test]
    fn who_connects_to_whom_is_told_when_it_cannot_work() {
        let away = Address::Listen { host: "gateway".into(), port: 6000 };
        let rule = spec(KvPorts::default());
        assert_eq!(places(&rule, &telling(away.clone(), None), 0).publish, at(5557));
        assert!(unusable_places(&rule, &telling(away.clone(), None))[0].contains("kvZmqBind"));
        let bound = spec(KvPorts { bind: true, ..KvPorts::default() });
        assert_eq!(places(&bound, &telling(away.clone(), None), 0).publish, None);
        assert_eq!(unusable_places(&bound, &telling(away, None)), [""; 0]);
        assert_eq!(unusable_places(&bound, &telling(dial(5557), None)).len(), 2);
    }
}
