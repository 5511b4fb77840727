//! The law of exact routing once more, from the published description, block by block and step by step, to
//! compare with. Owns nothing; must share no formula with what it judges.

use super::*;
use std::cmp::Reverse;

/// Who is chosen first, why, and what it may carry.
#[derive(Debug, PartialEq)]
pub(super) struct First {
    pub index: usize,
    pub reason: Reason,
    pub bound: u64,
    pub score: u64,
    pub instead_of: Option<u16>,
}

/// Worth of a run, block by block.
pub(super) fn worth(c: &Candidate, tuning: &Tuning) -> u64 {
    let mut sum = 0u64;
    for block in 0..c.runs.into_iter().max().unwrap().max(c.promised) {
        let by_tier = match () {
            () if block < c.runs[0] => 1000,
            () if block < c.runs[1] => tuning.host_weight,
            () if block < c.runs[2] => tuning.disk_weight,
            () => 0,
        };
        let by_promise = if block < c.promised { 800 } else { 0 };
        sum += u64::from(by_tier.max(by_promise));
    }
    sum
}

fn capacity(c: &Candidate) -> u128 {
    u128::from(if c.capacity == 0 { 1 } else { c.capacity.min(8_000_000) })
}

/// The endpoints of some candidates, each once.
fn endpoints<'c>(of: &[&'c Candidate]) -> Vec<&'c Candidate> {
    let mut all: Vec<&Candidate> = Vec::new();
    for c in of {
        if all.iter().all(|known| known.endpoint != c.endpoint) {
            all.push(c);
        }
    }
    all
}

fn total_load(of: &[&Candidate]) -> u128 {
    endpoints(of).iter().map(|c| u128::from(c.load)).sum()
}

/// max(1, ceil(f·ΣL·C ÷ (100·ΣC)))
fn cap(of: &[&Candidate], c: &Candidate, factor: u128) -> u64 {
    let capacities: u128 = endpoints(of).iter().map(|c| capacity(c)).sum();
    let (above, below) = (factor * total_load(of) * capacity(c), 100 * capacities);
    let mut cap = above / below;
    if !above.is_multiple_of(below) {
        cap += 1;
    }
    cap.clamp(1, u128::from(u32::MAX)) as u64
}

/// L' of the adaptive formulas.
fn adapted(tuning: &Tuning, load: u128) -> i128 {
    let reference = 15_284_310f64;
    let told = tuning.cap_sum_milli.map_or(reference, |told| told as f64);
    let ratio = reference / told;
    if !(0.125..=8.0).contains(&ratio) {
        return load as i128;
    }
    (load * reference as u128 / told as u128) as i128
}

pub(super) fn factor(tuning: &Tuning, load: u128) -> u128 {
    match tuning.mode {
        LbMode::Adaptive => {
            let f = 175f64 + 125f64 * (adapted(tuning, load) - 16) as f64 / 10f64;
            f.clamp(175.0, 300.0).floor() as u128
        }
        _ => u128::from(tuning.mean_load_factor),
    }
}

pub(super) fn lambda(tuning: &Tuning, load: u128) -> u128 {
    match tuning.mode {
        LbMode::AdaptiveSoft => {
            (50_000 + 5_000 * (adapted(tuning, load) - 16)).clamp(50_000, 100_000) as u128
        }
        _ => u128::from(tuning.load_penalty),
    }
}

