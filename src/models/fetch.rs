//! Bytes from a folder or over HTTP(S). Owns who gets the access token: the first host that is asked, in a header, over
//! TLS; never a redirect's other host, an argument or a message. Must never hand out bytes of another hash than pinned.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::http::header::{AUTHORIZATION, LOCATION};
use ureq::http::{StatusCode, Uri};
use warmpath_core::profile::sha256;

/// Redirects that are followed.
const REDIRECTS_MAX: usize = 5;
/// How long a host may be silent.
const SILENCE: Duration = Duration::from_secs(60);
/// The longest token, in bytes.
const TOKEN_MAX: u64 = 4096;

/// Where paths are resolved, and by which right.
pub struct Fetcher {
    base: Base,
    token: Option<Token>,
    /// The host that the token is for: the first that was asked.
    first: Option<Origin>,
    agent: ureq::Agent,
}

enum Base {
    Folder(PathBuf),
    Url(String),
}

/// An access token; it has no printed form.
struct Token(String);

#[derive(Clone, PartialEq, Eq)]
struct Origin {
    scheme: String,
    authority: String,
}

impl Fetcher {
    /// Of a folder or URL, with the token of this file.
    pub fn new(from: &str, token_file: Option<&Path>) -> Result<Fetcher, String> {
        let base = match is_url(from) {
            true => Base::Url(from.trim_end_matches('/').to_string()),
            false => Base::Folder(from.into()),
        };
        let token = token_file.map(Token::read).transpose()?;
        let config = ureq::Agent::config_builder()
            .max_redirects(0)
            .http_status_as_error(false)
            .timeout_connect(Some(SILENCE))
            .timeout_recv_response(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .build();
        Ok(Fetcher { base, token, first: None, agent: config.into() })
    }

    /// What stands at `from`, as it comes.
    pub fn open(&mut self, from: &str) -> Result<Box<dyn Read>, String> {
        if is_url(from) {
            return self.get(from);
        }
        match &self.base {
            Base::Folder(folder) => {
                let path = folder.join(from);
                let file =
                    File::open(&path).map_err(|e| format!("{}: can't be read: {e}", path.display()))?;
                Ok(Box::new(file))
            }
            Base::Url(url) => self.get(&format!("{url}/{from}")),
        }
    }

    /// All of it, at most `largest` bytes.
    pub fn read(&mut self, from: &str, largest: u64) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let read = self.open(from)?.take(largest + 1).read_to_end(&mut bytes);
        read.map_err(|e| format!("{from}: can't be read to its end: {e}"))?;
        match bytes.len() as u64 > largest {
            true => Err(format!("{from}: larger than {largest} bytes; this can't be what it is named as")),
            false => Ok(bytes),
        }
    }

    /// The same, if it hashes to `wanted`.
    pub fn pinned(&mut self, from: &str, wanted: &str, largest: u64) -> Result<Vec<u8>, String> {
        let bytes = self.read(from, largest)?;
        let found = sha256(&bytes);
        match found == wanted {
            true => Ok(bytes),
            false => Err(format!("{from}: has SHA-256 {found}, {wanted} is pinned; nothing of it was taken")),
        }
    }

    fn get(&mut self, url: &str) -> Result<Box<dyn Read>, String> {
        let mut uri: Uri = url.parse().map_err(|e| format!("{url}: no URL: {e}"))?;
        let asked = Origin::of(&uri).ok_or_else(|| format!("{url}: no URL of a host"))?;
        let first = self.first.get_or_insert(asked).clone();
        for _ in 0..=REDIRECTS_MAX {
            let origin = Origin::of(&uri).ok_or_else(|| format!("{uri}: no URL of a host"))?;
            let mut request = self.agent.get(&uri);
            if let Some(token) = self.token.as_ref().filter(|_| origin == first) {
                if !origin.is_private() {
                    return Err(format!(
                        "{uri}: the token would go over the network in the clear; use https://"
                    ));
                }
                request = request.header(AUTHORIZATION, format!("Bearer {}", token.0));
            }
            let answer = request.call().map_err(|e| format!("{uri}: {e}"))?;
            match answer.status() {
                StatusCode::OK => return Ok(Box::new(answer.into_body().into_reader())),
                status if status.is_redirection() => {
                    let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
                    uri = moved(&uri, location.unwrap_or_default())?;
                }
                status => return Err(format!("{uri}: answered {status}{}", cure(status))),
            }
        }
        Err(format!("{url}: more than {REDIRECTS_MAX} redirects"))
    }
}

