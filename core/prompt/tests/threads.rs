//! That no thread stays behind. Alone in its process, so that threads can be counted.

use warmpath_prompt::Tokenizer;
use warmpath_prompt::tokenizer::{Choice, Recent};

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, |tasks| tasks.count())
}

#[test]
fn large_texts_are_encoded_by_the_thread_that_asks() {
    let before = threads();
    let tiny = include_bytes!("tokenizers/tiny.json");
    let tokenizer = Tokenizer::load(tiny, Choice::Fast).expect("a tokenizer");
    assert_eq!(tokenizer.refusal(), None);
    for text in ["the quick brown fox <|im_end|> ", "blocks", "é日本 "] {
        tokenizer.encode(&text.repeat(100_000), &mut Recent::default(), &mut Vec::new()).expect("ids");
    }
    assert_eq!(threads(), before);
}
