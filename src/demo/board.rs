//! What is counted of each side: requests and first bytes from the gateway's receipts, tokens from the engines' own
//! counters. Owns the sums and the quantiles; pure.

use super::pool::{Counters, Side};
use std::net::SocketAddr;
use warmpath_core::Nanos;
use warmpath_core::control::ShardReport;
use warmpath_core::decide::Reason;
use warmpath_core::receipt::{Outcome, Receipt};

/// One side.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Requests that are to be sent.
    pub wanted: u64,
    /// Requests with a receipt.
    pub requests: u64,
    /// Of these, answered with an engine's whole good answer.
    pub good: u64,
    /// First bytes of the good ones, nanoseconds, ascending.
    first_bytes: Vec<Nanos>,
    /// Good ones by engine.
    pub by_engine: Vec<u64>,
    /// What each engine counted.
    pub counters: Vec<Counters>,
    /// Good ones that were routed to blocks that were there, and whose answers tell how much was cached.
    pub told: u64,
    /// Of these, as much as was predicted.
    pub as_predicted: u64,
}

impl Tally {
    /// A side of so many engines, before its first request.
    pub fn new(wanted: u64, engines: usize) -> Tally {
        let counters = vec![Counters::default(); engines];
        Tally { wanted, by_engine: vec![0; engines], counters, ..Tally::default() }
    }

    /// Takes a receipt of this side.
    pub fn add(&mut self, receipt: &Receipt, endpoints: &[SocketAddr]) {
        self.requests += 1;
        if receipt.status != 200 || receipt.outcome != Outcome::Completed {
            return;
        }
        self.good += 1;
        let place = self.first_bytes.partition_point(|earlier| *earlier <= receipt.first_byte);
        self.first_bytes.insert(place, receipt.first_byte);
        if let Some(place) = endpoints.iter().position(|at| Some(*at) == receipt.endpoint)
            && let Some(count) = self.by_engine.get_mut(place)
        {
            *count += 1;
        }
        // What was only promised may be there or not when the request arrives.
        let is_judged = receipt.reason != Some(Reason::ExactPromised);
        let exact = receipt.exact.filter(|exact| is_judged && exact.chosen().is_some());
        let Some(exact) = exact else { return };
        if let Some(cached) = exact.cached_tokens {
            self.told += 1;
            self.as_predicted += u64::from(cached == exact.predicted_tokens);
        }
    }

    /// The time to the first byte that so many of a hundred requests did not exceed (nearest rank); `None` without
    /// a request.
    pub fn first_byte(&self, percent: usize) -> Option<Nanos> {
        let rank = (self.first_bytes.len() * percent).div_ceil(100);
        self.first_bytes.get(rank.max(1) - 1).copied()
    }

    /// What all engines counted.
    pub fn tokens(&self) -> Counters {
        Counters::sum(&self.counters)
    }
}

/// Both sides, and which receipts were seen.
#[derive(Debug)]
pub struct Board {
    sides: [Tally; 2],
    /// The newest receipt of each shard that was taken.
    newest: Vec<Nanos>,
}

impl Board {
    /// Sides of so many engines that are each to answer so many requests.
    pub fn new(wanted: u64, engines: usize) -> Board {
        Board { sides: [Tally::new(wanted, engines), Tally::new(wanted, engines)], newest: Vec::new() }
    }

    /// One side.
    pub fn side(&self, side: Side) -> &Tally {
        &self.sides[side as usize]
    }

    /// One side, to be counted on.
    pub fn side_mut(&mut self, side: Side) -> &mut Tally {
        &mut self.sides[side as usize]
    }

    /// The receipts that were not taken before, oldest first.
    pub fn fresh(&mut self, reports: &[ShardReport]) -> Vec<Receipt> {
        let mut fresh = Vec::new();
        for report in reports {
            if self.newest.len() <= report.shard {
                self.newest.resize(report.shard + 1, 0);
            }
            let newest = &mut self.newest[report.shard];
            let seen = *newest;
            for receipt in report.receipts.iter().filter(|receipt| receipt.at > seen) {
                *newest = (*newest).max(receipt.at);
                fresh.push(receipt.clone());
            }
        }
        fresh.sort_by_key(|receipt| receipt.at);
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::super::decision::tests::{chosen, receipt};
    use super::*;

    fn at(at: Nanos) -> Receipt {
        Receipt { at, id: format!("id-{at}"), ..receipt("", 8001) }
    }

    fn report(shard: usize, receipts: Vec<Receipt>) -> ShardReport {
        ShardReport { shard, receipts, ..ShardReport::default() }
    }

    #[test]
    fn each_receipt_is_taken_once_in_the_order_of_all_shards() {
        let mut board = Board::new(4, 2);
        let mut taken: Vec<Nanos> =
            board.fresh(&[report(0, vec![at(90)])]).iter().map(|receipt| receipt.at).collect();
        let both = [report(0, vec![at(90), at(95)]), report(1, vec![at(94), at(96)])];
        for _ in 0..2 {
            taken.extend(board.fresh(&both).iter().map(|receipt| receipt.at));
        }
        assert_eq!(taken, [90, 94, 95, 96]);
    }

    #[test]
    fn only_good_answers_count_by_engine_and_time() {
        let endpoints: Vec<SocketAddr> =
            [8001, 8002].map(|port| SocketAddr::from(([127, 0, 0, 1], port))).into();
        let mut tally = Tally::new(3, 2);
        tally.add(&Receipt { first_byte: 7, ..receipt("a", 8002) }, &endpoints);
        tally.add(&Receipt { first_byte: 3, ..receipt("b", 8002) }, &endpoints);
        tally.add(&Receipt { status: 502, ..receipt("c", 8001) }, &endpoints);
        assert_eq!((tally.requests, tally.good, tally.by_engine.as_slice()), (3, 2, &[0, 2][..]));
        assert_eq!((tally.first_byte(50), tally.first_byte(99)), (Some(3), Some(7)));
        assert_eq!((tally.told, tally.as_predicted), (0, 0), "none was routed by blocks");
    }

    #[test]
    fn predictions_are_judged_where_the_blocks_were_there() {
        let mut tally = Tally::new(4, 2);
        for (reason, predicted, cached) in [
            (Reason::Exact, 896, Some(896)),
            (Reason::ExactSpill, 896, Some(880)),
            (Reason::Exact, 896, None),
            (Reason::ExactPromised, 0, Some(256)),
        ] {
            let mut receipt = receipt("a", 8001);
            receipt.reason = Some(reason);
            let exact = receipt.exact.as_mut().expect("one");
            (exact.explanation, exact.predicted_tokens, exact.cached_tokens) = (chosen(), predicted, cached);
            tally.add(&receipt, &[]);
        }
        assert_eq!((tally.good, tally.told, tally.as_predicted), (4, 2, 1));
    }

    #[test]
    fn quantiles_are_of_the_nearest_rank() {
        let mut tally = Tally::default();
        assert_eq!(tally.first_byte(50), None);
        for first_byte in (1..=200).rev() {
            tally.add(&Receipt { first_byte, ..receipt("a", 1) }, &[]);
        }
        for (percent, rank) in [(0, 1), (1, 2), (50, 100), (99, 198), (100, 200)] {
            assert_eq!(tally.first_byte(percent), Some(rank), "{percent}");
        }
    }

    #[test]
    fn counters_add_up() {
        let some = [Counters { prompt: 10, cached: 4 }, Counters { prompt: 5, cached: 5 }];
        let sum = Counters::sum(&some);
        assert_eq!((sum, sum.computed()), (Counters { prompt: 15, cached: 9 }, 6));
    }
}
