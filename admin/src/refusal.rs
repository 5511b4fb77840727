//! Why a change or a question is refused, typed. Owns the mapping from reason to status, machine-readable
//! code and sentence; must never be replaced by a bare string on the way to the client.

use crate::rules::Fixed;
use serde_json::{Map, Value, json};
use std::fmt;
use std::net::SocketAddr;
use warmpath_core::control::InstallFault;
use warmpath_core::profile::admission::AdmissionFault;
use warmpath_core::receipt::KEPT;
use warmpath_core::rule::body::BodyFault;

/// A reason for refusing.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// The request's body is no JSON; serde_json's words, which name line and column.
    NotJson(String),
    /// A rule body breaks the rules for rule bodies. `index` counts from 0 within a list of bodies.
    Body {
        /// Position in the list, `None` for a single body.
        index: Option<usize>,
        /// What is wrong.
        fault: Box<BodyFault>,
    },
    /// A rule can't be bound to the profile that it names. `index` as in `Body`.
    Profile {
        /// Position in the list, `None` for a single body.
        index: Option<usize>,
        /// Why.
        fault: Box<AdmissionFault>,
    },
    /// Two bodies of a list describe the same rule; positions from 0.
    Twice {
        /// The first of the two.
        first: usize,
        /// The second.
        index: usize,
    },
    /// The same rule with the same content is in force.
    Exists,
    /// Another rule has this id.
    IdTaken(String),
    /// A replacement changes what can't be changed while the rule exists.
    Fixed {
        /// What is fixed.
        fixed: &'static Fixed,
        /// The rule's id.
        id: String,
        /// Its address.
        vip: SocketAddr,
        /// What it is.
        was: String,
        /// What was asked for.
        asked: String,
    },
    /// A merge patch names a member that only a replacement can change.
    NotPatchable {
        /// Its path.
        member: String,
    },
    /// A rule has none of these endpoints, so none can be taken away.
    NotAttached {
        /// The rule's address.
        vip: SocketAddr,
        /// The endpoint.
        endpoint: SocketAddr,
    },
    /// No such host is probed.
    NoHost(String),
    /// No profile of this id is published.
    NoProfile(String),
    /// Metrics are switched off.
    MetricsOff,
    /// No rule is selected by the words given.
    NoRule(String),
    /// Several rules are selected where one was meant; what to add to the request.
    Ambiguous(String),
    /// An argument in the path or query has no meaning.
    Argument {
        /// Its name.
        name: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// An argument that the query needs is not there.
    Missing {
        /// Its name.
        name: &'static str,
        /// What it says.
        allowed: &'static str,
    },
    /// No service has this number.
    NoService(u32),
    /// The service's rule does not ask for exact routing.
    NotExact(u32),
    /// The service has no endpoint of this index.
    NoEndpoint {
        /// The service's number.
        service: u32,
        /// The index asked for.
        index: u32,
        /// Endpoints it has.
        count: usize,
    },
    /// No shard keeps the receipt of a request with this id.
    NoReceipt(String),
    /// The event core gave no answer, or does not know a source yet.
    KvSilent,
    /// The events of this endpoint are published, not drained.
    NotDrained(SocketAddr),
    /// The change can't be made durable.
    Disk {
        /// Whether the disk is full or over quota.
        full: bool,
        /// Path and cause.
        cause: String,
    },
    /// A listener could not be opened.
    Install(InstallFault),
    /// The gateway is going down.
    Draining,
    /// The gateway is in maintenance.
    Maintenance,
    /// A member of a body has no meaning.
    UnknownMember {
        /// Its name.
        name: String,
        /// Those that have one.
        known: String,
    },
    /// No rule names an endpoint there.
    NoEndpointAt(String),
    /// No such path.
    NoPath(String),
    /// The path exists, not with this method.
    WrongMethod {
        /// Methods of this path, as `Allow` lists them.
        allowed: String,
    },
    /// A request without a token that is let in.
    NoToken,
    /// A request that a browser sent on behalf of a page, or for a name that is not this machine.
    Foreign(&'static str),
    /// The request's body is over so many bytes.
    TooLarge(usize),
    /// A document is no snapshot that can be restored.
    NoSnapshot(String),
    /// The history of a rule has no change of this number.
    NoChange {
        /// The rule's id.
        id: String,
        /// The number.
        number: u64,
    },
    /// The request's body did not come whole in time.
    Incomplete,
}

impl Refusal {
    /// A single rule body is refused.
    pub fn body(fault: BodyFault) -> Refusal {
        Refusal::Body { index: None, fault: Box::new(fault) }
    }

    /// A file operation failed.
    pub fn disk(path: &std::path::Path, error: &std::io::Error) -> Refusal {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let full = matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge);
        Refusal::Disk { full, cause: format!("{}: {error}", path.display()) }
    }

    /// For a list of bodies: the position of the refused one and the path of its refused member.
    pub fn place(&self) -> Option<(usize, &str)> {
        match self {
            Refusal::Body { index: Some(index), fault } => Some((*index, &fault.member)),
            Refusal::Profile { index: Some(index), fault } => Some((*index, fault.member())),
            Refusal::Twice { index, .. } => Some((*index, "serviceArguments")),
            _ => None,
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Refusal::Body { fault, .. } => fault.status,
            Refusal::Profile { fault, .. } => fault.status(),
            Refusal::NotJson(_) | Refusal::Argument { .. } | Refusal::Missing { .. } => 400,
            Refusal::UnknownMember { .. } => 400,
            Refusal::NoSnapshot(_)
            | Refusal::NotPatchable { .. }
            | Refusal::Twice { .. }
            | Refusal::Incomplete => 400,
            Refusal::NoToken => 401,
            Refusal::Foreign(_) => 403,
            Refusal::NoRule(_) | Refusal::NoPath(_) => 404,
            Refusal::NoService(_) | Refusal::NotExact(_) | Refusal::NoEndpoint { .. } => 404,
            Refusal::NoChange { .. }
            | Refusal::NoReceipt(_)
            | Refusal::NotAttached { .. }
            | Refusal::NoHost(_)
            | Refusal::NoEndpointAt(_)
            | Refusal::NoProfile(_) => 404,
            Refusal::WrongMethod { .. } => 405,
            Refusal::Exists
            | Refusal::IdTaken(_)
            | Refusal::Fixed { .. }
            | Refusal::Ambiguous(_)
            | Refusal::NotDrained(_)
            | Refusal::Install(_) => 409,
            Refusal::TooLarge(_) => 413,
            Refusal::Draining | Refusal::Maintenance | Refusal::KvSilent | Refusal::MetricsOff => 503,
            Refusal::Disk { .. } => 507,
        }
    }

    /// A word for programs, stable.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::NotJson(_) => "invalid_json",
            Refusal::Body { fault, .. } => fault.code,
            Refusal::Profile { fault, .. } => fault.code(),
            Refusal::Twice { .. } => "rule_twice",
            Refusal::Exists => "rule_exists",
            Refusal::IdTaken(_) => "id_taken",
            Refusal::Fixed { fixed, .. } => fixed.code,
            Refusal::NotPatchable { .. } => "not_patchable",
            Refusal::NotAttached { .. } => "no_such_endpoint",
            Refusal::NoHost(_) => "no_such_host",
            Refusal::NoEndpointAt(_) => "no_such_endpoint",
            Refusal::UnknownMember { .. } => "unknown_member",
            Refusal::NoProfile(_) => "no_such_profile",
            Refusal::MetricsOff => "metrics_off",
            Refusal::NoSnapshot(_) => "no_snapshot",
            Refusal::NoChange { .. } => "no_such_change",
            Refusal::NoRule(_) => "no_such_rule",
            Refusal::Ambiguous(_) => "ambiguous",
            Refusal::Argument { .. } => "bad_argument",
            Refusal::Missing { .. } => "missing_argument",
            Refusal::NoService(_) => "no_such_service",
            Refusal::NotExact(_) => "not_exact",
            Refusal::NoEndpoint { .. } => "no_such_endpoint",
            Refusal::NoReceipt(_) => "no_such_request",
            Refusal::KvSilent => "event_core_silent",
            Refusal::NotDrained(_) => "not_drained",
            Refusal::Disk { full: true, .. } => "disk_full",
            Refusal::Disk { .. } => "disk_unwritable",
            Refusal::Install(_) => "address_unavailable",
            Refusal::Draining => "gateway_draining",
            Refusal::Maintenance => "maintenance",
            Refusal::NoPath(_) => "no_such_path",
            Refusal::WrongMethod { .. } => "wrong_method",
            Refusal::NoToken => "invalid_token",
            Refusal::Foreign(_) => "foreign_request",
            Refusal::TooLarge(_) => "body_too_large",
            Refusal::Incomplete => "body_incomplete",
        }
    }

    /// Members of the error envelope beyond the common ones.
    pub fn details(&self) -> Map<String, Value> {
        let details = match self {
            Refusal::Body { index, fault } => {
                let mut members = json!({
                    "member": fault.member, "value": fault.value, "allowed": fault.allowed,
                });
                if let Some(index) = index {
                    members["rule"] = json!(index);
                }
                members
            }
            Refusal::Fixed { fixed, was, asked, .. } => {
                json!({"member": format!("serviceArguments.{}", fixed.member), "value": asked, "allowed": was})
            }
            Refusal::Profile { index: None, fault } => json!({"member": fault.member()}),
            Refusal::Profile { index: Some(index), fault } => {
                json!({"member": fault.member(), "rule": index})
            }
            Refusal::NotPatchable { member } => json!({"member": member}),
            Refusal::NoChange { number, .. } => json!({"member": "number", "value": number}),
            Refusal::NotAttached { endpoint, .. } => {
                json!({"member": "endpoints", "value": endpoint.to_string()})
            }
            Refusal::Twice { index, .. } => json!({"rule": index, "member": "serviceArguments"}),
            Refusal::UnknownMember { name, known } => json!({"member": name, "allowed": known}),
            Refusal::NoEndpointAt(host) => json!({"member": "hostName", "value": host}),
            Refusal::Argument { name, value, allowed } => {
                json!({"member": name, "value": value, "allowed": allowed})
            }
            Refusal::Missing { name, allowed } => json!({"member": name, "value": null, "allowed": allowed}),
            Refusal::NoService(number) | Refusal::NotExact(number) => {
                json!({"member": "service_id", "value": number})
            }
            Refusal::NoEndpoint { index, .. } => json!({"member": "ep_idx", "value": index}),
            Refusal::NoReceipt(id) => json!({"member": "id", "value": id}),
            Refusal::Install(fault) => json!({"address": fault.vip.to_string()}),
            _ => json!({}),
        };
        match details {
            Value::Object(members) => members,
            _ => Map::new(),
        }
    }
}

