//! Requests by time, size and prefix blocks, without a word of anybody's text. Owns the forms in which traces come;
//! must never take half of a file: one line that can't be read refuses all of it.
//!
//! Forms, told apart by the first line:
//! - JSON lines as Mooncake publishes them (FAST'25): `timestamp` in ms, `input_length` and `output_length` in
//!   tokens, `hash_ids` with one number for each block of 512 tokens, equal where block and prefix are equal. With
//!   `block_size` the blocks have another size, the same on each line.
//! - CSV as Azure publishes it (2023): `TIMESTAMP,ContextTokens,GeneratedTokens`. It tells nothing of prefixes, so
//!   no request shares a block with another.

use crate::Error;
use serde::Deserialize;

/// Nanoseconds of virtual time.
pub type Nanos = u64;

/// Tokens of a block where a trace doesn't say.
pub const BLOCK_TOKENS: u32 = 512;

/// The most tokens that prompt and answer of one request may have.
const TOKENS_MAX: u32 = 16 << 20;

const AZURE_HEAD: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it comes, from the trace's begin.
    pub at: Nanos,
    /// Tokens of the prompt, at least 1.
    pub prompt: u32,
    /// Tokens of the answer, at least 1.
    pub answer: u32,
    /// Keys of the prompt's full blocks, first to last.
    pub keys: Vec<u64>,
}

/// Requests in the order of their times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Tokens in a block.
    pub block_tokens: u32,
    /// The requests.
    pub arrivals: Vec<Arrival>,
}

#[derive(Deserialize)]
struct Line {
    timestamp: u64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
    #[serde(default = "usual_block")]
    block_size: u32,
}

fn usual_block() -> u32 {
    BLOCK_TOKENS
}

impl Trace {
    /// The trace that `text` is; `name` stands for it in errors.
    pub fn parse(name: &str, text: &str) -> Result<Trace, Error> {
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let mut trace = match first.trim() {
            "" => return Err(Error::new(format!("{name} is empty; give a trace with one request a line"))),
            head if head.starts_with('{') => of_json(name, text)?,
            AZURE_HEAD => of_csv(name, text)?,
            other => {
                return Err(Error::new(format!(
                    "{name} begins with {:?}; known are JSON lines with timestamp, input_length, output_length, \
                     hash_ids, and CSV that begins with {AZURE_HEAD}",
                    other.chars().take(60).collect::<String>()
                )));
            }
        };
        trace.arrivals.sort_by_key(|arrival| arrival.at);
        Ok(trace)
    }

    /// The first `most` requests, `speed` times as fast.
    pub fn cut(mut self, most: usize, speed: f64) -> Trace {
        self.arrivals.truncate(most);
        let first = self.arrivals.first().map_or(0, |arrival| arrival.at);
        for arrival in &mut self.arrivals {
            arrival.at = ((arrival.at - first) as f64 / speed) as Nanos;
        }
        self
    }
}

/// Non-empty lines with their numbers from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())).filter(|(_, line)| !line.is_empty())
}

fn of_json(name: &str, text: &str) -> Result<Trace, Error> {
    let (mut block, mut arrivals) = (None, Vec::new());
    for (number, text) in lines(text) {
        let wrong = |what: String| Error::new(format!("{name}, line {number}: {what}"));
        let line: Line = serde_json::from_str(text).map_err(|e| wrong(e.to_string()))?;
        let size = *block.get_or_insert(line.block_size);
        if size != line.block_size || !(1..=4096).contains(&size) {
            return Err(wrong(format!(
                "block_size is {}; it is 1 to 4096, the same on each line",
                line.block_size
            )));
        }
        let full = (line.input_length / size) as usize;
        if line.hash_ids.len() < full {
            let told = line.hash_ids.len();
            return Err(wrong(format!(
                "hash_ids has {told} numbers; input_length fills {full} blocks of {size}"
            )));
        }
        let keys = line.hash_ids[..full].iter().map(|id| key(*id)).collect();
        let at = line.timestamp.checked_mul(1_000_000);
        let at = at.ok_or_else(|| wrong(format!("timestamp {} is no time in ms", line.timestamp)))?;
        arrivals.push(arrival(at, line.input_length, line.output_length, keys).map_err(wrong)?);
    }
    Ok(Trace { block_tokens: block.unwrap_or(BLOCK_TOKENS), arrivals })
}

