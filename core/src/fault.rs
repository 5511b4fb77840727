//! What went wrong, whose fault it is, and what the client is told. Owns the one mapping from a fault to
//! status, code and words; must never be bypassed by a status typed elsewhere.

use warmpath_parser::Malformed;

/// Who has to act for a fault to go away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The request itself.
    Client,
    /// An engine.
    Engine,
    /// The gateway, its load or its rules.
    Gateway,
}

/// A reason why a request gets no engine's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The bytes are no acceptable HTTP request; the parser's own status and words.
    Malformed(Malformed),
    /// The body is said to be JSON and is not.
    BadJson,
    /// The head did not arrive in time.
    HeadTimeout,
    /// The body did not arrive in time.
    BodyTimeout,
    /// The body is over `max_body`.
    BodyTooLarge,
    /// No memory could be reserved for the body in time.
    MemoryPressure,
    /// All rules of this address are gone.
    NoRules,
    /// No rule fits host and path.
    NoRoute,
    /// No pool serves the model.
    ModelUnavailable,
    /// No endpoint of the pool is available.
    NoHealthyBackend,
    /// No endpoint of the pool could be connected to.
    BackendUnreachable,
    /// The endpoint died before the first byte of an answer.
    BackendDied,
    /// The endpoint's answer is no acceptable HTTP.
    BadAnswer,
    /// The endpoint sent nothing in time.
    FirstByteTimeout,
    /// The endpoint stopped sending within its answer.
    StreamTimeout,
    /// The endpoint died within its answer.
    StreamDied,
    /// The answer took longer than `max_stream_duration_sec`.
    StreamTooLong,
    /// The gate has no permit free, and no place to wait.
    AdmissionCapacity,
    /// The tenant has its share of the gate.
    AdmissionTenantShare,
    /// Every endpoint has as many requests as the gate allows it.
    AdmissionNoCapacity,
    /// Its turn at the gate did not come in time.
    AdmissionQueueTimeout,
    /// Its rule was taken back, or maintenance began, while it waited for its turn.
    AdmissionDrained,
    /// The gateway is in maintenance, and its rule lets nobody in then.
    GatewayDraining,
    /// The first of these by the older variables of pairs (`LLB_PD_MAX_INFLIGHT_PER_EP`).
    PairsOverloaded,
    /// The same of a turn that did not come in time.
    PairParkTimeout,
    /// The request carries a handshake between prefill and decode, which is the gateway's to make.
    HandshakeCarried,
    /// No endpoint could take one half of a pair, and none takes whole requests.
    PairUnavailable,
    /// The prefill endpoint did not answer in time.
    PrefillTimeout,
    /// The decode endpoint of a pair did not begin to answer in time.
    DecodeTimeout,
    /// The prefill endpoint failed while its decode endpoint worked on the same request.
    PrefillFailed,
    /// The decode endpoint of a pair closed the connection before it answered.
    DecodeDied,
    /// An encoder of a request's media did not answer in time.
    EncodeTimeout,
}

/// What a client is told of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// The machine-readable code; where the gateway of the seeds had one, the same word.
    pub code: &'static str,
    /// `type` of the OpenAI error object.
    pub kind: &'static str,
    /// One sentence for people.
    pub message: &'static str,
    /// Seconds for `Retry-After`, 0 for none.
    pub retry_after: u8,
    /// Whose fault.
    pub blame: Blame,
}

impl Fault {
    /// Whether the capacity gate said so.
    pub const fn is_admission(self) -> bool {
        matches!(
            self,
            Fault::AdmissionCapacity
                | Fault::AdmissionTenantShare
                | Fault::AdmissionNoCapacity
                | Fault::AdmissionQueueTimeout
                | Fault::AdmissionDrained
                | Fault::GatewayDraining
                | Fault::PairsOverloaded
                | Fault::PairParkTimeout
        )
    }

