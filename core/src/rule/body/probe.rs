//! The active probe of a rule, from members of the rule and of its endpoints. Owns their defaults and the
//! grammar of `expectedCodes`.

use super::body_fault::{BodyFault, Class};
use super::given::Given;
use crate::SECOND;
use crate::rule::{Probe, ProbeKind};

/// Seconds for one probe and between two where `probeTimeout` is 0.
const TIMEOUT_DEFAULT: u64 = 5;

/// Failed probes in a row where `probeRetries` is 0.
const RETRIES_DEFAULT: u32 = 2;

/// The probe that the body asks for; all its members are checked also where monitoring is off.
pub(super) fn probe(service: &Given, endpoints: &[Given]) -> Result<Option<Probe>, BodyFault> {
    let http = service.text("probetype") == "http";
    for member in ["probereq", "proberesp"] {
        if !http && !service.text(member).is_empty() {
            let problem = "only HTTP probes have it";
            return Err(service.fault(
                Class::Conflict,
                member,
                problem,
                "use probetype \"http\" or leave it out",
            ));
        }
    }
    for endpoint in endpoints {
        check_monitored_address(endpoint)?;
    }
    let path = probe_path(service, endpoints)?;
    let codes = expected_codes(endpoints)?;
    let kind = match service.text("probetype") {
        _ if !service.flag("monitor") => return Ok(None),
        "none" => return Ok(None),
        "http" => ProbeKind::Http { path, codes, contains: service.text("proberesp").to_string() },
        _ => ProbeKind::Tcp,
    };
    let seconds = match service.int("probeTimeout") {
        0 => TIMEOUT_DEFAULT,
        n => n.unsigned_abs(),
    };
    let retries = match service.int("probeRetries") {
        0 => RETRIES_DEFAULT,
        n => n as u32,
    };
    let port = service.int("probeport") as u16;
    Ok(Some(Probe { kind, port, timeout: seconds * SECOND, retries }))
}

fn check_monitored_address(endpoint: &Given) -> Result<(), BodyFault> {
    let monitored = endpoint.text("monitorAddress");
    if monitored.is_empty() || monitored == endpoint.text("endpointIP") {
        return Ok(());
    }
    let problem = "probing another address than endpointIP is not yet available in this build";
    Err(endpoint.fault(Class::NotYetAvailable, "monitorAddress", problem, "leave it out"))
}

fn probe_path(service: &Given, endpoints: &[Given]) -> Result<String, BodyFault> {
    let own = service.text("probereq");
    let mut path = own;
    check_path(service, "probereq")?;
    for endpoint in endpoints {
        check_path(endpoint, "urlPath")?;
        let theirs = endpoint.text("urlPath");
        if !theirs.is_empty() && !path.is_empty() && path != theirs {
            let problem = "the endpoints of a rule share one probe path";
            return Err(endpoint.fault(
                Class::Conflict,
                "urlPath",
                problem,
                format!("use {path:?} or leave it out"),
            ));
        }
        if path.is_empty() {
            path = theirs;
        }
    }
    Ok(if path.is_empty() { "/".to_string() } else { path.to_string() })
}

fn check_path(given: &Given, member: &str) -> Result<(), BodyFault> {
    let path = given.text(member);
    if path.is_empty() || (path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic() && b != b'#')) {
        return Ok(());
    }
    Err(given.fault(Class::OutOfRange, member, "not a path", "use a path from \"/\", percent-encoded"))
}

fn expected_codes(endpoints: &[Given]) -> Result<Vec<(u16, u16)>, BodyFault> {
    let mut shared: Option<&str> = None;
    let mut codes = vec![(200, 200)];
    for endpoint in endpoints {
        let text = match endpoint.text("expectedCodes") {
            "" => "200",
            text => text,
        };
        codes = parse_codes(text).ok_or_else(|| {
            let cure = "use statuses from 100 to 599 such as \"200\", \"200,202\" or \"200-204\"";
            endpoint.fault(Class::OutOfRange, "expectedCodes", "no list of statuses", cure)
        })?;
        if let Some(first) = shared.filter(|first| *first != text) {
            let problem = "the endpoints of a rule share their expected codes";
            let cure = format!("use {first:?} for all");
            return Err(endpoint.fault(Class::Conflict, "expectedCodes", problem, cure));
        }
        shared = Some(text);
    }
    Ok(codes)
}

/// `200`, `200,202`, `200-204` and their mixtures as inclusive ranges; `None` for anything else.
fn parse_codes(text: &str) -> Option<Vec<(u16, u16)>> {
    let code = |text: &str| {
        let text = text.trim_matches(' ');
        let digits = text.len() == 3 && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u16>().ok().filter(|c| digits && (100..=599).contains(c))
    };
    let range = |part: &str| match part.split_once('-') {
        Some((from, to)) => Some((code(from)?, code(to)?)).filter(|(from, to)| from <= to),
        None => code(part).map(|c| (c, c)),
    };
    text.split(',').map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_expected_codes() {
        assert_eq!(parse_codes("200"), Some(vec![(200, 200)]));
        assert_eq!(parse_codes("200,202"), Some(vec![(200, 200), (202, 202)]));
        assert_eq!(parse_codes("200-204, 301"), Some(vec![(200, 204), (301, 301)]));
        for wrong in
            ["", "20", "2000", "200-", "-200", "204-200", "200,", "200;202", "099", "600", "+20", "abc"]
        {
            assert_eq!(parse_codes(wrong), None, "{wrong}");
        }
    }
}