/// A word of a body, or that there is none.
fn said(word: &str) -> &str {
    if word.is_empty() { "left open" } else { word }
}

impl Refusal {
    /// The sentences of the control plane: what of a rule is fixed, its history, snapshots, switches, tokens.
    fn say_of_control(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Fixed { fixed, id, vip, was, asked } => write!(
                f,
                "cant modify rule {} (delete and recreate): serviceArguments.{} is {}, the rule {id} at {vip} is for {}",
                fixed.phrase,
                fixed.member,
                said(asked),
                said(was),
            ),
            Refusal::NotPatchable { member } => write!(
                f,
                "invalid argument {member}: a merge patch can't change it; POST the whole rule to replace it"
            ),
            Refusal::NotAttached { vip, endpoint } => {
                write!(f, "no such endpoint: the rule at {vip} has no {endpoint} to take away")
            }
            Refusal::NoProfile(id) => write!(
                f,
                "no such profile: {id:?} is not published; GET /netlox/v1/config/ai/model-profiles lists those that are"
            ),
            Refusal::NoHost(words) => write!(f, "endpoint not-exists error: no such host is probed: {words}"),
            Refusal::NoSnapshot(cause) => {
                write!(f, "invalid snapshot: {cause}; send what GET /netlox/v1/config/snapshot answered")
            }
            Refusal::NoChange { id, number } => {
                write!(f, "no such change: the history of the rule {id} has none of the number {number}")
            }
            Refusal::MetricsOff => {
                write!(f, "metrics are switched off; POST /netlox/v1/config/metrics switches them on")
            }
            Refusal::NoToken => {
                write!(f, "invalid token: send Authorization: Bearer with a token of the file --admin-tokens")
            }
            _ => f.write_str(self.code()),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotJson(cause) => write!(f, "the request body is not valid JSON: {cause}"),
            Refusal::Body { index: None, fault } => write!(f, "{fault}"),
            Refusal::Body { index: Some(index), fault } => write!(f, "rule {}: {fault}", index + 1),
            Refusal::Profile { index: None, fault } => write!(f, "{fault}"),
            Refusal::Profile { index: Some(index), fault } => write!(f, "rule {}: {fault}", index + 1),
            Refusal::Twice { first, index } => write!(
                f,
                "rule {} has the address, host, path and model of rule {}; make them differ or leave one out",
                index + 1,
                first + 1
            ),
            Refusal::Exists => write!(f, "lbrule-exists error: this rule is in force with the same content"),
            Refusal::IdTaken(id) => write!(f, "lbrule-exists error: another rule has the id {id}"),
            Refusal::NoRule(what) => write!(f, "lbrule not-exists error: no such rule: {what}"),
            Refusal::Ambiguous(cure) => write!(f, "several rules are meant by this: {cure}"),
            Refusal::Argument { name, value, allowed } => {
                write!(f, "invalid argument {name}: {value:?} is not {allowed}")
            }
            Refusal::Missing { name, allowed } => {
                write!(f, "the query lacks {name}: add {name}= with {allowed}")
            }
            Refusal::NoService(number) => {
                write!(f, "no service has the number {number}; GET /netlox/v1/config/ai/kv/status lists them")
            }
            Refusal::NotExact(number) => {
                write!(f, "service {number} does not route by blocks; set kvExactMode in its rule")
            }
            Refusal::NoEndpoint { service, index, count } => {
                write!(f, "service {service} has no endpoint {index}; it has {count}, counted from 0")
            }
            Refusal::NoReceipt(id) => write!(
                f,
                "no request with the id {id:?} is known: each shard keeps its last {KEPT}; ask sooner, or leave \
                 the id out to see those there are"
            ),
            Refusal::KvSilent => {
                write!(
                    f,
                    "the event core gave no answer, or does not know this endpoint yet; ask again shortly"
                )
            }
            Refusal::NotDrained(endpoint) => write!(
                f,
                "the events of {endpoint} are published to any number of readers; there is no stream to take over"
            ),
            Refusal::Disk { full: true, cause } => {
                write!(f, "the disk of the state directory is full, nothing was changed: {cause}")
            }
            Refusal::Disk { cause, .. } => {
                write!(f, "the state directory can't be written, nothing was changed: {cause}")
            }
            Refusal::Install(fault) => write!(f, "{}", fault.message),
            Refusal::Draining => write!(f, "the gateway is going down and takes no changes"),
            Refusal::Maintenance => write!(
                f,
                "the gateway is in maintenance and takes no changes; end it with PUT /netlox/v1/maintenance \
                 {{\"enabled\": false}}"
            ),
            Refusal::UnknownMember { name, known } => {
                write!(f, "the member {name} is not known; there are {known}")
            }
            Refusal::NoEndpointAt(host) => {
                write!(f, "endpoint not-exists error: no rule names an endpoint at {host}")
            }
            Refusal::NoPath(path) => write!(f, "no such path: {path}"),
            Refusal::WrongMethod { allowed } => write!(f, "this path is for {allowed} only"),
            Refusal::Foreign(cause) => write!(f, "{cause}"),
            Refusal::TooLarge(most) => write!(f, "the request body is over {} MiB", most >> 20),
            Refusal::Incomplete => write!(f, "the request body did not arrive whole in time"),
            _ => self.say_of_control(f),
        }
    }
}
