//! The selectors that need no request: in turn, by weight, by load. Owns how turns advance.

use super::{Decision, Open, Reason, Turn};

/// The next open endpoint in turn. The turn follows the endpoint chosen, so that the neighbour of an
/// unavailable one gets no double share.
pub(super) fn round_robin(open: &Open, turn: &mut Turn, reason: Reason) -> Option<Decision> {
    let index = open.indices(turn.next as usize).next()?;
    turn.next = index as u32 + 1;
    Some(open.decision(index, reason, u32::MAX))
}

/// Fewest requests in flight; among equals the next in turn.
pub(super) fn least_connections(open: &Open, turn: &mut Turn) -> Option<Decision> {
    // `min_by_key` keeps the first of equals, and the walk begins at the turn.
    let index = open.indices(turn.next as usize).min_by_key(|i| open.load(*i))?;
    turn.next = index as u32 + 1;
    Some(open.decision(index, Reason::LeastLoad, u32::MAX))
}

/// Fewest requests in flight and waiting in the engine, for the blocks that its cache has; among equals the next in turn.
/// Of an engine that does not tell one of the two, as much as in the mean of those that do.
pub(super) fn least_to_do(open: &Open, turn: &mut Turn) -> Option<Decision> {
    let queued = mean(open.indices(0).filter_map(|i| open.fleet[i].queued));
    let capacity = mean(open.indices(0).filter_map(|i| open.fleet[i].capacity)).max(1);
    let to_do = |i: &usize| {
        let own = &open.fleet[*i];
        let requests = u64::from(own.load) + own.queued.map_or(queued, u64::from);
        // In millionths of a request for a block: below 2^84.
        u128::from(requests) * 1_000_000 * u128::from(capacity)
            / own.capacity.map_or(capacity, u64::from).max(1) as u128
    };
    let index = open.indices(turn.next as usize).min_by_key(to_do)?;
    turn.next = index as u32 + 1;
    Some(open.decision(index, Reason::LeastLoad, u32::MAX))
}

fn mean(told: impl Iterator<Item = u32>) -> u64 {
    let (count, sum) = told.fold((0u64, 0u64), |(count, sum), value| (count + 1, sum + u64::from(value)));
    sum / count.max(1)
}

/// Smooth weighted round robin as nginx does it: every open endpoint gains its weight, the richest is chosen
/// and pays the sum of all weights. Any run of as many decisions as the weights' sum is exactly proportional.
pub(super) fn weighted(open: &Open, turn: &mut Turn) -> Option<Decision> {
    if turn.running.len() != open.fleet.len() {
        turn.running.clear();
        turn.running.resize(open.fleet.len(), 0);
    }
    let mut total = 0;
    let mut richest: Option<usize> = None;
    for index in open.indices(0) {
        let weight = i64::from(open.fleet[index].weight);
        total += weight;
        turn.running[index] += weight;
        if richest.is_none_or(|r| turn.running[index] > turn.running[r]) {
            richest = Some(index);
        }
    }
    let index = richest?;
    turn.running[index] -= total;
    Some(open.decision(index, Reason::Weighted, u32::MAX))
}
