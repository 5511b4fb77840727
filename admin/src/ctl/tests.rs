//! The verbs against a running admin thread.

use super::*;
use crate::fake::{FakePlane, Running, body};
use clap::Parser;
use serde_json::json;
use std::sync::Arc;
use warmpath_core::control::ShardReport;
use warmpath_core::decide::Reason;
use warmpath_core::receipt::{Outcome, Receipt};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    ctl: CtlArgs,
}

/// What `warmpath ctl` prints for these words, or its sentence.
pub fn ctl(gateway: &Running, words: &[&str]) -> Result<String, String> {
    let socket = gateway.options.socket.to_str().unwrap();
    let line = Line::try_parse_from(["ctl", "--socket", socket].iter().chain(words)).unwrap();
    let mut out = Vec::new();
    let done = run_ctl(&line.ctl, &mut out);
    done.map(|()| String::from_utf8(out).unwrap()).map_err(|e| e.0)
}

fn file(folder: &tempfile::TempDir, text: &str) -> String {
    let path = folder.path().join("rules.json");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().into()
}

#[test]
fn rules_are_applied_listed_shown_and_deleted() {
    let (plane, folder) = (FakePlane::new(), tempfile::tempdir().unwrap());
    let gateway = Running::start(&plane);
    let path = file(&folder, &json!([body("chat a", 9001), body("b", 9002)]).to_string());
    assert_eq!(
        ctl(&gateway, &["rules", "apply", "-f", &path]).unwrap(),
        "2 created or replaced, 0 unchanged\n"
    );
    assert_eq!(
        ctl(&gateway, &["rules", "apply", "-f", &path]).unwrap(),
        "0 created or replaced, 2 unchanged\n"
    );
    let list = ctl(&gateway, &["rules", "list"]).unwrap();
    assert!(list.lines().count() == 3 && list.contains("chat a"), "{list}");
    let rule: Value = serde_json::from_str(&ctl(&gateway, &["rules", "get", "chat a"]).unwrap()).unwrap();
    let id = rule["serviceArguments"]["id"].as_str().unwrap();
    assert_eq!(ctl(&gateway, &["rules", "delete", id]).unwrap(), format!("deleted {id}\n"));
    assert_eq!(plane.names(), ["b"]);
    let sentence = ctl(&gateway, &["rules", "delete", "chat a"]).unwrap_err();
    assert!(sentence.contains("refused (404)") && sentence.contains("chat a"), "{sentence}");
}

#[test]
fn a_refused_file_is_named_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Running::start(&FakePlane::new());
    let mut bad = body("b", 9002);
    bad["serviceArguments"]["sell"] = json!(4);
    let path = file(&folder, &format!("[{},\n{}]", body("a", 9001), bad));
    let sentence = ctl(&gateway, &["rules", "apply", "-f", &path]).unwrap_err();
    assert!(sentence.contains("rules.json:2:") && sentence.contains("serviceArguments.sell"), "{sentence}");
}

fn receipt(id: &str, at: u64) -> Receipt {
    Receipt {
        at,
        id: id.into(),
        service: 1,
        model: "m".into(),
        endpoint: Some(([10, 0, 0, 1], 8000).into()),
        exact: None,
        pair: None,
        reason: Some(Reason::LeastLoad),
        status: 200,
        outcome: Outcome::Completed,
        streamed: true,
        first_byte: 1_500_000,
        total: 2_000_000,
        bytes_out: 10,
        retries: 0,
    }
}

fn two_shards() -> Arc<FakePlane> {
    let plane = FakePlane::new();
    let report = |shard, receipts| ShardReport { shard, receipts, ..ShardReport::default() };
    *plane.reports.lock().unwrap() = vec![
        report(0, vec![receipt("first", 10_000_000_000), receipt("third", 30_000_000_000)]),
        report(1, vec![receipt("second", 20_000_000_000)]),
    ];
    plane
}

