//! From checked members to the typed rule. Owns what values mean together; units become nanoseconds here.

use super::body_fault::{BodyFault, Class};
use super::exact;
use super::given::Given;
use crate::breaker::BreakerTerms;
use crate::environment::Environment;
use crate::rule::{
    BOOTSTRAP_PORT, CacheAware, Chwbl, Deadlines, Disaggregation, Endpoint, ExplainHeader, GateTerms,
    HalfClose, PairConnector, PathMatch, Role, Rule, RuleKey, Selector,
};
use crate::session::{SessionSource, SessionTerms, TTL_DEFAULT};
use crate::{MILLISECOND, Nanos, SECOND};
use std::net::{Ipv6Addr, SocketAddr};

/// The rule of a body whose values are all served, without exact routing and gate.
pub(super) fn rule(
    service: &Given,
    endpoints: &[Given],
    environment: &Environment,
    fresh_id: impl FnOnce() -> String,
) -> Result<Rule, BodyFault> {
    let key = key(service)?;
    let specs = endpoint_specs(endpoints)?;
    let probe = super::probe::probe(service, endpoints)?;
    Ok(Rule {
        key,
        id: id(service, fresh_id)?,
        name: service.text("name").to_string(),
        selector: selector(service),
        endpoints: specs,
        deadlines: deadlines(service),
        probe,
        sse_mode: service.flag("sse_mode"),
        retry_before_first_byte: service.int("retry_before_first_byte") as u8,
        half_close: match service.text("half_close") {
            "serve" => HalfClose::Serve,
            _ => HalfClose::Leave,
        },
        exact: None,
        gate: GateTerms::default(),
        engine: exact::engine(service),
        disaggregation: disaggregation(service),
        breaker: breaker(service, environment),
        session: session(service)?,
        cache_aware: cache_aware(service),
        explain: match service.text("explain_header") {
            "id" => ExplainHeader::Id,
            "full" => ExplainHeader::Full,
            _ => ExplainHeader::Off,
        },
        enabled: service.flag("adminStateUp"),
    })
}

pub(super) fn key(service: &Given) -> Result<RuleKey, BodyFault> {
    let port = service.int("port");
    if !matches!(service.int("portMax"), 0) && service.int("portMax") != port {
        let problem = "port ranges are not in this build";
        return Err(service.fault(Class::NotInThisBuild, "portMax", problem, "use the value of port"));
    }
    let address = service.address("externalIP")?;
    if address.is_multicast() {
        return Err(service.fault(
            Class::OutOfRange,
            "externalIP",
            "a multicast address",
            "use a host's address",
        ));
    }
    let (path, path_match) = path(service)?;
    Ok(RuleKey {
        vip: SocketAddr::new(address, port as u16),
        host: host(service)?,
        path,
        path_match,
        model: service.text("model_name").to_string(),
    })
}

/// The host in the form that requests are compared with: lower case, IPv6 in brackets, no final dot.
fn host(service: &Given) -> Result<String, BodyFault> {
    let given = service.text("host");
    let bare = given.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(given);
    if let Ok(address) = bare.parse::<Ipv6Addr>() {
        return Ok(format!("[{address}]"));
    }
    let name = given.strip_suffix('.').unwrap_or(given);
    let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    match name.bytes().all(known) && (given.is_empty() || !name.is_empty()) {
        true => Ok(name.to_ascii_lowercase()),
        false => Err(service.fault(
            Class::OutOfRange,
            "host",
            "not a plain host name",
            "use a name or address without port, scheme or wildcard",
        )),
    }
}

/// The path and how it is compared. A final slash of a prefix means nothing and is dropped, so that equal
/// prefixes are equal keys.
fn path(service: &Given) -> Result<(String, PathMatch), BodyFault> {
    let path = service.text("path_prefix");
    let how = match (service.text("path_match_mode"), path.is_empty()) {
        ("" | "disabled", true) => return Ok((String::new(), PathMatch::Disabled)),
        ("disabled", false) => {
            let problem = "path_prefix is given but would not be compared";
            let cure = "use \"prefix\" or \"exact\", or leave path_prefix out";
            return Err(service.fault(Class::Conflict, "path_match_mode", problem, cure));
        }
        (_, true) => {
            let cure = "add path_prefix, for example \"/v1\"";
            return Err(service.fault(Class::Conflict, "path_match_mode", "path_prefix is missing", cure));
        }
        ("exact", false) => PathMatch::Exact,
        (_, false) => PathMatch::Prefix,
    };
    let plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b'?' | b'#');
    if !path.starts_with('/') || !path.bytes().all(plain) {
        let cure = "use a path from \"/\", percent-encoded, without query";
        return Err(service.fault(Class::OutOfRange, "path_prefix", "not a plain path", cure));
    }
    let kept = match how {
        PathMatch::Prefix if path.len() > 1 => path.strip_suffix('/').unwrap_or(path),
        _ => path,
    };
    Ok((kept.to_string(), how))
}

fn id(service: &Given, fresh_id: impl FnOnce() -> String) -> Result<String, BodyFault> {
    let id = service.text("id");
    if id.is_empty() {
        return Ok(fresh_id());
    }
    match id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        true => Ok(id.to_string()),
        false => {
            let cure = "use letters, digits, '-', '_' and '.', since it stands in URLs";
            Err(service.fault(Class::OutOfRange, "id", "it holds other characters", cure))
        }
    }
}

