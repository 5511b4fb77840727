//! The verbs of the KV side: what the event core knows of each endpoint, its blocks, taking a stream over.
//! Owns how a person names an endpoint, and the tables; must never guess between two endpoints.

mod attest;

use super::client::{self, Client};
use super::show::{age, aligned, items, word, words};
use super::{CtlFault, Printer};
use clap::{Args, Subcommand};
use serde_json::Value;

const PATH: &str = "/netlox/v1/config/ai/kv";

/// What to do with the KV side; nothing: show it.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  warmpath ctl kv                                      every endpoint and rank, and what is wrong
  warmpath ctl kv status                               what is proven of rules with a model profile
  warmpath ctl kv inventory chat 10.0.0.1:8000         block keys, as `warmpath events` prints them
  warmpath ctl kv inventory 1 0 --rank 1 --tier host   of one rank, host memory included
  warmpath ctl kv reacquire chat 10.0.0.2:8000         once no other reader drains TensorRT-LLM

A rule is named by its name or service number, an endpoint by its address or index.")]
pub struct KvArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: Option<KvVerb>,
}

/// What to do with one endpoint.
#[derive(Subcommand, Clone, Debug)]
pub enum KvVerb {
    /// The block keys that an endpoint holds.
    Inventory {
        /// A rule's name or service number.
        service: String,
        /// An endpoint's address or index.
        ep: String,
        /// One rank only.
        #[arg(long, value_name = "N")]
        rank: Option<u8>,
        /// gpu, host (what is on the GPU included) or disk (all).
        #[arg(long, value_name = "TIER", default_value = "gpu")]
        tier: String,
        /// How many, up to 100000.
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u64,
        /// Where to go on: the last line of the page before says it.
        #[arg(long, value_name = "CURSOR")]
        from: Option<String>,
    },
    /// What is proven of rules with exact routing, and what is not; of all, or of one by its name, id or model.
    Status {
        /// A rule's name, id or model.
        rule: Option<String>,
    },
    /// Take the drained stream of an endpoint over, after another reader was detected.
    Reacquire {
        /// A rule's name or service number.
        service: String,
        /// An endpoint's address or index.
        ep: String,
    },
}

/// Does it.
pub fn run(client: &Client, verb: Option<&KvVerb>, printer: &mut Printer) -> Result<(), CtlFault> {
    match verb {
        None => {
            let answer = client.get(&format!("{PATH}/status"))?;
            printer.answer(&answer, status)
        }
        Some(KvVerb::Inventory { service, ep, rank, tier, limit, from }) => {
            let endpoint = named(client, service, ep)?;
            let mut path =
                format!("{PATH}/inventory?{endpoint}&tier={}&limit={limit}", client::encoded(tier));
            if let Some(rank) = rank {
                path += &format!("&rank={rank}");
            }
            if let Some(from) = from {
                path += &format!("&from={}", client::encoded(from));
            }
            let answer = client.get(&path)?;
            printer.answer(&answer, inventory)
        }
        Some(KvVerb::Status { rule }) => {
            let answer = client.get(&format!("{PATH}/exactstatus"))?;
            attest::run(&answer, rule.as_deref(), printer)
        }
        Some(KvVerb::Reacquire { service, ep }) => {
            let endpoint = named(client, service, ep)?;
            let (status, answer) = client.call("POST", &format!("{PATH}/reacquire?{endpoint}"), "")?;
            client::accepted(status, answer)?;
            printer.said(&format!("the stream of {service} {ep} is taken over"))
        }
    }
}

/// The query that means an endpoint. Numbers go as they are; names are looked up.
fn named(client: &Client, service: &str, ep: &str) -> Result<String, CtlFault> {
    let query = |service: u64, index: u64| format!("service_id={service}&ep_idx={index}");
    let (number, index) = (service.parse().ok(), ep.parse().ok());
    if let (Some(number), Some(index)) = (number, index) {
        return Ok(query(number, index));
    }
    let answer = client.get(&format!("{PATH}/status"))?;
    let means = |e: &&Value| {
        (e["rule"] == service || number.is_some_and(|n| e["service_id"] == n))
            && (e["endpoint"] == ep || index.is_some_and(|i| e["ep_idx"] == i))
    };
    let found: Vec<&Value> = items(&answer, "endpoints").iter().filter(means).collect();
    match found[..] {
        [one] => Ok(query(one["service_id"].as_u64().unwrap_or(0), one["ep_idx"].as_u64().unwrap_or(0))),
        [] => Err(CtlFault(format!(
            "no rule {service:?} with exact routing has an endpoint {ep:?}; `warmpath ctl kv` shows those there are"
        ))),
        _ => Err(CtlFault(format!("{service:?} {ep:?} means {} endpoints; say the numbers", found.len()))),
    }
}

