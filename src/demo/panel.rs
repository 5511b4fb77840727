//! The two sides beside each other, as bars. Owns their layout; pure. No line is wider than it is told to be.

use super::board::{Board, Tally};
use super::pool::{Counters, Side};
use warmpath_core::Nanos;

/// Columns of what a line is about.
const LABEL: usize = 16;
/// Columns of a figure behind its bar.
const FIGURE: usize = 11;

/// A line: what it is about, and for each side a bar's share of full and a figure. Without a bar the figure has its room.
struct Line {
    label: String,
    sides: [(Option<f64>, String); 2],
}

/// The panel, `width` columns wide; with `engines`, also a line for each engine. A line is its label and both sides.
pub fn panel(board: &Board, heads: [&str; 2], width: usize, engines: bool) -> Vec<[String; 3]> {
    let [left, right] = Side::BOTH.map(|side| board.side(side));
    let mut lines = vec![Line { label: String::new(), sides: heads.map(|head| (None, head.into())) }];
    lines.extend(figures(left, right));
    if engines {
        lines.extend((0..left.counters.len()).map(|place| engine(left, right, place)));
    }
    lines.into_iter().map(|line| drawn(&line, width)).collect()
}

fn figures(left: &Tally, right: &Tally) -> [Line; 6] {
    let sums = [left.tokens(), right.tokens()];
    let times = |percent| [left.first_byte(percent), right.first_byte(percent)];
    let slowest = times(99).into_iter().flatten().max();
    let time = |label: &str, percent| {
        let bar = |time: Option<Nanos>| (share(time.unwrap_or(0), slowest.unwrap_or(0)), millis(time));
        Line { label: label.into(), sides: times(percent).map(bar) }
    };
    [
        Line { label: "turns answered".into(), sides: [left, right].map(answered) },
        Line { label: "prefix hits".into(), sides: sums.map(hits) },
        tokens("prefill saved", sums.map(|sum| sum.cached)),
        tokens("prefill computed", sums.map(Counters::computed)),
        time("TTFT p50", 50),
        time("TTFT p99", 99),
    ]
}

/// The longer bar is full.
fn tokens(label: &str, sides: [u64; 2]) -> Line {
    let most = sides[0].max(sides[1]);
    Line {
        label: label.into(),
        sides: sides.map(|count| (share(count, most), format!("{} tok", grouped(count)))),
    }
}

fn answered(tally: &Tally) -> (Option<f64>, String) {
    (share(tally.good, tally.wanted), format!("{}/{}", tally.good, tally.wanted))
}

fn hits(counters: Counters) -> (Option<f64>, String) {
    (share(counters.cached, counters.prompt), percent(counters.cached, counters.prompt))
}

/// Its prefix hits, and how many requests it had.
fn engine(left: &Tally, right: &Tally, place: usize) -> Line {
    let of = |tally: &Tally| {
        let counters = tally.counters.get(place).copied().unwrap_or_default();
        let requests = tally.by_engine.get(place).copied().unwrap_or(0);
        let (bar, figure) = hits(counters);
        (bar, format!("{figure} {requests:>3} rq"))
    };
    Line { label: format!("engine E{}", place + 1), sides: [of(left), of(right)] }
}

fn drawn(line: &Line, width: usize) -> [String; 3] {
    let half = width.saturating_sub(LABEL + 2) / 2;
    let [left, right] = &line.sides;
    [format!("{:LABEL$}  ", line.label), format!("{:half$}", side(left, half)), side(right, half)]
}

fn side((bar, figure): &(Option<f64>, String), half: usize) -> String {
    let Some(share) = bar else { return figure.clone() };
    let room = half.saturating_sub(FIGURE + 4);
    format!("{} {figure:>FIGURE$}", bar_of(*share, room))
}

/// A bar in which `share` of `width` columns are full, to the nearest; a share above 0 shows.
fn bar_of(share: f64, width: usize) -> String {
    let full = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
    let full = if share > 0.0 { full.max(1).min(width) } else { 0 };
    "█".repeat(full) + &"·".repeat(width - full)
}

/// Nothing known shows an empty bar.
fn share(part: u64, whole: u64) -> Option<f64> {
    Some(if whole == 0 { 0.0 } else { part as f64 / whole as f64 })
}

/// Whole percent, rounded down: 100 % is all.
pub fn percent(part: u64, whole: u64) -> String {
    (part * 100).checked_div(whole).map_or_else(|| "-".into(), |percent| format!("{percent} %"))
}

/// Milliseconds.
pub fn millis(time: Option<Nanos>) -> String {
    let Some(time) = time else { return "-".into() };
    let tenths = (time + 50_000) / 100_000;
    if tenths < 1000 {
        format!("{}.{} ms", tenths / 10, tenths % 10)
    } else {
        format!("{} ms", (tenths + 5) / 10)
    }
}

/// With a comma at each thousand.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::decision::tests::receipt;
    use super::*;
    use warmpath_core::receipt::Receipt;

    fn joined(board: &Board, width: usize, engines: bool) -> Vec<String> {
        panel(board, ["LEFT", "RIGHT"], width, engines).into_iter().map(|parts| parts.concat()).collect()
    }

    #[test]
    fn bars_are_full_to_the_nearest_column() {
        for (share, bar) in [
            (0.0, "····"),
            (0.01, "█···"),
            (0.37, "█···"),
            (0.38, "██··"),
            (0.5, "██··"),
            (1.0, "████"),
            (7.0, "████"),
        ] {
            assert_eq!(bar_of(share, 4), bar, "{share}");
        }
        assert_eq!(bar_of(0.5, 0), "");
    }

    #[test]
    fn figures_read_as_people_write_them() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
        let times =
            [(None, "-"), (Some(0), "0.0 ms"), (Some(1_549_999), "1.5 ms"), (Some(99_950_000), "100 ms")];
        for (time, text) in times {
            assert_eq!(millis(time), text);
        }
        assert_eq!((percent(999, 1000), percent(1, 0)), ("99 %".into(), "-".into()));
    }

    #[test]
    fn a_panel_is_as_wide_as_the_screen_and_starts_empty() {
        let mut board = Board::new(200, 3);
        for width in [80, 120] {
            let empty = joined(&board, width, true);
            assert_eq!(empty.len(), 10);
            assert!(empty.iter().all(|line| line.chars().count() <= width), "{empty:#?}");
            assert!(!empty.join("").contains('█') && empty[2].contains(" -"), "{empty:#?}");
        }
        let right = board.side_mut(Side::Exact);
        right.counters = vec![Counters { prompt: 1_000_000, cached: 900_000 }; 3];
        right.add(&Receipt { first_byte: 31_000_000, ..receipt("a", 1) }, &[]);
        let lines = joined(&board, 80, false);
        assert_eq!(lines.len(), 7);
        assert!(lines[2].ends_with("90 %") && lines[3].ends_with(" 2,700,000 tok"), "{lines:#?}");
        assert!(
            lines[4].ends_with(" 300,000 tok")
                && lines[5].ends_with("31.0 ms")
                && lines.iter().all(|l| l.chars().count() <= 80),
            "{lines:#?}"
        );
    }
}
