//! The admin thread over real sockets, with shards that only remember.

use super::*;
use crate::fake::disk::HangingDisk;
use crate::fake::{FakePlane, PATIENCE, Running, body, exchange, options, outside, request};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use warmpath_core::control::{DrainPhase, ShardReport};

const LB: &str = "/netlox/v1/config/loadbalancer";

fn at(port: u16) -> String {
    format!("{LB}/externalipaddress/127.0.0.1/port/{port}/protocol/tcp")
}

#[test]
fn a_rule_lives_from_post_to_delete_over_both_doors() {
    let plane = FakePlane::new();
    let gateway = Running::start(&plane);
    let text = body("a", 9001).to_string();
    assert_eq!(gateway.tcp("POST", LB, &text), (200, json!({"result": "Success"})));
    assert_eq!(plane.names(), ["a"]);
    let (status, error) = gateway.unix("POST", LB, &text);
    assert_eq!((status, &error["reason_code"]), (409, &json!("rule_exists")));
    assert!(error["result"].as_str().unwrap().contains("lbrule-exists error"));

    let (status, list) = gateway.unix("GET", &format!("{LB}/all"), "");
    assert_eq!(status, 200);
    let rule = &list["lbAttr"][0];
    assert_eq!(rule["serviceArguments"]["name"], "a");
    assert_eq!(rule["endpoints"][0]["state"], "active");
    let id = rule["serviceArguments"]["id"].as_str().unwrap();
    assert_eq!(gateway.tcp("GET", &format!("{LB}/id/{id}"), "").1, *rule);
    assert_eq!(gateway.tcp("GET", &at(9001), "").1, *rule);

    assert_eq!(gateway.tcp("DELETE", &at(9001), ""), (200, json!({"result": "Success"})));
    assert!(plane.names().is_empty());
    let (status, error) = gateway.tcp("DELETE", &at(9001), "");
    assert_eq!((status, &error["code"]), (404, &json!(404)));
    assert!(error["result"].as_str().unwrap().contains("not-exists"));
}

#[test]
fn a_replaced_rule_keeps_its_id_and_its_number() {
    let plane = FakePlane::new();
    let gateway = Running::start(&plane);
    let mut rule = body("a", 9001);
    gateway.tcp("POST", LB, &rule.to_string());
    let id = gateway.tcp("GET", &at(9001), "").1["serviceArguments"]["id"].clone();
    rule["endpoints"][0]["weight"] = json!(3);
    assert_eq!(gateway.tcp("POST", LB, &rule.to_string()).0, 200);
    let after = gateway.tcp("GET", &at(9001), "").1;
    assert_eq!((&after["serviceArguments"]["id"], &after["endpoints"][0]["weight"]), (&id, &json!(3)));
    let tables = plane.tables.lock().unwrap();
    let numbers: Vec<_> = tables.iter().filter_map(|t| Some(t.vips.first()?.services[0].number)).collect();
    assert_eq!(numbers[0], *numbers.last().unwrap());
    assert_eq!(plane_service(&tables).rule.endpoints[0].weight, 3);
}

fn plane_service(tables: &[Arc<warmpath_core::table::Table>]) -> &warmpath_core::table::Service {
    &tables.last().unwrap().vips[0].services[0]
}

#[test]
fn a_rule_is_selected_by_model_and_by_name() {
    let plane = FakePlane::new();
    let gateway = Running::start(&plane);
    for model in ["", "m1", "m2"] {
        let mut rule = body(&format!("pool-{model}"), 9001);
        rule["serviceArguments"]["model_name"] = json!(model);
        assert_eq!(gateway.tcp("POST", LB, &rule.to_string()).0, 200);
    }
    assert_eq!(
        gateway.tcp("GET", &format!("{}?model_name=m2", at(9001)), "").1["serviceArguments"]["name"],
        "pool-m2"
    );
    assert_eq!(gateway.tcp("DELETE", &at(9001), "").0, 200);
    assert_eq!(plane.names(), ["pool-m1", "pool-m2"]);
    let (status, error) = gateway.tcp("DELETE", &at(9001), "");
    assert_eq!((status, &error["reason_code"]), (409, &json!("ambiguous")));
    assert_eq!(gateway.unix("DELETE", &format!("{LB}/name/pool-m1"), "").0, 200);
    assert_eq!(plane.names(), ["pool-m2"]);
    assert_eq!(gateway.unix("DELETE", &format!("{LB}/all"), "").0, 200);
    assert!(plane.names().is_empty());
}

