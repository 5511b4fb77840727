//! The pages for operators, done word for word: their launch lines start simulated engines, their rules are applied,
//! their commands run, and what they print has to be what the page says. Owns the run; must never know a page's content.

mod launch;
mod page;
mod words;

use crate::harness::{Driver, Gateway, binary, write_byte_model};
use page::{Block, blocks, missing};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::{Duration, Instant};
use warmpath_perf::engine::{Handle, Kind, start};

const PAGES: [(Kind, &str); 4] = [
    (Kind::Vllm, include_str!("../../../core/engines/vllm.md")),
    (Kind::Sglang, include_str!("../../../core/engines/sglang.md")),
    (Kind::Trtllm, include_str!("../../../core/engines/trtllm.md")),
    (Kind::Llamacpp, include_str!("../../../core/engines/llamacpp.md")),
];

/// How long a command may take to say what it should.
const PATIENCE: Duration = Duration::from_secs(90);

fn page_of(kind: Kind) -> Vec<Block> {
    blocks(PAGES.iter().find(|(own, _)| *own == kind).unwrap().1)
}

/// A loopback address of this process alone, so that the page's own ports are free there.
fn own_host() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 32 + high % 32, low, 1 + NEXT.fetch_add(1, Relaxed) % 254).to_string()
}

/// Where a page's addresses and folders are here.
struct Place {
    folder: PathBuf,
    names: Vec<(&'static str, String)>,
}

impl Place {
    fn new() -> Place {
        let folder = Gateway::folder();
        write_byte_model(&folder.join("model"));
        let root = folder.join("root").display().to_string();
        let mut names: Vec<(&str, String)> =
            ["10.0.1.1", "10.0.1.2", "10.0.0.254"].map(|name| (name, own_host())).into();
        names.push(("/etc/loxilb", root));
        Place { folder, names }
    }

    /// A page's words with the names that things have here.
    fn here(&self, text: &str) -> String {
        let text = self.names.iter().fold(text.to_owned(), |text, (name, own)| text.replace(name, own));
        // A line that leaves the last number open.
        text.replace("10.0.1.…", "127.…")
    }

    fn hosts(&self) -> [&str; 2] {
        [&self.names[0].1, &self.names[1].1]
    }

    /// Runs a command as an operator would: in a shell, with `warmpath` on the path.
    fn run(&self, block: &Block) -> (bool, String) {
        let bin = PathBuf::from(binary().get_program());
        let path = std::env::var("PATH").unwrap_or_default();
        let done = Command::new("sh")
            .args(["-ec", &self.here(&block.text)])
            .current_dir(&self.folder)
            .env("PATH", format!("{}:{path}", bin.parent().unwrap().display()))
            .env("MODEL", self.folder.join("model"))
            .env_remove("LLB_KV_NONE_HASH_SEED")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
        (done.status.success(), text.into_owned())
    }

    /// Runs it until it says what it should; events and figures take their time.
    fn run_until_said(&self, block: &Block, says: Option<&Block>) {
        let (end, succeeds) = (Instant::now() + PATIENCE, block.word == "run");
        let wanted = says.map(|says| self.here(&says.text)).unwrap_or_default();
        loop {
            let (is_well, output) = self.run(block);
            let lacks = missing(&wanted, &output);
            if is_well == succeeds && lacks.is_none() {
                return;
            }
            assert!(
                Instant::now() < end,
                "{}\nsuccess: {is_well}, lacking: {lacks:?}, in:\n{output}",
                block.text
            );
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    fn write_rule(&self, blocks: &[Block], variant: &str) {
        let rule =
            blocks.iter().find(|block| (block.word.as_str(), block.variant.as_str()) == ("rule", variant));
        std::fs::write(self.folder.join("rule.json"), self.here(&rule.expect("a rule").text)).unwrap();
    }

    fn engines(&self, kind: Kind, blocks: &[Block], line: &Block, version: Option<&str>) -> Vec<Handle> {
        let yaml = blocks.iter().find(|block| block.language == "yaml").map(|block| block.text.as_str());
        let start = |host| start(launch::config(kind, &line.text, yaml, host, version)).unwrap();
        self.hosts().into_iter().map(start).collect()
    }

    /// The gateway as the page starts it.
    fn gateway(&self, serve: &Block) -> Gateway {
        let text = self.here(&serve.text);
        let (before, after) = text.split_once("warmpath serve").expect("it serves");
        let variables: Vec<(&str, &str)> =
            before.split_whitespace().map(|pair| pair.split_once('=').unwrap()).collect();
        let flags: Vec<&str> = after.split_whitespace().chain(["--shards", "1"]).collect();
        let gateway = Gateway::spawn_in(Driver::Epoll, self.folder.clone(), false, &flags, &variables);
        std::os::unix::fs::symlink("state", self.folder.join("warmpath-state")).unwrap();
        gateway
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The page from its first line to its last, with the engines' own default releases.
fn from_top_to_bottom(kind: Kind) {
    let blocks = page_of(kind);
    let mut place = Place::new();
    place.write_rule(&blocks, "");
    let (mut engines, mut gateway) = (Vec::new(), None);
    let mut ran = 0;
    for (at, block) in blocks.iter().enumerate().filter(|(_, block)| block.variant.is_empty()) {
        match block.word.as_str() {
            "engine" => engines = place.engines(kind, &blocks, block, None),
            "serve" => {
                let served = place.gateway(block);
                place.names.push(("127.0.0.1:11111", served.admin.to_string()));
                gateway = Some(served);
            }
            "run" | "fails" => {
                place.run_until_said(block, blocks.get(at + 1).filter(|next| next.word == "says"));
                ran += 1;
            }
            "rule" | "says" | "kv.yaml" => {}
            other => panic!("what is a block of {other:?} for?"),
        }
    }
    assert!(engines.len() == 2 && gateway.is_some() && ran >= 4, "{ran} commands");
}

/// Each launch line as each release that it names, against its rule, by `doctor`.
fn each_release(kind: Kind) {
    let blocks = page_of(kind);
    for line in blocks.iter().filter(|block| block.word == "engine") {
        for version in &line.rest {
            let place = Place::new();
            place.write_rule(&blocks, &line.variant);
            let _engines = place.engines(kind, &blocks, line, Some(version));
            let doctor =
                Block { word: "run".into(), text: doctor(&line.text, &place.folder), ..line.clone() };
            place.run_until_said(&doctor, None);
        }
    }
}

/// With the seed of the line, if it has one. The model's files are where the page's own command puts them.
fn doctor(line: &str, folder: &Path) -> String {
    let seed = line.split_whitespace().find_map(|word| word.strip_prefix("PYTHONHASHSEED="));
    let seed = seed.map(|seed| format!("LLB_KV_NONE_HASH_SEED={seed} ")).unwrap_or_default();
    let files = folder.join("model");
    format!("{seed}warmpath doctor --rule rule.json --tokenizer {} --destructive", files.display())
}

#[test]
fn vllm_from_top_to_bottom() {
    from_top_to_bottom(Kind::Vllm);
}

#[test]
fn sglang_from_top_to_bottom() {
    from_top_to_bottom(Kind::Sglang);
}

#[test]
fn trtllm_from_top_to_bottom() {
    from_top_to_bottom(Kind::Trtllm);
}

#[test]
fn llamacpp_from_top_to_bottom() {
    from_top_to_bottom(Kind::Llamacpp);
}

#[test]
fn vllm_of_each_release() {
    each_release(Kind::Vllm);
}

#[test]
fn sglang_of_each_release() {
    each_release(Kind::Sglang);
}
