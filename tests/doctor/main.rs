//! The verb `doctor` against simulated engines: one that fits, and each leg broken by itself. Every case names the leg
//! that must be found and what must be said to cure it; the engines name blocks by code of their own.

mod front;

use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use warmpath_perf::engine::blocks::Lora;
use warmpath_perf::engine::faults::Faults;
use warmpath_perf::engine::kinds::HashAlgo;
use warmpath_perf::engine::version::Version;
use warmpath_perf::engine::{Config, Handle, Kind, start};

/// An engine as the rule of [`ask`] wants it.
fn engine(kind: Kind, change: impl FnOnce(&mut Config)) -> Handle {
    let mut config = Config::of(kind);
    config.hashing.seed = Some("0".into());
    config.hashing.algo = HashAlgo::Sha256Cbor;
    if matches!(kind, Kind::Vllm | Kind::Sglang) {
        config.events.live = "tcp://*:0".parse().ok();
        config.events.replay = "tcp://*:0".parse().ok();
    }
    change(&mut config);
    start(config).expect("an engine")
}

fn version(text: &str) -> Option<Version> {
    Some(Version::new(text))
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).expect("a port").local_addr().expect("an address").port()
}

/// What `doctor` said, and whether it exited with 0.
struct Told {
    json: Value,
    is_well: bool,
    errors: String,
}

fn doctor(seed: Option<&str>, words: &[&str]) -> Told {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warmpath"));
    command.args(["doctor", "-o", "json", "--patience", "2"]).args(words);
    command.env_remove("LLB_KV_NONE_HASH_SEED").envs(seed.map(|seed| ("LLB_KV_NONE_HASH_SEED", seed)));
    let done = command.output().expect("the binary runs");
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    let json = serde_json::from_slice(&done.stdout).unwrap_or_default();
    Told { json, is_well: done.status.success(), errors }
}

/// Asks about one endpoint, under the seed 0.
fn ask(endpoint: SocketAddr, words: &[&str]) -> Told {
    let url = format!("http://{endpoint}");
    doctor(Some("0"), &[&["--endpoint", url.as_str(), "--model", "sim"], words].concat())
}

impl Told {
    /// A leg of the first endpoint.
    #[track_caller]
    fn leg(&self, name: &str) -> &Value {
        self.leg_of(0, name)
    }

    #[track_caller]
    fn leg_of(&self, endpoint: usize, name: &str) -> &Value {
        let legs = self.json["endpoints"][endpoint]["legs"].as_array();
        let leg = legs.and_then(|legs| legs.iter().find(|leg| leg["leg"] == name));
        leg.unwrap_or_else(|| panic!("no leg {name}: {} {}", self.json, self.errors))
    }

    fn verdict(&self, name: &str) -> &str {
        self.leg(name)["verdict"].as_str().unwrap_or_default()
    }

    /// Asserts that all these legs are equal, and that exact routing would work.
    #[track_caller]
    fn assert_well(&self, legs: &[&str]) {
        for leg in legs {
            assert_eq!(self.verdict(leg), "equal", "{}", self.leg(leg));
        }
        assert!(self.is_well, "{} {}", self.errors, self.json);
    }

    /// Asserts that this leg alone is not equal, with these words, and that it fails by its name.
    #[track_caller]
    fn assert_broken(&self, name: &str, seen: &str, engine: &str, gateway: &str) {
        let leg = self.leg(name);
        assert_eq!(leg["verdict"], "not_equal", "{leg} {}", self.json);
        for (member, part) in [("seen", seen), ("engine", engine), ("gateway", gateway)] {
            assert!(
                leg[member].as_str().unwrap_or_default().contains(part),
                "{member} lacks {part:?}: {leg}"
            );
        }
        let others = self.json["endpoints"][0]["legs"].as_array().expect("legs").iter();
        let others: Vec<&Value> =
            others.filter(|other| other["verdict"] == "not_equal" && other["leg"] != name).collect();
        assert!(others.is_empty(), "{name} is not the only one: {others:?}");
        assert!(!self.is_well && self.errors.contains(name), "{}", self.errors);
    }
}

