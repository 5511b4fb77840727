//! SGLang's radix cache (0.5.18 to 0.5.23): a tree whose nodes hold runs of pages, split where prompts
//! part. Leaves are evicted whole, least recently used first, and never one that a request has locked;
//! a page is never held twice. Must never insert while a request decodes: SGLang inserts after the
//! prefill and at the end.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::{Holdings, Host, Lease};
use crate::engine::blocks::{Block, Digest, Log, Medium};

const ROOT: usize = 0;

#[derive(Debug, Default)]
struct Node {
    pages: Vec<Arc<Block>>,
    parent: usize,
    children: HashMap<Digest, usize>,
    locks: usize,
    used: u64,
}

/// A tree of pages.
#[derive(Debug)]
pub struct Radix {
    capacity: usize,
    nodes: Vec<Node>,
    /// Numbers of nodes that are gone.
    vacant: Vec<usize>,
    /// Unlocked leaves by last use.
    evictable: BTreeSet<(u64, usize)>,
    pages: usize,
    clock: u64,
    epoch: u64,
    /// Memory behind it.
    pub host: Host,
}

impl Radix {
    /// A tree of at most `capacity` pages, at least 1, before `host` pages.
    pub fn new(capacity: usize, host: usize) -> Self {
        Radix {
            capacity: capacity.max(1),
            nodes: vec![Node::default()],
            vacant: Vec::new(),
            evictable: BTreeSet::new(),
            pages: 0,
            clock: 0,
            epoch: 0,
            host: Host::new(host),
        }
    }

    /// Leading pages held here, then in the host's memory.
    pub fn hit(&self, blocks: &[Arc<Block>]) -> usize {
        let (mut node, mut matched) = (ROOT, 0);
        while let Some((child, common)) = self.step(node, &blocks[matched..]) {
            matched += common;
            node = child;
            if common < self.nodes[child].pages.len() {
                break;
            }
        }
        matched + blocks[matched..].iter().take_while(|block| self.host.holds(&block.digest)).count()
    }

    /// The child that begins as `rest` does, and how many pages they share.
    fn step(&self, node: usize, rest: &[Arc<Block>]) -> Option<(usize, usize)> {
        let child = *self.nodes[node].children.get(&rest.first()?.digest)?;
        let pairs = self.nodes[child].pages.iter().zip(rest);
        Some((child, pairs.take_while(|(held, page)| held.digest == page.digest).count()))
    }

    /// Locks the leading pages that are here.
    pub fn begin(&mut self, blocks: &[Arc<Block>]) -> (Lease, usize) {
        let (node, hits) = self.walk(blocks);
        self.lock(node, true);
        (Lease { epoch: self.epoch, slots: vec![node], stored: hits }, hits)
    }

    /// Adds what is not here yet, evicting for it, and locks it in place of what was locked. What finds
    /// no room is left out.
    pub fn insert(&mut self, lease: &mut Lease, blocks: &[Arc<Block>], log: &mut Log) {
        if lease.epoch != self.epoch {
            return;
        }
        let (mut node, matched) = self.walk(blocks);
        self.lock(node, true);
        let new = &blocks[matched..];
        self.evict((self.pages + new.len()).saturating_sub(self.capacity), log);
        let new = &new[..new.len().min(self.capacity - self.pages)];
        if let Some(first) = new.first() {
            self.clock += 1;
            let child =
                self.place(Node { pages: new.to_vec(), parent: node, used: self.clock, ..Node::default() });
            self.nodes[node].children.insert(first.digest, child);
            self.pages += new.len();
            self.lock(child, true);
            self.lock(node, false);
            node = child;
            log.stored(new, Medium::Gpu);
        }
        for old in std::mem::replace(&mut lease.slots, vec![node]) {
            self.lock(old, false);
        }
    }

    /// Unlocks what a request holds.
    pub fn release(&mut self, lease: &mut Lease) {
        if lease.epoch == self.epoch {
            lease.slots.drain(..).collect::<Vec<_>>().into_iter().for_each(|node| self.lock(node, false));
        }
    }

    /// Follows `blocks` as far as they are here, marking each node as used; a node that is followed only
    /// in part is split. The last node, and the pages followed.
    fn walk(&mut self, blocks: &[Arc<Block>]) -> (usize, usize) {
        let (mut node, mut matched) = (ROOT, 0);
        while let Some((child, common)) = self.step(node, &blocks[matched..]) {
            self.touch(child);
            matched += common;
            if common < self.nodes[child].pages.len() {
                return (self.split(child, common), matched);
            }
            node = child;
        }
        (node, matched)
    }

    fn touch(&mut self, node: usize) {
        self.clock += 1;
        let was = self.evictable.remove(&(self.nodes[node].used, node));
        self.nodes[node].used = self.clock;
        if was {
            self.evictable.insert((self.clock, node));
        }
    }

    /// Parts a node after `at` pages; the new upper part's number. Locks hold both parts.
    fn split(&mut self, node: usize, at: usize) -> usize {
        let lower = self.nodes[node].pages.split_off(at);
        let pages = std::mem::replace(&mut self.nodes[node].pages, lower);
        let (parent, locks, used) = (self.nodes[node].parent, self.nodes[node].locks, self.nodes[node].used);
        let (top, below) = (pages[0].digest, self.nodes[node].pages[0].digest);
        let upper = self.place(Node { pages, parent, locks, used, children: HashMap::from([(below, node)]) });
        self.nodes[parent].children.insert(top, upper);
        self.nodes[node].parent = upper;
        upper
    }

