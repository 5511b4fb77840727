//! Where an engine says that it publishes. Owns the shapes of vLLM's `/kv_event_sources` (0.31+) and of
//! `kv_events` in SGLang's `/server_info`; must never fetch them or judge them against a rule.

use serde::Deserialize;
use std::collections::BTreeMap;

/// Who opens the connection, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The engine listens. Without a host, on all its addresses: the endpoint's own is to be dialled.
    Dial {
        /// A name or address.
        host: Option<String>,
        /// 1 to 65535.
        port: u16,
    },
    /// The engine connects to this address: the gateway has to listen there.
    Listen {
        /// As the engine has it.
        host: String,
        /// 1 to 65535.
        port: u16,
    },
}

/// One rank's publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The data-parallel rank.
    pub rank: u32,
    /// Where its events are.
    pub publish: Address,
    /// Where they can be had again.
    pub replay: Option<Address>,
    /// The topic of its messages.
    pub topic: String,
    /// Tokens of a block, if the engine tells.
    pub block_size: Option<u32>,
}

/// Why no sources can be read from an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The engine publishes no events.
    Off,
    /// An endpoint that is not `tcp://host:port`, as it stands there.
    Endpoint(String),
    /// Not the JSON that this engine answers with.
    Shape(String),
}

#[derive(Deserialize)]
struct VllmSource {
    #[serde(default)]
    enable_kv_cache_events: bool,
    publisher: Option<String>,
    endpoint: String,
    replay_endpoint: Option<String>,
    #[serde(default)]
    topic: String,
}

/// Reads vLLM's `/kv_event_sources`: a publisher for each rank, with the rank's offset in its ports already.
/// Sorted by rank.
pub fn vllm(body: &[u8]) -> Result<Vec<Source>, Unusable> {
    let ranks: BTreeMap<u32, VllmSource> = read(body)?;
    let on =
        |source: &VllmSource| source.enable_kv_cache_events && source.publisher.as_deref() == Some("zmq");
    if !ranks.values().any(on) {
        return Err(Unusable::Off);
    }
    let publishing = ranks.into_iter().filter(|(_, source)| on(source));
    publishing
        .map(|(rank, source)| {
            let replay = source.replay_endpoint.as_deref().map(|endpoint| address(endpoint, &["*", "::"]));
            Ok(Source {
                rank,
                publish: address(&source.endpoint, &["*", "::"])?,
                replay: replay.transpose()?,
                topic: source.topic,
                block_size: None,
            })
        })
        .collect()
}

#[derive(Deserialize)]
struct SglangInfo {
    kv_events: Option<SglangSources>,
}

#[derive(Deserialize)]
struct SglangSources {
    publisher: Option<String>,
    endpoint_host: String,
    endpoint_port_base: u16,
    /// 0.5.23; absent before.
    replay_endpoint_port_base: Option<u16>,
    #[serde(default)]
    topic: String,
    block_size: Option<u32>,
    dp_size: Option<u32>,
}

/// Reads SGLang's `/server_info`: rank r is at its base port plus r.
pub fn sglang(body: &[u8]) -> Result<Vec<Source>, Unusable> {
    let info: SglangInfo = read(body)?;
    let sources = info.kv_events.filter(|sources| sources.publisher.as_deref() != Some("null"));
    let sources = sources.ok_or(Unusable::Off)?;
    let at = |base: u16, rank: u32| {
        let port = u32::from(base) + rank;
        address(&format!("tcp://{}:{port}", sources.endpoint_host), &["*", "::", "0.0.0.0"])
    };
    (0..sources.dp_size.unwrap_or(1).clamp(1, u32::from(u16::MAX)))
        .map(|rank| {
            Ok(Source {
                rank,
                publish: at(sources.endpoint_port_base, rank)?,
                replay: sources.replay_endpoint_port_base.map(|base| at(base, rank)).transpose()?,
                topic: sources.topic.clone(),
                block_size: sources.block_size,
            })
        })
        .collect()
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Unusable> {
    serde_json::from_slice(body).map_err(|error| Unusable::Shape(error.to_string()))
}

/// On the wildcards the engine listens; to any other host it connects.
fn address(endpoint: &str, wildcards: &[&str]) -> Result<Address, Unusable> {
    let unusable = || Unusable::Endpoint(endpoint.to_owned());
    let rest = endpoint.strip_prefix("tcp://").ok_or_else(unusable)?;
    let (host, port) = rest.rsplit_once(':').ok_or_else(unusable)?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(unusable)?;
    if host.is_empty() {
        return Err(unusable());
    }
    let is_wild = wildcards.contains(&host);
    Ok(if is_wild {
        Address::Dial { host: None, port }
    } else {
        Address::Listen { host: host.to_owned(), port }
    })
}

#[cfg(test)]
mod tests;
