//! Each rule by itself, with batches written by hand. The simulator in `tests/` runs them together.

use super::*;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Did {
    Applied(u64),
    Cleared(Reason),
    Asked(u64),
    Reconnect,
}

use Did::{Applied, Asked, Cleared};

/// A stream, and the actions since they were last looked at.
struct Bench {
    stream: Stream,
    did: Vec<Did>,
    attempt: u32,
    now: Nanos,
}

impl Bench {
    fn new(policy: Policy) -> Self {
        Bench { stream: Stream::new(policy), did: Vec::new(), attempt: 0, now: 0 }
    }

    fn call(&mut self, step: impl FnOnce(&mut Stream, Nanos, Out<'_>)) -> Vec<Did> {
        let (did, attempt) = (&mut self.did, &mut self.attempt);
        let mut out = |action: Action<'_>| {
            did.push(match action {
                Action::Apply { seq, .. } => Applied(seq),
                Action::Clear(reason) => Cleared(reason),
                Action::AskReplay { attempt: named, from } => {
                    *attempt = named;
                    Asked(from)
                }
                Action::Reconnect => Did::Reconnect,
            });
            match action {
                Action::Apply { payload: b"emptied", .. } => Effect::Emptied,
                Action::Apply { payload: b"garbled", .. } => Effect::Undecodable,
                _ => Effect::Changed,
            }
        };
        step(&mut self.stream, self.now, &mut out);
        std::mem::take(&mut self.did)
    }

    fn connect(&mut self) -> Vec<Did> {
        self.connect_as(None)
    }

    fn connect_as(&mut self, identity: Option<u64>) -> Vec<Did> {
        self.call(|stream, now, out| stream.connected(now, identity, out))
    }

    fn live(&mut self, process: &str, seq: u64) -> Vec<Did> {
        self.live_payload(seq, format!("{process}{seq}").as_bytes())
    }

    fn live_payload(&mut self, seq: u64, payload: &[u8]) -> Vec<Did> {
        self.call(|stream, now, out| stream.live(now, seq, payload, out))
    }

    fn replay(&mut self, process: &str, seqs: impl IntoIterator<Item = u64>) -> Vec<Did> {
        let attempt = self.attempt;
        let mut did = Vec::new();
        for seq in seqs {
            let payload = format!("{process}{seq}");
            did.extend(self.call(|stream, now, out| {
                stream.replayed(now, attempt, seq, payload.as_bytes(), out);
            }));
        }
        did
    }

    fn end(&mut self) -> Vec<Did> {
        let attempt = self.attempt;
        self.call(|stream, now, out| stream.replay_ended(now, attempt, out))
    }

    fn tick_at(&mut self, now: Nanos) -> Vec<Did> {
        self.now = now;
        self.call(|stream, now, out| {
            stream.tick(now, out);
        })
    }
}

/// Process `a` applied and proven up to `last`.
fn proven(last: u64) -> Bench {
    let mut bench = Bench::new(Policy::default());
    assert_eq!(bench.connect(), [Asked(0)]);
    bench.live("a", last);
    bench.replay("a", 0..=last);
    assert_eq!(bench.end(), []);
    assert_eq!(bench.stream.standing(), Standing::Complete);
    bench
}

fn without_replay() -> Bench {
    Bench::new(Policy { replay: false, ..Policy::default() })
}

#[test]
fn a_fresh_stream_is_filled_and_linked_by_a_batch_that_came_both_ways() {
    let mut bench = Bench::new(Policy::default());
    assert_eq!(bench.connect(), [Asked(0)]);
    assert_eq!(bench.live("a", 2), []);
    assert_eq!(bench.replay("a", 0..3), [Applied(0), Applied(1), Applied(2)]);
    assert_eq!(bench.end(), []);
    assert_eq!(bench.stream.standing(), Standing::Complete);
    assert_eq!(bench.live("a", 3), [Applied(3)]);
}

#[test]
fn a_filled_stream_asks_again_until_a_batch_comes_both_ways() {
    let mut bench = Bench::new(Policy::default());
    bench.connect();
    bench.replay("a", 0..3);
    bench.end();
    assert_eq!(bench.stream.standing(), Standing::Complete);
    assert_eq!(bench.live("a", 3), [Asked(2)]);
    assert_eq!(bench.live("a", 4), []);
    assert_eq!(bench.replay("a", 2..=3), [Applied(3)]);
    assert_eq!(bench.end(), [Applied(4)]);
    assert_eq!(bench.stream.standing(), Standing::Complete);
}

#[test]
fn a_gap_is_replayed_from_the_last_applied_batch_and_live_ones_wait() {
    let mut bench = proven(4);
    assert_eq!(bench.live("a", 7), [Asked(4)]);
    assert_eq!(bench.live("a", 8), []);
    assert_eq!(bench.replay("a", 4..=7), [Applied(5), Applied(6), Applied(7)]);
    assert_eq!(bench.end(), [Applied(8)]);
    assert_eq!(bench.stream.standing(), Standing::Complete);
}