#[test]
fn refusals_say_what_and_change_nothing() {
    let plane = FakePlane::new();
    let gateway = Running::start(&plane);
    let (status, error) = gateway.tcp("POST", LB, "{\"a\":\n}");
    assert_eq!((status, &error["reason_code"]), (400, &json!("invalid_json")));
    assert!(error["result"].as_str().unwrap().contains("line 2 column 1"));
    let mut rule = body("a", 9001);
    rule["serviceArguments"]["externalIP"] = json!("nowhere");
    let (status, error) = gateway.tcp("POST", LB, &rule.to_string());
    assert!((400..500).contains(&status));
    assert_eq!(error["member"], "serviceArguments.externalIP");
    assert_ne!(error["allowed"], json!(null));
    assert_eq!(gateway.tcp("GET", "/netlox/v1/nothing", "").0, 404);
    assert_eq!(gateway.tcp("POST", LB, &" ".repeat(crate::serve::BODY_MAX + 1)).0, 413);
    let (status, error) = gateway.tcp("GET", &format!("{LB}/externalipaddress/x/port/1/protocol/tcp"), "");
    assert_eq!((status, &error["member"]), (400, &json!("externalIP")));
    assert_eq!(plane.tables.lock().unwrap().len(), 1, "only the empty table of the start");
}

#[test]
fn an_exact_rule_reads_back_with_its_terms_and_its_refusals_have_a_code() {
    let gateway = Running::start(&FakePlane::new());
    let mut rule = body("exact", 9001);
    rule["serviceArguments"]["kvExactMode"] = json!(3);
    rule["serviceArguments"]["kvEngineType"] = json!("sglang");
    assert_eq!(gateway.tcp("POST", LB, &rule.to_string()).0, 200);
    let shown = gateway.tcp("GET", &at(9001), "").1;
    let service = &shown["serviceArguments"];
    assert_eq!((&service["kvExactMode"], &service["kvHashAlgo"]), (&json!(3), &json!("sha256_sglang")));
    let (status, error) = gateway.tcp("POST", LB, &shown.to_string());
    assert_eq!((status, &error["reason_code"]), (409, &json!("rule_exists")));
    rule["serviceArguments"]["kvEngineType"] = json!("trtllm");
    let (status, error) = gateway.tcp("POST", LB, &rule.to_string());
    assert_eq!((status, &error["reason_code"]), (409, &json!("engine_type_fixed")));
    assert!(error["result"].as_str().unwrap().starts_with("cant modify rule kv engine type"), "{error}");
    rule["serviceArguments"]["kvEngineType"] = json!("vllm");
    rule["serviceArguments"]["port"] = json!(9002);
    let (status, error) = gateway.tcp("POST", LB, &rule.to_string());
    assert_eq!((status, &error["reason_code"]), (412, &json!("KV_EXACT_SEED_UNSET")));
    assert_eq!(error["member"], "serviceArguments.kvExactMode");
}

#[test]
fn a_wrong_method_is_told_the_right_ones() {
    let gateway = Running::start(&FakePlane::new());
    let answer = exchange(
        TcpStream::connect(gateway.address).unwrap(),
        &request("PUT", &format!("{LB}/all"), "127.0.0.1", ""),
    );
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("allow: get, delete\r\n"), "{answer}");
}