/// The index, a row for each rank, then what is to be looked at.
fn status(answer: &Value) -> String {
    let index = &answer["index"];
    let number = |name: &str| index[name].as_u64().unwrap_or(0);
    let mut text = format!(
        "index: {} of {} blocks, {} MiB, {} refused\n",
        number("blocks"),
        number("capacity"),
        number("bytes") >> 20,
        number("refused")
    );
    let mut rows = vec![words([
        "SERVICE",
        "RULE",
        "EP",
        "ENDPOINT",
        "RANK",
        "STANDING",
        "CONNECTED",
        "GPU",
        "HOST",
        "DISK",
        "LAST EVENT",
        "TRUST",
        "FENCE",
        "FINDINGS",
    ])];
    let endpoints = items(answer, "endpoints");
    for endpoint in endpoints {
        match items(endpoint, "ranks") {
            [] => rows.push(row(endpoint, &Value::Null)),
            ranks => rows.extend(ranks.iter().map(|rank| row(endpoint, rank))),
        }
    }
    text += &aligned(&rows);
    for endpoint in endpoints {
        let legs: Vec<String> = items(&endpoint["trust"], "legs").iter().map(word).collect();
        if !legs.is_empty() {
            let (rule, address) = (word(&endpoint["rule"]), word(&endpoint["endpoint"]));
            text += &format!("broken: {rule} {address}: {}\n", legs.join(" or "));
            for (leg, cure) in legs.iter().zip(items(&endpoint["trust"], "cures")) {
                text += &format!("cure of {leg}: {}\n", word(cure));
            }
        }
        for finding in items(endpoint, "findings") {
            let (rule, address) = (word(&endpoint["rule"]), word(&endpoint["endpoint"]));
            text += &format!("finding: {rule} {address}: {}\n", word(finding));
        }
    }
    text
}

fn row(endpoint: &Value, rank: &Value) -> Vec<String> {
    let connected = match rank["connected"].as_bool() {
        Some(true) => "yes",
        Some(false) => "no",
        None => "-",
    };
    vec![
        word(&endpoint["service_id"]),
        word(&endpoint["rule"]),
        word(&endpoint["ep_idx"]),
        word(&endpoint["endpoint"]),
        word(&rank["rank"]),
        word(&rank["standing"]),
        connected.into(),
        word(&rank["blocks"]["gpu"]),
        word(&rank["blocks"]["host"]),
        word(&rank["blocks"]["disk"]),
        age(&rank["last_event_age_us"]),
        word(&endpoint["trust"]["state"]),
        word(&endpoint["fence"]),
        match items(endpoint, "findings").len() {
            0 => "-".into(),
            some => some.to_string(),
        },
    ]
}

/// Keys, in the spelling of `warmpath events`, and where to go on.
fn inventory(answer: &Value) -> String {
    let blocks = items(answer, "blocks");
    let mut text = format!(
        "{}: {} of {} {} blocks, {}\n",
        word(&answer["endpoint"]),
        blocks.len(),
        answer["total"],
        word(&answer["tier"]),
        word(&answer["hash_algo"])
    );
    for rank in items(answer, "ranks") {
        text += &format!("rank {}: {}", word(&rank["rank"]), word(&rank["standing"]));
        match rank["reason"].as_str() {
            Some("") | None => text.push('\n'),
            Some(_) => text += &format!(" ({})\n", word(&rank["reason"])),
        }
    }
    if let Some(fence) = answer["fence"].as_str() {
        text += &format!("fenced: {fence}\n");
    }
    for finding in items(answer, "findings") {
        text += &format!("finding: {}\n", word(finding));
    }
    let mut rows = vec![words(["BLOCK", "RANK", "KEY"])];
    rows.extend(blocks.iter().map(|block| {
        let key = format!("{:016x}", block["hash_uint64"].as_u64().unwrap_or(0));
        vec![word(&block["block_idx"]), word(&block["rank"]), key]
    }));
    text += &aligned(&rows);
    if let Some(next) = answer["next"].as_str() {
        text += &format!("more: --from {next}\n");
    }
    text
}

#[cfg(test)]
mod tests;
