//! The verb `models` as an operator meets it: what is staged and what is not, who gets the token, what the gateway then
//! publishes. Owns folders of its own below the target directory and servers that end with their test.

#![allow(clippy::unwrap_used)] // A test may stop at the first surprise.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use warmpath_core::engine::Engine;
use warmpath_core::profile::sha256;
use warmpath_prompt::load::registry::Reader;

/// A token that must not be seen anywhere but at the first host.
const CANARY: &str = "hf_canary_4c1d";

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let root =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("models-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        Place(root)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let whole = self.at(path);
        std::fs::create_dir_all(whole.parent().unwrap()).unwrap();
        std::fs::write(&whole, text).unwrap();
        whole
    }

    fn text(&self, path: &str) -> String {
        self.at(path).to_string_lossy().into_owned()
    }

    /// Everything below a folder, with its bytes.
    fn below(&self, path: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        let mut left = vec![self.at(path)];
        while let Some(folder) = left.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                match entry.path().is_dir() {
                    true => left.push(entry.path()),
                    false => found.push((entry.path(), std::fs::read(entry.path()).unwrap())),
                }
            }
        }
        found.sort();
        found
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn models(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warmpath"));
    command.arg("models").args(arguments).output().expect("the binary runs")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

const TOKENIZER: &str = r#"{"version": "1.0"}"#;
const TEMPLATE: &str = "{{ messages }}";

fn profile() -> String {
    let (tokenizer, template) = (sha256(TOKENIZER.as_bytes()), sha256(TEMPLATE.as_bytes()));
    format!(
        "profileId: own\nbaseModel: org/own\ntokenizerArtifact: sha256/{tokenizer}\ntokenizerSha256: {tokenizer}\n\
         templateArtifact: sha256/{template}\ntemplateSha256: {template}\nrendererEngine: warmpath\n"
    )
}

fn manifest(version: &str) -> String {
    format!("profileId: own\nimageDigest: sha256:{}\nengineVersion: {version}\n", "0".repeat(64))
}

fn pin(from: &str, text: &str) -> Value {
    json!({"from": from, "sha256": sha256(text.as_bytes())})
}

/// A source of one model with two engines, whose tokenizer stands at `tokenizer`.
fn source(place: &Place, tokenizer: &str) -> String {
    let request = r#"{"model": "org/own", "prompt": "a"}"#;
    let digest = sha256(request.as_bytes());
    let expect =
        format!(r#"{{"requestSha256": "{digest}", "expectedTokenIds": [1, 2], "api": "completions"}}"#);
    place.write("from/own.yaml", &profile());
    place.write("from/template.jinja", TEMPLATE);
    place.write("from/tokenizer.json", TOKENIZER);
    place.write("from/1.request.json", request);
    place.write("from/1.expect.json", &expect);
    place.write("from/w/model.bin", "weights");
    let row = |version: &str, state: &str, image: Value| {
        let name = format!("manifest-{version}.yaml");
        place.write(&format!("from/{name}"), &manifest(version));
        json!({
            "version": version, "state": state, "reason": "as recorded", "image": image,
            "imageDigest": format!("sha256:{}", "0".repeat(64)), "arguments": ["--max-num-seqs", "8"],
            "manifest": pin(&name, &manifest(version)),
            "fixtures": [{
                "name": "1", "request": pin("1.request.json", request), "expect": pin("1.expect.json", &expect),
            }],
        })
    };
    let index = json!({"form": "warmpath-models-1", "models": [{
        "id": "own", "baseModel": "org/own", "revision": "r1",
        "profile": pin("own.yaml", &profile()), "template": pin("template.jinja", TEMPLATE),
        "tokenizer": pin(tokenizer, TOKENIZER),
        "weights": {"from": "w", "files": [{"path": "model.bin", "sha256": sha256(b"weights"), "bytes": 7}]},
        "engines": {
            "vllm": row("0.32.0", "validated", json!("vllm/vllm-openai")),
            "sglang": row("0.5.19", "candidate", json!("lmsysorg/sglang")),
            "trtllm": row("1.2.1", "validated", Value::Null),
            "llamacpp": {"version": "b11434", "state": "blocked", "reason": "it tells nothing of its cache"},
        },
    }]});
    place.write("from/models.json", &index.to_string());
    place.text("from")
}

#[test]
fn what_is_staged_is_published_and_a_second_run_fetches_nothing() {
    let place = Place::new("stage");
    let from = source(&place, "tokenizer.json");
    let root = place.text("root");
    let mut arguments = vec!["install", "--from", &from, "--models", "own", "--config-root", &root];
    let dry = models(&[&arguments[..], &["--dry-run"]].concat());
    assert!(dry.status.success() && said(&dry).contains("would     take own.yaml"), "{}", said(&dry));
    assert!(place.below("root").is_empty(), "a dry run writes nothing");
    let done = models(&arguments);
    assert!(done.status.success(), "{}", said(&done));
    let staged = place.below("root");
    let mut reader = Reader::new(&place.at("root"));
    assert!(reader.look());
    let published =
        reader.registry().profile("own").unwrap_or_else(|| panic!("{:?}", reader.registry().refused));
    assert_eq!(published.fixtures.of(Engine::Vllm).unwrap()[0].expected, [1, 2]);
    let manifest = published.manifest.as_ref().unwrap().as_ref().unwrap();
    assert_eq!(manifest.manifest.engine_version, "0.32.0");
    assert!(place.at("root/tokenizers/org__own/tokenizer.json").is_file());
    for gone in ["own.yaml", "tokenizer.json", "template.jinja", "1.request.json", "manifest-0.32.0.yaml"] {
        std::fs::remove_file(place.at("from").join(gone)).unwrap();
    }
    let again = models(&arguments);
    assert!(again.status.success(), "what is there is not fetched: {}", said(&again));
    assert!(
        !said(&again).contains("staged") && said(&again).matches("verified").count() == 7,
        "{}",
        said(&again)
    );
    assert_eq!(place.below("root"), staged);
    std::fs::write(place.at("root/kvprofiles/own.yaml"), "torn").unwrap();
    arguments.push("--dry-run");
    assert!(said(&models(&arguments)).contains("would     take own.yaml"), "what differs is staged anew");
}

#[test]
fn states_second_engines_and_images() {
    let place = Place::new("states");
    let from = source(&place, "tokenizer.json");
    let root = place.text("root");
    let install = |more: &[&str], path: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warmpath"));
        command.args(["models", "install", "--from", &from, "--models", "own", "--config-root", &root]);
        command.args(more).env("PATH", path).output().unwrap()
    };
    let skipped = install(&["--engine", "sglang"], "");
    assert!(skipped.status.success() && said(&skipped).contains("--include-candidates takes it"));
    assert!(place.below("root").is_empty(), "a candidate is not staged unasked");
    let blocked = install(&["--engine", "llamacpp"], "");
    assert!(!blocked.status.success() && said(&blocked).contains("blocked with llamacpp: it tells nothing"));
    let docker = place.write("bin/docker", &format!("#!/bin/sh\necho \"$@\" > {}\n", place.text("pulled")));
    std::fs::set_permissions(docker, PermissionsExt::from_mode(0o755)).unwrap();
    let pulled = install(&["--pull-image"], &format!("{}:/usr/bin:/bin", place.text("bin")));
    assert!(pulled.status.success(), "{}", said(&pulled));
    let asked = std::fs::read_to_string(place.at("pulled")).unwrap();
    assert_eq!(asked.trim(), format!("pull vllm/vllm-openai@sha256:{}", "0".repeat(64)));
    let second = install(&["--engine", "sglang", "--include-candidates"], "");
    assert!(said(&second).contains("replaces  the manifest of vllm 0.32.0"), "{}", said(&second));
    assert!(place.at("root/kvprofiles/probefixtures/own/sglang/1.expect.json").is_file());
    let third = install(&["--engine", "trtllm", "--pull-image"], "");
    assert!(third.status.success() && said(&third).contains("SKIP_NO_PULLABLE_IMAGE"), "{}", said(&third));
    let listed = said(&models(&["list", "--from", &from]));
    for part in ["validated  own", "candidate  own", "blocked    own", "revision", "r1", "--max-num-seqs 8"] {
        assert!(listed.contains(part) || part == "revision", "{part}: {listed}");
    }
    assert_eq!(said(&install(&["--list"], "")), listed, "install --list is the same");
}

#[test]
fn nothing_that_was_changed_on_its_way_is_staged() {
    let place = Place::new("changed");
    let from = source(&place, "tokenizer.json");
    let root = place.text("root");
    place.write("from/template.jinja", "{{ other }}");
    let refused = models(&["install", "--from", &from, "--models", "own", "--config-root", &root]);
    assert!(
        !refused.status.success() && said(&refused).contains("template.jinja: has SHA-256"),
        "{}",
        said(&refused)
    );
    assert!(!place.at("root/kvprofiles/own.yaml").exists(), "a profile is staged last");
    place.write("from/template.jinja", TEMPLATE);
    let index = std::fs::read_to_string(place.at("from/models.json")).unwrap();
    let other = "profileId: other\nbaseModel: org/own\n";
    place.write("from/own.yaml", other);
    let swapped = index.replace(&sha256(profile().as_bytes()), &sha256(other.as_bytes()));
    place.write("from/models.json", &swapped);
    let refused = models(&["install", "--from", &from, "--models", "own", "--config-root", &root]);
    assert!(said(&refused).contains("it is other of org/own, not own of org/own"), "{}", said(&refused));
    let pinned = models(&["list", "--from", &from, "--sha256", &"0".repeat(64)]);
    assert!(!pinned.status.success() && said(&pinned).contains("is pinned"), "{}", said(&pinned));
    let plain = models(&["list", "--from", "http://127.0.0.1:9"]);
    assert!(said(&plain).contains("give its --sha256"), "{}", said(&plain));
}

/// A server that answers each request by its path and keeps what it was asked.
struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(answer: impl Fn(&str, &[u8]) -> String + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let kept = asked.clone();
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serve(stream, &answer, &kept);
            }
        });
        Server { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, answer: &impl Fn(&str, &[u8]) -> String, kept: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut line) = (String::new(), String::new());
    while reader.read_line(&mut line).is_ok_and(|got| got > 2) {
        head.push_str(&line);
        line.clear();
    }
    let length =
        head.to_ascii_lowercase().lines().find_map(|own| own.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    let path = head.split(' ').nth(1).unwrap_or_default().to_string();
    let answer = answer(&path, &body);
    kept.lock().unwrap().push(head);
    let _ = stream.write_all(answer.as_bytes());
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

#[test]
fn the_token_goes_to_the_first_host_only_and_is_told_to_nobody() {
    let place = Place::new("token");
    let elsewhere = Server::new(|_, _| ok(TOKENIZER));
    let to = elsewhere.address;
    let hub = Server::new(move |path, _| match path {
        "/gated/tokenizer.json" => {
            format!(
                "HTTP/1.1 302 Found\r\nLocation: http://{to}/cdn\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
        }
        _ => "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".into(),
    });
    let from = source(&place, &format!("http://{}/gated/tokenizer.json", hub.address));
    let root = place.text("root");
    let token = place.write("token", &format!("{CANARY}\n"));
    let file = place.text("token");
    let install = || {
        models(&[
            "install",
            "--from",
            &from,
            "--models",
            "own",
            "--config-root",
            &root,
            "--hf-token-file",
            &file,
        ])
    };
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o644)).unwrap();
    let refused = install();
    assert!(!refused.status.success() && said(&refused).contains("chmod 600"), "{}", said(&refused));
    assert!(!said(&refused).contains(CANARY));
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
    let done = install();
    assert!(done.status.success(), "{}", said(&done));
    let carries =
        |heads: Vec<String>| -> Vec<bool> { heads.iter().map(|head| head.contains(CANARY)).collect() };
    assert_eq!(carries(hub.asked()), [true], "in a header of the first host");
    assert!(hub.asked()[0].to_ascii_lowercase().contains("authorization: bearer"));
    assert_eq!(carries(elsewhere.asked()), [false], "not where it redirects to");
    assert!(!said(&done).contains(CANARY), "nor in what it says");
    let kept = place.below("root");
    assert!(
        !kept.is_empty() && kept.iter().all(|(_, bytes)| !String::from_utf8_lossy(bytes).contains(CANARY))
    );
    let other = source(&place, &format!("http://{}/none", hub.address));
    std::fs::remove_dir_all(place.at("root")).unwrap();
    let refused = models(&[
        "install",
        "--from",
        &other,
        "--models",
        "own",
        "--config-root",
        &root,
        "--hf-token-file",
        &file,
    ]);
    assert!(
        said(&refused).contains("answered 401") && !said(&refused).contains(CANARY),
        "{}",
        said(&refused)
    );
}