const VLLM_LEGS: [&str; 12] = [
    "reachable",
    "version",
    "model",
    "ranks",
    "events",
    "replay",
    "block_size",
    "algorithm",
    "root",
    "hash_form",
    "salt",
    "usage",
];

#[test]
fn a_vllm_that_fits_is_well_on_every_leg() {
    let vllm = engine(Kind::Vllm, |config| {
        config.loras = vec![Lora { id: 1, name: "sql".into(), path: "/adapters/sql".into() }];
    });
    let told = ask(vllm.addr, &["--engine-version", "0.32.0"]);
    told.assert_well(&VLLM_LEGS);
    told.assert_well(&["lora"]);
    assert_eq!(told.leg("hash_form")["seen"], "integers");
    assert_eq!((told.verdict("tokenizer"), told.verdict("template")), ("not_run", "not_run"));
    // By tokens, whatever the engine's hash and seed.
    let other = engine(Kind::Vllm, |config| {
        config.hashing.seed = None;
        config.hashing.algo = HashAlgo::Xxhash;
        config.hashing.bytes = true;
        config.version = version("0.33.0");
    });
    let told = ask(other.addr, &["--algo", "tokens"]);
    told.assert_well(&VLLM_LEGS);
    assert_eq!(told.leg("hash_form")["seen"], "byte strings of 16");
}

/// Releases that tell less, and engines of other kinds.
#[test]
fn every_kind_that_fits_is_well() {
    let live = free_port();
    let old = engine(Kind::Vllm, |config| {
        config.version = version("0.23.0");
        config.events.live = format!("tcp://*:{live}").parse().ok();
    });
    let (events, replay) = (format!("tcp://127.0.0.1:{live}"), replay_of(&old));
    let told = ask(old.addr, &["--events", &events, "--replay", &replay, "--engine-version", "0.23.0"]);
    told.assert_well(&VLLM_LEGS);
    let sglang = engine(Kind::Sglang, |_| {});
    let legs = ["version", "ranks", "events", "replay", "block_size", "algorithm", "root", "salt"];
    ask(sglang.addr, &["--kind", "sglang"]).assert_well(&legs);
    let trtllm = engine(Kind::Trtllm, |_| {});
    let told = ask(trtllm.addr, &["--kind", "trtllm", "--destructive"]);
    told.assert_well(&["events", "block_size", "algorithm", "root"]);
    assert!(
        told.leg("algorithm")["seen"].as_str().is_some_and(|seen| seen.contains("v1_block_key")),
        "{}",
        told.json
    );
}

/// `tcp://127.0.0.1:PORT` of an engine's replay.
fn replay_of(engine: &Handle) -> String {
    let replay = engine.sources()[0].replay.as_ref().expect("a replay").to_string();
    format!("tcp://127.0.0.1:{}", replay.rsplit(':').next().expect("a port"))
}

#[test]
fn what_cannot_be_proven_is_not_run_and_never_equal() {
    // Events are not taken from a gateway unasked, and without them nothing is known.
    let trtllm = engine(Kind::Trtllm, |_| {});
    let told = ask(trtllm.addr, &["--kind", "trtllm"]);
    assert!(!told.is_well && told.errors.contains("events"), "{}", told.errors);
    assert_eq!((told.verdict("events"), told.verdict("root")), ("not_run", "not_run"));
    assert!(told.leg("events")["seen"].as_str().is_some_and(|seen| seen.contains("--destructive")));
    // Names of salts depend on the version, which the engine tells; a replay and adapters are not there.
    let vllm = engine(Kind::Vllm, |config| config.events.replay = None);
    let told = ask(vllm.addr, &[]);
    assert_eq!(
        (told.verdict("salt"), told.verdict("replay"), told.verdict("lora")),
        ("equal", "not_run", "not_run")
    );
    assert!(told.is_well, "prompts of token ids are routed all the same: {}", told.errors);
}

