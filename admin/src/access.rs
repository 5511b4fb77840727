//! Who may ask over TCP: bearer tokens, kept as their SHA-256 alone. Owns the file of tokens and the comparison, which
//! takes the same time whatever was presented; must never keep, print or log a token.

use hyper::header::{AUTHORIZATION, HeaderMap};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::io::Read;
use std::path::Path;

/// Bytes of a token that is made here.
const TOKEN_BYTES: usize = 32;

type Hash = [u8; 32];

/// The tokens that are let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens(Vec<Hash>);

impl Tokens {
    /// Reads a file of lines `NAME SHA256`, the hash in 64 hexadecimal digits; `#` begins a comment. An error is one
    /// sentence.
    pub fn read(path: &Path) -> Result<Tokens, String> {
        let name = path.display();
        let text = std::fs::read_to_string(path).map_err(|e| {
            format!("--admin-tokens {name}: can't be read: {e}; name a file of hashed tokens")
        })?;
        Tokens::parse(&text).map_err(|fault| format!("--admin-tokens {name}: {fault}"))
    }

    fn parse(text: &str) -> Result<Tokens, String> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with('#'));
        let mut hashes = Vec::new();
        for (at, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            let hash = match line.split_whitespace().collect::<Vec<_>>()[..] {
                [_, digits] => hash_of(digits),
                _ => None,
            };
            // The line is not repeated: it may hold a token in the place of its hash.
            hashes.push(hash.ok_or_else(|| {
                format!(
                    "line {} is not a name and 64 hexadecimal digits; `warmpath ctl token NAME` makes such a line",
                    at + 1
                )
            })?);
        }
        match hashes.is_empty() {
            true => Err("it names no token; `warmpath ctl token NAME` makes one".into()),
            false => Ok(Tokens(hashes)),
        }
    }

    /// Whether a request with these headers is let in.
    pub fn let_in(&self, headers: &HeaderMap) -> bool {
        let presented = headers.get(AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
        let token = match presented.split_at_checked(7) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => token.trim_ascii(),
            _ => presented,
        };
        let hash: Hash = Sha256::digest(token).into();
        // Every byte of every hash is looked at, so that time tells nothing.
        self.0.iter().fold(false, |found, known| found | same(known, &hash))
    }
}

fn same(one: &Hash, other: &Hash) -> bool {
    let differ = one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b));
    std::hint::black_box(differ) == 0
}

fn hash_of(digits: &str) -> Option<Hash> {
    let nibble = |digit: u8| (digit as char).to_digit(16).map(|n| n as u8);
    let pairs = digits.as_bytes().chunks_exact(2);
    let bytes: Option<Vec<u8>> = pairs.map(|p| Some(nibble(p[0])? << 4 | nibble(p[1])?)).collect();
    bytes.filter(|_| digits.len() == 64)?.try_into().ok()
}

/// A fresh token, and the line that lets it in.
pub fn fresh(name: &str) -> Result<(String, String), String> {
    if name.is_empty() || name.contains(char::is_whitespace) || name.starts_with('#') {
        return Err(format!("a token's name {name:?} must be one word"));
    }
    let mut bytes = [0; TOKEN_BYTES];
    let random = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    random.map_err(|e| format!("/dev/urandom can't be read: {e}"))?;
    let token = format!("wpt_{}", hexadecimal(&bytes));
    let line = format!("{name} {}", hexadecimal(&Sha256::digest(token.as_bytes())));
    Ok((token, line))
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |mut text: String, byte: &u8| {
        let _ = write!(text, "{byte:02x}");
        text
    };
    bytes.iter().fold(String::new(), digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(tokens: &Tokens, authorization: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, authorization.parse().unwrap());
        tokens.let_in(&headers)
    }

    #[test]
    fn a_token_is_let_in_by_its_hash_and_nothing_else_is() {
        let (one, first) = fresh("one").unwrap();
        let (two, second) = fresh("two").unwrap();
        let (other, _) = fresh("other").unwrap();
        assert!(one != two && !first.contains(&one));
        let tokens = Tokens::parse(&format!("# ours\n{first}\n\n{second}\n")).unwrap();
        for token in [&one, &two] {
            for form in [format!("Bearer {token}"), format!("bearer  {token}"), token.clone()] {
                assert!(asked(&tokens, &form), "{form}");
            }
        }
        let hash = first.split(' ').nth(1).unwrap();
        for wrong in [&other, hash, "", &one[..one.len() - 1], &format!("Basic {one}")] {
            assert!(!asked(&tokens, &format!("Bearer {wrong}")), "{wrong}");
        }
        assert!(!tokens.let_in(&HeaderMap::new()));
    }

    #[test]
    fn a_wrong_line_is_named_and_not_repeated() {
        let (token, line) = fresh("one").unwrap();
        for wrong in [format!("{line}\none {token}"), format!("{line}\n{token}"), format!("{line}\n{line}0")]
        {
            let fault = Tokens::parse(&wrong).unwrap_err();
            assert!(fault.contains("line 2") && !fault.contains(&token), "{fault}");
        }
        assert!(Tokens::parse("# none\n").unwrap_err().contains("names no token"));
        assert!(fresh("a b").is_err());
    }
}
