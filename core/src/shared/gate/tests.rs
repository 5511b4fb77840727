//! Three shards with mailboxes that delay, and clients that leave, by seed.

use super::*;
use std::collections::{HashMap, VecDeque};

fn place(shard: u16, slot: u32) -> Place {
    Place { shard, slot, generation: 1 }
}

#[test]
fn permits_are_given_up_to_the_limit_and_none_beside_those_who_wait() {
    let gate = Gate::default();
    assert!(!gate.enter(), "no limit was set yet");
    gate.set_limit(2);
    assert!(gate.enter() && gate.enter() && !gate.enter());
    assert_eq!(gate.queue(0, place(0, 1), Work::default()), None, "no queue");
    let first = gate.queue(2, place(0, 1), Work::default()).unwrap();
    let second = gate.queue(2, place(1, 2), Work::default()).unwrap();
    assert_eq!(gate.queue(2, place(0, 3), Work::default()), None, "full");
    assert_eq!(gate.call(), None);
    gate.put_back();
    assert!(!gate.enter(), "it would overtake");
    assert_eq!(gate.call(), Some(Turn { ticket: first, place: place(0, 1) }));
    assert_eq!((gate.call(), gate.out(), gate.waiting()), (None, 2, 1));
    assert!(gate.leave(second) && !gate.leave(first));
    gate.put_back();
    gate.put_back();
    assert!(gate.enter());
}

#[test]
fn a_raised_limit_calls_and_a_lowered_one_waits_until_enough_are_back() {
    let gate = Gate::default();
    gate.set_limit(1);
    assert!(gate.enter());
    let tickets: Vec<u64> =
        (0..3).map(|slot| gate.queue(9, place(0, slot), Work::default()).unwrap()).collect();
    gate.set_limit(3);
    let called: Vec<u64> = std::iter::from_fn(|| gate.call()).map(|turn| turn.ticket).collect();
    assert_eq!(called, tickets[..2]);
    gate.set_limit(1);
    gate.put_back();
    gate.put_back();
    assert_eq!((gate.call(), gate.out()), (None, 1));
    gate.put_back();
    assert_eq!(gate.call().map(|turn| turn.ticket), Some(tickets[2]));
    gate.enter_anyway();
    assert_eq!(gate.out(), 2);
}

/// What one shard of the simulation knows.
#[derive(Default)]
struct Shard {
    mail: VecDeque<Turn>,
    /// Waiting, by ticket.
    waiting: HashMap<u64, u32>,
    /// Served now.
    served: Vec<u32>,
}

struct World {
    gate: Gate,
    shards: [Shard; 3],
    seed: u64,
    clients: u32,
    /// The order in which places were taken, and were served.
    queued: Vec<u64>,
    called: Vec<u64>,
}

impl World {
    fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    fn call(&mut self) {
        while let Some(turn) = self.gate.call() {
            self.called.push(turn.ticket);
            self.shards[usize::from(turn.place.shard)].mail.push_back(turn);
        }
    }

    fn arrives(&mut self, shard: usize, depth: u32) {
        self.clients += 1;
        let client = self.clients;
        if self.gate.enter() {
            assert!(self.shards.iter().all(|s| s.waiting.is_empty() || !s.mail.is_empty()), "it overtook");
            return self.shards[shard].served.push(client);
        }
        if let Some(ticket) = self.gate.queue(depth, place(shard as u16, client), Work::default()) {
            self.queued.push(ticket);
            self.shards[shard].waiting.insert(ticket, client);
            self.call();
        }
    }

    fn leaves(&mut self, shard: usize) {
        let Some(ticket) = self.shards[shard].waiting.keys().min().copied() else { return };
        self.shards[shard].waiting.remove(&ticket);
        if self.gate.leave(ticket) {
            self.queued.retain(|queued| *queued != ticket);
        }
    }

    fn ends(&mut self, shard: usize) {
        if self.shards[shard].served.pop().is_some() {
            self.gate.put_back();
            self.call();
        }
    }

    fn reads_mail(&mut self, shard: usize) {
        let Some(turn) = self.shards[shard].mail.pop_front() else { return };
        match self.shards[shard].waiting.remove(&turn.ticket) {
            Some(client) => self.shards[shard].served.push(client),
            None => {
                self.gate.put_back();
                self.call();
            }
        }
    }
}

#[test]
fn over_three_shards_no_turn_is_lost_and_nobody_overtakes() {
    for seed in 0..2_000 {
        let mut world = World {
            gate: Gate::default(),
            shards: Default::default(),
            seed,
            clients: 0,
            queued: Vec::new(),
            called: Vec::new(),
        };
        let (limit, depth) = (1 + world.random(4) as u32, 1 + world.random(20) as u32);
        world.gate.set_limit(limit);
        for _ in 0..300 {
            let shard = world.random(3) as usize;
            match world.random(8) {
                0..=2 => world.arrives(shard, depth),
                3 => world.leaves(shard),
                4 | 5 => world.ends(shard),
                _ => world.reads_mail(shard),
            }
            let out: usize = world.shards.iter().map(|s| s.served.len() + s.mail.len()).sum();
            assert_eq!(world.gate.out() as usize, out, "seed {seed}");
            assert!(world.gate.out() <= limit && world.gate.waiting() <= depth, "seed {seed}");
        }
        while world.gate.out() > 0 {
            (0..3).for_each(|shard| {
                world.reads_mail(shard);
                world.ends(shard);
            });
        }
        assert_eq!(world.gate.waiting(), 0, "seed {seed}: a turn was lost");
        assert!(world.shards.iter().all(|shard| shard.waiting.is_empty()), "seed {seed}");
        assert_eq!(world.called, world.queued, "seed {seed}: called in another order than queued");
    }
}