#[test]
fn an_engine_that_is_not_what_the_rule_says_is_told_by_the_leg() {
    let refusing = format!("http://127.0.0.1:{}", free_port());
    doctor(Some("0"), &["--endpoint", &refusing]).assert_broken(
        "reachable",
        "does not answer",
        "start it",
        "targetPort",
    );
    let other = engine(Kind::Vllm, |config| config.models = vec!["other".into()]);
    let told = ask(other.addr, &[]);
    assert_eq!(told.verdict("model"), "not_equal");
    assert!(
        told.leg("model")["engine"].as_str().is_some_and(|cure| cure.contains("--served-model-name sim"))
    );
    let old = engine(Kind::Vllm, |_| {});
    let told = ask(old.addr, &["--engine-version", "0.28.0"]);
    assert_eq!((told.verdict("version"), told.verdict("salt")), ("not_equal", "not_equal"), "{}", told.json);
    assert!(told.leg("version")["gateway"].as_str().is_some_and(|cure| cure.contains("0.32.0")));
    let wide = engine(Kind::Vllm, |config| config.block_size = 32);
    ask(wide.addr, &[]).assert_broken(
        "block_size",
        "32 tokens, the rule 16",
        "--block-size 16",
        "\"kvBlockSize\": 32",
    );
    let two = engine(Kind::Vllm, |config| config.ranks = 2);
    ask(two.addr, &[]).assert_broken(
        "ranks",
        "it has 2, the rule 1",
        "1 data-parallel rank",
        "\"kvDpRankCount\": 2",
    );
    ask(two.addr, &["--ranks", "2"]).assert_well(&["ranks", "events", "algorithm"]);
}

#[test]
fn hash_and_seed_are_found_by_trying() {
    let pickled = engine(Kind::Vllm, |config| config.hashing.algo = HashAlgo::Sha256);
    let told = ask(pickled.addr, &[]);
    told.assert_broken(
        "algorithm",
        "sha256 with PYTHONHASHSEED=0",
        "--prefix-caching-hash-algo sha256_cbor",
        "\"sha256\"",
    );
    let seeded = engine(Kind::Vllm, |config| config.hashing.seed = Some("777".into()));
    let told = ask(seeded.addr, &[]);
    told.assert_broken("root", "PYTHONHASHSEED=777", "PYTHONHASHSEED=0", "LLB_KV_NONE_HASH_SEED=777");
    let unseeded = engine(Kind::Vllm, |config| config.hashing.seed = None);
    let told = ask(unseeded.addr, &[]);
    told.assert_broken("root", "it has no seed", "PYTHONHASHSEED=0", "without LLB_KV_NONE_HASH_SEED");
    let random = engine(Kind::Vllm, |config| {
        config.hashing.seed = None;
        config.hashing.algo = HashAlgo::XxhashCbor;
    });
    let told = ask(random.addr, &["--algo", "xxhash_cbor"]);
    told.assert_broken("root", "none of", "PYTHONHASHSEED=0", "\"kvHashAlgo\": \"tokens\"");
}

/// A gateway without the seed that its rule needs serves it without exact routing, whatever the engine has.
#[test]
fn a_gateway_without_a_seed_is_told() {
    let vllm = engine(Kind::Vllm, |_| {});
    let url = format!("http://{}", vllm.addr);
    let told = doctor(None, &["--endpoint", &url]);
    told.assert_broken("root", "PYTHONHASHSEED=0", "PYTHONHASHSEED=0", "LLB_KV_NONE_HASH_SEED=0");
}