#[test]
fn weights_are_fetched_once_and_verified_byte_by_byte() {
    let place = Place::new("weights");
    let from = source(&place, "tokenizer.json");
    let (root, folder) = (place.text("root"), place.text("weights"));
    let install = || {
        models(&[
            "install",
            "--from",
            &from,
            "--models",
            "own",
            "--config-root",
            &root,
            "--weights-dir",
            &folder,
        ])
    };
    assert!(said(&install()).contains("fetched   "));
    let own = place.text("weights/org__own/r1");
    let verify = || models(&["verify-weights", "own", &own, "--from", &from]);
    assert!(verify().status.success(), "{}", said(&verify()));
    std::fs::remove_file(place.at("from/w/model.bin")).unwrap();
    let again = install();
    assert!(again.status.success() && !said(&again).contains("fetched"), "{}", said(&again));
    std::fs::write(Path::new(&own).join("model.bin"), "weightz").unwrap();
    let told = verify();
    assert!(!told.status.success() && said(&told).contains("differs   model.bin"), "{}", said(&told));
    place.write("from/w/model.bin", "weightz");
    std::fs::remove_file(Path::new(&own).join("model.bin")).unwrap();
    let refused = install();
    assert!(
        !refused.status.success() && said(&refused).contains("nothing of it was kept"),
        "{}",
        said(&refused)
    );
    assert!(place.below("weights").is_empty(), "not even a part of it");
}

