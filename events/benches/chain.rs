//! What a stored block costs the event core between its socket and the index, in nanoseconds of CPU: bytes of 64
//! publishers through feed, holdings and index, without sockets. Each batch stores 64 blocks and removes the 64
//! that its rank stored 200 batches ago, as one event or as 64.
//!
//! CPU time of this thread is told, so that other work on the machine disturbs by its caches alone; still a
//! good round of many counts. To compare two versions, run their binaries in turn.

#[expect(dead_code, reason = "shared with tests that speak more of it")]
#[path = "../tests/core_simulated/peer.rs"]
mod peer;
#[path = "core/template.rs"]
mod template;

use std::collections::VecDeque;
use std::sync::Arc;
use template::{NEVER_HELD, STORED, Template};
use warmpath_core::block::BlockSize;
use warmpath_core::engine::{Algo, Engine, Seed, Terms};
use warmpath_core::environment::Environment;
use warmpath_core::rule::{KvExact, KvPorts, RankMode, body};
use warmpath_core::shared::Source;
use warmpath_core::table::Table;
use warmpath_events::chain::Chain;
use warmpath_kvindex::index;
use warmpath_ring::{Sizes, clock};

const RANKS: usize = 64;

/// `[1.5, [["AllBlocksCleared"]]]`.
const CLEARED: &[u8] = b"\x92\xcb\x3f\xf8\0\0\0\0\0\0\x91\x91\xb0AllBlocksCleared";

/// Batches after which a rank's blocks are removed.
const KEPT: usize = 200;

fn main() {
    let is_measuring = std::env::args().any(|argument| argument == "--bench");
    let (kept, rounds) = if is_measuring { (KEPT, 300) } else { (2, 4) };
    for blocks_an_event in [64, 1] {
        let mut costs = Bench::new(blocks_an_event, kept).run(rounds);
        costs.sort_unstable_by(f64::total_cmp);
        let at = |part: usize| costs[(costs.len() - 1) * part / 100];
        println!(
            "{blocks_an_event:>3} blocks an event: {:>4.0} ns a block and its removal, median {:>4.0}",
            at(5),
            at(50)
        );
    }
    let (mut restarts, longest) = Bench::new(64, kept).restarts();
    restarts.sort_unstable();
    println!(
        "a rank of {} blocks cleared and stored anew: {} us, of all ranks' buffers the longest {longest} us",
        kept * STORED,
        restarts[restarts.len() / 2] / 1_000,
    );
}

struct Bench {
    chain: Chain,
    template: Template,
    kept: usize,
    held: Vec<VecDeque<u64>>,
    seq: u64,
    next: u64,
}

impl Bench {
    fn new(blocks_an_event: usize, kept: usize) -> Bench {
        let sources = sources();
        let plan = warmpath_kvindex::Plan::for_blocks(4_000_000, RANKS, 2).expect("a plan");
        let hello = [peer::greeting(), peer::ready("PUB")].concat();
        Bench {
            chain: Chain::new(sources, index(plan, 1).0, &hello),
            template: Template::new(blocks_an_event),
            kept,
            held: vec![VecDeque::new(); RANKS],
            seq: 0,
            next: NEVER_HELD + STORED as u64,
        }
    }

    /// Nanoseconds a block in each round, after the caches are full.
    fn run(&mut self, rounds: usize) -> Vec<f64> {
        for _ in 0..=self.kept {
            self.round();
        }
        let costs = (0..rounds).map(|_| self.round()).collect();
        let blocks = RANKS * self.kept * STORED;
        assert_eq!(
            self.chain.blocks(),
            (blocks, blocks as u64),
            "what is measured does not hold what it was told"
        );
        costs
    }

    /// One rank after the other is cleared and stores as much anew: nanoseconds of each, and microseconds of the
    /// longest receive buffer.
    fn restarts(&mut self) -> (Vec<u64>, u64) {
        for _ in 0..=self.kept {
            self.round();
        }
        let (mut costs, mut longest) = (Vec::new(), 0);
        for rank in 0..RANKS {
            let mut bytes = peer::batch(self.seq, CLEARED);
            for at in 1..=self.kept as u64 {
                bytes.extend(peer::batch(self.seq + at, &self.template.payload(self.next)));
                self.next += STORED as u64;
            }
            let begun = clock::thread_cpu();
            let mut last = begun;
            for buffer in bytes.chunks(Sizes::default().buffer_bytes as usize) {
                self.chain.live(rank, buffer);
                let now = clock::thread_cpu();
                longest = longest.max((now - last) / 1_000);
                last = now;
            }
            costs.push(last - begun);
        }
        let blocks = RANKS * self.kept * STORED;
        assert_eq!(
            self.chain.blocks(),
            (blocks, blocks as u64),
            "what is measured does not hold what it was told"
        );
        (costs, longest)
    }

    /// One batch of each rank.
    fn round(&mut self) -> f64 {
        let batches: Vec<Vec<u8>> = (0..RANKS).map(|rank| self.batch(rank)).collect();
        self.seq += 1;
        let begun = clock::thread_cpu();
        for (rank, batch) in batches.iter().enumerate() {
            for buffer in batch.chunks(Sizes::default().buffer_bytes as usize) {
                self.chain.live(rank, buffer);
            }
        }
        (clock::thread_cpu() - begun) as f64 / (RANKS * STORED) as f64
    }

    fn batch(&mut self, rank: usize) -> Vec<u8> {
        let first = self.next;
        self.next += STORED as u64;
        let held = &mut self.held[rank];
        held.push_back(first);
        let old = (held.len() > self.kept).then(|| held.pop_front()).flatten();
        self.template.fill(self.seq, first, old.unwrap_or(NEVER_HELD)).to_vec()
    }
}

fn sources() -> Vec<Arc<Source>> {
    let listed: Vec<_> = (0..RANKS)
        .map(|at| serde_json::json!({"endpointIP": format!("127.0.0.{}", at + 1), "targetPort": 9, "weight": 1}))
        .collect();
    let rule = serde_json::json!({
        "serviceArguments": {"externalIP": "127.0.0.1", "port": 80},
        "endpoints": listed,
    });
    let mut rule = body::parse(&rule, &Environment::default(), || "r".into()).expect("a rule");
    let terms = Terms { seed: Seed::Given("0"), ..Terms::plain(Algo::Sha256Cbor, BlockSize::SIXTEEN) };
    rule.exact = Some(KvExact {
        profile: Default::default(),
        contract: Engine::Vllm.contract(&terms).expect("a contract"),
        version: None,
        ports: KvPorts { publish: 5_557, replay: 5_558, bind: false },
        ranks: 1,
        rank_mode: RankMode::Pin,
        warmup: 0,
    });
    Table::next(&Table::default(), vec![rule], &mut 0, 0).sources()
}
