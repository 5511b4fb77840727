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

/// How a leg differs: another verdict, or something else seen where both were looked at. Of versions only the family
/// counts, and where blocks are named by tokens, neither version nor hash.
fn differs(one: &Report, other: &Report, leg: Leg) -> Option<String> {
    let (first, own) = (one.row(leg)?, other.row(leg)?);
    let is_told = |row: &Row| row.verdict != Verdict::NotRun;
    let are_told = is_told(first) && is_told(own);
    let differs = match leg {
        Leg::Version => !one.is_by_tokens && are_told && one.family != other.family,
        Leg::Algorithm | Leg::Root if one.is_by_tokens => first.verdict != own.verdict,
        // How many tokens were cached is the probe's; that it is told must be alike.
        Leg::Usage => is_told(first) != is_told(own),
        _ => are_told && first.seen != own.seen || first.verdict != own.verdict,
    };
    differs.then(|| format!("{} is {:?} there and {:?} here", leg.word(), first.seen, own.seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(endpoint: &str, rule: &str, rows: &[Row]) -> Report {
        let (rows, kind) = (rows.to_vec(), "vllm");
        Report {
            endpoint: endpoint.into(),
            kind,
            rule: rule.into(),
            is_by_tokens: false,
            family: Some(rows.len()),
            rows,
        }
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

    /// Two releases and two hashes in one pool are well where neither names a block.
    #[test]
    fn names_by_tokens_take_engines_of_any_version_and_hash() {
        let rows = |version: &str, algorithm: &str| {
            [Row::equal(Leg::Version, version), Row::equal(Leg::Algorithm, algorithm)]
        };
        let pool = |is_by_tokens, families: [usize; 2]| {
            let one = Report { is_by_tokens, ..report("a", "one", &rows("0.23.0", "its own are sha256")) };
            let other = Report { is_by_tokens, ..report("b", "one", &rows("0.33.0", "its own are xxhash")) };
            let mut both =
                [Report { family: Some(families[0]), ..one }, Report { family: Some(families[1]), ..other }];
            compare(&mut both);
            both[1].row(Leg::Alike).map(|row| (row.verdict, row.seen.contains("version")))
        };
        assert_eq!(pool(true, [1, 4]), Some((Verdict::Equal, false)));
        assert_eq!(pool(false, [1, 4]), Some((Verdict::NotEqual, true)));
        assert_eq!(pool(false, [1, 1]), Some((Verdict::NotEqual, false)), "the hash still differs");
    }
}