#[test]
fn late_copies_of_replayed_batches_are_no_regression() {
    let mut bench = proven(4);
    bench.live("a", 6);
    bench.replay("a", 4..=9);
    assert_eq!(bench.end(), []);
    for late in 7..=9 {
        assert_eq!(bench.live("a", late), []);
    }
    assert_eq!(bench.live("a", 10), [Applied(10)]);
}

#[test]
fn a_reconnect_to_the_same_process_keeps_the_state() {
    let mut bench = proven(4);
    bench.stream.disconnected();
    assert_eq!(bench.stream.standing(), Standing::Unproven);
    assert_eq!(bench.connect(), [Asked(4)]);
    assert_eq!(bench.replay("a", 4..=5), [Applied(5)]);
    assert_eq!(bench.end(), []);
    assert_eq!(bench.stream.standing(), Standing::Complete);
    assert_eq!(bench.live("a", 6), [Applied(6)]);
}

#[test]
fn a_restarted_process_that_overtook_is_found_by_its_digest() {
    let mut bench = proven(4);
    bench.stream.disconnected();
    bench.connect();
    assert_eq!(bench.replay("b", [4]), [Cleared(Reason::Restarted), Asked(0)]);
    assert_eq!(bench.replay("b", 0..=9).len(), 10);
    assert_eq!(bench.stream.reason(), Some(Reason::Restarted));
    assert_eq!(bench.stream.standing(), Standing::Complete);
    assert_eq!(bench.live("b", 3), [], "a late copy of a replayed batch, though older than what was cleared");
}

#[test]
fn a_restarted_process_that_has_not_caught_up_is_found_by_its_silence() {
    let mut bench = proven(4);
    bench.stream.disconnected();
    bench.connect();
    assert_eq!(bench.end(), [Cleared(Reason::Restarted), Asked(0)]);
    assert_eq!(bench.end(), []);
    assert_eq!(bench.stream.standing(), Standing::Empty);
}

#[test]
fn answers_of_an_older_replay_are_ignored() {
    let mut bench = proven(4);
    bench.live("a", 7);
    let stale = bench.attempt;
    bench.connect();
    let did = bench.call(|stream, now, out| {
        stream.replayed(now, stale, 4, b"a4", out);
        stream.replay_ended(now, stale, out);
        stream.replay_failed(now, stale, out);
    });
    assert_eq!(did, []);
}

#[test]
fn a_live_connection_to_a_process_that_is_gone_is_closed() {
    let mut bench = Bench::new(Policy::default());
    bench.connect();
    bench.live("dead", 3);
    assert_eq!(bench.replay("b", 0..=5), [Applied(0), Applied(1), Applied(2), Applied(3), Did::Reconnect]);
    assert_eq!(bench.live("dead", 4), []);
    assert_eq!(bench.connect(), [Asked(3)]);
    assert_eq!(bench.replay("b", 3..=5), [Applied(4), Applied(5)]);
    bench.end();
    assert_eq!(bench.stream.standing(), Standing::Complete);
}

#[test]
fn a_replay_that_does_not_reach_back_clears_and_goes_on_from_there() {
    let mut bench = proven(4);
    bench.live("a", 50);
    assert_eq!(bench.replay("a", 40..=41), [Cleared(Reason::ReplayHole), Applied(40), Applied(41)]);
    bench.replay("a", 42..=50);
    bench.end();
    assert_eq!(bench.stream.standing(), Standing::Since(40));
}

#[test]
fn a_hole_inside_a_replay_is_asked_for_again() {
    let mut bench = proven(4);
    bench.live("a", 9);
    assert_eq!(bench.replay("a", [4, 5, 8]), [Applied(5), Asked(5)]);
    assert_eq!(bench.replay("a", 5..=9).len(), 4);
    assert_eq!(bench.end(), []);
    assert_eq!(bench.stream.standing(), Standing::Complete);
}

#[test]
fn replays_that_fail_are_given_up_and_the_live_stream_counts_alone() {
    let mut bench = proven(4);
    assert_eq!(bench.live("a", 9), [Asked(4)]);
    let fail = |bench: &mut Bench| {
        let attempt = bench.attempt;
        bench.call(|stream, now, out| stream.replay_failed(now, attempt, out))
    };
    assert_eq!(fail(&mut bench), [Asked(4)]);
    assert_eq!(bench.tick_at(15 * SECOND), [Asked(4)]);
    assert_eq!(fail(&mut bench), [Cleared(Reason::ReplayFailed), Applied(9)]);
    assert_eq!(bench.live("a", 10), [Applied(10)]);
    assert_eq!(bench.stream.standing(), Standing::Since(9));
}

