//! An engine's launch line as the simulated engine's settings. Owns which flags are understood: one that is not ends
//! the test, so that a page can't promise what was never tried.

use serde_json::Value;
use std::collections::BTreeMap;
use warmpath_perf::engine::blocks::Lora;
use warmpath_perf::engine::kinds::HashAlgo;
use warmpath_perf::engine::text::Reading;
use warmpath_perf::engine::version::Version;
use warmpath_perf::engine::{Config, Kind};

/// Flags without a value.
const SWITCHES: [&str; 5] = [
    "--enable-prefix-caching",
    "--enable-prompt-tokens-details",
    "--enable-lora",
    "--enable-cache-report",
    "--metrics",
];

/// A launch line, taken apart.
struct Line {
    environment: BTreeMap<String, String>,
    /// What stands before the first flag, without the model.
    model: String,
    flags: BTreeMap<String, String>,
}

impl Line {
    fn read(kind: Kind, text: &str) -> Line {
        let words = words(text);
        let mut rest = words.iter().map(String::as_str).peekable();
        let mut line = Line { environment: BTreeMap::new(), model: String::new(), flags: BTreeMap::new() };
        while let Some((name, value)) = rest.peek().and_then(|word| word.split_once('=')) {
            line.environment.insert(name.into(), value.into());
            rest.next();
        }
        let program: &[&str] = match kind {
            Kind::Vllm => &["vllm", "serve"],
            Kind::Sglang => &["python", "-m", "sglang.launch_server"],
            Kind::Trtllm => &["trtllm-serve"],
            Kind::Llamacpp => &["llama-server"],
        };
        program.iter().for_each(|word| assert_eq!(rest.next(), Some(*word), "{text}"));
        if let Some(model) = rest.next_if(|word| !word.starts_with('-')) {
            line.model = model.into();
        }
        while let Some(flag) = rest.next() {
            assert!(flag.starts_with('-'), "{flag:?} is no flag: {text}");
            let value = if SWITCHES.contains(&flag) { "" } else { rest.next().unwrap() };
            line.flags.insert(flag.into(), value.into());
        }
        line
    }

    fn take(&mut self, flag: &str) -> Option<String> {
        self.flags.remove(flag)
    }

    fn number<T: std::str::FromStr>(&mut self, flag: &str) -> Option<T> {
        self.take(flag).map(|text| text.parse().unwrap_or_else(|_| panic!("{flag} {text}")))
    }
}

/// What the line means for an engine at this address, with the text of `kv.yaml` where the page has one.
pub fn config(kind: Kind, text: &str, yaml: Option<&str>, host: &str, version: Option<&str>) -> Config {
    let mut line = Line::read(kind, text);
    let mut config = Config { host: host.into(), ..Config::of(kind) };
    config.reading = Reading { bytes: true, ..Reading::default() };
    config.version = version.filter(|_| kind != Kind::Trtllm).map(Version::new);
    config.port = line.number("--port").expect("a port");
    let served = ["--served-model-name", "--alias", "--model-path"].map(|flag| line.take(flag));
    let own = (!line.model.is_empty()).then(|| line.model.clone());
    config.models = vec![served.into_iter().chain([own]).flatten().next().expect("a model")];
    if kind != Kind::Vllm {
        assert!(
            matches!(line.take("--host").as_deref(), Some("0.0.0.0")),
            "the gateway must reach it: {text}"
        );
    }
    match kind {
        Kind::Vllm => vllm(&mut line, &mut config),
        Kind::Sglang => sglang(&mut line, &mut config),
        Kind::Trtllm => trtllm(&mut line, yaml.expect("kv.yaml")),
        Kind::Llamacpp => ["-m", "-np", "-c", "--metrics"].iter().for_each(|flag| drop(line.take(flag))),
    }
    assert!(line.flags.is_empty() && line.environment.is_empty(), "not tried here: {:?}", line.flags);
    config
}

fn vllm(line: &mut Line, config: &mut Config) {
    assert!(line.take("--enable-prefix-caching").is_some(), "without it nothing is cached");
    config.hashing.seed = line.environment.remove("PYTHONHASHSEED");
    config.hashing.algo = match line.take("--prefix-caching-hash-algo").as_deref() {
        None | Some("sha256") => HashAlgo::Sha256,
        Some("sha256_cbor") => HashAlgo::Sha256Cbor,
        Some("xxhash") => HashAlgo::Xxhash,
        Some("xxhash_cbor") => HashAlgo::XxhashCbor,
        Some(other) => panic!("no hash {other}"),
    };
    config.block_size = line.number("--block-size").unwrap_or(16);
    config.ranks = line.number("--data-parallel-size").unwrap_or(1);
    config.pretence.mutes_cached = line.take("--enable-prompt-tokens-details").is_none();
    if let Some((name, path)) = line.take("--lora-modules").as_deref().and_then(|it| it.split_once('=')) {
        assert!(line.take("--enable-lora").is_some());
        config.loras = vec![Lora { id: 1, name: name.into(), path: path.into() }];
    }
    let events = events(line, config);
    assert_eq!(events["enable_kv_cache_events"], true);
}

fn sglang(line: &mut Line, config: &mut Config) {
    config.block_size = line.number("--page-size").unwrap_or(1);
    config.ranks = line.number("--dp-size").unwrap_or(1);
    assert!(line.take("--enable-cache-report").is_some(), "the simulated engine always tells");
    let events = events(line, config);
    config.events.topic = events["topic"].as_str().unwrap_or_default().into();
}

fn events(line: &mut Line, config: &mut Config) -> Value {
    let text = line.take("--kv-events-config").expect("events");
    let events: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(events["publisher"], "zmq");
    let known = ["enable_kv_cache_events", "publisher", "endpoint", "replay_endpoint", "topic"];
    assert!(events.as_object().unwrap().keys().all(|name| known.contains(&name.as_str())), "{text}");
    config.events.live = events["endpoint"].as_str().unwrap().parse().ok();
    config.events.replay = events["replay_endpoint"].as_str().and_then(|text| text.parse().ok());
    assert!(config.events.live.is_some() && config.events.replay.is_some(), "{text}");
    events
}

/// The simulated engine reuses blocks of 32 and tells of them: what the file must ask for.
fn trtllm(line: &mut Line, yaml: &str) {
    assert_eq!(line.take("--extra_llm_api_options").as_deref(), Some("kv.yaml"));
    let members: Vec<&str> = yaml.lines().map(str::trim).collect();
    assert_eq!(members, ["kv_cache_config:", "enable_block_reuse: true", "event_buffer_max_size: 65536"]);
}

/// The words of a shell line: blanks part them unless quoted, a backslash goes on with the next line.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    for letter in text.replace("\\\n", " ").chars() {
        match letter {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            _ if letter.is_whitespace() && !quoted => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    assert!(!quoted, "an open quote: {text}");
    words.extend(word);
    words
}
