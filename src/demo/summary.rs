//! What came of the comparison: a table of both sides with their ratio, and the judgement over it. Owns both; pure.

use super::board::Board;
use super::panel::{grouped, millis, percent};
use super::pool::{Counters, Side};

/// Of the prompt tokens that round robin computes, exact routing may compute so many in a hundred. Two pools that both
/// go in turn differ by a few.
const COMPUTED_MAX: u64 = 75;

/// Of the requests routed to blocks that were there, so many in a hundred must find what was predicted. A block may be
/// evicted between decision and request.
const AS_PREDICTED_MIN: u64 = 90;

/// The table.
pub fn table(board: &Board, heads: [&str; 2]) -> Vec<String> {
    let [left, right] = Side::BOTH.map(|side| board.side(side));
    let (found, other) = (left.tokens(), right.tokens());
    let time = |label: &str, of| {
        let [left, right] = [left.first_byte(of), right.first_byte(of)];
        row(label, [millis(left), millis(right), ratio(right.unwrap_or(0), left.unwrap_or(0))])
    };
    let tokens = |label: &str, left, right| row(label, [grouped(left), grouped(right), ratio(right, left)]);
    let share = |side: Counters| percent(side.cached, side.prompt);
    vec![
        row("", [heads[0].into(), heads[1].into(), "RATIO".into()]),
        row("turns answered", [left.good.to_string(), right.good.to_string(), String::new()]),
        tokens("prompt tokens", found.prompt, other.prompt),
        row("prefix-hit share", [share(found), share(other), times(share_ratio(found, other))]),
        tokens("prefill saved, tokens", found.cached, other.cached),
        tokens("prefill computed", found.computed(), other.computed()),
        time("TTFT p50", 50),
        time("TTFT p99", 99),
        row(
            "cached as predicted",
            ["-".into(), format!("{}/{}", right.as_predicted, right.told), String::new()],
        ),
    ]
}

/// Whether exact routing did what it is for. The error says what was missed.
pub fn verdict(board: &Board) -> Result<(), String> {
    let [left, right] = Side::BOTH.map(|side| board.side(side));
    for (side, tally) in Side::BOTH.into_iter().zip([left, right]) {
        if tally.good != tally.wanted {
            let word = side.word();
            return Err(format!("{} of {} {word}-… requests have a good receipt", tally.good, tally.wanted));
        }
    }
    let (found, other) = (left.tokens(), right.tokens());
    if found.prompt != other.prompt {
        return Err(format!(
            "the engines counted {} prompt tokens in turn and {} by blocks, though the conversations are the same",
            found.prompt, other.prompt
        ));
    }
    if other.computed() * 100 > found.computed() * COMPUTED_MAX {
        return Err(format!(
            "exact routing did not beat round robin: its engines computed {} prompt tokens, those in turn {}; \
             at most {COMPUTED_MAX} % of that was expected",
            grouped(other.computed()),
            grouped(found.computed())
        ));
    }
    if right.told == 0 || right.as_predicted * 100 < right.told * AS_PREDICTED_MIN {
        return Err(format!(
            "{} of {} requests routed by blocks found cached what was predicted; at least {AS_PREDICTED_MIN} % was \
             expected",
            right.as_predicted, right.told
        ));
    }
    Ok(())
}

fn row(label: &str, [left, right, ratio]: [String; 3]) -> String {
    format!("{label:22}  {left:>16}  {right:>16}  {ratio:>7}").trim_end().to_string()
}

/// The second by the first.
fn ratio(right: u64, left: u64) -> String {
    times((left > 0).then(|| right as f64 / left as f64))
}

fn share_ratio(left: Counters, right: Counters) -> Option<f64> {
    let share = |side: Counters| side.cached as f64 / side.prompt.max(1) as f64;
    (left.cached > 0).then(|| share(right) / share(left))
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"))
}

#[cfg(test)]
mod tests {
    use super::super::decision::tests::receipt;
    use super::*;

    /// Two sides with one request each, and these tokens of prompts and cache.
    fn board(left: (u64, u64), right: (u64, u64)) -> Board {
        let mut board = Board::new(1, 1);
        for (side, (prompt, cached)) in Side::BOTH.into_iter().zip([left, right]) {
            let tally = board.side_mut(side);
            tally.counters = vec![Counters { prompt, cached }];
            tally.add(&receipt("a", 1), &[]);
        }
        let right = board.side_mut(Side::Exact);
        (right.told, right.as_predicted) = (10, 9);
        board
    }

    #[test]
    fn ratios_are_of_the_second_by_the_first() {
        let table = table(&board((10_000, 4000), (10_000, 9000)), ["L", "R"]);
        let cells = |at: usize| table[at].split_whitespace().rev().take(3).collect::<Vec<_>>();
        assert_eq!(cells(4), ["2.25", "9,000", "4,000"], "{table:#?}");
        assert_eq!(cells(5), ["0.17", "1,000", "6,000"]);
        assert_eq!(
            table[3].split_whitespace().collect::<Vec<_>>()[1..],
            ["share", "40", "%", "90", "%", "2.25"][..]
        );
        assert_eq!(cells(6)[0], "1.00");
    }

    #[test]
    fn it_fails_where_exact_routing_was_not_worth_it() {
        let said = |left, right| verdict(&board(left, right));
        assert_eq!(said((10_000, 4000), (10_000, 5500)), Ok(()));
        for (left, right, part) in [
            ((10_000, 4000), (10_000, 5499), "did not beat"),
            ((10_000, 4000), (10_000, 4000), "did not beat"),
            ((10_000, 4000), (10_001, 9000), "the same"),
        ] {
            assert!(said(left, right).is_err_and(|told| told.contains(part)), "{left:?} {right:?}");
        }
        for told in [0, 11] {
            let mut wrong = board((10, 1), (10, 9));
            wrong.side_mut(Side::Exact).told = told;
            assert!(verdict(&wrong).is_err_and(|said| said.contains(&format!("9 of {told} "))));
        }
        let mut lacking = board((10, 1), (10, 9));
        lacking.side_mut(Side::Exact).wanted = 2;
        assert!(verdict(&lacking).is_err_and(|told| told.contains("1 of 2 exact")));
    }

    #[test]
    fn nothing_seen_shows_nothing_made_up() {
        let table = table(&Board::new(5, 2), ["L", "R"]);
        assert!(table.iter().all(|row| !row.contains("NaN") && !row.contains("inf")), "{table:#?}");
        let times: Vec<&str> = table[6].split_whitespace().collect();
        assert_eq!(times, ["TTFT", "p50", "-", "-", "-"]);
    }
}