#[test]
fn a_smaller_sequence_outside_a_replay_clears() {
    let mut bench = proven(4);
    bench.live("a", 5);
    assert_eq!(bench.live("b", 0), [Cleared(Reason::Regressed), Asked(0)]);
    assert_eq!(bench.replay("b", [0]), [Applied(0)]);
    assert_eq!(bench.end(), []);
    assert_eq!(bench.stream.standing(), Standing::Complete);
}

#[test]
fn a_new_connection_that_brings_an_old_sequence_reaches_another_process() {
    let mut bench = proven(4);
    bench.connect();
    assert_eq!(bench.stream.standing(), Standing::Unproven);
    assert_eq!(bench.live("b", 1), [Cleared(Reason::Regressed), Asked(0)]);
    assert_eq!(bench.replay("b", 0..=1), [Applied(0), Applied(1)]);
}

#[test]
fn the_same_batch_twice_in_a_row_is_ignored_but_another_one_of_its_number_is_not() {
    let mut bench = proven(4);
    bench.live("a", 5);
    assert_eq!(bench.live("a", 5), []);
    assert_eq!(bench.live("b", 5), [Cleared(Reason::Regressed), Asked(0)]);
}

#[test]
fn a_full_queue_is_made_good_by_another_replay() {
    let mut bench = Bench::new(Policy { queue_batches: 2, ..Policy::default() });
    bench.connect();
    for seq in 0..5 {
        bench.live("a", seq);
    }
    assert_eq!(bench.replay("a", [0]), [Applied(0)]);
    assert_eq!(bench.end(), [Applied(1), Asked(1)]);
    assert_eq!(bench.replay("a", 1..5), [Applied(2), Applied(3), Applied(4)]);
    assert_eq!(bench.end(), []);
    assert_eq!(bench.stream.queue.bytes(), 0);
}

#[test]
fn a_silent_stream_is_probed_for_a_lost_last_batch() {
    let mut bench = proven(4);
    assert_eq!(bench.tick_at(29 * SECOND), []);
    assert_eq!(bench.tick_at(30 * SECOND), [Asked(4)]);
    assert_eq!(bench.replay("a", 4..=5), [Applied(5)]);
    assert_eq!(bench.end(), []);
    assert_eq!(bench.stream.standing(), Standing::Complete);
}

#[test]
fn without_replay_a_gap_clears() {
    let mut bench = without_replay();
    assert_eq!(bench.connect(), []);
    assert_eq!(bench.live("a", 3), [Applied(3)]);
    assert_eq!(bench.stream.standing(), Standing::Since(3));
    assert_eq!(bench.live("a", 5), [Cleared(Reason::Gap), Applied(5)]);
    assert_eq!(bench.tick_at(1_000 * SECOND), []);
}

#[test]
fn without_replay_a_reconnect_keeps_the_state_only_of_a_known_start_and_the_next_sequence() {
    let mut bench = without_replay();
    bench.connect_as(Some(1));
    bench.live("a", 0);
    assert_eq!(bench.connect_as(Some(1)), []);
    assert_eq!(bench.live("a", 1), [Applied(1)]);
    assert_eq!(bench.connect_as(Some(1)), []);
    assert_eq!(bench.live("a", 3), [Cleared(Reason::Reconnected), Applied(3)]);
    assert_eq!(bench.connect_as(Some(2)), [Cleared(Reason::Reconnected)]);
    assert_eq!(bench.live("b", 4), [Applied(4)]);
    assert_eq!(bench.connect_as(None), [Cleared(Reason::Reconnected)]);
    bench.live("b", 5);
    assert_eq!(bench.connect_as(None), [Cleared(Reason::Reconnected)]);
}

#[test]
fn an_emptied_cache_makes_a_partial_history_whole_and_a_garbled_batch_the_reverse() {
    let mut bench = without_replay();
    bench.connect();
    bench.live("a", 7);
    assert_eq!(bench.live_payload(8, b"emptied"), [Applied(8)]);
    assert_eq!(bench.stream.standing(), Standing::Complete);
    assert_eq!(bench.live_payload(9, b"garbled"), [Applied(9), Cleared(Reason::Undecodable)]);
    assert_eq!(bench.live("a", 10), [Applied(10)]);
    assert_eq!(bench.stream.standing(), Standing::Since(10));
    assert_eq!(bench.stream.reason(), Some(Reason::Undecodable));
}

#[test]
fn nothing_is_taken_while_disconnected() {
    let mut bench = Bench::new(Policy::default());
    assert_eq!(bench.live("a", 0), []);
    assert_eq!(bench.stream.standing(), Standing::Empty);
    assert_eq!(bench.tick_at(1_000 * SECOND), []);
}
