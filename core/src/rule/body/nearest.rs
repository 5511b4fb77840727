//! The known name that a misspelled one was probably meant to be.

/// The name of `known` nearest to `wrong`: equal but for case and underscores, else within a third of its
/// length in edits. Ties go to the first.
pub(super) fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let plain = fold(wrong);
    if let Some(same) = known.clone().find(|k| fold(k) == plain) {
        return Some(same);
    }
    let allowed = (plain.len() / 3).clamp(1, 4);
    known
        .map(|k| (edits(&plain, &fold(k), allowed), k))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, k)| k)
}

/// Lower case without underscores and dashes, so that `kv_exact_mode` and `kvExactMode` are one.
fn fold(name: &str) -> Vec<u8> {
    name.bytes().filter(|b| !matches!(b, b'_' | b'-')).map(|b| b.to_ascii_lowercase()).take(64).collect()
}

/// Insertions, removals and replacements that turn `a` into `b`; more than `limit` is not counted out.
fn edits(a: &[u8], b: &[u8], limit: usize) -> usize {
    if a.len().abs_diff(b.len()) > limit {
        return limit + 1;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        let known = ["kvExactMode", "pd_disagg_mode", "weight", "port", "portMax", "sel"];
        let ask = |wrong| nearest(wrong, known.iter().copied());
        assert_eq!(ask("kv_exact_mode"), Some("kvExactMode"));
        assert_eq!(ask("PdDisaggMode"), Some("pd_disagg_mode"));
        assert_eq!(ask("wieght"), Some("weight"));
        assert_eq!(ask("port_max"), Some("portMax"));
        assert_eq!(ask("sell"), Some("sel"));
        assert_eq!(ask("colour"), None);
        assert_eq!(ask(""), None);
        assert_eq!(ask(&"x".repeat(100_000)), None);
    }

    #[test]
    fn counts_edits() {
        assert_eq!(edits(b"kitten", b"sitting", 9), 3);
        assert_eq!(edits(b"", b"abc", 9), 3);
        assert_eq!(edits(b"same", b"same", 9), 0);
    }
}
