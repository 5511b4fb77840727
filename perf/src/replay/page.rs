//! A report as one page that needs no other file. Owns its markup; must never fetch anything, nor write a name unescaped.

use super::report::{Report, Row};
use std::fmt::Write;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1b1f24; --faint: #68717d; --line: #d5dae0; --bar: #2f6f4f; --paper: #fff }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --faint: #98a2ae; --line: #363d46; --bar: #6cc298; --paper: #14171b }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem;
       margin: 2rem auto; padding: 0 1rem }
p { color: var(--faint) } h2 { font-size: 1.05rem; margin-top: 2rem }
.wide { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .25rem .7rem; border-bottom: 1px solid var(--line); white-space: nowrap }
th:first-child, td:first-child { text-align: left }
svg { width: 100%; height: auto } svg text { fill: var(--ink); font: 12px system-ui, sans-serif }
rect { fill: var(--bar) }
";

/// One plot: its title, the unit, and what it shows of a row.
type Plot = (&'static str, &'static str, fn(&Row) -> f64);

const PLOTS: [Plot; 3] = [
    ("Prompt tokens found, of what one cache of the fleet's size would find", "%", |row| {
        100.0 * row.of_oracle()
    }),
    ("First token, median", "ms", |row| row.outcome.first_token.p50_ms),
    ("First token, p99", "ms", |row| row.outcome.first_token.p99_ms),
];

/// The page of a report.
pub fn of(report: &Report) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>Replay</title><style>{STYLE}</style><h1>Replay</h1><p>{}</p>",
        escaped(&report.assumptions())
    );
    page.push_str(
        "<div class=\"wide\"><table><tr><th>Policy<th>Fleet<th>Hits<th>÷ oracle<th>TTFT p50<th>p90<th>p99\
         <th>TPOT p50<th>p99<th>Load, max ÷ mean<th>Busy<th>Refused</tr>",
    );
    report.rows.iter().for_each(|row| page.push_str(&table_row(row)));
    page.push_str("</table></div>");
    PLOTS.iter().for_each(|plot| page.push_str(&bars(plot, &report.rows)));
    page
}

fn table_row(row: &Row) -> String {
    let outcome = &row.outcome;
    format!(
        "<tr><td>{}<td>{}<td>{:.1} %<td>{:.3}<td>{:.0} ms<td>{:.0} ms<td>{:.0} ms<td>{:.1} ms<td>{:.0} ms<td>{:.2}\
         <td>{:.0} %<td>{}</tr>",
        escaped(&row.policy),
        row.fleet,
        100.0 * row.hits(),
        row.of_oracle(),
        outcome.first_token.p50_ms,
        outcome.first_token.p90_ms,
        outcome.first_token.p99_ms,
        outcome.between_tokens.p50_ms,
        outcome.between_tokens.p99_ms,
        outcome.imbalance_load,
        100.0 * outcome.utilization,
        outcome.refused
    )
}

/// A bar for each row, from 0.
fn bars((title, unit, of): &Plot, rows: &[Row]) -> String {
    let most = rows.iter().map(of).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let height = 22 * rows.len();
    let mut plot =
        format!("<h2>{title}</h2><svg viewBox=\"0 0 720 {height}\" role=\"img\" aria-label=\"{title}\">");
    for (at, row) in rows.iter().enumerate() {
        let (value, middle) = (of(row), 22 * at + 15);
        let width = (value / most * 430.0).max(1.0);
        let _ = write!(
            plot,
            "<text x=\"0\" y=\"{middle}\">{} × {}</text><rect x=\"200\" y=\"{}\" width=\"{width:.1}\" height=\"14\"/>\
             <text x=\"{:.1}\" y=\"{middle}\">{value:.1} {unit}</text>",
            row.fleet,
            escaped(&row.policy),
            22 * at + 4,
            206.0 + width
        );
    }
    plot + "</svg>"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