#[test]
fn head_is_get_without_the_body() {
    let gateway = Running::start(&FakePlane::new());
    let ask = request("HEAD", "/netlox/v1/status/ready", "127.0.0.1", "");
    let answer = exchange(TcpStream::connect(gateway.address).unwrap(), &ask);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn requests_of_web_pages_are_refused_over_tcp() {
    let gateway = Running::start(&FakePlane::new());
    let ask = |head: &str| {
        let request = format!("GET /netlox/v1 HTTP/1.1\r\nConnection: close\r\n{head}\r\n\r\n");
        exchange(TcpStream::connect(gateway.address).unwrap(), &request)[9..12].to_string()
    };
    assert_eq!(ask("Host: localhost:11111"), "200");
    assert_eq!(ask("Host: [::1]:11111"), "200");
    assert_eq!(ask("Host: evil.example"), "403");
    assert_eq!(ask("Host: localhost\r\nOrigin: http://evil.example"), "403");
}

#[test]
fn accepted_rules_are_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let plane = FakePlane::new();
    let first = Running::with(options(folder.path()), &plane);
    first.tcp("POST", LB, &body("a", 9001).to_string());
    first.tcp("POST", LB, &body("b", 9002).to_string());
    first.tcp("DELETE", &at(9001), "");
    let kept = first.tcp("GET", &format!("{LB}/all"), "").1;
    drop(first);
    let plane = FakePlane::new();
    let second = Running::with(options(folder.path()), &plane);
    assert_eq!(plane.names(), ["b"]);
    assert_eq!(second.tcp("GET", &format!("{LB}/all"), "").1, kept);
    assert_eq!(second.tcp("GET", "/netlox/v1/status/ready", "").1["generation"], 5);
}

#[test]
fn a_list_is_applied_whole_or_not_at_all() {
    let plane = FakePlane::new();
    let gateway = Running::start(&plane);
    let mut bad = body("c", 9003);
    bad["serviceArguments"]["port"] = json!("x");
    let (status, error) =
        gateway.unix("POST", "/netlox/v1/rules", &json!([body("a", 9001), bad]).to_string());
    assert!((400..500).contains(&status));
    assert_eq!((&error["rule"], &error["member"]), (&json!(1), &json!("serviceArguments.port")));
    assert!(plane.names().is_empty());
    let both = json!([body("a", 9001), body("b", 9002)]).to_string();
    assert_eq!(gateway.unix("POST", "/netlox/v1/rules", &both).1["changed"], 2);
    assert_eq!(gateway.unix("POST", "/netlox/v1/rules", &both).1["changed"], 0);
    assert_eq!(plane.names(), ["a", "b"]);
}

#[test]
fn going_down_takes_its_steps_in_order() {
    let plane = FakePlane::new();
    let mut gateway = Running::start(&plane);
    assert_eq!(gateway.tcp("GET", "/netlox/v1/status/ready", "").0, 200);
    plane.reports.lock().unwrap()[0].active = 1;
    gateway.signal();
    while !plane.phases.lock().unwrap().contains(&DrainPhase::Closing) {
        std::thread::yield_now();
    }
    let (status, ready) = gateway.tcp("GET", "/netlox/v1/status/ready", "");
    assert_eq!((status, &ready["ready"]), (503, &json!(false)));
    assert_eq!(gateway.tcp("POST", LB, &body("a", 9001).to_string()).0, 503);
    plane.reports.lock().unwrap()[0].active = 0;
    gateway.join();
    let phases = plane.phases.lock().unwrap();
    assert_eq!(phases[..], [DrainPhase::LameDuck, DrainPhase::Closing, DrainPhase::Cutting]);
    assert!(!gateway.options.socket.exists());
}

#[test]
fn what_still_runs_is_cut_after_the_drain_timeout() {
    let (plane, folder) = (FakePlane::new(), tempfile::tempdir().unwrap());
    plane.reports.lock().unwrap()[0].active = 1;
    let options = Options { drain_timeout: Duration::ZERO, ..options(folder.path()) };
    let mut gateway = Running::with(options, &plane);
    gateway.signal();
    gateway.join();
    assert_eq!(plane.phases.lock().unwrap().last(), Some(&DrainPhase::Cutting));
}

