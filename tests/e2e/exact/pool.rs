//! What the exact tests stand on: engines with events, rules over them, requests with their receipts, and what
//! the gateway knows beside what the engines have. Must never assert a theme's own facts.

use crate::harness::{Client, Driver, Gateway, Reply, free_address, get, post, rule_with, wait_until};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use warmpath_perf::engine::kinds::HashAlgo;
use warmpath_perf::engine::version::Version;
use warmpath_perf::engine::{Config, Handle, Kind, start};

/// From the port of events to that of replay: more than any engine has ranks.
const REPLAY_OFFSET: u16 = 100;

/// The seed of all engines that have one.
pub const SEED: (&str, &str) = ("LLB_KV_NONE_HASH_SEED", "0");

/// No hit goes to a cold endpoint.
pub const NO_SEEDING: (&str, &str) = ("LOXILB_KV_COLDSTART_SEED_N", "0");

/// Room for some 30,000 blocks: an inventory looks through all of it, which takes its time in a debug build.
pub const SMALL_INDEX: [&str; 2] = ["--index-memory", "1M"];

/// Where rank 0 of every engine publishes: they have addresses of their own. Below the ports that
/// `free_address` gives, so that no gateway that listens on all addresses is in the way.
pub fn live_port() -> u16 {
    static PORT: OnceLock<u16> = OnceLock::new();
    *PORT.get_or_init(|| {
        let first = 7_000 + (std::process::id() % 4_000) as u16;
        let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok();
        (first..11_500).find(is_free).unwrap()
    })
}

/// The port of an engine whose place another process takes, on its own address.
pub fn fixed_port() -> u16 {
    live_port() + 2 * REPLAY_OFFSET
}

/// Where rank 0 of every engine replays.
pub fn replay_port() -> u16 {
    live_port() + REPLAY_OFFSET
}

/// A loopback address that no other engine of this process has, nor, most likely, of another.
fn own_host() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 + high % 128, low, 1 + NEXT.fetch_add(1, Relaxed) % 254)
}

/// How an engine is started: events with replay, seeded `sha256_cbor` where there is a choice.
pub fn config(kind: Kind) -> Config {
    let mut config = Config { host: own_host().to_string(), ..Config::of(kind) };
    config.hashing.seed = Some(SEED.1.into());
    config.hashing.algo = HashAlgo::Sha256Cbor;
    if kind != Kind::Trtllm {
        config.events.live = format!("tcp://*:{}", live_port()).parse().ok();
        config.events.replay = format!("tcp://*:{}", replay_port()).parse().ok();
    }
    config
}

pub fn engine_with(kind: Kind, change: impl FnOnce(&mut Config)) -> Handle {
    let mut config = config(kind);
    change(&mut config);
    start(config).unwrap()
}

pub fn engine(kind: Kind) -> Handle {
    engine_with(kind, |_| {})
}

pub fn vllm_version(text: &str) -> Option<Version> {
    Some(Version::new(text))
}

/// An exact rule of this name for the engines' kind.
pub fn exact_rule(name: &str, kind: Kind, engines: &[&Handle], more: Value) -> Value {
    exact_rule_at(free_address(), name, kind, engines, more)
}

pub fn exact_rule_at(vip: SocketAddr, name: &str, kind: Kind, engines: &[&Handle], more: Value) -> Value {
    let mut members = json!({
        "name": name, "kvExactMode": 3, "kvEngineType": kind.name(), "kvWarmupSec": 0, "explain_header": "full",
    });
    if kind != Kind::Trtllm {
        members["kvZmqPort"] = live_port().into();
        members["kvReplayPort"] = replay_port().into();
        members["kvBlockSize"] = 16.into();
    }
    for (name, value) in more.as_object().unwrap() {
        members[name] = value.clone();
    }
    let addresses: Vec<SocketAddr> = engines.iter().map(|engine| engine.addr).collect();
    rule_with(vip, &addresses, members)
}

/// Where clients of a rule connect to.
pub fn vip_of(rule: &Value) -> SocketAddr {
    let port = rule["serviceArguments"]["port"].as_u64().unwrap();
    (Ipv4Addr::LOCALHOST, u16::try_from(port).unwrap()).into()
}

/// One shard, the engines' seed, no seeding of cold endpoints; every stream of events is up on return.
pub fn gateway(driver: Driver, rules: &[Value]) -> Gateway {
    gateway_with(driver, rules, &["--shards", "1"], &[SEED, NO_SEEDING])
}

pub fn gateway_with(driver: Driver, rules: &[Value], flags: &[&str], variables: &[(&str, &str)]) -> Gateway {
    let gateway = Gateway::start_in(driver, rules, &[flags, &SMALL_INDEX].concat(), variables);
    all_connected(&gateway);
    gateway
}

/// Waits until the events of every rank of every engine come, or are known not to be wanted.
pub fn all_connected(gateway: &Gateway) {
    wait_until("all events come", || {
        let rows = known(gateway);
        let up = |row: &Value| {
            let ranks = row["ranks"].as_array().unwrap();
            !row["version"].is_null()
                && !ranks.is_empty()
                && (row["fence"].is_string() || ranks.iter().all(|rank| rank["connected"] == true))
        };
        !rows.is_empty() && rows.iter().all(up)
    });
}