    /// The one mapping.
    pub fn refusal(self) -> Refusal {
        use Blame::{Client, Engine, Gateway};
        let (status, code, message, retry_after, blame) = match self {
            Fault::Malformed(rule) => (rule.status(), "bad_request", rule.cause(), 0, Client),
            Fault::BadJson => (400, "invalid_json", "the body is not valid JSON", 0, Client),
            Fault::HeadTimeout => (408, "head_timeout", "the request head did not arrive in time", 0, Client),
            Fault::BodyTimeout => (408, "body_timeout", "the request body did not arrive in time", 0, Client),
            Fault::BodyTooLarge => {
                (413, "body_too_large", "the request body is larger than this gateway accepts", 0, Client)
            }
            Fault::MemoryPressure => {
                (503, "memory_pressure", "no memory was free for the request body in time", 1, Gateway)
            }
            Fault::NoRules => (503, "no_rules", "no rule is in force at this address", 0, Gateway),
            Fault::NoRoute => (503, "no_route", "no rule fits this host and path", 0, Gateway),
            Fault::ModelUnavailable => (503, "model_unavailable", "no pool serves this model", 0, Client),
            Fault::NoHealthyBackend => {
                (503, "no_healthy_backend", "no endpoint of this pool is available", 1, Engine)
            }
            Fault::BackendUnreachable => {
                (502, "backend_unreachable", "no endpoint of this pool could be connected to", 0, Engine)
            }
            Fault::BackendDied => {
                (502, "backend_died", "the endpoint closed the connection before it answered", 0, Engine)
            }
            Fault::BadAnswer => {
                (502, "bad_answer", "the endpoint's answer is not acceptable HTTP", 0, Engine)
            }
            Fault::FirstByteTimeout => {
                (504, "first_byte_timeout", "the endpoint did not begin to answer in time", 0, Engine)
            }
            Fault::StreamTimeout => {
                (504, "stream_timeout", "the endpoint stopped sending within its answer", 0, Engine)
            }
            Fault::StreamDied => {
                (502, "stream_died", "the endpoint closed the connection within its answer", 0, Engine)
            }
            Fault::StreamTooLong => (
                504,
                "max_stream_duration_exceeded",
                "the answer took longer than the rule allows",
                0,
                Gateway,
            ),
            _ if self.is_admission() => self.of_admission(),
            _ => self.of_pair(),
        };
        let kind = match (status, blame) {
            (429, _) => "rate_limit_error",
            (400..=499, _) => "invalid_request_error",
            (_, Client) => "invalid_request_error",
            _ => "server_error",
        };
        Refusal { status, code, kind, message, retry_after, blame }
    }

    /// Those of the capacity gate.
    const fn of_admission(self) -> (u16, &'static str, &'static str, u8, Blame) {
        use Blame::{Client, Gateway};
        match self {
            Fault::AdmissionCapacity => (
                429,
                "admission_capacity",
                "this service has as many requests as it may, and no place to wait",
                1,
                Client,
            ),
            Fault::AdmissionTenantShare => (
                429,
                "admission_tenant_share",
                "you have as many requests under way as your share of this service allows",
                1,
                Client,
            ),
            Fault::AdmissionNoCapacity => {
                (503, "admission_no_capacity", "every endpoint has as many requests as it may", 1, Gateway)
            }
            Fault::AdmissionQueueTimeout => {
                (504, "admission_queue_timeout", "its turn did not come in time", 1, Gateway)
            }
            Fault::PairsOverloaded => {
                (429, "pd_overloaded", "the prefill endpoints have as many requests as they may", 1, Client)
            }
            Fault::PairParkTimeout => {
                (504, "pd_admission_park_timeout", "no prefill endpoint became free in time", 1, Gateway)
            }
            Fault::GatewayDraining => (
                503,
                "gateway_draining",
                "the gateway is in maintenance and takes no new requests",
                5,
                Gateway,
            ),
            _ => {
                (503, "admission_drained", "the service was taken back while the request waited", 1, Gateway)
            }
        }
    }