#[test]
fn a_second_signal_cuts_at_once() {
    let plane = FakePlane::new();
    plane.reports.lock().unwrap().push(ShardReport { active: 1, ..ShardReport::default() });
    let mut gateway = Running::start(&plane);
    gateway.signal();
    gateway.signal();
    gateway.join();
    assert_eq!(plane.phases.lock().unwrap().last(), Some(&DrainPhase::Cutting));
}

#[test]
fn the_socket_is_private_and_a_leftover_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path());
    drop(std::os::unix::net::UnixListener::bind(&options.socket).unwrap());
    let gateway = Running::with(options.clone(), &FakePlane::new());
    let mode = std::fs::metadata(&options.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(gateway.unix("GET", "/netlox/v1", "").0, 200);

    let mut rival = options.clone();
    rival.state_dir = folder.path().join("other");
    let sentence = start_fault(&rival);
    assert!(
        sentence.contains("another gateway listens on it") && sentence.contains("--socket"),
        "{sentence}"
    );
    rival.socket = folder.path().join("other.sock");
    rival.state_dir = options.state_dir;
    let sentence = start_fault(&rival);
    assert!(sentence.contains("in use by another gateway") && sentence.contains("--state-dir"), "{sentence}");
    std::fs::write(&rival.socket, "mine").unwrap();
    assert!(start_fault(&rival).contains("a file of another kind"));
    assert_eq!(std::fs::read(&rival.socket).unwrap(), b"mine");
}