fn of_csv(name: &str, text: &str) -> Result<Trace, Error> {
    let mut arrivals = Vec::new();
    for (number, line) in lines(text).skip(1) {
        let wrong = |what: String| Error::new(format!("{name}, line {number}: {what}"));
        let fields: Vec<&str> = line.split(',').collect();
        let [time, prompt, answer] = fields[..] else {
            return Err(wrong(format!("{} fields; each line has three", fields.len())));
        };
        let at =
            time_of(time).ok_or_else(|| wrong(format!("{time:?} is no time like 2023-11-16 18:17:03.98")))?;
        let count = |what: &str, text: &str| {
            text.parse().map_err(|_| wrong(format!("{what} is {text:?}; it is a number of tokens")))
        };
        let (prompt, answer) = (count("ContextTokens", prompt)?, count("GeneratedTokens", answer)?);
        let own = |block: u32| key((number as u64) << 32 | u64::from(block));
        let keys = (0..prompt / BLOCK_TOKENS).map(own).collect();
        arrivals.push(arrival(at, prompt, answer, keys).map_err(wrong)?);
    }
    Ok(Trace { block_tokens: BLOCK_TOKENS, arrivals })
}

/// An empty prompt has one token, and so has an empty answer: engines compute no less.
fn arrival(at: Nanos, prompt: u32, answer: u32, keys: Vec<u64>) -> Result<Arrival, String> {
    if prompt.max(answer) > TOKENS_MAX {
        return Err(format!("{prompt} tokens in, {answer} out; at most {TOKENS_MAX} are taken"));
    }
    Ok(Arrival { at, prompt: prompt.max(1), answer: answer.max(1), keys })
}

/// Spreads small numbers over all 64 bits, as the keys of blocks are.
pub fn key(id: u64) -> u64 {
    let mut x = id.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// `YYYY-MM-DD hh:mm:ss.fraction` since the year 1.
fn time_of(text: &str) -> Option<Nanos> {
    let (date, clock) = text.trim().split_once(' ')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    if !(1..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let mut clock = clock.splitn(3, ':');
    let (hour, minute): (u64, u64) = (clock.next()?.parse().ok()?, clock.next()?.parse().ok()?);
    let seconds: f64 = clock.next()?.parse().ok()?;
    if hour > 23 || minute > 59 || !(0.0..61.0).contains(&seconds) {
        return None;
    }
    // Years count from March, so that the leap day is the last of its year.
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * years + years / 4 - years / 100 + years / 400 + (153 * months + 2) / 5 + day - 1;
    // 9999 years of nanoseconds don't fit in 64 bits: a trace counts from 2000.
    let since = days.checked_sub(730_425)? * 86_400 + hour * 3600 + minute * 60;
    Some(since.checked_mul(1_000_000_000)? + (seconds * 1e9) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mooncake_lines_become_arrivals_with_full_blocks_only() {
        let text = r#"{"timestamp": 40, "input_length": 1030, "output_length": 0, "hash_ids": [7, 9, 11]}
{"timestamp": 3, "input_length": 511, "output_length": 5, "hash_ids": [7]}"#;
        let trace = Trace::parse("t", text).unwrap();
        assert_eq!(trace.block_tokens, 512);
        assert_eq!(trace.arrivals[0], Arrival { at: 3_000_000, prompt: 511, answer: 5, keys: vec![] });
        assert_eq!(trace.arrivals[1].keys, [key(7), key(9)]);
        assert_eq!(trace.arrivals[1].answer, 1, "no answer is shorter");
    }

    #[test]
    fn azure_lines_share_nothing() {
        let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 23:59:59.5000000,1024,10\n\
                    2023-11-17 00:00:00.5,1024,8\n";
        let trace = Trace::parse("t", text).unwrap().cut(9, 2.0);
        assert_eq!(trace.arrivals.iter().map(|a| a.at).collect::<Vec<_>>(), [0, 500_000_000]);
        assert_eq!(trace.arrivals[0].keys.len(), 2);
        assert!(trace.arrivals[0].keys.iter().all(|key| !trace.arrivals[1].keys.contains(key)));
    }

    #[test]
    fn what_cannot_be_read_is_named_by_line_and_member() {
        let told = |text: &str| Trace::parse("file", text).unwrap_err().to_string();
        assert!(told("").contains("file is empty"));
        assert!(told("a,b\n1,2").contains(r#"begins with "a,b""#));
        let line = r#"{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1]}"#;
        assert!(told(line).contains("line 1: hash_ids has 1 numbers; input_length fills 2"));
        let line = r#"{"timestamp": 0, "input_length": 1, "output_length": 1}"#;
        assert!(told(&format!("\n{line}")).contains("line 2: missing field `hash_ids`"));
        let other =
            r#"{"timestamp": 0, "input_length": 0, "output_length": 1, "hash_ids": [], "block_size": 0}"#;
        assert!(told(other).contains("block_size is 0"));
        let csv = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 25:00:00,1,1";
        assert!(told(csv).contains("line 2: \"2023-11-16 25:00:00\" is no time"));
        let huge = r#"{"timestamp": 0, "input_length": 1, "output_length": 4294967295, "hash_ids": []}"#;
        assert!(told(huge).contains("at most"));
    }
}
