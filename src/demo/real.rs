//! Two real vLLM engines, started by `tests/real/serve.py` as the tests there start theirs. Owns that process and the
//! dialogue with it. There are two engines in all: each side has both to itself, one side after the other.

use super::pool::{Counters, Facts, Pool, Side};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The program that starts the engines, from the repository's root.
const SERVE: &str = "tests/real/serve.py";
/// How old counters may be that are told again: each look asks every engine for its metrics.
const FRESH: Duration = Duration::from_millis(250);

/// The engines.
pub struct Real {
    child: Child,
    /// `None` while it is told to end.
    asks: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    facts: Facts,
    endpoints: Vec<SocketAddr>,
    /// What was counted before the side that is tried now.
    base: Vec<Counters>,
    looked: Option<(Instant, Vec<Counters>)>,
}

impl Real {
    /// Starts them from what is installed in `folder`; minutes later they serve.
    pub fn start(folder: &Path) -> Result<Real, String> {
        let python = folder.join("vllm/bin/python");
        let installed = folder.join("vllm/bin/vllm").exists() && folder.join("models/model").exists();
        if !Path::new(SERVE).exists() {
            return Err(format!(
                "--real needs {SERVE}, which is not here; run it from the repository's root"
            ));
        }
        if !installed {
            let name = folder.display();
            return Err(format!(
                "vLLM and its model are not installed in {name}; `tests/real/install {name} vllm models` does it \
                 (6 GB), from the repository's root"
            ));
        }
        let mut command = Command::new(python);
        command.arg(SERVE).arg(folder).env("PYTHONDONTWRITEBYTECODE", "1");
        // Ctrl-C is for this process; that one ends when its input does.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log(folder)?);
        let mut child = command.spawn().map_err(|e| format!("{SERVE}: can't be run: {e}"))?;
        let (asks, answers) = (child.stdin.take(), child.stdout.take());
        let answers = BufReader::new(answers.ok_or("the engines' starter has no output")?);
        let facts = Facts {
            engines: 0,
            kind: String::new(),
            model: String::new(),
            block_size: 0,
            cache_blocks: 0,
            is_shared: true,
            event_ports: None,
        };
        let (endpoints, base) = (Vec::new(), Vec::new());
        let mut real = Real { child, asks, answers, facts, endpoints, base, looked: None };
        real.learn()?;
        Ok(real)
    }

    /// Waits for its first line.
    fn learn(&mut self) -> Result<(), String> {
        let told = self.answer()?;
        let text = |name: &str| told[name].as_str().unwrap_or_default().to_string();
        let number = |name: &str| told[name].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        let places = told["endpoints"].as_array().into_iter().flatten();
        self.endpoints = places.filter_map(|place| place.as_str()?.parse().ok()).collect();
        if self.endpoints.is_empty() || number("block_size") == 0 {
            return Err(format!("{SERVE} does not say where its engines are: {told}"));
        }
        self.facts = Facts {
            engines: self.endpoints.len(),
            kind: format!("real vLLM {}", text("version")),
            model: text("model"),
            block_size: number("block_size"),
            cache_blocks: number("cache_blocks"),
            is_shared: true,
            event_ports: None,
        };
        Ok(())
    }

    fn call(&mut self, line: &str) -> Result<Value, String> {
        let asks = self.asks.as_mut().ok_or("the engines are being ended")?;
        writeln!(asks, "{line}").and_then(|()| asks.flush()).map_err(|e| format!("{SERVE}: {line}: {e}"))?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line).map_err(|e| format!("{SERVE}: {e}"))?;
        if read == 0 {
            return Err(format!("{SERVE} ended; logs/demo*.log in the folder of --real tell why"));
        }
        let told: Value = serde_json::from_str(&line).map_err(|e| format!("{SERVE} said {line:?}: {e}"))?;
        match told["error"].as_str() {
            Some(error) => Err(error.into()),
            None => Ok(told),
        }
    }

    fn totals(&mut self) -> Result<Vec<Counters>, String> {
        if let Some((at, totals)) = &self.looked
            && at.elapsed() < FRESH
        {
            return Ok(totals.clone());
        }
        let told = self.call("look")?;
        let count = |value: &Value| value.as_f64().map_or(0, |count| count as u64);
        let one = |pair: &Value| Counters { prompt: count(&pair[0]), cached: count(&pair[1]) };
        let totals: Vec<Counters> = told["counters"].as_array().into_iter().flatten().map(one).collect();
        self.looked = Some((Instant::now(), totals.clone()));
        Ok(totals)
    }
}

/// What the starter itself has to complain of.
fn log(folder: &Path) -> Result<File, String> {
    let path = folder.join("logs/demo.log");
    std::fs::create_dir_all(folder.join("logs"))
        .and_then(|()| File::create(&path))
        .map_err(|e| format!("{}: can't be written: {e}", path.display()))
}

impl Pool for Real {
    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    fn endpoints(&self, _: Side) -> Vec<SocketAddr> {
        self.endpoints.clone()
    }

    fn begin(&mut self, _: Side) -> Result<(), String> {
        self.looked = None;
        self.base = self.totals()?;
        Ok(())
    }

    fn counters(&mut self, _: Side) -> Result<Vec<Counters>, String> {
        let totals = self.totals()?;
        let since = |(now, base): (&Counters, &Counters)| Counters {
            prompt: now.prompt.saturating_sub(base.prompt),
            cached: now.cached.saturating_sub(base.cached),
        };
        Ok(totals.iter().zip(&self.base).map(since).collect())
    }

    fn stop(&mut self, engine: usize) -> Result<(), String> {
        self.call(&format!("kill {engine}")).map(drop)
    }

    fn start(&mut self, engine: usize) -> Result<(), String> {
        self.call(&format!("start {engine}")).map(drop)
    }

    fn serves(&mut self, engine: usize) -> Result<bool, String> {
        Ok(self.call(&format!("up {engine}"))?["up"] == true)
    }

    fn lose_next(&mut self, _: usize) -> Result<(), String> {
        Err("a real vLLM loses no message on demand; the simulated engines do".into())
    }

    fn held(&self, _: usize) -> Option<BTreeSet<u64>> {
        None
    }
}

/// The engines end with the input of their starter.
impl Drop for Real {
    fn drop(&mut self) {
        self.asks = None;
        // Nobody is left to be told of a child that can't be waited for.
        let _ = self.child.wait();
    }
}
