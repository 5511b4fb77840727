//! Which endpoints were sent which beginnings of prompts, of the whole gateway: tier 1. Owns what is kept of a
//! beginning; must never hold text (beginnings are names, [`crate::prefix_path`]).
//!
//! A trie whose nodes are found by the name of their whole path, in one map of bounded bytes ([`super::timed`]): a read
//! never waits. A node has the two endpoints that were sent it last. Who is sent a prompt renews all nodes of its path, so
//! that nodes near the root are never older than those behind them, and what was not sent for longest goes first; where a
//! node in between went, the match ends before it, never behind. Engines that lost their cache are forgotten by the
//! number of times their breaker opened, which is part of what an endpoint is called here. What an engine evicts while it
//! runs is not heard of here; where events tell of it, who asks leaves that engine out.

use super::timed::TimedMap;
use crate::fleet::EndpointId;
use crate::prefix_path::PrefixPath;
use crate::{Nanos, SECOND};

/// Bytes of nodes that a gateway keeps once a rule asks for them: some 320,000, of 20 MB of text at the finest.
pub const TRIE_BYTES: usize = 8 << 20;

/// What was not sent for so long is no longer expected in any cache.
const LIFE: Nanos = 3600 * SECOND;

/// The trie.
#[derive(Debug)]
pub struct PrefixTrie(TimedMap);

/// The longest known beginning of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Longest {
    /// Who was sent it, of those asked for, last.
    pub endpoint: EndpointId,
    /// Its names.
    pub depth: usize,
}

impl PrefixTrie {
    /// One of at most `bytes`, 25.6 a node.
    pub fn new(bytes: usize) -> PrefixTrie {
        PrefixTrie(TimedMap::new(bytes))
    }

    /// What it occupies, bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// The longest beginning of the prompt that one of the endpoints that `may` was sent.
    pub fn longest(
        &self,
        path: &PrefixPath,
        may: impl Fn(EndpointId) -> bool,
        now: Nanos,
    ) -> Option<Longest> {
        let nodes = path.names().iter().map_while(|name| self.0.peek(*name, now));
        let known = nodes.enumerate().filter_map(|(above, node)| {
            let endpoint = holders(node).into_iter().flatten().find(|endpoint| may(*endpoint))?;
            Some(Longest { endpoint, depth: above + 1 })
        });
        known.last()
    }

    /// The prompt goes to `endpoint`.
    pub fn sent(&self, path: &PrefixPath, endpoint: EndpointId, now: Nanos) {
        for name in path.names() {
            self.0.put(*name, now.saturating_add(LIFE), now, |node| with(node.unwrap_or(0), endpoint));
        }
    }

    /// Nodes kept at `now`.
    pub fn nodes(&self, now: Nanos) -> usize {
        self.0.live(now)
    }
}

/// The endpoints of a node, the last one first.
fn holders(node: u64) -> [Option<EndpointId>; 2] {
    [EndpointId::of_number(node as u32), EndpointId::of_number((node >> 32) as u32)]
}

/// The node once `endpoint` is the last.
fn with(node: u64, endpoint: EndpointId) -> u64 {
    let last = node as u32;
    let before = if last == endpoint.number() { (node >> 32) as u32 } else { last };
    u64::from(before) << 32 | u64::from(endpoint.number())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn id(port: u16) -> EndpointId {
        EndpointId::of(([10, 0, 0, 1], port).into())
    }

    fn path(text: &str) -> PrefixPath {
        let mut path = PrefixPath::default();
        path.fill(1, text.as_bytes());
        path
    }

    #[test]
    fn the_longest_beginning_wins_and_its_last_endpoint() {
        let trie = PrefixTrie::new(1 << 16);
        let (system, long) = ("s".repeat(640), "s".repeat(640) + &"a".repeat(640));
        trie.sent(&path(&long), id(1), 0);
        trie.sent(&path(&system), id(2), 1);
        let ask =
            |text: &str, may: &[u16]| trie.longest(&path(text), |e| may.iter().any(|port| e == id(*port)), 2);
        assert_eq!(ask(&(long.clone() + "next"), &[1, 2]), Some(Longest { endpoint: id(1), depth: 20 }));
        assert_eq!(
            ask(&(system.clone() + &"b".repeat(640)), &[1, 2]),
            Some(Longest { endpoint: id(2), depth: 10 })
        );
        assert_eq!(ask(&(long.clone() + "next"), &[2]), Some(Longest { endpoint: id(2), depth: 10 }));
        assert_eq!((ask(&long, &[3]), ask("x", &[1]), ask(&"x".repeat(640), &[1])), (None, None, None));
        trie.sent(&path(&system), id(3), 3);
        assert_eq!(ask(&system, &[1]), None, "a node has the two last");
        assert_eq!(ask(&long, &[1]).map(|longest| longest.depth), Some(20), "those behind it have it still");
        assert_eq!(ask(&system, &[2, 3]).map(|longest| longest.endpoint), Some(id(3)));
        assert_eq!(trie.nodes(4), 20);
        assert_eq!(trie.longest(&path(&long), |_| true, 5 + LIFE), None);
    }

    /// Against a naive list of all beginnings that were sent, where nothing has to go.
    #[test]
    fn it_finds_what_a_list_of_beginnings_finds() {
        let trie = PrefixTrie::new(1 << 20);
        let mut naive: HashMap<Vec<u64>, Vec<EndpointId>> = HashMap::new();
        let mut draw = 7u64;
        let mut next = move |below: u64| {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (draw >> 33) % below
        };
        for now in 0..2_000 {
            let text: String = (0..1 + next(5)).map(|_| ["a", "b"][next(2) as usize].repeat(320)).collect();
            let (path, endpoint, only) = (path(&text), id(next(4) as u16), id(next(4) as u16));
            for (may, any) in [(only, false), (only, true)] {
                let found = trie.longest(&path, |e| any || e == may, now);
                let expected = (1..=path.names().len()).rev().find_map(|depth| {
                    let holders = naive.get(&path.names()[..depth])?;
                    let endpoint = holders.iter().rev().take(2).find(|e| any || **e == may)?;
                    Some(Longest { endpoint: *endpoint, depth })
                });
                assert_eq!(found, expected, "at {now}");
            }
            trie.sent(&path, endpoint, now);
            for depth in 1..=path.names().len() {
                let holders = naive.entry(path.names()[..depth].to_vec()).or_default();
                holders.retain(|known| *known != endpoint);
                holders.push(endpoint);
            }
        }
    }

    #[test]
    fn it_costs_no_more_bytes_and_keeps_what_was_sent_last() {
        let trie = PrefixTrie::new(1 << 14);
        for prompt in 0..500 {
            trie.sent(&path(&format!("{prompt:01280}")), id(1), prompt);
        }
        assert!(trie.bytes() == 1 << 14 && trie.nodes(500) <= 640);
        let last = trie.longest(&path(&format!("{:01280}", 499)), |_| true, 500).map_or(0, |l| l.depth);
        assert!(last >= 15, "of 20: {last}");
    }
}
