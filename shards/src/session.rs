//! Which session a request is of, read out of its head and body. Owns where each form of `session_header_name` is
//! looked for; must never hash or remember (core does).

use crate::exchange::Exchange;
use std::io::Write;
use std::net::SocketAddr;
use warmpath_core::rule::Selector;
use warmpath_core::session::{self, SessionSource};
use warmpath_core::table::Service;
use warmpath_parser::http1::Field;
use warmpath_parser::json::{self, Member, Members};

/// The key of the session of `exchange`, whose body's members are `members` where it was peeked at.
pub fn key(
    service: &Service,
    exchange: &Exchange,
    members: &Members,
    client: SocketAddr,
    scratch: &mut Vec<u8>,
) -> Option<u64> {
    let terms = service.rule.session.as_ref()?;
    let number = service.number;
    named(number, &terms.source, exchange, client, scratch)
        .or_else(|| conversation(number, exchange))
        .or_else(|| user(number, exchange, members, scratch))
        .or_else(|| match service.rule.selector {
            Selector::Persist => address(number, client, scratch),
            _ => None,
        })
}

/// By what the rule names.
fn named(
    service: u32,
    source: &SessionSource,
    exchange: &Exchange,
    client: SocketAddr,
    scratch: &mut Vec<u8>,
) -> Option<u64> {
    let bytes = &exchange.request[..];
    match source {
        SessionSource::Conversation => None,
        SessionSource::ClientAddress => address(service, client, scratch),
        SessionSource::Header(name) => {
            session::key(service, exchange.headers.named(bytes, name.as_bytes())?.value.of(bytes))
        }
        SessionSource::Cookie(name) => {
            let mut lines = exchange.headers.iter().filter(|header| header.field == Field::Cookie);
            lines.find_map(|line| session::key(service, session::cookie(line.value.of(bytes), name)?))
        }
        SessionSource::Query(name) => {
            session::key(service, session::query(exchange.head.query.of(bytes), name)?)
        }
        SessionSource::BasicUser => {
            let credentials = exchange.headers.first(Field::Authorization)?.value.of(bytes);
            session::basic_user(credentials, scratch).then(|| session::key(service, scratch)).flatten()
        }
    }
}

/// By the headers of conversations.
fn conversation(service: u32, exchange: &Exchange) -> Option<u64> {
    [Field::XConversationId, Field::XSessionId]
        .into_iter()
        .find_map(|field| session::key(service, exchange.headers.first(field)?.value.of(&exchange.request)))
}

/// By the body's `user`.
fn user(service: u32, exchange: &Exchange, members: &Members, scratch: &mut Vec<u8>) -> Option<u64> {
    let value = members.get(Member::User).filter(|_| exchange.peeked)?;
    scratch.clear();
    let is_text = json::text(&exchange.request[exchange.body.clone()], value, scratch);
    is_text.then(|| session::key(service, scratch)).flatten()
}

fn address(service: u32, client: SocketAddr, scratch: &mut Vec<u8>) -> Option<u64> {
    scratch.clear();
    write!(scratch, "{}", client.ip().to_canonical()).ok()?;
    session::key(service, scratch)
}
