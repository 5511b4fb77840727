//! The rules that the operator wants: bodies as given, each with its validated form. Owns identity, upsert
//! and selection; pure. Must never hold a body that validation would refuse, nor two rules of one key.

mod attach;
mod bindings;
mod fixed;
mod history;

pub use attach::address_of;
pub use bindings::Bindings;
pub use fixed::Fixed;
pub use history::{Applied, History};

use crate::hosts::Host;
use crate::refusal::Refusal;
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use warmpath_core::environment::Environment;
use warmpath_core::profile::registry::Registry;
use warmpath_core::rule::body::{self, BodyFault, Restored};
use warmpath_core::rule::{Rule, RuleKey};

/// One rule.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The body as it was given, with `id` filled in.
    pub body: Value,
    /// What it means.
    pub rule: Rule,
    /// Why it is served without the exact routing that its body asks for, if it is.
    pub without_exact: Option<BodyFault>,
    /// The bodies that were applied, the last ten.
    pub history: History,
}

impl Entry {
    /// The sentence for the operator of a rule that is served without its exact routing.
    pub fn warning(&self) -> Option<String> {
        let bound = self.rule.exact.as_ref().and_then(|exact| bindings::fault(&exact.profile.binding));
        let fault = self.without_exact.as_ref().map(ToString::to_string).or(bound)?;
        let Rule { id, key, .. } = &self.rule;
        Some(format!("the rule {id} at {} is served without exact routing: {fault}", key.vip))
    }
}

/// Where a body comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The operator asks for it now: it is taken as a whole or refused.
    Asked,
    /// It was accepted by an earlier process: where the environment lacks what its exact routing needs, the
    /// rule is served without it.
    Kept,
    /// As [`Origin::Kept`], from a snapshot that was restored: a rule with exact routing and without a profile waits for
    /// one.
    Restored,
}

/// What a body is read with.
pub struct Reading<'a> {
    /// What the process's environment says of exact routing.
    pub environment: &'a Environment,
    /// Random bits, for ids.
    pub random: fn() -> u64,
    /// Where the body comes from.
    pub origin: Origin,
    /// The profiles that are published.
    pub registry: Arc<Registry>,
    /// The time, in seconds of the Unix epoch.
    pub at: u64,
}

impl Reading<'_> {
    fn read(&self, given: &Value) -> Result<Restored, BodyFault> {
        let fresh_id = || fresh_id(self.random);
        match self.origin {
            Origin::Kept | Origin::Restored => body::restore(given, self.environment, fresh_id),
            Origin::Asked => body::parse(given, self.environment, fresh_id)
                .map(|rule| Restored { rule, without_exact: None }),
        }
    }
}

/// All rules, ordered by key, so that equal contents give equal tables and files. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    entries: Vec<Arc<Entry>>,
    /// Hosts that are probed whichever rules name them.
    pub hosts: Vec<Host>,
    bindings: Bindings,
}

/// What an upsert did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upserted {
    /// The rule's identity.
    pub key: RuleKey,
    /// Whether it is new or its content differs; false when it was there with this content.
    pub changed: bool,
}

/// Words that select one rule. `None` is not said.
#[derive(Clone, Debug)]
pub struct Selection<'a> {
    /// `externalIP:port`.
    pub vip: SocketAddr,
    /// `hosturl`.
    pub host: Option<&'a str>,
    /// `model_name`.
    pub model: Option<&'a str>,
    /// `path_prefix`.
    pub path: Option<&'a str>,
}

impl RuleSet {
    /// Creates or replaces by key, or as `oper` says adds endpoints to the rule of that key or takes some away. A body
    /// without `id` keeps the id of the rule it replaces, or takes a fresh one. What is fixed stays. Endpoints that stay
    /// keep their order, so that an index keeps its meaning as long as none before it goes.
    /// The history keeps `text`, as which the body came.
    pub fn upsert(&mut self, given: &Value, text: &str, reading: &Reading<'_>) -> Result<Upserted, Refusal> {
        match attach::oper(given) {
            attach::ATTACH => self.attach(given, reading),
            attach::DETACH => self.detach(given, reading),
            _ => self.replace(given, text, reading),
        }
    }