#[test]
fn an_admin_address_that_others_reach_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    options.admin = ([0, 0, 0, 0], 0).into();
    assert!(start_fault(&options).contains("--admin-tokens FILE"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    options.admin = taken.local_addr().unwrap();
    assert!(start_fault(&options).contains("choose another with --admin"));
}

fn start_fault(options: &Options) -> String {
    let (_tell, stop) = channel(1);
    let plane = FakePlane::new();
    run_until(options, outside(&plane), Box::new(RealDisk), |_| panic!("it started"), stop, None)
        .unwrap_err()
        .0
}

#[test]
fn an_endpoint_that_stops_listening_is_taken_out_and_brought_back() {
    let endpoint = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = endpoint.local_addr().unwrap();
    let plane = FakePlane::new();
    let gateway = Running::start(&plane);
    assert_eq!(gateway.tcp("POST", LB, &probed("a", address)).0, 200);
    let state = plane_service(&plane.tables.lock().unwrap()).endpoints[0].clone();
    drop(endpoint);
    wait_until(|| state.probed_down());
    assert_eq!(gateway.tcp("GET", &at(9001), "").1["endpoints"][0]["state"], "inactive");
    let status = gateway.tcp("GET", &format!("{}/status", at(9001)), "").1;
    assert_eq!(status["probes_disbelieved"], true);
    assert!(status["endpoints"][0]["probes"][0]["last_fault"].as_str().unwrap().contains("can't connect"));
    let ready = gateway.tcp("GET", "/netlox/v1/status/ready", "");
    assert_eq!((ready.0, ready.1["warnings"].as_array().unwrap().len()), (200, 1));
    let _endpoint = std::net::TcpListener::bind(address).unwrap();
    wait_until(|| !state.probed_down());
}

/// A rule body whose one endpoint is probed each second.
fn probed(name: &str, endpoint: SocketAddr) -> String {
    let mut rule = body(name, 9001);
    rule["endpoints"][0]["targetPort"] = json!(endpoint.port());
    let members = json!({"monitor": true, "probetype": "tcp", "probeTimeout": 1, "probeRetries": 1});
    rule["serviceArguments"].as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    rule.to_string()
}

fn wait_until(done: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "what was waited for did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn metrics_are_served_as_prometheus_text() {
    let gateway = Running::start(&FakePlane::new());
    let ask = request("GET", "/netlox/v1/metrics", "127.0.0.1", "");
    let answer = exchange(TcpStream::connect(gateway.address).unwrap(), &ask);
    assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
    assert!(answer.contains("\nloxilb_proxy_active_connections 0\n"), "{answer}");
}

/// A gateway on a disk that can hang. Dropped, the disk goes on, so that a failed test ends.
struct OnHangingDisk {
    plane: Arc<FakePlane>,
    disk: HangingDisk,
    gateway: Running,
    _folder: tempfile::TempDir,
}

impl OnHangingDisk {
    fn start() -> OnHangingDisk {
        let (plane, disk, folder) = (FakePlane::new(), HangingDisk::default(), tempfile::tempdir().unwrap());
        let gateway = Running::on(Box::new(disk.clone()), options(folder.path()), &plane);
        OnHangingDisk { plane, disk, gateway, _folder: folder }
    }

    /// Begins to post a rule.
    fn send(&self, name: &str, port: u16) -> TcpStream {
        let mut stream = TcpStream::connect(self.gateway.address).unwrap();
        let request = request("POST", LB, "127.0.0.1", &body(name, port).to_string());
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }
}

impl Drop for OnHangingDisk {
    fn drop(&mut self) {
        self.disk.hang(false);
    }
}

fn status(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer[9..12].into()
}

#[test]
fn a_disk_that_hangs_delays_changes_and_nothing_else() {
    let endpoint = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let on = OnHangingDisk::start();
    let rule = probed("probed", endpoint.local_addr().unwrap());
    assert_eq!(on.gateway.tcp("POST", LB, &rule).0, 200);
    let state = plane_service(&on.plane.tables.lock().unwrap()).endpoints[0].clone();
    on.disk.hang(true);
    let first = on.send("a", 9002);
    wait_until(|| on.disk.waiting() == 1);
    let second = on.send("b", 9003);
    assert_eq!(on.gateway.tcp("GET", "/netlox/v1/status/ready", "").0, 200);
    drop(endpoint);
    wait_until(|| state.probed_down());
    assert_eq!(on.disk.waiting(), 1, "the second change waits for the first");
    assert_eq!(on.plane.names(), ["probed"]);
    on.disk.hang(false);
    assert_eq!([status(first), status(second)], ["200", "200"]);
    assert_eq!(on.plane.names(), ["probed", "a", "b"]);
    let tables = on.plane.tables.lock().unwrap();
    assert_eq!(tables.iter().map(|t| t.generation).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

#[test]
fn a_change_is_made_to_its_end_though_its_client_hung_up() {
    let on = OnHangingDisk::start();
    on.disk.hang(true);
    let client = on.send("a", 9001);
    wait_until(|| on.disk.waiting() == 1);
    drop(client);
    assert_eq!(on.gateway.tcp("GET", "/netlox/v1/status/ready", "").0, 200);
    on.disk.hang(false);
    wait_until(|| on.gateway.tcp("GET", &at(9001), "").0 == 200);
    assert_eq!(on.plane.names(), ["a"]);
    assert_eq!(status(on.send("b", 9002)), "200");
}

#[test]
fn a_change_that_the_end_overtakes_is_refused_and_opens_nothing() {
    let on = OnHangingDisk::start();
    on.plane.reports.lock().unwrap()[0].active = 1;
    on.disk.hang(true);
    let change = on.send("a", 9001);
    wait_until(|| on.disk.waiting() == 1);
    on.gateway.signal();
    wait_until(|| on.plane.phases.lock().unwrap().contains(&DrainPhase::Closing));
    on.disk.hang(false);
    assert_eq!(status(change), "503");
    assert!(on.plane.names().is_empty());
    assert!(!on.gateway.options.state_dir.join("snapshot.json.next").exists());
    on.plane.reports.lock().unwrap()[0].active = 0;
}
