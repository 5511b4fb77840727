//! Probe fixtures: requests to an engine's tokenize endpoint, each with the token ids that must come back. Owns their
//! two files and what is wrong with them; must never say what a live engine answered.

use super::{Api, is_sha256, sha256};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The largest file of a fixture, in bytes.
pub const LARGEST: u64 = 256 << 10;

/// One probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixture {
    /// What its two files are named by, as `1` of `1.request.json`.
    pub name: String,
    /// The body that is posted, byte for byte.
    pub request: Vec<u8>,
    /// SHA-256 of it.
    pub request_sha256: String,
    /// The API whose way to tokens it checks.
    pub api: Api,
    /// The ids that must come back, in order.
    pub expected: Vec<u32>,
}

/// Why fixtures can't be probed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FixtureFault {
    /// There are none for this engine.
    Missing,
    /// A request is not the one its ids are of.
    Drift {
        /// Which fixture.
        name: String,
        /// What the request hashes to.
        found: String,
        /// What the expectation says.
        wanted: String,
    },
    /// A file is not what it should be.
    Form {
        /// Which fixture.
        name: String,
        /// What is wrong.
        what: String,
    },
}

impl FixtureFault {
    /// The reason code of `kvexactstatus`.
    pub const fn reason(&self) -> &'static str {
        match self {
            FixtureFault::Missing | FixtureFault::Form { .. } => "probe_fixtures_missing",
            FixtureFault::Drift { .. } => "probe_fixture_drift",
        }
    }
}

impl fmt::Display for FixtureFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FixtureFault::Missing => f.write_str("there are none; make them with warmpath models fixtures"),
            FixtureFault::Drift { name, found, wanted } => write!(
                f,
                "{name}.request.json has SHA-256 {found}, its expectation is of {wanted}; make both anew together"
            ),
            FixtureFault::Form { name, what } => write!(f, "{name}: {what}; make it anew"),
        }
    }
}

impl std::error::Error for FixtureFault {}

/// `N.expect.json`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Expectation {
    request_sha256: String,
    expected_token_ids: Vec<u32>,
    api: Api,
}

impl Fixture {
    /// Of the bytes of its two files.
    pub fn read(name: &str, request: Vec<u8>, expectation: &[u8]) -> Result<Fixture, FixtureFault> {
        let form = |what: String| FixtureFault::Form { name: name.into(), what };
        let own: Expectation =
            serde_json::from_slice(expectation).map_err(|e| form(format!("expect.json: {e}")))?;
        if !is_sha256(&own.request_sha256) {
            return Err(form(format!("requestSha256 {:?} is no SHA-256", own.request_sha256)));
        }
        if own.expected_token_ids.is_empty() {
            return Err(form("expectedTokenIds is empty".into()));
        }
        let found = sha256(&request);
        if found != own.request_sha256 {
            return Err(FixtureFault::Drift { name: name.into(), found, wanted: own.request_sha256 });
        }
        let is_object = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&request);
        is_object.map_err(|e| form(format!("request.json: {e}")))?;
        Ok(Fixture {
            name: name.into(),
            request,
            request_sha256: found,
            api: own.api,
            expected: own.expected_token_ids,
        })
    }

    /// A fixture of what an engine just answered.
    pub fn of(name: String, request: Vec<u8>, api: Api, expected: Vec<u32>) -> Fixture {
        Fixture { name, request_sha256: sha256(&request), request, api, expected }
    }

    /// The bytes of `N.expect.json`.
    pub fn expectation(&self) -> Vec<u8> {
        let own = Expectation {
            request_sha256: self.request_sha256.clone(),
            expected_token_ids: self.expected.clone(),
            api: self.api,
        };
        // Strings and numbers always have a JSON form.
        let mut bytes = serde_json::to_vec(&own).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let own = Fixture::of("1".into(), br#"{"prompt":"a"}"#.to_vec(), Api::Completions, vec![1, 2]);
        assert_eq!(Fixture::read("1", own.request.clone(), &own.expectation()), Ok(own));
    }

    #[test]
    fn each_fault_has_its_reason_code() {
        let request = br#"{"prompt":"a"}"#.to_vec();
        let own = Fixture::of("1".into(), request.clone(), Api::Chat, vec![1]);
        let expect = |text: &str| {
            let fault = Fixture::read("1", request.clone(), text.as_bytes()).err();
            fault.map(|fault| (fault.reason(), fault.to_string())).unwrap_or_default()
        };
        let good = String::from_utf8(own.expectation()).expect("text");
        let flipped = Fixture::read("1", br#"{"prompt":"b"}"#.to_vec(), good.as_bytes()).err();
        assert_eq!(flipped.map(|fault| fault.reason()), Some("probe_fixture_drift"));
        for (text, words) in [
            (good.replace("[1]", "[]"), "expectedTokenIds is empty"),
            (good.replace("[1]", "[-1]"), "expect.json"),
            (good.replace("chat", "responses"), "expect.json"),
            (good.replace("\"api\"", "\"surface\""), "unknown field"),
            (good.replace(&own.request_sha256, "00"), "no SHA-256"),
        ] {
            let (reason, told) = expect(&text);
            assert_eq!(reason, "probe_fixtures_missing");
            assert!(told.contains(words), "{told}");
        }
        let broken = Fixture::of("1".into(), b"[1]".to_vec(), Api::Chat, vec![1]);
        let told = Fixture::read("1", b"[1]".to_vec(), &broken.expectation());
        assert!(matches!(told, Err(FixtureFault::Form { .. })), "{told:?}");
        assert_eq!(FixtureFault::Missing.reason(), "probe_fixtures_missing");
    }
}
