//! What a row of the admin API is, the one table of all rows, and how a request finds its own. Owns what a row
//! says; the rows stand with their handlers. Must never answer a path that the table does not list.

use crate::answer::Answer;
use crate::change::Wanted;
use crate::gateway::Gateway;
use crate::page;
use crate::refusal::Refusal;
use crate::rest::forms::{self, Form};
use crate::rest::{
    attest, capabilities, diagnostics, explain, history, hosts, kv, load_balancer, maintenance, models,
    openapi, overview, params, profiles, snapshot, status,
};
use crate::serve::BODY_MAX;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use warmpath_core::control::{KvPlane, KvReport, ShardReport};

/// One request, taken apart.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// What stood in the place of each `{name}` of the pattern.
    pub params: Params,
    /// Query members, decoded, in order.
    pub query: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// What a handler gives back.
pub type Answered = Result<Answer, Refusal>;

/// A question to the event core, which may block shortly: answered beside the admin thread.
pub type KvAsk = Box<dyn FnOnce(&dyn KvPlane) -> Answered + Send>;

/// How a row is answered.
#[derive(Clone, Copy)]
pub enum Handler {
    /// From the admin thread's own state.
    Own(fn(&Gateway, &Call) -> Answered),
    /// By a change of the admin thread's own state that no restart remembers.
    Switch(fn(&mut Gateway, &Call) -> Answered),
    /// When the change it wants was made.
    Change(fn(&Gateway, &Call) -> Result<Wanted, Refusal>),
    /// With a report of every shard.
    Reports(fn(&Gateway, &Call, &[ShardReport]) -> Answered),
    /// With a report of every shard and one of the event core, if it answers.
    AllReports(fn(&Gateway, &Call, &[ShardReport], Option<&KvReport>) -> Answered),
    /// By the event core; what is asked follows from the call and the admin thread's state.
    Kv(fn(&Gateway, &Call) -> Result<KvAsk, Refusal>),
}

/// A row of the table.
#[derive(Clone, Copy)]
pub struct Route {
    /// HTTP method.
    pub method: &'static str,
    /// Path; `{name}` stands for one segment.
    pub path: &'static str,
    /// Who answers.
    pub handler: Handler,
    /// What it does.
    pub doc: &'static str,
    /// The members of the query that mean something.
    pub query: &'static [Query],
    /// Bytes that its body may have.
    pub body_max: usize,
    /// What its body is; `None`: it has none.
    pub takes: Option<&'static Form>,
    /// What it answers; `None`: text that is no JSON.
    pub gives: Option<&'static Form>,
}

/// A member of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Its name.
    pub name: &'static str,
    /// Whether the call is refused without it.
    pub needed: bool,
    /// What it says.
    pub doc: &'static str,
}

impl Query {
    /// A member that may be left out.
    pub const fn may(name: &'static str, doc: &'static str) -> Query {
        Query { name, needed: false, doc }
    }

    /// A member that must be there.
    pub const fn must(name: &'static str, doc: &'static str) -> Query {
        Query { name, needed: true, doc }
    }
}

impl Route {
    /// A row; its query means nothing.
    pub const fn new(method: &'static str, path: &'static str, handler: Handler, doc: &'static str) -> Route {
        Route {
            method,
            path,
            handler,
            doc,
            query: &[],
            body_max: BODY_MAX,
            takes: None,
            gives: Some(&forms::ANY),
        }
    }

    /// A GET answered from the admin thread's own state.
    pub const fn own(
        path: &'static str,
        handler: fn(&Gateway, &Call) -> Answered,
        doc: &'static str,
    ) -> Route {
        Route::new("GET", path, Handler::Own(handler), doc)
    }

    /// A change of the rules.
    pub const fn change(
        method: &'static str,
        path: &'static str,
        handler: fn(&Gateway, &Call) -> Result<Wanted, Refusal>,
        doc: &'static str,
    ) -> Route {
        Route::new(method, path, Handler::Change(handler), doc).gives(&forms::SUCCESS)
    }

    /// A GET that needs the shards' reports.
    pub const fn reports(
        path: &'static str,
        handler: fn(&Gateway, &Call, &[ShardReport]) -> Answered,
        doc: &'static str,
    ) -> Route {
        Route::new("GET", path, Handler::Reports(handler), doc)
    }

    /// A question to the event core.
    pub const fn event_core(
        method: &'static str,
        path: &'static str,
        handler: fn(&Gateway, &Call) -> Result<KvAsk, Refusal>,
        doc: &'static str,
    ) -> Route {
        Route::new(method, path, Handler::Kv(handler), doc)
    }

    /// The same with bodies up to `bytes`.
    pub const fn up_to(mut self, bytes: usize) -> Route {
        self.body_max = bytes;
        self
    }

    /// The same with a body.
    pub const fn takes(mut self, form: &'static Form) -> Route {
        self.takes = Some(form);
        self
    }

    /// The same with this answer.
    pub const fn gives(mut self, form: &'static Form) -> Route {
        self.gives = Some(form);
        self
    }

    /// The same with an answer that is no JSON.
    pub const fn gives_text(mut self) -> Route {
        self.gives = None;
        self
    }

    /// The same with these members of the query.
    pub const fn query(mut self, query: &'static [Query]) -> Route {
        self.query = query;
        self
    }
}

/// Where everything is served.
pub const ROOT: &str = "/netlox/v1";

const INDEX: &[Route] = &[Route::own("/netlox/v1", index, "this list")];