/// The law for one request, sequentially: what the list's first place must be.
pub(super) fn first(q: &Question, hit: u64) -> Result<First, Miss> {
    let up = |c: &&Candidate| c.available && !q.excluded.contains(usize::from(c.endpoint));
    if q.blocks == 0 {
        return Err(Miss::Hashes);
    }
    let healthy: Vec<&Candidate> = q.candidates.iter().filter(up).collect();
    let primaries = healthy.iter().any(|c| !c.backup);
    let open: Vec<&Candidate> = healthy.into_iter().filter(|c| c.backup != primaries).collect();
    if open.is_empty() {
        return Err(Miss::Excluded);
    }
    if open.iter().all(|c| c.fenced) {
        return Err(Miss::Fenced);
    }
    let loads: Vec<u32> = open.iter().map(|c| c.load).collect();
    if q.tuning.load_guard.is_some_and(|g| loads.iter().max().unwrap() - loads.iter().min().unwrap() > g) {
        return Err(Miss::LoadGuard);
    }
    let mut depth = q.tuning.min_match_tokens as usize / q.block_size.tokens();
    if depth * q.block_size.tokens() < q.tuning.min_match_tokens as usize {
        depth += 1;
    }
    let depth = depth.min(q.blocks as usize).max(1);
    let reach = |c: &Candidate| *[c.runs[0], c.runs[1], c.runs[2], c.promised].iter().max().unwrap() as usize;
    let positive = |c: &&Candidate| !c.fenced && worth(c, q.tuning) > 0;
    let deep = |c: &&Candidate| positive(c) && reach(c) >= depth;
    let holders: Vec<&Candidate> = open.iter().copied().filter(deep).collect();
    if holders.is_empty() {
        let elsewhere = |c: &&Candidate| deep(c) && !(primaries && c.backup);
        return Err(match () {
            () if q.candidates.iter().any(|c| elsewhere(&c)) => Miss::Excluded,
            () if open.iter().any(positive) => Miss::Shallow,
            () if open.iter().any(|c| !c.fenced && c.held > 0) => Miss::NoWorker,
            () => Miss::NoSignal,
        });
    }
    let mut first = choose(q, &open, &holders);
    let cold = |c: &Candidate| c.held < q.tuning.seed_below_blocks.max(1) && !c.fenced;
    if q.tuning.seed_every > 0
        && hit.is_multiple_of(u64::from(q.tuning.seed_every))
        && let Some(seeded) = open.iter().find(|c| cold(c) && index(q, c) != first.index)
    {
        let f = factor(q.tuning, total_load(&holders));
        first = First {
            index: index(q, seeded),
            reason: Reason::ExactSeed,
            bound: cap(&open, seeded, f),
            score: first.score,
            instead_of: Some(q.candidates[first.index].endpoint),
        };
    }
    Ok(first)
}

fn index(q: &Question, c: &Candidate) -> usize {
    q.candidates.iter().position(|known| (known.endpoint, known.rank) == (c.endpoint, c.rank)).unwrap()
}

fn choose(q: &Question, open: &[&Candidate], holders: &[&Candidate]) -> First {
    let value = |c: &Candidate| worth(c, q.tuning);
    let plain = |c: &&Candidate| (Reverse(value(c)), c.load, c.endpoint, c.rank_load, c.rank);
    let by_overlap = |c: &&Candidate| (Reverse(value(c)), 0, c.endpoint, 0, c.rank);
    let load = total_load(holders);
    let f = factor(q.tuning, load);
    let mut argmax = *holders.iter().min_by_key(|c| plain(c)).unwrap();
    let (winner, mut bound) = match q.tuning.mode {
        LbMode::Off => {
            argmax = holders.iter().min_by_key(|c| by_overlap(c)).unwrap();
            (argmax, u64::from(u32::MAX))
        }
        LbMode::Soft | LbMode::AdaptiveSoft => {
            let l = lambda(q.tuning, load);
            let cost = |c: &&Candidate| {
                u128::from(q.blocks) * 1000 - u128::from(value(c)) + l * u128::from(c.load) / capacity(c)
            };
            let winner = holders.iter().min_by_key(|c| (cost(c), plain(c))).unwrap();
            (*winner, u64::from(u32::MAX))
        }
        LbMode::Hard | LbMode::Adaptive => {
            let under = holders.iter().filter(|c| u64::from(c.load) < cap(holders, c, f));
            match under.min_by_key(|c| plain(c)) {
                Some(winner) => (*winner, cap(holders, winner, f)),
                None => {
                    let least = holders.iter().min_by_key(|c| (c.load, plain(c))).unwrap();
                    (*least, u64::from(least.load) + 1)
                }
            }
        }
    };
    let spilled = winner != argmax;
    let reason = match spilled {
        true => Reason::ExactSpill,
        false if promised_alone(winner) > promised_held(winner) => Reason::ExactPromised,
        false => Reason::Exact,
    };
    let relief = q.tuning.mode != LbMode::Off && q.tuning.spill_relief.unwrap_or(q.single_pool) && !spilled;
    if relief {
        let fleet = cap(open, winner, f);
        let under = |c: &&&Candidate| u64::from(c.load) < cap(open, c, f);
        let target = open.iter().filter(under).min_by_key(|c| {
            let value = if c.fenced { 0 } else { value(c) };
            (c.load, c.endpoint, Reverse(value), c.rank_load, c.rank)
        });
        if u64::from(winner.load) < fleet {
            bound = bound.min(fleet);
        } else if let Some(target) = target
            && fleet < bound
        {
            return First {
                index: index(q, target),
                reason: Reason::ExactRelief,
                bound: cap(open, target, f),
                score: if target.fenced { 0 } else { value(target) },
                instead_of: Some(argmax.endpoint),
            };
        }
    }
    let instead_of = spilled.then_some(argmax.endpoint);
    First { index: index(q, winner), reason, bound, score: value(winner), instead_of }
}

fn promised_held(c: &Candidate) -> u32 {
    *c.runs.iter().max().unwrap()
}

fn promised_alone(c: &Candidate) -> u32 {
    c.promised.max(promised_held(c)) - promised_held(c)
}