    fn replace(&mut self, given: &Value, text: &str, reading: &Reading<'_>) -> Result<Upserted, Refusal> {
        let given = &self.kept_thresholds(given);
        let Restored { mut rule, without_exact } = reading.read(given).map_err(Refusal::body)?;
        let place = self.place(&rule.key);
        if let Ok(at) = place {
            if given_id(given).is_none() {
                rule.id = self.entries[at].rule.id.clone();
            }
            fixed::check(&rule, given, &self.entries[at])?;
        }
        self.check_id(&rule)?;
        self.bindings.bind(&mut rule, &reading.registry, reading.origin)?;
        let key = rule.key.clone();
        let mut entry =
            Entry { body: with_id(given, &rule.id), rule, without_exact, history: History::default() };
        let changed = match place {
            Ok(at) => {
                let before = &self.entries[at];
                keep_order(&mut entry.rule, &before.rule);
                entry.history = before.history.clone();
                means(&entry) != means(before)
            }
            Err(_) => true,
        };
        if changed && reading.origin == Origin::Asked {
            entry.history.push(reading.at, text);
        }
        match place {
            Ok(at) => self.entries[at] = Arc::new(entry),
            Err(at) => self.entries.insert(at, Arc::new(entry)),
        }
        Ok(Upserted { key, changed })
    }

    /// Where the rule of this key is, or would be.
    fn place(&self, key: &RuleKey) -> Result<usize, usize> {
        self.entries.binary_search_by(|e| e.rule.key.cmp(key))
    }

    /// `given`, with the thresholds of the rule it replaces where it says 0.
    fn kept_thresholds(&self, given: &Value) -> Value {
        let mut given = given.clone();
        let before = body::outline(&given).ok().and_then(|(key, _)| self.place(&key).ok());
        if let (Some(at), Some(Value::Object(service))) = (before, given.get_mut("serviceArguments")) {
            for name in ["pd_cache_threshold", "pd_balance_abs_threshold"] {
                let kept = &self.entries[at].body["serviceArguments"][name];
                if service.get(name) == Some(&Value::from(0)) && !kept.is_null() {
                    service.insert(name.into(), kept.clone());
                }
            }
        }
        given
    }

    /// The rule at `index` with another history, as it was kept.
    pub fn remember(&mut self, index: usize, history: History) {
        let Entry { body, rule, without_exact, .. } = &*self.entries[index];
        let (body, rule, without_exact) = (body.clone(), rule.clone(), without_exact.clone());
        self.entries[index] = Arc::new(Entry { body, rule, without_exact, history });
    }

    /// Takes away the rule at `index`.
    pub fn remove(&mut self, index: usize) {
        let gone = self.entries.remove(index);
        self.bindings.forget(&gone.rule.id);
    }

    /// All, in order.
    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    /// The validated forms, in order.
    pub fn rules(&self) -> Vec<Rule> {
        self.entries.iter().map(|e| e.rule.clone()).collect()
    }

    /// The bodies, in order.
    pub fn bodies(&self) -> Vec<Value> {
        self.entries.iter().map(|e| e.body.clone()).collect()
    }