/// What the gateway knows of the caches, a row for each endpoint of each exact rule.
pub fn known(gateway: &Gateway) -> Vec<Value> {
    let reply = gateway.admin("GET", "/netlox/v1/config/ai/kv/status", "");
    if reply.status != 200 {
        return Vec::new();
    }
    reply.json()["endpoints"].as_array().unwrap().clone()
}

/// The row of one engine under a rule.
pub fn known_of(gateway: &Gateway, rule: &str, engine: &Handle) -> Value {
    let mut row = None;
    wait_until("the event core tells of the engine", || {
        row = try_known_of(gateway, rule, engine);
        row.is_some()
    });
    row.unwrap()
}

/// The same; `None` while the event core is busy.
fn try_known_of(gateway: &Gateway, rule: &str, engine: &Handle) -> Option<Value> {
    let at = engine.addr.to_string();
    known(gateway).into_iter().find(|row| row["rule"] == rule && row["endpoint"] == at.as_str())
}

/// What was last seen of something waited for, told when the test fails meanwhile.
struct Seen(&'static str, String);

impl Drop for Seen {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: {}", self.0, self.1);
        }
    }
}

/// Waits until `done` holds of one engine's row.
pub fn wait_known(
    gateway: &Gateway,
    rule: &str,
    engine: &Handle,
    what: &'static str,
    done: impl Fn(&Value) -> bool,
) {
    let mut seen = Seen(what, String::new());
    wait_until(what, || {
        let row = known_of(gateway, rule, engine);
        let is_done = done(&row);
        seen.1 = row.to_string();
        is_done
    });
}

/// The blocks that the gateway knows on a tier, by rank, read in pages of `limit`.
pub fn inventory(gateway: &Gateway, row: &Value, tier: &str, limit: usize) -> BTreeSet<(u64, u64)> {
    let mut known = None;
    wait_until("the inventory is told", || {
        known = try_inventory(gateway, row, tier, limit);
        known.is_some()
    });
    known.unwrap()
}

/// The same; `None` while the event core is busy.
fn try_inventory(gateway: &Gateway, row: &Value, tier: &str, limit: usize) -> Option<BTreeSet<(u64, u64)>> {
    let (service, index) = (&row["service_id"], &row["ep_idx"]);
    let mut blocks = BTreeSet::new();
    let mut from = String::new();
    loop {
        let path = format!(
            "/netlox/v1/config/ai/kv/inventory?service_id={service}&ep_idx={index}&tier={tier}&limit={limit}{from}"
        );
        let page = gateway.admin("GET", &path, "");
        if page.status == 503 {
            return None;
        }
        let page = page.json();
        let listed = page["blocks"].as_array().unwrap_or_else(|| panic!("no list: {page}"));
        assert!(listed.len() <= limit);
        let block = |b: &Value| (b["rank"].as_u64().unwrap_or(0), b["hash_uint64"].as_u64().unwrap());
        blocks.extend(listed.iter().map(block));
        match page["next"].as_str() {
            Some(next) => from = format!("&from={next}"),
            None => return Some(blocks),
        }
    }
}

/// The blocks that an engine has in these media, by rank.
pub fn held(engine: &Handle, media: &[&str]) -> BTreeSet<(u64, u64)> {
    let caches = engine.caches();
    let of_rank = |rank: &Value| {
        let number = rank["rank"].as_u64().unwrap();
        let keys = media.iter().flat_map(|medium| rank["media"][medium]["keys"].as_array().unwrap().clone());
        keys.map(|key| (number, key.as_u64().unwrap())).collect::<Vec<_>>()
    };
    caches["ranks"].as_array().unwrap().iter().flat_map(of_rank).collect()
}

/// Waits until the gateway knows of an engine's blocks what the engine does, to the key and on each tier.
pub fn in_step(gateway: &Gateway, rule: &str, engine: &Handle) {
    let mut seen = Seen("the gateway's row", String::new());
    wait_until("the inventory is the engine's", || {
        let row = known_of(gateway, rule, engine);
        let same = |tier, media: &[&str]| {
            try_inventory(gateway, &row, tier, 10_000).is_some_and(|known| known == held(engine, media))
        };
        let is_same = same("gpu", &["gpu"]) && same("host", &["gpu", "host"]);
        seen.1 = row.to_string();
        is_same
    });
}

/// Waits until as many blocks of an engine are known as it has, where their names are the gateway's own.
pub fn counts_in_step(gateway: &Gateway, rule: &str, engine: &Handle) {
    wait_known(gateway, rule, engine, "as many blocks are known as are held", |row| {
        let known: u64 =
            row["ranks"].as_array().unwrap().iter().map(|r| r["blocks"]["gpu"].as_u64().unwrap()).sum();
        known == held(engine, &["gpu"]).len() as u64
    });
}