impl Token {
    fn read(path: &Path) -> Result<Token, String> {
        let fault = |what: String| format!("--hf-token-file {}: {what}", path.display());
        let cant = |e: io::Error| fault(format!("can't be read: {e}"));
        let file = File::open(path).map_err(cant)?;
        let mode = file.metadata().map_err(cant)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(fault(format!("its mode is {mode:o}, so that others can read it; chmod 600")));
        }
        let mut text = String::new();
        file.take(TOKEN_MAX).read_to_string(&mut text).map_err(cant)?;
        let token = text.trim();
        match !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Token(token.into())),
            false => Err(fault("holds no token: one word of ASCII is expected".into())),
        }
    }
}

impl Origin {
    fn of(uri: &Uri) -> Option<Origin> {
        let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
        Some(Origin { scheme: scheme.into(), authority: authority.as_str().to_ascii_lowercase() })
    }

    /// Whether nobody on the way can read what is sent.
    fn is_private(&self) -> bool {
        let host = self.authority.rsplit_once(':').map_or(self.authority.as_str(), |(host, _)| host);
        self.scheme == "https" || matches!(host, "127.0.0.1" | "[::1]" | "localhost")
    }
}

/// Where a redirect leads. One that leaves TLS is refused.
fn moved(from: &Uri, location: &str) -> Result<Uri, String> {
    let whole = match location.starts_with('/') && !location.starts_with("//") {
        true => {
            let authority = from.authority().map_or("", |own| own.as_str());
            format!("{}://{authority}{location}", from.scheme_str().unwrap_or("https"))
        }
        false => location.to_string(),
    };
    let to: Uri = whole.parse().map_err(|_| format!("{from}: redirects to nowhere"))?;
    if !is_url(&whole) || (from.scheme_str() == Some("https") && to.scheme_str() != Some("https")) {
        return Err(format!("{from}: redirects away from https"));
    }
    Ok(to)
}

fn cure(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 403 => "; it is gated: give a token with --hf-token-file, or ask for access",
        404 => "; models.json names a file that is not there",
        _ => "",
    }
}

/// Whether it is to be fetched over HTTP.
pub fn is_url(from: &str) -> bool {
    from.starts_with("https://") || from.starts_with("http://")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_stays_within_tls() {
        let from: Uri = "https://a.example/x/y".parse().expect("a URL");
        let to = |location: &str| moved(&from, location).map(|uri| uri.to_string());
        assert_eq!(to("/z"), Ok("https://a.example/z".into()));
        assert_eq!(to("https://b.example/z"), Ok("https://b.example/z".into()));
        for location in ["http://a.example/z", "file:///etc/passwd", "//b.example/z", "z", ""] {
            assert!(to(location).is_err(), "{location}");
        }
        let plain: Uri = "http://a.example/".parse().expect("a URL");
        assert!(moved(&plain, "https://a.example/").is_ok());
    }

    #[test]
    fn a_token_goes_over_tls_or_stays_on_this_machine() {
        let private =
            |url: &str| Origin::of(&url.parse().expect("a URL")).is_some_and(|own| own.is_private());
        assert!(
            private("https://a.example/") && private("http://127.0.0.1:80/") && private("http://[::1]:80/")
        );
        assert!(!private("http://a.example/") && !private("http://127.0.0.1.example/"));
    }
}