fn selector(service: &Given) -> Selector {
    match service.int("sel") {
        1 => Selector::ClientHash,
        2 => Selector::Weighted,
        3 => Selector::Persist,
        4 => Selector::LeastConnections,
        8 => Selector::Chwbl(chwbl(service)),
        9 => Selector::GpuAware,
        10 => Selector::WeightedHash(chwbl(service)),
        _ => Selector::RoundRobin,
    }
}

fn chwbl(service: &Given) -> Chwbl {
    let cache_salt = service.flag("chwbl_enable_cache_salt");
    let salt_bit = if cache_salt { 8 } else { 0 };
    Chwbl {
        level: service.int("chwbl_prefix_hash_level") as u8,
        flags: service.int("chwbl_prefix_hash_flags") as u8 | salt_bit,
        load_factor: service.int("chwbl_mean_load_factor") as u16,
        replication: service.int("chwbl_replication") as u16,
        cache_salt,
    }
}

/// Sessions are kept where the rule asks for them by selector 3, by a name, or by having pairs. (Selectors that hash have
/// the key all the same: a hash needs no memory.)
fn session(service: &Given) -> Result<Option<SessionTerms>, BodyFault> {
    let name = service.text("session_header_name");
    let source = match (name.is_empty(), service.int("sel")) {
        (false, _) => SessionSource::parse(name).map_err(|problem| {
            let cure = "use a header's whole name, cookie:NAME, query:NAME or basic-auth";
            service.fault(Class::OutOfRange, "session_header_name", problem, cure)
        })?,
        (true, 3) => SessionSource::ClientAddress,
        (true, 8..=10) => SessionSource::Conversation,
        (true, _) if service.flag("pd_disagg_mode") => SessionSource::Conversation,
        (true, _) => return Ok(None),
    };
    let ttl = match service.int("pd_session_ttl_sec") {
        0 => TTL_DEFAULT,
        seconds => seconds.unsigned_abs() * SECOND,
    };
    Ok(Some(SessionTerms { source, ttl }))
}

/// 0 stands for the default, as in the loxilb AI gateway.
fn cache_aware(service: &Given) -> Option<CacheAware> {
    let or = |value: i64, default: i64| if value == 0 { default } else { value };
    service.flag("pd_cache_aware_mode").then(|| CacheAware {
        threshold: or(service.int("pd_cache_threshold"), 20) as u8,
        balance: or(service.int("pd_balance_abs_threshold"), 3) as u32,
    })
}

/// Prefill and decode endpoints have one whatever `cb_enable` says: half of a pair is no use.
fn breaker(service: &Given, environment: &Environment) -> Option<BreakerTerms> {
    match (service.flag("pd_disagg_mode"), service.flag("cb_enable")) {
        (true, _) => Some(BreakerTerms::pair(environment.origin_errors)),
        (false, true) => Some(BreakerTerms::plain(environment.origin_errors)),
        (false, false) => None,
    }
}

fn deadlines(service: &Given) -> Deadlines {
    let default = Deadlines::default();
    let or = |value: i64, unit: Nanos, default: Nanos| match value {
        0 => default,
        n => n.unsigned_abs() * unit,
    };
    let stream = or(service.int("max_stream_duration_sec"), SECOND, default.stream);
    let idle = or(service.int("inactiveTimeOut"), SECOND, default.between_bytes);
    let between_bytes = or(service.int("timeoutMemberData"), MILLISECOND, idle);
    let lifted = service.flag("sse_mode") && service.int("timeoutMemberData") == 0;
    Deadlines {
        connect: or(service.int("timeoutMemberConnect"), MILLISECOND, default.connect),
        first_byte: or(service.int("first_byte_timeout_ms"), MILLISECOND, default.first_byte),
        between_bytes,
        between_events: if lifted { stream } else { between_bytes },
        stream,
    }
}

fn disaggregation(service: &Given) -> Option<Disaggregation> {
    let bootstrap_port = match service.int("pdBootstrapPort") {
        0 => BOOTSTRAP_PORT,
        port => port as u16,
    };
    let connector = match service.text("pd_connector") {
        "mooncake" => PairConnector::Mooncake,
        _ => PairConnector::Nixl,
    };
    service.flag("pd_disagg_mode").then_some(Disaggregation { bootstrap_port, connector })
}

pub(super) fn endpoint_specs(endpoints: &[Given]) -> Result<Vec<Endpoint>, BodyFault> {
    let mut specs: Vec<Endpoint> = Vec::with_capacity(endpoints.len());
    for given in endpoints {
        let ip = given.address("endpointIP")?;
        if ip.is_unspecified() || ip.is_multicast() {
            let cure = "use the address of one host";
            return Err(given.fault(
                Class::OutOfRange,
                "endpointIP",
                "nothing can be connected to there",
                cure,
            ));
        }
        let address = SocketAddr::new(ip, given.int("targetPort") as u16);
        if let Some(first) = specs.iter().position(|e| e.address == address) {
            let problem = format!("{address} is endpoints[{first}] already");
            return Err(given.fault(Class::Duplicate, "endpointIP", &problem, "name each endpoint once"));
        }
        specs.push(Endpoint {
            address,
            weight: given.int("weight") as u32,
            backup: given.flag("backup"),
            role: Role::from_number(given.int("ep_role")),
            side_port: match given.int("nixl_port") {
                0 => address.port(),
                port => port as u16,
            },
            engine_id: given.text("kv_engine_id").into(),
        });
    }
    Ok(specs)
}
