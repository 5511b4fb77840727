//! Versions as floors compare them. Owns their order, in which a candidate comes before its release; which versions name
//! blocks alike is another order (`engine::Version`), that of contracts.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;

/// `0.30.0rc1`: numbers, then perhaps a candidate, an alpha, a beta, a development build, or a `post` release.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Release {
    numbers: [u32; 3],
    /// Below 0 before the release, above it behind.
    stage: (i8, u32),
    text: String,
}

/// What may follow the numbers, and where that stands to the release itself.
const STAGES: [(&str, i8); 6] = [(".dev", -4), ("a", -3), ("b", -2), ("rc", -1), (".post", 1), ("post", 1)];

impl Release {
    /// Reads `v0.30.0rc1`, `0.3.13.post1`, `0.32.0+cpu` (what follows `+` is the build's own); `None`: no such form.
    pub fn read(text: &str) -> Option<Release> {
        let trimmed = text.trim();
        let public = trimmed.strip_prefix('v').unwrap_or(trimmed).split('+').next()?;
        let (mut numbers, mut rest) = ([0; 3], public);
        for (at, number) in numbers.iter_mut().enumerate() {
            let part = if at == 0 { Some(rest) } else { rest.strip_prefix('.') };
            let Some((value, behind)) = part.and_then(leading) else { break };
            (*number, rest) = (value, behind);
        }
        if rest.len() == public.len() || !public.contains('.') {
            return None;
        }
        let stage = if rest.is_empty() { (0, 0) } else { stage(rest)? };
        Some(Release { numbers, stage, text: trimmed.to_owned() })
    }
}

fn stage(rest: &str) -> Option<(i8, u32)> {
    STAGES.into_iter().find_map(|(word, order)| {
        let behind = rest.strip_prefix(word)?;
        let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
        Some((order, digits.parse().unwrap_or(0)))
    })
}

fn leading(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

impl PartialEq for Release {
    fn eq(&self, other: &Release) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Release {}

impl Ord for Release {
    fn cmp(&self, other: &Release) -> Ordering {
        (self.numbers, self.stage).cmp(&(other.numbers, other.stage))
    }
}

impl PartialOrd for Release {
    fn partial_cmp(&self, other: &Release) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl TryFrom<String> for Release {
    type Error = String;

    fn try_from(text: String) -> Result<Release, String> {
        Release::read(&text).ok_or_else(|| format!("`{text}` is no version; write it as 0.30.0 or 0.30.0rc1"))
    }
}

impl From<Release> for String {
    fn from(release: Release) -> String {
        release.text
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_come_before_their_release_and_posts_behind() {
        let order = [
            "0.23.0",
            "0.29.0",
            "0.30.0.dev3",
            "0.30.0rc1",
            "0.30.0rc2",
            "0.30.0",
            "0.30.0.post1",
            "0.30.1",
            "1.0",
        ];
        let read: Vec<Release> = order.iter().map(|text| Release::read(text).expect(text)).collect();
        assert!(read.windows(2).all(|pair| pair[0] < pair[1]), "{read:?}");
        for text in ["", "main", "b11434", "7", "0.x", "0.30.0-odd", "99999999999.1"] {
            assert_eq!(Release::read(text), None, "{text}");
        }
    }
}
