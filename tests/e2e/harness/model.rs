//! The files of a model whose tokens are the bytes of its text: what a simulated engine with `Reading { bytes }` makes
//! of a prompt, said as a model's repository says it. Owns the files; must never be read by an engine.

use serde_json::{Value, json};
use std::path::Path;

/// Ids of the simulated template's marks, as `perf::engine::text` has them.
const MARKS: [(&str, u32); 5] =
    [("<|end|>", 0), ("<|system|>", 1), ("<|user|>", 2), ("<|assistant|>", 3), ("<|tool|>", 4)];

/// The id of byte 0.
const FIRST_BYTE: u32 = 16;

/// The simulated engines' template.
pub const TEMPLATE: &str = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}\
                            {% if add_generation_prompt %}<|assistant|>{% endif %}";

/// Writes `tokenizer.json`, `tokenizer_config.json` and `config.json` into a folder.
pub fn write_byte_model(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let write = |name: &str, json: &Value| std::fs::write(folder.join(name), json.to_string()).unwrap();
    write("tokenizer.json", &tokenizer());
    write("tokenizer_config.json", &json!({"chat_template": TEMPLATE, "eos_token": "<|end|>"}));
    write("config.json", &json!({"model_type": "qwen3"}));
}

fn tokenizer() -> Value {
    let added = |(content, id): (&str, u32)| {
        json!({
            "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        })
    };
    let bytes = (0..=255_u8).map(|byte| (letter(byte).to_string(), json!(FIRST_BYTE + u32::from(byte))));
    let marks = MARKS.iter().map(|(mark, id)| (mark.to_string(), json!(id)));
    let vocabulary: serde_json::Map<String, Value> = bytes.chain(marks).collect();
    let byte_level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": MARKS.map(added),
        "normalizer": null, "pre_tokenizer": byte_level, "post_processor": null, "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": [],
        },
    })
}

/// What byte-level vocabularies write for a byte: itself where it can be seen, else one of the letters from U+0100 on.
fn letter(byte: u8) -> char {
    let is_seen = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match is_seen(byte) {
        true => char::from(byte),
        false => {
            let before = (0..byte).filter(|other| !is_seen(*other)).count() as u32;
            char::from_u32(0x100 + before).unwrap()
        }
    }
}
