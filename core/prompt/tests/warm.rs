//! That a thread that was warmed has nothing left to set up at its first text, and one that loads keeps nothing.
//! Alone in its process, so that what the process maps can be measured.

use warmpath_prompt::Tokenizer;
use warmpath_prompt::tokenizer::Choice;

/// The least table that the fast tokenizer makes for a thread.
const TABLE_KB: usize = 2048;

/// What this process has mapped, in KB.
fn mapped() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("a size");
    size.trim_end_matches("kB").trim().parse().expect("a number")
}

/// What this thread's next text maps, in KB.
fn text(tokenizer: &Tokenizer) -> usize {
    // The thread's heap, which is not the tokenizer's.
    drop(std::hint::black_box(vec![0u8; 4096]));
    let before = mapped();
    tokenizer.encode("the quick brown fox", &mut Vec::new()).expect("ids");
    mapped() - before
}

/// What the first text of a new thread maps, in KB.
fn first_text(tokenizer: &Tokenizer, warmed: bool) -> usize {
    let encode = || {
        if warmed {
            tokenizer.warm();
        }
        text(tokenizer)
    };
    std::thread::scope(|scope| scope.spawn(encode).join().expect("a thread"))
}

#[test]
fn the_first_text_of_a_warmed_thread_makes_no_table() {
    let tiny = include_bytes!("tokenizers/tiny.json");
    let tokenizer = Tokenizer::load(tiny, Choice::Fast).expect("a tokenizer");
    assert_eq!(tokenizer.refusal(), None);
    assert!(text(&tokenizer) >= TABLE_KB, "the thread that asked for it keeps a table");
    assert!(
        first_text(&tokenizer, false) >= TABLE_KB,
        "a thread has no table of its own: warming is in vain"
    );
    assert!(first_text(&tokenizer, true) < TABLE_KB);
}
