//! The receipt that an answer's head carries, where the rule asks for it. Owns its spelling; must never tell a
//! client what the rule keeps to itself.

use crate::exchange::Exchange;
use std::io::Write;
use warmpath_core::decide::exact::Outcome;
use warmpath_core::rule::ExplainHeader;

/// Whether the answer of this request carries a receipt.
pub fn is_asked(exchange: &Exchange) -> bool {
    asked(exchange) != ExplainHeader::Off
}

fn asked(exchange: &Exchange) -> ExplainHeader {
    exchange.route.service.as_ref().map_or(ExplainHeader::Off, |service| service.service.rule.explain)
}

/// Writes the line, with its end, if it is asked for.
pub fn write_receipt(exchange: &Exchange, out: &mut Vec<u8>) {
    let asked = asked(exchange);
    if asked == ExplainHeader::Off {
        return;
    }
    out.extend_from_slice(b"X-Warmpath-Receipt: id=");
    let plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b',';
    out.extend(exchange.facts.id.bytes().iter().filter(|byte| plain(byte)));
    if asked == ExplainHeader::Full {
        write_where(exchange, out);
        write_why(exchange, out);
    }
    out.extend_from_slice(b"\r\n");
}

fn write_where(exchange: &Exchange, out: &mut Vec<u8>) {
    let route = &exchange.route;
    let Some(service) = &route.service else { return };
    if let Some(endpoint) = service.service.endpoints.get(route.endpoint) {
        // A vector takes all that is written to it.
        let _ = write!(out, ", endpoint={}", endpoint.address());
    }
    if let Some(prefill) = exchange.pair.as_ref().and_then(|pair| pair.prefill()) {
        let _ = write!(out, ", prefill={prefill}");
    }
    if let Some(rank) = route.rank.as_ref().and_then(|rank| rank.rank()) {
        let _ = write!(out, ", rank={rank}");
    }
}

fn write_why(exchange: &Exchange, out: &mut Vec<u8>) {
    let route = &exchange.route;
    let Some(reason) = route.reason else { return };
    let _ = write!(out, ", tier={}", reason.tier());
    match route.explained {
        Some(explained) if matches!(explained.outcome, Outcome::Chosen { .. }) => {
            let overlap = explained.shown().first().map_or(0, |chosen| chosen.runs[0]);
            let predicted = route.predicted_tokens;
            let _ = write!(out, ", overlap_blocks={overlap}, predicted_tokens={predicted}");
        }
        Some(explained) => {
            if let Outcome::Missed(miss) = explained.outcome {
                let _ = write!(out, ", missed={}", miss.word());
            }
        }
        None => {}
    }
    let _ = write!(out, ", reason={}", reason.word());
}