    fn place(&mut self, node: Node) -> usize {
        match self.vacant.pop() {
            Some(number) => {
                self.nodes[number] = node;
                number
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        }
    }

    /// Locks or unlocks a node and all above it.
    fn lock(&mut self, node: usize, on: bool) {
        let mut at = node;
        while at != ROOT {
            let locks = self.nodes[at].locks;
            self.nodes[at].locks = if on { locks + 1 } else { locks.saturating_sub(1) };
            self.weigh(at);
            at = self.nodes[at].parent;
        }
    }

    /// Puts a node among the evictable ones, or takes it away from them.
    fn weigh(&mut self, node: usize) {
        let Node { locks, used, ref children, .. } = self.nodes[node];
        if node != ROOT && locks == 0 && children.is_empty() {
            self.evictable.insert((used, node));
        } else {
            self.evictable.remove(&(used, node));
        }
    }

    /// Evicts leaves until at least `pages` are gone or every leaf is locked.
    pub fn evict(&mut self, pages: usize, log: &mut Log) {
        let (mut gone, mut runs) = (0, Vec::new());
        while gone < pages {
            let Some((_, node)) = self.evictable.pop_first() else { break };
            let Node { pages: run, parent, .. } = std::mem::take(&mut self.nodes[node]);
            self.nodes[parent].children.remove(&run[0].digest);
            self.vacant.push(node);
            self.weigh(parent);
            gone += run.len();
            runs.push(run);
        }
        self.pages -= gone;
        runs.iter().flatten().for_each(|page: &Arc<Block>| log.removed(page.clone(), Medium::Gpu));
        runs.iter().for_each(|run| self.host.offload(run, log));
    }

    /// Pages held.
    pub fn count(&self) -> usize {
        self.pages
    }

    /// Pages, each once.
    pub fn holdings(&self) -> Holdings {
        self.nodes.iter().flat_map(|node| &node.pages).map(|page| (page.digest, 1)).collect()
    }

    /// Forgets everything; leases given out are void.
    pub fn clear(&mut self) {
        self.nodes = vec![Node::default()];
        self.vacant.clear();
        self.evictable.clear();
        self.pages = 0;
        self.host.clear();
        self.epoch += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{chain, prompt_blocks, told};
    use super::*;
    use crate::engine::text::mix;

    fn gathering() -> Log {
        Log { gathers_removals: true, ..Log::default() }
    }

    fn run(radix: &mut Radix, tokens: &[u32], log: &mut Log) -> (usize, Vec<String>) {
        let (mut lease, hits) = radix.begin(&prompt_blocks(tokens, 2));
        radix.insert(&mut lease, &chain(tokens, 2), log);
        radix.release(&mut lease);
        (hits, told(log))
    }

    #[test]
    fn runs_are_told_whole_branches_split_and_nothing_is_held_twice() {
        let (mut radix, mut log) = (Radix::new(100, 0), gathering());
        assert_eq!(run(&mut radix, &[0, 1, 2, 3, 4, 5], &mut log), (0, vec!["+0,2,4".into()]));
        assert_eq!(run(&mut radix, &[0, 1, 2, 3, 4, 5], &mut log), (2, vec![]));
        assert_eq!(run(&mut radix, &[0, 1, 7, 8], &mut log), (1, vec!["+7".into()]));
        assert_eq!(radix.count(), 4);
        radix.evict(1, &mut log);
        assert_eq!(told(&mut log), ["-4"], "the second request parted it from its front");
        radix.evict(9, &mut log);
        assert_eq!(told(&mut log), ["-2,7,0"]);
        assert_eq!(radix.count(), 0);
    }

    #[test]
    fn locked_pages_stay_and_what_finds_no_room_is_left_out() {
        let (mut radix, mut log) = (Radix::new(3, 0), gathering());
        let (mut lease, _) = radix.begin(&[]);
        radix.insert(&mut lease, &chain(&[0, 1, 2, 3], 2), &mut log);
        assert_eq!(run(&mut radix, &[10, 11, 12, 13], &mut log).1, ["+0,2", "+10"]);
        radix.release(&mut lease);
        assert_eq!(run(&mut radix, &[20, 21], &mut log).1, ["-0,2", "+20"]);
    }

    #[test]
    fn random_use_keeps_its_books() {
        for seed in 0..200 {
            let mut random = seed;
            let mut draw = |below: u64| {
                random = mix(random);
                random % below
            };
            let (capacity, mut log) = (1 + draw(12) as usize, gathering());
            let (mut radix, mut leases) = (Radix::new(capacity, 0), Vec::new());
            for _ in 0..80 {
                let tokens: Vec<u32> = (0..draw(14)).map(|_| draw(2) as u32).collect();
                let (mut lease, hits) = radix.begin(&prompt_blocks(&tokens, 2));
                assert_eq!(hits, radix.hit(&prompt_blocks(&tokens, 2)), "seed {seed}");
                radix.insert(&mut lease, &chain(&tokens, 2), &mut log);
                leases.push(lease);
                if leases.len() > draw(4) as usize {
                    let at = draw(leases.len() as u64) as usize;
                    radix.release(&mut leases.swap_remove(at));
                }
                assert!(radix.count() <= capacity, "seed {seed}");
                assert_eq!(radix.count(), radix.holdings().len(), "seed {seed}");
            }
            leases.iter_mut().for_each(|lease| radix.release(lease));
            radix.evict(usize::MAX, &mut log);
            assert_eq!(
                (radix.count(), radix.evictable.len()),
                (0, 0),
                "seed {seed}: all can go once unlocked"
            );
        }
    }
}
