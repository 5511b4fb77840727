//! The endpoints of one rule beside each other: a pool is routed exactly only if all its engines name blocks alike.
//! Owns which legs must read the same; must never ask an engine.

use super::row::{Leg, Report, Row, Verdict};

/// Legs of which endpoints of one rule must have been seen alike.
const LEGS: [Leg; 6] = [Leg::Version, Leg::Ranks, Leg::BlockSize, Leg::Algorithm, Leg::Root, Leg::Usage];

/// Adds to each report whether the endpoint is like the first of its rule.
pub fn compare(reports: &mut [Report]) {
    for at in 1..reports.len() {
        let first = reports.iter().position(|report| report.rule == reports[at].rule);
        if let Some(first) = first.filter(|first| *first < at) {
            let row = alike(&reports[first], &reports[at]);
            reports[at].rows.push(row);
        }
    }
}

fn alike(first: &Report, own: &Report) -> Row {
    let differing: Vec<String> = LEGS.iter().filter_map(|leg| differs(first, own, *leg)).collect();
    if differing.is_empty() {
        return Row::equal(Leg::Alike, format!("as {}", first.endpoint));
    }
    Row::not_equal(Leg::Alike, format!("unlike {}: {}", first.endpoint, differing.join("; ")))
        .engine("start all engines of the rule alike")
        .rule("a rule of its own for each sort of engine")
}

/// How a leg differs: another verdict, or something else seen where both were looked at. What was seen of equal legs
/// says the same of equal engines, but for addresses and counts, which are in no leg of the list.
fn differs(first: &Report, own: &Report, leg: Leg) -> Option<String> {
    let (first, own) = (first.row(leg)?, own.row(leg)?);
    let is_told = |row: &Row| row.verdict != Verdict::NotRun;
    let differs = match leg {
        // How many tokens were cached is the probe's; that it is told must be alike.
        Leg::Usage => is_told(first) != is_told(own),
        _ => is_told(first) && is_told(own) && first.seen != own.seen || first.verdict != own.verdict,
    };
    differs.then(|| format!("{} is {:?} there and {:?} here", leg.word(), first.seen, own.seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(endpoint: &str, rule: &str, rows: &[Row]) -> Report {
        Report { endpoint: endpoint.into(), kind: "vllm", rule: rule.into(), rows: rows.to_vec() }
    }

    #[test]
    fn endpoints_of_one_rule_are_held_against_the_first_of_it() {
        let size = |text: &str| Row::equal(Leg::BlockSize, text);
        let mut reports = [
            report("a", "one", &[size("16 tokens")]),
            report("b", "two", &[size("32 tokens")]),
            report("c", "one", &[size("16 tokens")]),
            report("d", "one", &[size("32 tokens")]),
        ];
        compare(&mut reports);
        let verdicts = reports.map(|report| report.row(Leg::Alike).map(|row| row.verdict));
        assert_eq!(verdicts, [None, None, Some(Verdict::Equal), Some(Verdict::NotEqual)]);
    }
}
