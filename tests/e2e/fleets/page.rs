//! A page for operators as a list of its fenced blocks. Owns what the words behind the fence mean; must never run one.
//!
//! `sh engine[:VARIANT] VERSION…` starts an engine, of each of these releases; `json rule[:VARIANT]` is its rule;
//! `sh run` is a command that must succeed, `sh fails` one that must not; `text says` is what the command before it
//! prints, line by line among others, with `…` for anything; `sh serve` starts the gateway; `yaml NAME` is a file.

/// One fenced block.
#[derive(Clone, Debug)]
pub struct Block {
    /// `sh`, `json`, `text`, `yaml`.
    pub language: String,
    /// What it is for.
    pub word: String,
    /// Empty for the page's own flow.
    pub variant: String,
    /// The rest of the line.
    pub rest: Vec<String>,
    pub text: String,
}

/// The blocks of a page, in order.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for line in page.lines() {
        match (line.strip_prefix("```"), is_open) {
            (Some(info), false) => {
                blocks.push(opened(info));
                is_open = true;
            }
            (Some(_), true) => is_open = false,
            (None, true) => {
                let block = blocks.last_mut().unwrap();
                block.text += line;
                block.text.push('\n');
            }
            (None, false) => {}
        }
    }
    assert!(!is_open, "a fence is not closed");
    blocks
}

fn opened(info: &str) -> Block {
    let mut words = info.split_whitespace();
    let language = words.next().unwrap_or_default().to_owned();
    let word = words.next().unwrap_or_else(|| panic!("a block without a purpose: {info:?}"));
    let (word, variant) = word.split_once(':').unwrap_or((word, ""));
    Block {
        language,
        word: word.into(),
        variant: variant.into(),
        rest: words.map(str::to_owned).collect(),
        text: String::new(),
    }
}

/// What of `says` is not found in `output`, whose lines it has to name in order.
pub fn missing<'s>(says: &'s str, output: &str) -> Option<&'s str> {
    let mut lines = output.lines();
    says.lines().find(|wanted| !lines.any(|line| fits(wanted, line)))
}

/// Whether a line is as it should be, runs of blanks being alike and `…` anything.
fn fits(wanted: &str, line: &str) -> bool {
    let narrow = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (wanted, line) = (narrow(wanted), narrow(line));
    let mut parts = wanted.split('…');
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    for (at, part) in parts.iter().enumerate() {
        let is_last = at + 1 == parts.len();
        let found = match is_last {
            true => rest.ends_with(part).then(|| rest.len() - part.len()),
            false => rest.find(part),
        };
        let Some(from) = found else { return false };
        rest = &rest[from + part.len()..];
    }
    rest.is_empty()
}

#[test]
fn blocks_and_what_they_say() {
    let page = "a\n```sh engine:x 1.0 2.0\nrun\n  it\n```\nb\n```text says\nc … e\n```\n";
    let found = blocks(page);
    assert_eq!((found[0].word.as_str(), found[0].variant.as_str(), found[0].rest.len()), ("engine", "x", 2));
    assert_eq!((found[0].text.as_str(), found[1].word.as_str()), ("run\n  it\n", "says"));
    assert_eq!(missing("c … e\nf…", "x\nc   d e\nfg"), None);
    assert_eq!(missing("f…\nc … e", "c d e\nfg"), Some("c … e"), "in order");
    assert!(!fits("c … e", "c d f") && !fits("c", "c d") && fits("…d", "c d") && fits("a…", "a"));
}