    /// The part of [`Fault::refusal`] that is about pairs of prefill and decode.
    const fn of_pair(self) -> (u16, &'static str, &'static str, u8, Blame) {
        use Blame::{Client, Engine};
        match self {
            Fault::HandshakeCarried => (
                400,
                "pd_handshake_carried",
                "kv_transfer_params, ec_transfer_params, disaggregated_params and bootstrap_ members are the gateway's to set where \
                 prefill and decode are separate; leave them out",
                0,
                Client,
            ),
            Fault::PrefillTimeout => {
                (504, "pd_prefill_timeout", "the prefill endpoint did not answer in time", 0, Engine)
            }
            Fault::DecodeTimeout => {
                (504, "pd_decode_timeout", "the decode endpoint did not begin to answer in time", 0, Engine)
            }
            Fault::EncodeTimeout => {
                (504, "pd_encode_timeout", "an encoder did not answer in time", 0, Engine)
            }
            Fault::PrefillFailed => {
                (502, "pd_sg_prefill_failed", "the prefill endpoint failed, and decode with it", 0, Engine)
            }
            Fault::DecodeDied => (
                502,
                "pd_decode_backend_died",
                "the decode endpoint closed the connection before it answered",
                0,
                Engine,
            ),
            _ => (
                503,
                "pd_pool_unavailable",
                "no endpoint for prefill, decode or encode could take the request, and none takes whole requests",
                1,
                Engine,
            ),
        }
    }
}