#[test]
fn receipts_of_all_shards_are_shown_in_their_order() {
    let gateway = Running::start(&two_shards());
    let table = ctl(&gateway, &["receipts"]).unwrap();
    assert_eq!(table.lines().count(), 4);
    assert!(table.lines().nth(1).unwrap().contains("10.0.0.1:8000"), "{table}");
    let json: Value =
        serde_json::from_str(&ctl(&gateway, &["-o", "json", "receipts", "--last", "2"]).unwrap()).unwrap();
    let shown = json["receipts"].as_array().unwrap();
    let ids: Vec<_> = shown.iter().map(|r| r["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["second", "third"]);
    assert_eq!(shown[1]["time_ms"], 1_700_000_000_000_u64 - 30_000, "half a minute before now");
    assert_eq!((&shown[0]["shard"], &json["cursor"]), (&json!(1), &json!(30_000_000_000_u64)));
    let later = gateway.tcp("GET", "/netlox/v1/receipts?since=20000000000", "").1;
    assert_eq!(later["receipts"].as_array().unwrap().len(), 1);
    assert_eq!(gateway.tcp("GET", "/netlox/v1/receipts?last=some", "").0, 400);
}

/// Takes what is printed, and closes after `left` lines.
struct Reader {
    left: usize,
    text: String,
}

impl Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.left -= bytes.iter().filter(|b| **b == b'\n').count();
        self.text.push_str(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn following_prints_what_comes_and_ends_with_its_reader() {
    let plane = two_shards();
    let gateway = Running::start(&plane);
    let socket = gateway.options.socket.to_str().unwrap();
    let line = Line::try_parse_from(["ctl", "--socket", socket, "receipts", "-f"]).unwrap();
    let mut out = Reader { left: 3, text: String::new() };
    run_ctl(&line.ctl, &mut out).unwrap();
    assert_eq!(out.text.lines().count(), 3);
    let line = Line::try_parse_from(["ctl", "--socket", socket, "explain", "-f"]).unwrap();
    let mut out = Reader { left: 3, text: String::new() };
    run_ctl(&line.ctl, &mut out).unwrap();
    let order: Vec<_> = ["AGE", "first", "second"].map(|word| out.text.find(word)).into();
    assert!(order.is_sorted() && order[0].is_some(), "oldest first: {}", out.text);
    assert!(Line::try_parse_from(["ctl", "explain", "-f", "some"]).is_err(), "one id does not go on");
}

#[test]
fn ready_and_shards_are_shown_and_not_ready_fails() {
    let plane = two_shards();
    let gateway = Running::start(&plane);
    assert!(ctl(&gateway, &["ready"]).unwrap().starts_with("ready: generation 1, 0 rules\n"));
    assert_eq!(ctl(&gateway, &["shards"]).unwrap().lines().count(), 3);
    plane.reports.lock().unwrap().clear();
    assert_eq!(ctl(&gateway, &["ready"]).unwrap_err(), "the gateway is not ready");
}

#[test]
fn a_gateway_that_is_not_there_is_said_with_its_cure() {
    let line = Line::try_parse_from(["ctl", "--socket", "nowhere.sock", "ready"]).unwrap();
    let sentence = run_ctl(&line.ctl, &mut Vec::new()).unwrap_err().0;
    assert!(sentence.contains("nowhere.sock") && sentence.contains("--socket"), "{sentence}");
}

#[test]
fn the_verbs_of_the_loxilb_command_line_work_and_a_refusal_is_a_failure() {
    let (plane, folder) = (FakePlane::new(), tempfile::tempdir().unwrap());
    let gateway = Running::start(&plane);
    let create = ["create", "lb", "127.0.0.1", "--tcp=9001:8000", "--endpoints=127.0.0.1:1", "--name=chat"];
    assert_eq!(ctl(&gateway, &create).unwrap(), "done\n");
    assert!(ctl(&gateway, &create).unwrap_err().contains("lbrule-exists"));
    let sentence = ctl(&gateway, &[&create[..], &["--security=e2etls"]].concat()).unwrap_err();
    assert!(
        sentence.contains("refused (400)") && sentence.contains("serviceArguments.security"),
        "{sentence}"
    );
    let more = [&create[..4], &["--endpoints=127.0.0.2:1", "--attachEP"]].concat();
    assert_eq!(ctl(&gateway, &more).unwrap(), "done\n");
    let wide = ctl(&gateway, &["get", "lb", "-o", "wide"]).unwrap();
    assert!(wide.contains("127.0.0.1:8000,127.0.0.2:8000") && wide.contains("ENGINE"), "{wide}");

    let history = ctl(&gateway, &["history", "chat"]).unwrap();
    assert_eq!(history.lines().count(), 3, "{history}");
    let told = ctl(&gateway, &["rollback", "chat", "1"]).unwrap();
    assert!(told.contains("endpoints") && told.ends_with("--commit does it\n"), "{told}");
    assert!(ctl(&gateway, &["rollback", "chat", "1", "--commit"]).unwrap().ends_with("done\n"));
    assert!(ctl(&gateway, &["rollback", "chat", "9"]).unwrap_err().contains("no such change"));

    let path = folder.path().join("all.json");
    let path = path.to_str().unwrap();
    assert!(ctl(&gateway, &["save", path]).unwrap().contains(path));
    assert_eq!(ctl(&gateway, &["delete", "lb", "127.0.0.1", "--tcp=9001"]).unwrap(), "done\n");
    assert!(ctl(&gateway, &["delete", "lb", "--name=chat"]).unwrap_err().contains("not-exists"));
    assert!(ctl(&gateway, &["create", "restore", path]).unwrap().starts_with("create chat 127.0.0.1:9001"));
    assert!(plane.names().is_empty());
    assert!(ctl(&gateway, &["create", "restore", path, "--commit"]).unwrap().ends_with("done\n"));
    assert_eq!(plane.names(), ["chat"]);
    assert_eq!(ctl(&gateway, &["create", "persist"]).unwrap(), "done\n");

    assert_eq!(ctl(&gateway, &["create", "endpoint", "127.0.0.1", "--probetype=none"]).unwrap(), "done\n");
    assert!(ctl(&gateway, &["get", "endpoint"]).unwrap().contains("127.0.0.1  -     none"));
    assert_eq!(ctl(&gateway, &["delete", "endpoint", "127.0.0.1"]).unwrap(), "done\n");
    assert!(ctl(&gateway, &["get", "capabilities"]).unwrap().contains("KV_EXACT_SEED_UNSET"));
    assert!(ctl(&gateway, &["get", "metrics"]).unwrap().contains("warmpath_rules 1"));
    assert_eq!(ctl(&gateway, &["set", "metrics", "--disable"]).unwrap(), "done\n");
    assert!(ctl(&gateway, &["get", "metrics"]).unwrap_err().contains("switched off"));
    assert_eq!(ctl(&gateway, &["delete", "lb", "--all"]).unwrap(), "done\n");
}

#[test]
fn ctl_asks_over_tcp_with_the_token_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let (token, line) = crate::access::fresh("ops").unwrap();
    let (tokens, own) = (folder.path().join("tokens"), folder.path().join("own"));
    std::fs::write(&tokens, line).unwrap();
    std::fs::write(&own, token + "\n").unwrap();
    let mut options = crate::fake::options(folder.path());
    options.admin_tokens = Some(tokens);
    let gateway = Running::with(options, &FakePlane::new());
    let port = gateway.address.port().to_string();
    let place = ["-s", "127.0.0.1", "-p", &port];
    assert!(
        ctl(&gateway, &[&place[..], &["ready"]].concat())
            .unwrap_err()
            .contains("refused (401): invalid token")
    );
    let own = own.to_str().unwrap();
    let ready = ctl(&gateway, &[&place[..], &["--token-file", own, "ready"]].concat()).unwrap();
    assert!(ready.starts_with("ready"), "{ready}");
    let made = ctl(&gateway, &["token", "ops"]).unwrap();
    assert!(made.contains("wpt_") && made.contains("ops "), "{made}");
}