#[test]
fn events_that_do_not_come_are_told_with_where_they_were_looked_for() {
    let mute = engine(Kind::Vllm, |config| (config.events.live, config.events.replay) = (None, None));
    ask(mute.addr, &[]).assert_broken(
        "events",
        "publishes no cache events",
        "--kv-events-config",
        "kvExactMode",
    );
    // It does not tell where, and the rule's port is another's.
    let closed = free_port();
    let told_nothing = engine(Kind::Vllm, |config| config.version = version("0.28.0"));
    let events = format!("tcp://127.0.0.1:{closed}");
    let told = ask(told_nothing.addr, &["--events", &events]);
    told.assert_broken("events", &format!("not reached at {events}"), "--kv-events-config", "kvZmqPort");
    let silent =
        engine(Kind::Vllm, |config| config.faults = Faults { kv_silence: true, ..Faults::default() });
    ask(silent.addr, &[]).assert_broken(
        "events",
        "no event told of its blocks",
        "--kv-events-config",
        "kvZmqPort",
    );
    let (one, other) =
        (engine(Kind::Vllm, |_| {}), engine(Kind::Vllm, |config| config.version = version("0.28.0")));
    let events = one.sources()[0].live.to_string().replace('*', "127.0.0.1");
    let told = ask(other.addr, &["--events", &events]);
    told.assert_broken("events", "no event told of its blocks", "", "not another's");
    let llama = engine(Kind::Llamacpp, |_| {});
    let told = ask(llama.addr, &["--kind", "llamacpp"]);
    told.assert_broken("events", "publishes no cache events", "", "\"sel\": 8");
}

#[test]
fn who_connects_to_whom_is_told_and_tried() {
    let port = free_port();
    let dials = |config: &mut Config| {
        config.events.live = format!("tcp://127.0.0.1:{port}").parse().ok();
        config.events.replay = None;
    };
    let away = engine(Kind::Vllm, dials);
    ask(away.addr, &[]).assert_broken("events", "connects to", "--kv-events-config", "\"kvZmqBind\": true");
    let here = format!("tcp://*:{port}");
    ask(away.addr, &["--events", &here]).assert_well(&["events", "algorithm", "root"]);
    let listens = engine(Kind::Vllm, |_| {});
    ask(listens.addr, &["--events", &here]).assert_broken(
        "events",
        "listens on port",
        "tcp://*:",
        "without kvZmqBind",
    );
}

#[test]
fn a_replay_that_gives_nothing_or_another_s_is_told() {
    let (one, other) = (engine(Kind::Vllm, |_| {}), engine(Kind::Vllm, |_| {}));
    let told = ask(one.addr, &["--replay", &replay_of(&other)]);
    told.assert_broken("replay", "did not come again", "replay_endpoint", "kvReplayPort");
    let closed = format!("tcp://127.0.0.1:{}", free_port());
    ask(one.addr, &["--replay", &closed]).assert_broken(
        "replay",
        "refused",
        "replay_endpoint",
        "kvReplayPort",
    );
}

/// A folder with a model's files, removed at the end.
struct Files(PathBuf);