    /// A sentence for each rule that is served without its exact routing.
    pub fn warnings(&self) -> impl Iterator<Item = String> + '_ {
        self.entries.iter().filter_map(|entry| entry.warning())
    }

    /// The one rule that is meant. What is not said prefers the rule that leaves it open (as scripts of the
    /// existing gateway expect); if there is none, a rule that is the only one left is meant.
    pub fn select(&self, by: &Selection<'_>) -> Result<usize, Refusal> {
        let mut found: Vec<usize> = (0..self.entries.len()).filter(|i| self.said(*i, by)).collect();
        for open in [
            |r: &Rule| r.key.model.is_empty(),
            |r: &Rule| r.key.host.is_empty(),
            |r: &Rule| r.key.path.is_empty(),
        ] {
            if found.len() > 1 && found.iter().any(|i| open(&self.entries[*i].rule)) {
                found.retain(|i| open(&self.entries[*i].rule));
            }
        }
        match found[..] {
            [one] => Ok(one),
            [] => Err(Refusal::NoRule(by.words())),
            _ => Err(Refusal::Ambiguous(
                "say which by model_name= or path_prefix= in the query or by hosturl in the path".into(),
            )),
        }
    }

    /// The rule of this name.
    pub fn by_name(&self, name: &str) -> Result<usize, Refusal> {
        let mut found = (0..self.entries.len()).filter(|i| self.entries[*i].rule.name == name);
        match (found.next(), found.next()) {
            (None, _) => Err(Refusal::NoRule(format!("name {name:?}"))),
            (Some(one), None) => Ok(one),
            _ => Err(Refusal::Ambiguous("they share this name; say which by address".into())),
        }
    }

    /// The rule of this id.
    pub fn by_id(&self, id: &str) -> Result<usize, Refusal> {
        let found = self.entries.iter().position(|e| e.rule.id == id);
        found.ok_or_else(|| Refusal::NoRule(format!("id {id:?}")))
    }

    fn said(&self, index: usize, by: &Selection<'_>) -> bool {
        let key = &self.entries[index].rule.key;
        key.vip == by.vip
            && by.host.is_none_or(|h| key.host.eq_ignore_ascii_case(h))
            && by.model.is_none_or(|m| key.model == m)
            && by.path.is_none_or(|p| key.path == p)
    }

    fn check_id(&self, rule: &Rule) -> Result<(), Refusal> {
        match self.entries.iter().find(|e| e.rule.id == rule.id) {
            Some(other) if other.rule.key != rule.key => Err(Refusal::IdTaken(rule.id.clone())),
            _ => Ok(()),
        }
    }
}

impl Selection<'_> {
    fn words(&self) -> String {
        let mut words = format!("{}/tcp", self.vip);
        for (name, value) in [("host", self.host), ("model_name", self.model), ("path_prefix", self.path)] {
            if let Some(value) = value {
                words.push_str(&format!(" {name} {value:?}"));
            }
        }
        words
    }
}

/// The address that `externalipaddress/{ip}/port/{port}/protocol/{protocol}` names.
pub fn address(ip: &str, port: &str, protocol: &str) -> Result<SocketAddr, Refusal> {
    let bad = |name, value: &str, allowed| Refusal::Argument { name, value: value.into(), allowed };
    let bare = ip.strip_suffix("/32").or_else(|| ip.strip_suffix("/128")).unwrap_or(ip);
    let address: IpAddr = bare.parse().map_err(|_| bad("externalIP", ip, "an IP address"))?;
    let number: u16 = port.parse().map_err(|_| bad("port", port, "a number from 0 to 65535"))?;
    match protocol {
        "tcp" => Ok(SocketAddr::new(address, number)),
        _ => Err(bad("protocol", protocol, "tcp")),
    }
}

fn given_id(body: &Value) -> Option<&str> {
    body.get("serviceArguments")?.get("id")?.as_str().filter(|id| !id.is_empty())
}

fn with_id(given: &Value, id: &str) -> Value {
    let mut body = given.clone();
    if let Some(Value::Object(arguments)) = body.get_mut("serviceArguments") {
        arguments.insert("id".into(), id.into());
        arguments.shift_remove("oper");
    }
    body
}

/// A UUID version 4 (RFC 9562 section 5.4).
fn fresh_id(random: fn() -> u64) -> String {
    let high = random() & !0xF000 | 0x4000;
    let low = random() & !(0b11 << 62) | 0b10 << 62;
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xFFFF,
        high & 0xFFFF,
        low >> 48,
        low & 0xFFFF_FFFF_FFFF
    )
}

