//! The gateway's own way from a request's text to token ids, to be compared with the engine's. Owns the model's files
//! and the texts; the way itself is the crate `prompt`'s.

use std::path::{Path, PathBuf};
use std::time::Duration;
use warmpath_core::engine::Engine;
use warmpath_prompt::load::{Files, LARGEST};
use warmpath_prompt::tokenizer::Choice;
use warmpath_prompt::{Api, Date, Model};

/// Lines that tokenizers and templates are prone to differ on: case, digits, marks, scripts, blanks, line ends.
const LINES: [&str; 8] = [
    "The gateway asks, and the engine answers: 3.14159, 1,000,000 or 0x7f?",
    "Ein Übermaß an Größe; naïve café, señor, Ελληνικά, русский текст.",
    "日本語の文章と、中文的句子。한국어 문장도 있습니다.",
    "if (a[i] == b[j]) { return \"x\\ty\"; }  // two  blanks   and\ttabs",
    "emoji: 🦀🚀👩‍💻, math: ∑∫√≠∞, arrows: ←→⇒",
    "Don't, we'll, I'M, they'Re — “quoted” ‘text’ … and so on!?",
    "https://example.org/path?query=1&other=%20#fragment user@example.org",
    "MiXeD CaSe ALLCAPS snake_case camelCase kebab-case 12:34:56 +49 (0)30",
];

/// The model of a folder, or of one `tokenizer.json` with what lies beside it.
pub fn load(path: &Path, engine: Engine) -> Result<Model, String> {
    let folder = if path.is_dir() { path.to_path_buf() } else { parent(path) };
    let mut files = match Files::read(&folder) {
        Ok(files) => files,
        // A file of another name stands for it.
        Err(_) if path.is_file() => Files::default(),
        Err(fault) => return Err(fault.to_string()),
    };
    if path.is_file() {
        let told = |fault: std::io::Error| format!("{}: {fault}", path.display());
        let length = path.metadata().map_err(told)?.len();
        if length > LARGEST {
            return Err(format!("{} has {length} bytes, over {LARGEST}", path.display()));
        }
        files.tokenizer = std::fs::read(path).map_err(told)?;
    }
    files.model(0, warmpath_shards::loader::policy(engine), Choice::Fast).map_err(|fault| fault.to_string())
}

fn parent(path: &Path) -> PathBuf {
    path.parent().map_or_else(PathBuf::new, Path::to_path_buf)
}

/// A text that no cache has, of at least `bytes` bytes.
pub fn text(mark: u64, bytes: usize) -> String {
    let mut text = format!("{mark:016x} ");
    for line in LINES.iter().cycle() {
        if text.len() >= bytes {
            break;
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// The ids that the gateway makes of a body's prompt, or why it makes none.
pub fn ids(model: &Model, api: Api, body: &[u8], wall: Duration) -> Result<Vec<u32>, String> {
    let today = i64::try_from(wall.as_secs()).ok().map(Date::of_unix);
    model.token_ids(api, body, today).map_err(|decline| format!("{decline} ({})", decline.word()))
}