/// Waits until the gateway has applied all that an engine told, where blocks can't be compared by name.
pub fn followed(gateway: &Gateway, rule: &str, engine: &Handle) {
    wait_known(gateway, rule, engine, "all that was told is applied", |row| {
        let caches = engine.caches();
        let told = caches["ranks"].as_array().unwrap();
        let is_applied = |rank: &Value| {
            let next = row["ranks"][rank["rank"].as_u64().unwrap() as usize]["sequence"]
                .as_u64()
                .map_or(0, |s| s + 1);
            rank["untold_events"] == 0 && rank["next_sequence"] == next
        };
        told.iter().all(is_applied)
    });
}

/// An answer with its receipt.
pub struct Told {
    pub reply: Reply,
    receipt: BTreeMap<String, String>,
}

impl Told {
    pub fn new(reply: Reply) -> Told {
        let line = reply.header("x-warmpath-receipt").unwrap_or_default().to_owned();
        let pairs = line.split(", ").filter_map(|pair| pair.split_once('='));
        Told { receipt: pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(), reply }
    }

    /// A member of the receipt; empty if absent.
    pub fn word(&self, name: &str) -> &str {
        self.receipt.get(name).map_or("", String::as_str)
    }

    pub fn number(&self, name: &str) -> u64 {
        self.word(name).parse().unwrap_or_else(|_| panic!("no {name}: {:?}", self.receipt))
    }

    pub fn went_to(&self, engine: &Handle) -> bool {
        self.word("endpoint") == engine.addr.to_string()
    }

    /// Asserts that it was routed by this many blocks to this engine.
    #[track_caller]
    pub fn assert_exact(&self, engine: &Handle, blocks: u64) {
        assert_eq!(self.reply.status, 200, "{}", String::from_utf8_lossy(&self.reply.body));
        let way =
            (self.word("tier"), self.word("reason"), self.word("endpoint"), self.word("overlap_blocks"));
        let (at, blocks) = (engine.addr.to_string(), blocks.to_string());
        assert_eq!(way, ("tier15", "exact", at.as_str(), blocks.as_str()), "{:?}", self.receipt);
    }

    /// Asserts that it was left to the selector, and why.
    #[track_caller]
    pub fn assert_missed(&self, why: &str) {
        assert_eq!((self.word("tier"), self.word("missed")), ("tier2", why), "{:?}", self.receipt);
    }

    /// Tokens that the engine had cached.
    pub fn cached(&self) -> u64 {
        let json = self.reply.json();
        json["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or_else(|| panic!("{json}"))
    }

    /// Asserts that the engine spared what the gateway predicted.
    #[track_caller]
    pub fn assert_as_predicted(&self) {
        assert_eq!(self.cached(), self.number("predicted_tokens"), "{:?}", self.receipt);
    }
}

/// A completion of token ids, one token long unless `more` says otherwise.
pub fn body(prompt: &[u32], more: Value) -> Vec<u8> {
    let mut body = json!({"model": "sim", "prompt": prompt, "max_tokens": 1});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body.to_string().into_bytes()
}

/// Asks for a completion on a connection of its own.
pub fn complete_with(at: SocketAddr, prompt: &[u32], headers: &[&str], more: Value) -> Told {
    let request = post("/v1/completions", headers, &body(prompt, more));
    Told::new(Client::connect(at).ask(&request))
}

pub fn complete(at: SocketAddr, prompt: &[u32]) -> Told {
    complete_with(at, prompt, &[], json!({}))
}

/// Gives an engine a prompt past the gateway, and waits until the gateway knows.
pub fn warm(gateway: &Gateway, rule: &str, engine: &Handle, prompt: &[u32]) {
    assert_eq!(complete(engine.addr, prompt).reply.status, 200);
    in_step(gateway, rule, engine);
}

/// `count` token ids; equal for equal `seed`, different from the first token on for others.
pub fn tokens(seed: u32, count: u32) -> Vec<u32> {
    (0..count).map(|i| 1_000 + seed * 7 + i.wrapping_mul(31) % 5_000).collect()
}

/// One rule's endpoint of a metric, all its samples summed; `None` without a sample.
pub fn metric(gateway: &Gateway, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let page = gateway.admin("GET", "/netlox/v1/metrics", "");
    let text = String::from_utf8(page.body).unwrap();
    let fits = |line: &&str| {
        let family = line.split(['{', ' ']).next() == Some(name);
        family && labels.iter().all(|(label, value)| line.contains(&format!("{label}=\"{value}\"")))
    };
    let values =
        text.lines().filter(fits).map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

/// The value of a header in the last head that an engine got for inference, and how often it stood there.
pub fn last_header(engine: &Handle, name: &str) -> Vec<String> {
    let heads = engine.stats().last_heads;
    let head = heads.iter().rev().find(|head| head.starts_with("POST /v1/")).unwrap();
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim().to_owned()).collect()
}

/// Reads a page of an engine.
pub fn page(engine: &Handle, path: &str) -> Reply {
    Client::connect(engine.addr).ask(&get(path, &[]))
}