impl Refusal {
    /// The error object of the OpenAI API, appended to `out`, with `details` beside it.
    pub fn write_json(&self, details: &[(&str, serde_json::Value)], out: &mut Vec<u8>) {
        let mut error = serde_json::Map::new();
        error.insert("message".into(), self.message.into());
        error.insert("type".into(), self.kind.into());
        error.insert("param".into(), serde_json::Value::Null);
        error.insert("code".into(), self.code.into());
        let mut body = serde_json::Map::new();
        body.insert("error".into(), error.into());
        for (name, value) in details {
            body.insert((*name).into(), value.clone());
        }
        out.extend_from_slice(serde_json::Value::Object(body).to_string().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::collections::HashMap;

    /// Every fault with the status and code that clients and scripts rely on.
    const EXPECTED: [(Fault, u16, &str); 32] = [
        (Fault::Malformed(Malformed::HostTwice), 400, "bad_request"),
        (Fault::BadJson, 400, "invalid_json"),
        (Fault::HeadTimeout, 408, "head_timeout"),
        (Fault::BodyTimeout, 408, "body_timeout"),
        (Fault::BodyTooLarge, 413, "body_too_large"),
        (Fault::MemoryPressure, 503, "memory_pressure"),
        (Fault::NoRules, 503, "no_rules"),
        (Fault::NoRoute, 503, "no_route"),
        (Fault::ModelUnavailable, 503, "model_unavailable"),
        (Fault::NoHealthyBackend, 503, "no_healthy_backend"),
        (Fault::BackendUnreachable, 502, "backend_unreachable"),
        (Fault::BackendDied, 502, "backend_died"),
        (Fault::BadAnswer, 502, "bad_answer"),
        (Fault::FirstByteTimeout, 504, "first_byte_timeout"),
        (Fault::StreamTimeout, 504, "stream_timeout"),
        (Fault::StreamDied, 502, "stream_died"),
        (Fault::StreamTooLong, 504, "max_stream_duration_exceeded"),
        (Fault::AdmissionCapacity, 429, "admission_capacity"),
        (Fault::AdmissionTenantShare, 429, "admission_tenant_share"),
        (Fault::AdmissionNoCapacity, 503, "admission_no_capacity"),
        (Fault::AdmissionQueueTimeout, 504, "admission_queue_timeout"),
        (Fault::AdmissionDrained, 503, "admission_drained"),
        (Fault::PairUnavailable, 503, "pd_pool_unavailable"),
        (Fault::PrefillTimeout, 504, "pd_prefill_timeout"),
        (Fault::DecodeTimeout, 504, "pd_decode_timeout"),
        (Fault::PrefillFailed, 502, "pd_sg_prefill_failed"),
        (Fault::DecodeDied, 502, "pd_decode_backend_died"),
        (Fault::HandshakeCarried, 400, "pd_handshake_carried"),
        (Fault::PairsOverloaded, 429, "pd_overloaded"),
        (Fault::PairParkTimeout, 504, "pd_admission_park_timeout"),
        (Fault::EncodeTimeout, 504, "pd_encode_timeout"),
        (Fault::GatewayDraining, 503, "gateway_draining"),
    ];

    /// Breaks the build when a fault is added without a row above.
    fn row(fault: Fault) -> usize {
        match fault {
            Fault::Malformed { .. } => 0,
            Fault::BadJson => 1,
            Fault::HeadTimeout => 2,
            Fault::BodyTimeout => 3,
            Fault::BodyTooLarge => 4,
            Fault::MemoryPressure => 5,
            Fault::NoRules => 6,
            Fault::NoRoute => 7,
            Fault::ModelUnavailable => 8,
            Fault::NoHealthyBackend => 9,
            Fault::BackendUnreachable => 10,
            Fault::BackendDied => 11,
            Fault::BadAnswer => 12,
            Fault::FirstByteTimeout => 13,
            Fault::StreamTimeout => 14,
            Fault::StreamDied => 15,
            Fault::StreamTooLong => 16,
            Fault::AdmissionCapacity => 17,
            Fault::AdmissionTenantShare => 18,
            Fault::AdmissionNoCapacity => 19,
            Fault::AdmissionQueueTimeout => 20,
            Fault::AdmissionDrained => 21,
            Fault::PairUnavailable => 22,
            Fault::PrefillTimeout => 23,
            Fault::DecodeTimeout => 24,
            Fault::PrefillFailed => 25,
            Fault::DecodeDied => 26,
            Fault::HandshakeCarried => 27,
            Fault::PairsOverloaded => 28,
            Fault::PairParkTimeout => 29,
            Fault::EncodeTimeout => 30,
            Fault::GatewayDraining => 31,
        }
    }

    #[test]
    fn every_fault_has_its_status_and_its_own_code() {
        let mut codes = HashMap::new();
        for (i, (fault, status, code)) in EXPECTED.into_iter().enumerate() {
            assert_eq!(row(fault), i);
            let refusal = fault.refusal();
            assert_eq!((refusal.status, refusal.code), (status, code));
            assert_eq!(codes.insert(code, fault), None, "{code} twice");
            assert!(!refusal.message.is_empty() && !refusal.message.ends_with('.'));
        }
    }

    #[test]
    fn blame_kind_and_retry_agree_with_the_status() {
        for (fault, ..) in EXPECTED {
            let refusal = fault.refusal();
            match refusal.status {
                429 => assert_eq!((refusal.blame, refusal.kind), (Blame::Client, "rate_limit_error")),
                400..=499 => {
                    assert_eq!((refusal.blame, refusal.kind), (Blame::Client, "invalid_request_error"))
                }
                502 | 504 if refusal.blame != Blame::Gateway => {
                    assert_eq!((refusal.blame, refusal.kind), (Blame::Engine, "server_error"));
                }
                status => assert!((500..=599).contains(&status), "{status}"),
            }
            assert!(
                refusal.retry_after == 0 || matches!(refusal.status, 429 | 503 | 504),
                "{}",
                refusal.code
            );
            assert!(refusal.blame == Blame::Client || refusal.kind == "server_error");
        }
        for rule in Malformed::ALL {
            let refusal = Fault::Malformed(*rule).refusal();
            assert_eq!((refusal.status, refusal.message), (rule.status(), rule.cause()));
            assert_eq!(refusal.blame, Blame::Client);
        }
    }

    #[test]
    fn the_body_is_an_openai_error_object() {
        for (fault, ..) in EXPECTED {
            let refusal = fault.refusal();
            let mut out = b"before".to_vec();
            refusal.write_json(&[], &mut out);
            let body: Value = serde_json::from_slice(&out[6..]).unwrap();
            let error = json!({
                "message": refusal.message, "type": refusal.kind, "param": null, "code": refusal.code
            });
            assert_eq!(body, json!({"error": error}));
        }
    }

    #[test]
    fn a_model_is_quoted_whatever_it_holds() {
        for model in ["Qwen/Qwen3-0.6B", "", "a\"b\\c\n\u{1f600}\u{7}"] {
            let mut out = Vec::new();
            Fault::ModelUnavailable.refusal().write_json(&[("model", model.into())], &mut out);
            let body: Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(
                (&body["model"], &body["error"]["code"]),
                (&json!(model), &json!("model_unavailable"))
            );
        }
    }
}