impl Files {
    fn new(name: &str, tokenizer: &[u8], template: &str) -> Files {
        let folder = std::env::temp_dir().join(format!("warmpath-doctor-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("tokenizer.json"), tokenizer).expect("a file");
        std::fs::write(folder.join("chat_template.jinja"), template).expect("a file");
        Files(folder)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path")
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}\
                      {{ '<|im_start|>assistant\n' }}";

#[test]
fn tokenizer_and_template_are_compared_token_by_token() {
    let vllm = engine(Kind::Vllm, |_| {});
    let front = front::start(vllm.addr, "");
    let good = Files::new("good", front::TINY, CHATML);
    ask(front, &["--tokenizer", good.path()]).assert_well(&["tokenizer", "template"]);
    let file = good.0.join("tokenizer.json");
    ask(front, &["--tokenizer", file.to_str().expect("a path")]).assert_well(&["tokenizer", "template"]);
    // A template that closes turns otherwise than the engine's.
    let other = Files::new("other", front::TINY, &CHATML.replace("<|im_end|>\n", "<|im_end|>"));
    let told = ask(front, &["--tokenizer", other.path()]);
    told.assert_broken("template", "a chat", "chat template", "chat_template.jinja");
    assert_eq!(told.verdict("tokenizer"), "equal");
    // As many tokens, and others: a vocabulary in which two ids are exchanged.
    let exchanged = Files::new("exchanged", &exchanged(), CHATML);
    let told = ask(front, &["--tokenizer", exchanged.path()]);
    assert_eq!(told.verdict("tokenizer"), "not_equal", "{}", told.json);
    assert!(
        told.leg("tokenizer")["seen"].as_str().is_some_and(|seen| seen.contains("at the engine")),
        "{}",
        told.json
    );
    assert!(!told.is_well);
    let torn = Files::new("torn", &front::TINY[..100], CHATML);
    let told = ask(front, &["--tokenizer", torn.path()]);
    told.assert_broken("tokenizer", "can't be read", "", "model's repository");
    assert_eq!(told.verdict("template"), "not_run");
}

/// The tokenizer with the ids of two letters exchanged that every text of the probe has.
fn exchanged() -> Vec<u8> {
    let mut document: Value = serde_json::from_slice(front::TINY).expect("JSON");
    let vocabulary = &mut document["model"]["vocab"];
    let (one, other) = (vocabulary["0"].clone(), vocabulary["1"].clone());
    assert!(one.is_u64() && other.is_u64(), "{one} {other}");
    (vocabulary["0"], vocabulary["1"]) = (other, one);
    document.to_string().into_bytes()
}

#[test]
fn endpoints_of_a_rule_are_looked_at_and_compared() {
    let engines =
        [engine(Kind::Vllm, |_| {}), engine(Kind::Vllm, |_| {}), engine(Kind::Vllm, |c| c.block_size = 32)];
    let endpoint = |engine: &Handle| json!({"endpointIP": engine.addr.ip().to_string(), "targetPort": engine.addr.port(), "weight": 1});
    let rule = |name: &str, port: u16, engines: &[Handle]| {
        let service = json!({
            "externalIP": "127.0.0.1", "port": port, "protocol": "tcp", "mode": 4, "name": name, "model_name": "sim",
            "kvExactMode": 3,
        });
        json!({"serviceArguments": service, "endpoints": engines.iter().map(endpoint).collect::<Vec<_>>()})
    };
    let mut plain = rule("plain", 3, &engines);
    plain["serviceArguments"].as_object_mut().expect("members").remove("kvExactMode");
    let files = Files::new("rule", b"", "");
    let path = files.0.join("rules.json");
    let write =
        |rules: &[Value]| std::fs::write(&path, Value::from(rules.to_vec()).to_string()).expect("a file");
    write(&[rule("good", 1, &engines[..2]), plain.clone()]);
    let path_text = path.to_str().expect("a path");
    let told = doctor(Some("0"), &["--rule", path_text]);
    assert!(told.is_well, "{} {}", told.errors, told.json);
    assert_eq!(told.json["endpoints"].as_array().map(Vec::len), Some(2));
    assert_eq!(told.leg_of(1, "alike")["verdict"], "equal", "{}", told.json);
    write(&[rule("mixed", 1, &engines), plain.clone()]);
    let told = doctor(Some("0"), &["--rule", path_text]);
    assert!(!told.is_well && told.errors.contains("block_size"), "{}", told.errors);
    let alike = told.leg_of(2, "alike");
    assert_eq!(alike["verdict"], "not_equal", "{}", told.json);
    assert!(alike["seen"].as_str().is_some_and(|seen| seen.contains("block_size")), "{alike}");
    write(&[plain]);
    let told = doctor(Some("0"), &["--rule", path_text]);
    assert!(!told.is_well && told.errors.contains("no rule asks for exact routing"), "{}", told.errors);
}
