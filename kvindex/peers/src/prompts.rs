//! Prompts as lists of page ids, a page being 512 tokens: read from a request trace, or made up by seed. Must
//! never invent what a trace does not say.

use std::collections::HashMap;

/// Where prompts come from.
pub struct Prompts {
    /// In the order of arrival: the pages of each prompt; equal ids are equal pages after equal pages.
    pub pages: Vec<Vec<u64>>,
    /// In words, for the table.
    pub origin: String,
}

/// The member of a trace's line that lists its pages.
const PAGES: &str = "hash_ids";

impl Prompts {
    /// A trace with one JSON object a line, as Mooncake publishes them.
    pub fn read(path: &str) -> Result<Prompts, String> {
        let text = std::fs::read_to_string(path).map_err(|fault| format!("{path}: {fault}"))?;
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let pages = lines.map(|(at, line)| line_pages(line).ok_or(at + 1)).collect::<Result<Vec<_>, _>>();
        let pages = pages.map_err(|line| format!("{path}:{line}: no list of numbers named {PAGES}"))?;
        let name = std::path::Path::new(path).file_name().unwrap_or_default().to_string_lossy();
        Ok(Prompts { origin: format!("{name}, {} requests", pages.len()), pages })
    }

    /// Conversations that grow by turns, seeded: for a run without a trace.
    pub fn made_up(count: usize) -> Prompts {
        let (mut random, mut next) = (Random(0x5eed), 0);
        let mut fresh = |pages: &mut Vec<u64>, count: usize| {
            pages.extend(next..next + count as u64);
            next += count as u64;
        };
        let mut talks: HashMap<usize, Vec<u64>> = HashMap::new();
        let pages = (0..count).map(|_| {
            let talk = talks.entry(random.below(count / 3 + 1)).or_default();
            let grows = 1 + random.below(if talk.is_empty() { 40 } else { 8 });
            fresh(talk, grows);
            talk.clone()
        });
        let pages: Vec<Vec<u64>> = pages.collect();
        Prompts { origin: format!("made up by seed, {count} requests (no trace given)"), pages }
    }
}

fn line_pages(line: &str) -> Option<Vec<u64>> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    line.get(PAGES)?.as_array()?.iter().map(serde_json::Value::as_u64).collect()
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    /// The next word.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.word()) * end as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_its_pages_or_nothing() {
        assert_eq!(line_pages(r#"{"timestamp":0,"hash_ids":[0,7,9]}"#), Some(vec![0, 7, 9]));
        assert_eq!(line_pages(r#"{"timestamp":0}"#), None);
        assert_eq!(line_pages(r#"{"hash_ids":[-1]}"#), None);
    }

    #[test]
    fn made_up_prompts_continue_earlier_ones() {
        let pages = Prompts::made_up(300).pages;
        let continues = |at: usize| pages[..at].iter().any(|before| pages[at].starts_with(before));
        assert!((1..300).filter(|at| continues(*at)).count() > 100);
    }
}