#[test]
fn fixtures_are_what_a_live_engine_answers() {
    let place = Place::new("fixtures");
    let engine = Server::new(|path, body| {
        assert_eq!(path, "/tokenize");
        let length = body.len();
        ok(&format!(r#"{{"count": 2, "max_model_len": 2048, "tokens": [7, {length}], "token_strs": null}}"#))
    });
    let (url, out) = (format!("http://{}", engine.address), place.text("root/kvprofiles/probefixtures/own"));
    let make = |engine: &str| {
        models(&["fixtures", "--engine", engine, "--url", &url, "--model", "org/own", "--out", &out])
    };
    let done = make("vllm");
    assert!(done.status.success() && said(&done).contains("9 probes of org/own"), "{}", said(&done));
    place.write("root/kvprofiles/own.yaml", "profileId: own\nbaseModel: org/own\n");
    let mut reader = Reader::new(&place.at("root"));
    reader.look();
    let published = reader.registry().profile("own").expect("published").clone();
    let probes = published.fixtures.of(Engine::Vllm).expect("sound");
    assert_eq!(probes.len(), 9);
    assert!(probes.iter().all(|probe| probe.expected == [7, probe.request.len() as u32]));
    let over = make("vllm");
    assert!(!over.status.success() && said(&over).contains("is not empty"), "{}", said(&over));
    let silent = make("trtllm");
    assert!(said(&silent).contains("trtllm can't be asked for tokens"), "{}", said(&silent));
    let request = place.at("root/kvprofiles/probefixtures/own/1.request.json");
    std::fs::write(request, r#"{"prompt": "another"}"#).unwrap();
    reader.look();
    let fault = reader.registry().profile("own").unwrap().fixtures.of(Engine::Vllm).unwrap_err().reason();
    assert_eq!(fault, "probe_fixture_drift");
}

#[test]
fn launch_prints_a_line_that_a_shell_takes() {
    let line = |more: &[&str]| {
        let own = ["launch", "--version", "0.32.0", "--model", "org/own", "--snapshot", "/m/org__own/r1"];
        models(&[&own[..], more].concat())
    };
    let plain = line(&["--", "--max-num-seqs", "8"]);
    let text = said(&plain);
    assert!(
        plain.status.success()
            && text.starts_with("PYTHONHASHSEED=0 ")
            && text.trim().ends_with("--max-num-seqs 8")
    );
    let words =
        Command::new("sh").args(["-c", &format!("set -- {}\nprintf '%s\\n' \"$@\"", text.trim())]).output();
    let words = String::from_utf8(words.unwrap().stdout).unwrap();
    let config = words.lines().skip_while(|word| *word != "--kv-events-config").nth(1).unwrap();
    let config: Value = serde_json::from_str(config).expect("one word, and JSON");
    assert_eq!(config["endpoint"], "tcp://*:5557");
    let image = format!("vllm/vllm-openai@sha256:{}", "0".repeat(64));
    let text = said(&line(&["--image", &image]));
    assert!(
        text.starts_with("docker run -d ") && text.contains("-e PYTHONHASHSEED=0") && text.contains(&image),
        "{text}"
    );
    let old = line(&["--engine", "vllm", "--version", "0.20.0"]);
    assert!(!old.status.success());
    let text = said(&models(&[
        "launch",
        "--engine",
        "trtllm",
        "--version",
        "1.2.1",
        "--model",
        "m",
        "--snapshot",
        "/m",
    ]));
    assert!(text.contains("cat > kv.yaml") && text.contains("enable_block_reuse: true"), "{text}");
}

#[test]
fn what_is_built_in_is_listed() {
    let text = said(&models(&["list"]));
    assert!(text.contains("blocked    gemma-2") && text.contains("candidate  tiny"), "{text}");
    let json: Value =
        serde_json::from_slice(&models(&["list", "-o", "json", "--engine", "vllm"]).stdout).unwrap();
    assert!(json.as_array().unwrap().iter().all(|row| row["engine"] == "vllm"));
    let none = models(&["install", "--models", "gemma-2"]);
    assert!(!none.status.success() && said(&none).contains("--from DIR|URL"), "{}", said(&none));
}
