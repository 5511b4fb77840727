//! The engines' sockets beside libzmq itself, by Python's `zmq` where there is one (WARMPATH_PYTHON names
//! another interpreter than python3): SUB, DEALER and REQ get what the recordings show. Without it the
//! result is not_run, said in the output.

use std::process::Command;

use warmpath_perf::engine::{self, Config, Events, Kind};

const PROGRAM: &str = r#"
import json, sys, urllib.request, zmq
base, live, replay = sys.argv[1:4]
ctx = zmq.Context()
sub = ctx.socket(zmq.SUB)
sub.setsockopt(zmq.SUBSCRIBE, b"kv")
sub.setsockopt(zmq.HEARTBEAT_IVL, 50)
sub.setsockopt(zmq.HEARTBEAT_TIMEOUT, 2000)
mon = sub.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
sub.connect(f"tcp://127.0.0.1:{live}")
assert mon.poll(10000)
def ask(n):
    body = json.dumps({"prompt": list(range(n, n + 64)), "max_tokens": 1}).encode()
    urllib.request.urlopen(urllib.request.Request(base + "/v1/completions", body, {"Content-Type": "application/json"})).read()
n = 0
while not sub.poll(200):
    ask(n); n += 1000
    assert n < 100000
first = int.from_bytes(sub.recv_multipart()[1], "big")
ask(5000000)
topic, number, payload = sub.recv_multipart()
assert topic == b"kv-events" and int.from_bytes(number, "big") == first + 1, (topic, number, first)
dealer = ctx.socket(zmq.DEALER)
dealer.connect(f"tcp://127.0.0.1:{replay}")
dealer.send_multipart([b"", (0).to_bytes(8, "big")])
got = []
while True:
    assert dealer.poll(10000)
    message = dealer.recv_multipart()
    if b"\xff" * 8 in message:
        break
    got.append(message)
assert got[-1][-1] == payload and len(got) == first + 2, len(got)
req = ctx.socket(zmq.REQ)
req.connect(f"tcp://127.0.0.1:{replay}")
req.send((0).to_bytes(8, "big"))
assert req.poll(10000)
assert req.recv_multipart()[-1] == got[0][-1]
ctx.destroy(0)
"#;

#[test]
fn libzmq_hears_live_events_and_replay() {
    let python = std::env::var("WARMPATH_PYTHON").unwrap_or_else(|_| "python3".into());
    let probe = Command::new(&python).args(["-c", "import zmq"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        return println!("not_run: {python} has no module zmq");
    }
    for (kind, minor) in [(Kind::Vllm, 1), (Kind::Vllm, 0), (Kind::Sglang, 1)] {
        let any = || Some("tcp://*:0".parse().expect("an endpoint"));
        let (live, replay, topic) = (any(), any(), "kv-events".to_owned());
        let events = Events { live, replay, topic, zmtp_minor: minor, ..Events::default() };
        let engine = engine::start(Config { events, ..Config::of(kind) }).expect("free ports");
        let source = &engine.sources()[0];
        let replay = source.replay.as_ref().expect("replay").port;
        let arguments = [format!("http://{}", engine.addr), source.live.port.to_string(), replay.to_string()];
        let run = Command::new(&python).args(["-c", PROGRAM]).args(arguments).output().expect("it runs");
        assert!(run.status.success(), "{kind:?} 3.{minor}: {}", String::from_utf8_lossy(&run.stderr));
    }
}
