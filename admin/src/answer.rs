//! What a REST call is answered: status, type, bytes. Owns the success and error envelopes; must never
//! decide a status that a [`Refusal`] did not choose.

use crate::refusal::Refusal;
use serde_json::{Value, json};

/// An answer, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// A header more: `Allow` of 405, `WWW-Authenticate` of 401.
    pub header: Option<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// The type of the Prometheus text format, version 0.0.4.
pub const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Answer {
    /// A JSON answer, one line.
    pub fn json(status: u16, value: &Value) -> Answer {
        let mut body = value.to_string().into_bytes();
        body.push(b'\n');
        Answer { status, content_type: "application/json", header: None, body }
    }

    /// What every accepted change is answered: clients of the existing gateway compare this body.
    pub fn success() -> Answer {
        Answer::json(200, &json!({"result": "Success"}))
    }

    /// A file of the web page.
    pub fn asset(content_type: &'static str, text: &str) -> Answer {
        Answer { status: 200, content_type, header: None, body: text.into() }
    }

    /// A page of metrics.
    pub fn metrics(text: String) -> Answer {
        Answer { status: 200, content_type: PROMETHEUS_TEXT, header: None, body: text.into_bytes() }
    }
}

impl From<&Refusal> for Answer {
    /// The envelope of errors: `code` is the status, `message` its class, `result` the reason that scripts
    /// search; `reason_code` and the members of the body fault are for programs.
    fn from(refusal: &Refusal) -> Answer {
        let status = refusal.status();
        let mut body = json!({
            "code": status,
            "message": class_text(status),
            "result": refusal.to_string(),
            "reason_code": refusal.code(),
        });
        if let Some(members) = body.as_object_mut() {
            members.extend(refusal.details());
        }
        let mut answer = Answer::json(status, &body);
        answer.header = match refusal {
            Refusal::WrongMethod { allowed } => Some(("allow", allowed.clone())),
            Refusal::NoToken => Some(("www-authenticate", "Bearer".into())),
            _ => None,
        };
        answer
    }
}

fn class_text(status: u16) -> &'static str {
    match status {
        400 => "Malformed arguments for API call",
        401 => "Invalid authentication credentials",
        403 => "Capacity insufficient or call not allowed",
        404 => "Resource not found",
        405 => "Method not allowed",
        408 => "Request timeout",
        409 => "Resource conflict",
        412 => "Precondition failed",
        413 => "Body too large",
        422 => "Value not allowed",
        503 => "Maintenance mode",
        507 => "Insufficient storage",
        _ => "Internal service error",
    }
}