/// The table, a part for each subject: a new path is a line in its subject's file.
const PARTS: &[&[Route]] = &[
    INDEX,
    attest::ROUTES,
    capabilities::ROUTES,
    diagnostics::ROUTES,
    explain::ROUTES,
    hosts::ROUTES,
    kv::ROUTES,
    load_balancer::ROUTES,
    maintenance::ROUTES,
    models::ROUTES,
    history::ROUTES,
    openapi::ROUTES,
    overview::ROUTES,
    page::ROUTES,
    params::ROUTES,
    profiles::ROUTES,
    snapshot::ROUTES,
    status::ROUTES,
];

/// All rows.
pub fn routes() -> impl Iterator<Item = &'static Route> {
    PARTS.iter().copied().flatten()
}

/// The values of a path, by the names of its pattern.
pub type Params = Vec<(&'static str, String)>;

/// The row for a request and the values of its path.
pub fn find(method: &str, path: &str) -> Result<(&'static Route, Params), Refusal> {
    let path = if path == "/" { page::PATH } else { path.trim_end_matches('/') };
    let mut allowed = Vec::new();
    for route in routes() {
        if let Some(params) = fit(route.path, path) {
            if route.method == method {
                return Ok((route, params));
            }
            allowed.push(route.method);
        }
    }
    match allowed.is_empty() {
        true => Err(Refusal::NoPath(path.into())),
        false => Err(Refusal::WrongMethod { allowed: allowed.join(", ") }),
    }
}

/// Members of a query string, decoded; `+` is a blank, as forms write it.
pub fn query(text: &str) -> Vec<(String, String)> {
    let decode = |part: &str| decoded(&part.replace('+', " "));
    let members = text.split('&').filter(|m| !m.is_empty());
    members.map(|m| m.split_once('=').unwrap_or((m, ""))).map(|(k, v)| (decode(k), decode(v))).collect()
}

impl Call {
    /// The body as JSON.
    pub fn json(&self) -> Result<Value, Refusal> {
        serde_json::from_slice(&self.body).map_err(|e| Refusal::NotJson(e.to_string()))
    }

    /// The body as text; JSON is UTF-8.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }

    /// Whether the call asks for more than to be told what it would do: `mode=commit`.
    pub fn commits(&self) -> Result<bool, Refusal> {
        match self.query("mode") {
            Some("commit") => Ok(true),
            None | Some("dry-run") => Ok(false),
            Some(other) => Err(Refusal::Argument {
                name: "mode",
                value: other.into(),
                allowed: "commit, or dry-run, which is also meant by nothing",
            }),
        }
    }

    /// The value of `{name}`; empty if the pattern has none.
    pub fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(n, _)| *n == name).map_or("", |(_, v)| v)
    }

    /// The first query member of this name.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// A query member that must be there; `allowed` says what it is.
    pub fn needed(&self, name: &'static str, allowed: &'static str) -> Result<&str, Refusal> {
        self.query(name).ok_or(Refusal::Missing { name, allowed })
    }

    /// A query member as a number, `otherwise` if absent.
    pub fn number(&self, name: &'static str, otherwise: u64) -> Result<u64, Refusal> {
        let Some(text) = self.query(name) else { return Ok(otherwise) };
        let bad = |_| Refusal::Argument { name, value: text.into(), allowed: "a whole number" };
        text.parse().map_err(bad)
    }
}

fn fit(pattern: &'static str, path: &str) -> Option<Params> {
    let mut params = Vec::new();
    let mut given = path.split('/');
    for wanted in pattern.split('/') {
        let segment = given.next()?;
        match wanted.strip_prefix('{').and_then(|w| w.strip_suffix('}')) {
            Some(name) => params.push((name, decoded(segment))),
            None if wanted == segment => {}
            None => return None,
        }
    }
    given.next().is_none().then_some(params)
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn index(_: &Gateway, _: &Call) -> Answered {
    let rows = routes().map(|r| json!({"method": r.method, "path": r.path, "doc": r.doc}));
    Ok(Answer::json(200, &json!({"routes": rows.collect::<Vec<_>>()})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_finds_its_row_and_its_values() {
        let path = "/netlox/v1/config/loadbalancer/externalipaddress/%3A%3A1/port/80/protocol/tcp";
        let (route, params) = find("DELETE", path).unwrap();
        assert_eq!((route.method, route.path), ("DELETE", load_balancer::RULE));
        assert_eq!(params, [("ip", "::1".into()), ("port", "80".into()), ("protocol", "tcp".into())]);
        assert!(find("GET", &format!("{path}/status")).is_ok());
        assert!(find("GET", "/netlox/v1/config/loadbalancer/all/").is_ok());
    }

    #[test]
    fn an_unknown_path_and_a_wrong_method_are_told_apart() {
        assert!(matches!(find("GET", "/netlox/v1/nothing"), Err(Refusal::NoPath(_))));
        let Err(Refusal::WrongMethod { allowed }) = find("PUT", "/netlox/v1/config/loadbalancer/all") else {
            panic!("a wrong method was not seen");
        };
        assert_eq!(allowed, "GET, DELETE");
    }

    #[test]
    fn queries_are_decoded() {
        assert_eq!(
            query("model_name=meta%2Fllama+3&x"),
            [("model_name".into(), "meta/llama 3".into()), ("x".into(), "".into())]
        );
    }

    #[test]
    fn every_row_can_be_reached_and_no_two_rows_are_the_same() {
        for route in routes() {
            let path: Vec<_> =
                route.path.split('/').map(|s| if s.starts_with('{') { "1" } else { s }).collect();
            let (found, _) = find(route.method, &path.join("/")).unwrap();
            assert_eq!((found.path, found.doc), (route.path, route.doc));
        }
    }
}