/// What the contents of two rules are compared by: defaults that are said and defaults left open are equal.
pub fn means(entry: &Entry) -> Value {
    body::readback(&entry.rule, &entry.body)
}

/// Endpoints that `before` had come first, in its order; new ones follow as given.
fn keep_order(rule: &mut Rule, before: &Rule) {
    let place = |at: SocketAddr| before.endpoints.iter().position(|e| e.address == at);
    rule.endpoints.sort_by_key(|e| place(e.address).unwrap_or(usize::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::body;
    use serde_json::json;
    use std::sync::LazyLock;

    fn reading() -> Reading<'static> {
        static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(Environment::default);
        Reading {
            environment: &ENVIRONMENT,
            random: || 0,
            origin: Origin::Asked,
            registry: Arc::default(),
            at: 0,
        }
    }

    fn set() -> RuleSet {
        let mut rules = RuleSet::default();
        let pools =
            [("", "", ""), ("a.example", "", ""), ("a.example", "/v1", ""), ("", "", "m"), ("", "/v1", "m")];
        for (index, (host, path, model)) in pools.into_iter().enumerate() {
            let mut given = body(&index.to_string(), 9001);
            let members = &mut given["serviceArguments"];
            members["id"] = json!(format!("id-{index}"));
            members["host"] = json!(host);
            members["model_name"] = json!(model);
            members["path_prefix"] = json!(path);
            members["path_match_mode"] = json!(if path.is_empty() { "disabled" } else { "prefix" });
            rules.upsert(&given, "", &reading()).unwrap();
        }
        rules
    }

    fn selected(host: Option<&str>, path: Option<&str>, model: Option<&str>) -> String {
        let rules = set();
        let by = Selection { vip: ([127, 0, 0, 1], 9001).into(), host, model, path };
        match rules.select(&by) {
            Ok(index) => rules.entries()[index].rule.name.clone(),
            Err(refusal) => refusal.code().into(),
        }
    }

    #[test]
    fn what_is_not_said_prefers_the_rule_that_leaves_it_open() {
        assert_eq!(selected(None, None, None), "0");
        assert_eq!(selected(Some("A.example"), None, None), "1");
        assert_eq!(selected(Some("a.example"), Some("/v1"), None), "2");
        assert_eq!(selected(None, None, Some("m")), "3");
        assert_eq!(selected(None, Some("/v1"), Some("m")), "4");
        assert_eq!(selected(None, Some("/v2"), None), "no_such_rule");
        assert_eq!(selected(None, Some("/v1"), None), "2", "of 2 and 4 the one that leaves the model open");
    }

    #[test]
    fn an_address_is_taken_from_a_path_with_or_without_its_prefix_length() {
        let at = |ip| address(ip, "80", "tcp").map(|a| a.to_string()).map_err(|r| r.to_string());
        assert_eq!(at("10.0.0.1/32").unwrap(), "10.0.0.1:80");
        assert_eq!(at("::1").unwrap(), "[::1]:80");
        assert!(at("10.0.0.0/8").unwrap_err().contains("externalIP"));
        assert_eq!(address("10.0.0.1", "80", "udp").unwrap_err().status(), 400);
        assert_eq!(address("10.0.0.1", "65536", "tcp").unwrap_err().status(), 400);
    }

    #[test]
    fn the_order_of_rules_does_not_depend_on_the_order_of_their_coming() {
        let named = |port: u16| {
            let mut given = body("r", port);
            given["serviceArguments"]["id"] = json!(port.to_string());
            given
        };
        let (mut one, mut other) = (RuleSet::default(), RuleSet::default());
        for (a, b) in [(9001, 9003), (9002, 9002), (9003, 9001)] {
            one.upsert(&named(a), "", &reading()).unwrap();
            other.upsert(&named(b), "", &reading()).unwrap();
        }
        assert_eq!(one.bodies(), other.bodies());
    }
}
