//! The clients that people use: curl and the `openai` package.

use crate::harness::*;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

on_both_drivers!(curl_chats, the_openai_package_chats);

fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Some(text),
        false => panic!("{text}{}", String::from_utf8_lossy(&output.stderr)),
    }
}

fn curl_chats(driver: Driver) {
    let engine = engine();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    if Command::new("curl").arg("--version").output().is_err() {
        return println!("not_run: curl is not installed");
    }
    let url = format!("http://{}/v1/chat/completions", gateway.vip);
    let curl = |body: &[u8], more: &[&str]| {
        let mut command = Command::new("curl");
        command.args(["-sS", "--noproxy", "*", "--max-time", "30", "-H", "Content-Type: application/json"]);
        output(command.args(more).args(["-d", std::str::from_utf8(body).unwrap(), &url])).unwrap()
    };
    assert!(curl(&chat("x"), &[]).contains("\"chat.completion\""));
    let streamed = curl(&chat_stream("x", 5), &["-N"]);
    assert!(streamed.starts_with("data: {") && streamed.ends_with("data: [DONE]\n\n"), "{streamed}");
    assert!(curl(&chat_stream("x", 5), &["--http1.0"]).ends_with("data: [DONE]\n\n"));
    // Over a megabyte, curl asks first whether it may send.
    let large = chat(&"long ".repeat(20_000));
    assert!(curl(&large, &["-H", "Expect: 100-continue"]).contains("\"chat.completion\""));
    let chunked = curl(&chat("x"), &["-H", "Transfer-Encoding: chunked"]);
    assert!(chunked.contains("\"chat.completion\""));
    assert_eq!(engine.stats().finished, 5);
}

/// The interpreter of a virtual environment that has the package, made on first use; else why not.
fn python() -> Result<PathBuf, String> {
    static MAKING: Mutex<()> = Mutex::new(());
    let _one = MAKING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("openai-venv");
    let python = folder.join("bin/python");
    let has_package = |python: &Path| {
        let import = Command::new(python).args(["-c", "import openai"]).output();
        import.is_ok_and(|output| output.status.success())
    };
    if has_package(&python) {
        return Ok(python);
    }
    let run = |command: &mut Command| match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            Err(String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned())
        }
        Err(error) => Err(error.to_string()),
    };
    run(Command::new("python3").args(["-m", "venv"]).arg(&folder)).map_err(|e| format!("no venv: {e}"))?;
    let pip = ["-m", "pip", "install", "--quiet", "--retries", "1", "--timeout", "20", "openai>=2,<3"];
    run(Command::new(&python).args(pip)).map_err(|e| format!("no openai package: {e}"))?;
    Ok(python)
}

const SCRIPT: &str = r#"
import sys, openai
client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=30)
assert [m.id for m in client.models.list()] == ["sim"]
ask = dict(model="sim", messages=[{"role": "user", "content": "hello"}], max_tokens=12)
whole = client.chat.completions.create(**ask)
assert whole.usage.completion_tokens == 12, whole
text = ""
for event in client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **ask):
    if event.choices:
        text += event.choices[0].delta.content or ""
    usage = event.usage
assert text == whole.choices[0].message.content, (text, whole)
assert usage.completion_tokens == 12
legacy = client.completions.create(model="sim", prompt="hello", max_tokens=4)
assert legacy.usage.completion_tokens == 4
try:
    client.chat.completions.create(**{**ask, "model": "absent"})
    raise SystemExit("served a model that no pool has")
except openai.InternalServerError as error:
    assert error.status_code == 503 and error.code == "model_unavailable", error
print("ok")
"#;

fn the_openai_package_chats(driver: Driver) {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return println!("not_run: {why}"),
    };
    let engine = engine();
    let service = serde_json::json!({"model_name": "sim"});
    let gateway = Gateway::start(driver, &[rule_with(free_address(), &[engine.addr], service)]);
    let url = format!("http://{}/v1", gateway.vip);
    let said = output(Command::new(python).args(["-c", SCRIPT, &url]).env("NO_PROXY", "*")).unwrap();
    assert_eq!(said.trim(), "ok");
    let stats = engine.stats();
    assert_eq!((stats.finished, stats.executions.total), (3, 3));
}
