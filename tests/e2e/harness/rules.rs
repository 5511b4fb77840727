//! Rule bodies, request bodies, free addresses.

use serde_json::{Value, json};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// Ports below the range from which the kernel gives ports to outgoing connections, so that none of these
/// can take one between its choice and its use.
const FIRST_PORT: u16 = 12_000;
const PORTS: u16 = 20_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

fn free_port(bind: impl Fn(u16) -> SocketAddr) -> SocketAddr {
    let start = (std::process::id() as u16).wrapping_mul(251) % PORTS;
    for _ in 0..PORTS {
        let port = FIRST_PORT + (start + NEXT.fetch_add(1, Relaxed) % PORTS) % PORTS;
        if TcpListener::bind(bind(port)).is_ok() {
            return bind(port);
        }
    }
    panic!("no port is free");
}

/// A loopback address that nobody listens on.
pub fn free_address() -> SocketAddr {
    free_port(|port| (Ipv4Addr::LOCALHOST, port).into())
}

/// The same for IPv6; `None` where the machine has none.
pub fn free_address_v6() -> Option<SocketAddr> {
    TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).ok()?;
    Some(free_port(|port| (Ipv6Addr::LOCALHOST, port).into()))
}

/// A rule that spreads over `endpoints` in turn.
pub fn rule(vip: SocketAddr, endpoints: &[SocketAddr]) -> Value {
    rule_with(vip, endpoints, json!({}))
}

/// The same with further `serviceArguments`.
pub fn rule_with(vip: SocketAddr, endpoints: &[SocketAddr], more: Value) -> Value {
    let equal: Vec<_> = endpoints.iter().map(|e| (*e, 1)).collect();
    weighted_rule(vip, &equal, more)
}

/// The same with a weight for each endpoint.
pub fn weighted_rule(vip: SocketAddr, endpoints: &[(SocketAddr, u16)], more: Value) -> Value {
    let mut service = json!({
        "externalIP": vip.ip().to_string(), "port": vip.port(), "protocol": "tcp", "mode": 4
    });
    for (name, value) in more.as_object().unwrap() {
        service[name] = value.clone();
    }
    let endpoint = |(at, weight): &(SocketAddr, u16)| json!({"endpointIP": at.ip().to_string(), "targetPort": at.port(), "weight": weight});
    json!({"serviceArguments": service, "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>()})
}

/// A chat completion.
pub fn chat(text: &str) -> Vec<u8> {
    json!({"model": "sim", "messages": [{"role": "user", "content": text}]}).to_string().into_bytes()
}

/// A streamed one of `tokens` tokens.
pub fn chat_stream(text: &str, tokens: u64) -> Vec<u8> {
    let message = json!([{"role": "user", "content": text}]);
    json!({"model": "sim", "stream": true, "max_tokens": tokens, "ignore_eos": true, "messages": message})
        .to_string()
        .into_bytes()
}
