//! The law against its naive double, its total order, published numbers by hand, and each reason to miss.

use super::law;
use super::naive;
use super::*;
use crate::decline::Decline;
use crate::engine;
use std::collections::HashSet;

/// A seeded stream of numbers (SplitMix64).
pub(super) struct Random(pub u64);

impl Random {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.word() % end
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// An endpoint that holds the first `gpu` blocks on its GPU and has `load` requests.
pub(super) fn holder(endpoint: u16, gpu: u32, load: u32) -> Candidate {
    Candidate {
        endpoint,
        runs: [gpu; 3],
        promised: gpu,
        load,
        capacity: 1000,
        held: gpu.max(100),
        available: true,
        ..Candidate::default()
    }
}

pub(super) fn ask<'a>(candidates: &'a [Candidate], tuning: &'a Tuning) -> Question<'a> {
    let (block_size, excluded) = (BlockSize::SIXTEEN, Excluded::default());
    Question { candidates, blocks: 100, block_size, excluded, single_pool: true, tuning }
}

fn tuned(mode: LbMode) -> Tuning {
    Tuning { mode, spill_relief: Some(false), ..Tuning::default() }
}

/// The list, as endpoint, bound and reason.
fn listed(question: &Question, hit: u64) -> Vec<(u16, u32, Reason)> {
    let mut ranking = Ranking::default();
    rank(question, || hit, &mut ranking).unwrap();
    let endpoint = |c: &Choice| question.candidates[usize::from(c.candidate)].endpoint;
    ranking.choices().iter().map(|c| (endpoint(c), c.bound, c.reason)).collect()
}

fn missed(question: &Question) -> Miss {
    let mut ranking = Ranking::default();
    rank(question, || panic!("a miss counts no hit"), &mut ranking).unwrap_err()
}

fn random_candidates(random: &mut Random) -> Vec<Candidate> {
    let endpoints = random.pick(&[1, 2, 3, 4, 8, 30]);
    let ranks = random.pick(&[1, 1, 2, 8]);
    let loads = random.pick(&[1, 4, 40, 4_000_000_000]);
    let mut all = Vec::new();
    for endpoint in 0..endpoints {
        let load = random.below(loads) as u32;
        let capacity = random.pick(&[0, 1, 1000, 1000, 5000, u32::MAX]);
        let available = random.below(10) > 0;
        let (backup, fenced) = (random.below(8) == 0, random.below(10) == 0);
        for rank in 0..ranks {
            let gpu = random.pick(&[0, 0, 3, 20, random.0 as u32 % 100]);
            let host = (gpu + random.pick(&[0, 0, 5])).min(100);
            let disk = (host + random.pick(&[0, 0, 9])).min(100);
            let promised = random.pick(&[0, gpu, (gpu + 4).min(100), 60]);
            let (held, rank_load) = (random.pick(&[0, 15, 16, 500]), random.below(4) as u32);
            let runs = [gpu, host, disk];
            all.push(Candidate {
                endpoint: endpoint as u16,
                rank,
                runs,
                spread: 0,
                promised,
                load,
                rank_load,
                capacity,
                held,
                available,
                backup,
                fenced,
                untrusted: false,
                unproven: None,
            });
        }
    }
    all
}

fn random_tuning(random: &mut Random) -> Tuning {
    Tuning {
        mode: random.pick(&LbMode::ALL),
        mean_load_factor: random.pick(&[100, 125, 175, 175, 1000]),
        load_penalty: random.pick(&[1, 32, 32_000, 100_000]),
        spill_relief: random.pick(&[None, Some(true), Some(false)]),
        cap_sum_milli: random.pick(&[None, Some(15_284_310), Some(30_000_000), Some(1), Some(1 << 60)]),
        min_match_tokens: random.pick(&[0, 16, 17, 100, 4096]),
        seed_every: random.pick(&[0, 1, 16]),
        seed_below_blocks: random.pick(&[0, 16]),
        load_guard: random.pick(&[None, None, None, Some(3)]),
        host_weight: random.pick(&[0, 500, 900]),
        disk_weight: random.pick(&[0, 200]),
        ..Tuning::default()
    }
}

/// 10,000 random questions: the first place is the naive law's, or the miss is; the list is sound.
#[test]
fn the_list_begins_as_the_published_law_decides() {
    let mut ranking = Ranking::default();
    let (mut reasons, mut misses) = (HashSet::new(), HashSet::new());
    for seed in 0..10_000 {
        let mut random = Random(seed);
        let candidates = random_candidates(&mut random);
        let tuning = random_tuning(&mut random);
        let mut question = ask(&candidates, &tuning);
        question.blocks = random.pick(&[0, 100, 100, 100, 100, 100, 100, 100]);
        question.single_pool = random.below(2) == 0;
        (0..random.pick(&[0, 0, 1, 40])).for_each(|_| question.excluded.add(random.below(30) as usize));
        let hit = random.below(40) + 1;
        let expected = naive::first(&question, hit);
        let found = rank(&question, || hit, &mut ranking).map(|()| ranking.choices()[0]);
        let found = found.map(|choice| naive::First {
            index: usize::from(choice.candidate),
            reason: choice.reason,
            bound: u64::from(choice.bound),
            score: choice.score,
            instead_of: choice.instead_of,
        });
        assert_eq!(found, expected, "seed {seed}: {question:#?}");
        match expected {
            Ok(first) => {
                reasons.insert(first.reason);
                check_list(&question, &ranking);
            }
            Err(miss) => {
                misses.insert(miss);
                assert!(ranking.choices().is_empty());
            }
        }
    }
    assert_eq!(reasons.len(), 5, "{reasons:?}");
    assert_eq!(misses.len(), 7, "{misses:?}");
}

/// Every place could be reserved as things were seen, no endpoint is there twice, and none that may not be.
fn check_list(question: &Question, ranking: &Ranking) {
    let mut seen = HashSet::new();
    for choice in ranking.choices() {
        let candidate = question.candidates[usize::from(choice.candidate)];
        let seeded = choice.reason == Reason::ExactSeed;
        assert!(seeded || seen.insert(candidate.endpoint), "{ranking:?}");
        assert!(seeded || candidate.load < choice.bound, "{choice:?} {candidate:?}");
        assert!(candidate.available && !question.excluded.contains(usize::from(candidate.endpoint)));
        assert_eq!(choice.reason.tier(), "tier15");
    }
}

/// Whatever order equals are given loads, ranks and overlaps in, the same one is first, and every order of
/// reading the same facts gives the same list.
#[test]
fn ties_go_to_the_lowest_endpoint_then_the_lowest_rank() {
    for mode in LbMode::ALL {
        let tuning = tuned(mode);
        let mut all: Vec<Candidate> = (0..256).flat_map(|e| [holder(e, 7, 2); 8]).collect();
        for (at, candidate) in all.iter_mut().enumerate() {
            candidate.rank = (at % 8) as u8;
        }
        let mut ranking = Ranking::default();
        rank(&ask(&all, &tuning), || 1, &mut ranking).unwrap();
        assert_eq!(ranking.choices()[0].candidate, 0, "{mode:?}");
        assert_eq!(ranking.choices()[1].candidate, 8, "the next endpoint");
        all[0].rank_load = 1;
        all[1].rank_load = 1;
        rank(&ask(&all, &tuning), || 1, &mut ranking).unwrap();
        assert_eq!(ranking.choices()[0].candidate, if mode == LbMode::Off { 0 } else { 2 }, "{mode:?}");
        all[8 * 255 + 7].runs = [8; 3];
        rank(&ask(&all, &tuning), || 1, &mut ranking).unwrap();
        assert_eq!(ranking.choices()[0].candidate, 8 * 255 + 7, "{mode:?}");
    }
}

/// Three holders with 30, 10 and 0 of 40 requests: cap = ceil(175 × 40 ÷ 300) = 24. The largest overlap is
/// over it; the second is taken, and that is a spill.
#[test]
fn hard_spills_at_the_published_cap() {
    let tuning = tuned(LbMode::Hard);
    let all = [holder(0, 10, 30), holder(1, 8, 10), holder(2, 6, 0)];
    assert_eq!(listed(&ask(&all, &tuning), 1), [(1, 24, Reason::ExactSpill), (2, 24, Reason::ExactSpill)]);
    let calm = [holder(0, 10, 23), holder(1, 8, 17), holder(2, 6, 0)];
    assert_eq!(listed(&ask(&calm, &tuning), 1)[0], (0, 24, Reason::Exact), "one below the cap");
    let at_cap = [holder(0, 10, 24), holder(1, 8, 16), holder(2, 6, 0)];
    assert_eq!(listed(&ask(&at_cap, &tuning), 1)[0], (1, 24, Reason::ExactSpill), "at the cap");
}

/// Capacities 3:1, 40 requests: caps ceil(175·40·3/400) = 53 and ceil(175·40/400) = 18.
#[test]
fn caps_follow_capacity() {
    let tuning = tuned(LbMode::Hard);
    let mut all = [holder(0, 10, 20), holder(1, 9, 20)];
    all[0].capacity = 3000;
    assert_eq!(listed(&ask(&all, &tuning), 1), [(0, 53, Reason::Exact)]);
    all[0].runs = [8; 3];
    all[0].promised = 8;
    assert_eq!(listed(&ask(&all, &tuning), 1), [(0, 53, Reason::ExactSpill)], "18 is under 20");
}

/// f = 100 and equal loads: all are at the cap; the least loaded, then most overlap, and one more than it has.
#[test]
fn where_all_are_at_their_cap_the_least_loaded_may_have_one_more() {
    let tuning = Tuning { mean_load_factor: 100, ..tuned(LbMode::Hard) };
    let all = [holder(0, 5, 4), holder(1, 9, 4), holder(2, 7, 4)];
    let spill = Reason::ExactSpill;
    assert_eq!(listed(&ask(&all, &tuning), 1), [(1, 5, Reason::Exact), (2, 5, spill), (0, 5, spill)]);
}

/// The published anchors: 175 up to 16 requests, 237 at 21, 300 from 26; 50,000, 75,000 and 100,000.
#[test]
fn the_adaptive_formulas_pass_their_anchors() {
    let (hard, soft) = (tuned(LbMode::Adaptive), tuned(LbMode::AdaptiveSoft));
    for (load, factor, penalty) in
        [(0, 175, 50_000), (16, 175, 50_000), (21, 237, 75_000), (26, 300, 100_000), (900, 300, 100_000)]
    {
        assert_eq!((law::load_factor(&hard, load), law::load_penalty(&soft, load)), (factor, penalty));
    }
    let told = |milli| Tuning { cap_sum_milli: Some(milli), ..hard };
    assert_eq!(law::load_factor(&told(15_284_310), 21), 237);
    assert_eq!(law::load_factor(&told(2 * 15_284_310), 42), 237, "twice the capacity, twice the load");
    assert_eq!(law::load_factor(&told(8 * 15_284_310), 168), 237);
    assert_eq!(law::load_factor(&told(8 * 15_284_310 + 1), 21), 237, "not believed");
    assert_eq!(law::load_factor(&told(1), 21), 237, "not believed");
}

#[test]
fn soft_weighs_missing_blocks_against_load() {
    let tuning = Tuning { load_penalty: 1000, ..tuned(LbMode::Soft) };
    let mut all = [holder(0, 10, 3), holder(1, 8, 0)];
    all.iter_mut().for_each(|c| c.capacity = 0);
    assert_eq!(listed(&ask(&all, &tuning), 1)[0].0, 1, "90,000 + 3,000 against 92,000");
    all[0].load = 2;
    assert_eq!(listed(&ask(&all, &tuning), 1)[0].0, 0, "equal costs: more overlap");
}

/// A lone holder is over its share of the whole pool's load: ceil(175 × 4 ÷ 400) = 2.
#[test]
fn a_lone_holder_is_relieved_by_the_least_loaded() {
    let tuning = Tuning { seed_every: 0, ..Tuning::default() };
    let mut all = [holder(0, 10, 3), holder(1, 0, 1), holder(2, 0, 0), holder(3, 0, 0)];
    let relief = Reason::ExactRelief;
    let list = listed(&ask(&all, &tuning), 1);
    assert_eq!(list, [(2, 2, relief), (3, 2, relief), (1, 2, relief), (0, 6, Reason::Exact)]);
    let off = Tuning { spill_relief: Some(false), ..tuning };
    assert_eq!(listed(&ask(&all, &off), 1), [(0, 6, Reason::Exact)]);
    let pair = Question { single_pool: false, ..ask(&all, &tuning) };
    assert_eq!(listed(&pair, 1), [(0, 6, Reason::Exact)], "off unless asked for");
    all[0].load = 1;
    all[1].load = 3;
    assert_eq!(
        listed(&ask(&all, &tuning), 1)[0],
        (0, 2, Reason::Exact),
        "under its share, and bounded by it"
    );
}

#[test]
fn a_cold_endpoint_gets_every_sixteenth_hit_and_the_score_stays() {
    let tuning = Tuning::default();
    let mut all = [holder(0, 10, 0), holder(1, 0, 0), holder(2, 0, 0), holder(3, 0, 0)];
    (all[1].held, all[2].held, all[3].held) = (16, 15, 0);
    let mut ranking = Ranking::default();
    let seeded: Vec<u64> = (1..=64)
        .filter(|hit| {
            rank(&ask(&all, &tuning), || *hit, &mut ranking).unwrap();
            let first = ranking.choices()[0];
            assert_eq!(first.score, 10_000);
            let is_seed = first.reason == Reason::ExactSeed;
            assert_eq!(first.candidate, if is_seed { 2 } else { 0 });
            is_seed
        })
        .collect();
    assert_eq!(seeded, [16, 32, 48, 64]);
    let choices = ranking.choices();
    assert_eq!((choices[0].instead_of, choices[1].candidate), (Some(0), 0), "the winner is next");
    let never = Tuning { seed_every: 0, ..tuning };
    assert_eq!(listed(&ask(&all, &never), 16)[0].2, Reason::Exact);
    let empty_only = Tuning { seed_below_blocks: 0, ..tuning };
    assert_eq!(listed(&ask(&all, &empty_only), 16)[0], (3, 1, Reason::ExactSeed));
}

#[test]
fn an_excluded_winner_leaves_its_place_to_the_second_best() {
    let tuning = Tuning::default();
    let mut all = [holder(0, 10, 0), holder(1, 8, 0), holder(2, 0, 0)];
    let mut question = ask(&all, &tuning);
    question.excluded.add(0);
    assert_eq!(listed(&question, 1)[0], (1, 1, Reason::Exact));
    question.excluded.add(1);
    assert_eq!(missed(&question), Miss::Excluded);
    question.excluded.add(2);
    assert_eq!(missed(&question), Miss::Excluded);
    all[0].available = false;
    assert_eq!(listed(&ask(&all, &tuning), 1)[0].0, 1);
    all[1].backup = true;
    assert_eq!(missed(&ask(&all, &tuning)), Miss::Excluded, "the one with overlap is down");
    all[2].available = false;
    assert_eq!(listed(&ask(&all, &tuning), 1)[0].0, 1, "backups when no other is left");
}

#[test]
fn each_miss_has_its_cause() {
    let tuning = Tuning { min_match_tokens: 33, load_guard: Some(5), ..Tuning::default() };
    let cold = [holder(0, 0, 0), holder(1, 0, 0)];
    assert_eq!(missed(&ask(&cold, &tuning)), Miss::NoWorker);
    assert_eq!(missed(&Question { blocks: 0, ..ask(&cold, &tuning) }), Miss::Hashes);
    let silent = cold.map(|c| Candidate { held: 0, ..c });
    assert_eq!(missed(&ask(&silent, &tuning)), Miss::NoSignal);
    let fenced = cold.map(|c| Candidate { fenced: true, ..c });
    assert_eq!(missed(&ask(&fenced, &tuning)), Miss::Fenced);
    let untrusted = fenced.map(|c| Candidate { untrusted: true, ..c });
    assert_eq!(missed(&ask(&untrusted, &tuning)), Miss::Untrusted);
    let mut both = untrusted;
    both[0].untrusted = false;
    assert_eq!(missed(&ask(&both, &tuning)), Miss::Fenced);
    assert_eq!(missed(&ask(&[], &tuning)), Miss::Excluded);
    assert_eq!(missed(&ask(&[holder(0, 2, 0), holder(1, 0, 0)], &tuning)), Miss::Shallow);
    let short = [holder(0, 2, 0)];
    assert_eq!(listed(&Question { blocks: 2, ..ask(&short, &tuning) }, 1).len(), 1, "all there is");
    assert_eq!(listed(&ask(&[holder(0, 3, 0)], &tuning), 1).len(), 1);
    assert_eq!(missed(&ask(&[holder(0, 9, 6), holder(1, 0, 0)], &tuning)), Miss::LoadGuard);
    assert_eq!(listed(&ask(&[holder(0, 9, 5), holder(1, 0, 0)], &tuning), 1).len(), 2);
}

#[test]
fn a_promise_is_overlap_and_worth_less_than_a_block() {
    let tuning = tuned(LbMode::Hard);
    let promised = Candidate { promised: 10, ..holder(1, 0, 0) };
    let list = listed(&ask(&[holder(0, 0, 0), promised], &tuning), 1);
    assert_eq!(list, [(1, 1, Reason::ExactPromised)]);
    assert_eq!(listed(&ask(&[holder(0, 8, 0), promised], &tuning), 1)[0].0, 0, "8,000 each: the lowest");
    assert_eq!(listed(&ask(&[holder(0, 7, 0), promised], &tuning), 1)[0].0, 1);
    let cached = Candidate { runs: [4, 6, 20], promised: 10, ..holder(0, 0, 0) };
    // 4 on the GPU, 2 in host memory and 4 on disk that are promised, 10 on disk.
    assert_eq!(law::worth(&cached, &tuning), 4_000 + 6 * 800 + 10 * 200);
    assert_eq!(law::worth(&Candidate { runs: [u32::MAX; 3], ..cached }, &tuning), 4_294_967_295_000);
}

#[test]
fn a_union_takes_the_longest_run_of_any_rank() {
    let rank_of = |endpoint, rank, gpu| Candidate { rank, rank_load: 3, ..holder(endpoint, gpu, 5) };
    let mut all =
        vec![rank_of(0, 0, 2), rank_of(0, 1, 9), rank_of(1, 0, 4), rank_of(3, 0, 0), rank_of(3, 1, 7)];
    union(&mut all);
    let of: Vec<_> =
        all.iter().map(|c| (c.endpoint, c.rank, c.runs[0], c.load, c.held, c.rank_load)).collect();
    let any = ANY_RANK;
    assert_eq!(of, [(0, any, 9, 5, 200, 0), (1, any, 4, 5, 100, 0), (3, any, 7, 5, 200, 0)]);
}

#[test]
fn the_watchdog_begins_once_and_goes_on() {
    let words: Vec<ZeroHits> = (1..=5).map(|missed| zero_hits(missed, 3)).collect();
    use ZeroHits::*;
    assert_eq!(words, [Quiet, Quiet, Begin, GoOn, GoOn]);
    assert_eq!(zero_hits(u32::MAX, 0), Quiet);
    let state = crate::shared::ExactState::new(0);
    let row: Vec<ZeroHits> = (0..60).map(|_| zero_hits(state.missed(), 50)).collect();
    assert_eq!(row.iter().position(|w| *w == Begin), Some(49));
    state.found();
    assert_eq!(zero_hits(state.missed(), 50), Quiet);
}

/// All but `Bounded` and those that come before a question exists are made above.
#[test]
fn words_of_misses_are_different_and_fall_into_the_published_set() {
    use Miss::*;
    let published = [
        "mode_off",
        "warmup",
        "text_empty",
        "model_empty",
        "tokenize",
        "hashes",
        "no_worker",
        "shallow",
        "excluded",
    ];
    let all = [
        ModeOff,
        Warmup,
        TextEmpty,
        ModelEmpty,
        Hashes,
        NoWorker,
        Shallow,
        Excluded,
        TokenizerBusy,
        Declined(Decline::NoTokenizer),
        Declined(engine::Decline::TooLong.into()),
        NoSignal,
        Fenced,
        Untrusted,
        LoadGuard,
        Bounded,
    ];
    let words: HashSet<_> = all.iter().map(|miss| miss.word()).collect();
    assert_eq!(words.len(), all.len());
    for miss in all.into_iter().chain(Decline::OWN.iter().copied().map(Declined)) {
        assert!(published.contains(&miss.seed_word()), "{miss:?}");
        assert_eq!(published.contains(&miss.word()), miss.word() == miss.seed_word(), "{miss:?}");
        assert_eq!(miss.is_zero_hit(), miss == NoWorker);
    }
}

#[test]
fn an_explanation_shows_who_was_chosen_who_was_passed_over_and_the_next() {
    let tuning = tuned(LbMode::Hard);
    let mut all: Vec<Candidate> = (0..20).map(|e| holder(e, 10, 1)).collect();
    all[19] = holder(19, 30, 90);
    let question = ask(&all, &tuning);
    let mut ranking = Ranking::default();
    rank(&question, || 1, &mut ranking).unwrap();
    let explained = Explanation::chosen(&question, &ranking, 1);
    let of: Vec<_> = explained.shown().iter().map(|s| (s.endpoint, s.runs[0], s.load, s.cap)).collect();
    // ceil(175 × 109 ÷ 2000) = 10
    assert_eq!(of[..4], [(1, 10, 1, 10), (19, 30, 90, 10), (0, 10, 1, 10), (2, 10, 1, 10)]);
    assert_eq!((of.len(), explained.candidates, explained.blocks), (SHOWN_MAX, 20, 100));
    let reason = Reason::ExactSpill;
    let outcome = Outcome::Chosen { reason, instead_of: Some(19), score: 10_000, refused: 1 };
    assert_eq!(explained.outcome, outcome);
    let bounded = Explanation::chosen(&question, &ranking, 99);
    assert_eq!((bounded.outcome, bounded.shown().len()), (Outcome::Missed(Miss::Bounded), SHOWN_MAX));
}

#[test]
fn an_explanation_of_a_miss_shows_the_shallow_ones() {
    let tuning = Tuning { min_match_tokens: 64, ..Tuning::default() };
    let all = [holder(0, 2, 0), holder(1, 0, 0), holder(2, 3, 0)];
    let question = ask(&all, &tuning);
    let mut ranking = Ranking::default();
    let miss = rank(&question, || 1, &mut ranking).unwrap_err();
    let explained = Explanation::missed(&question, &ranking, miss);
    assert_eq!(explained.outcome, Outcome::Missed(Miss::Shallow));
    assert_eq!(explained.shown().iter().map(|s| s.endpoint).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(Explanation::unasked(Miss::Warmup).shown(), []);
}

/// The same memory serves every decision after the first.
#[test]
fn a_ranking_grows_once() {
    let tuning = Tuning::default();
    let all: Vec<Candidate> = (0..256).map(|e| holder(e, 1 + u32::from(e), 2)).collect();
    let mut ranking = Ranking::default();
    let memory =
        |r: &Ranking| (r.places.as_ptr(), r.others.as_ptr(), r.choices.as_ptr(), r.choices.capacity());
    rank(&ask(&all, &tuning), || 16, &mut ranking).unwrap();
    let before = memory(&ranking);
    for hit in 1..100 {
        rank(&ask(&all, &tuning), || hit, &mut ranking).unwrap();
    }
    assert_eq!(memory(&ranking), before);
}
