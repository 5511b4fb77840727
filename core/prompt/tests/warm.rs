//! That a thread has nothing left to set up at its first text: with `fastokens` once it was warmed, with this
//! repository's tokenizer at once. Alone in its process, so that what the process maps can be measured.

mod mapped;

use mapped::{foreign, mapped, own};
use warmpath_prompt::Tokenizer;
use warmpath_prompt::tokenizer::Recent;

/// The least table that `fastokens` makes for a thread.
const TABLE_KB: usize = 2048;

/// What this thread's next text maps, in KB.
fn text(tokenizer: &Tokenizer) -> usize {
    // The thread's heap, which is not the tokenizer's.
    drop(std::hint::black_box(vec![0u8; 4096]));
    let before = mapped();
    tokenizer.encode("the the", &mut Recent::default(), &mut Vec::new()).expect("ids");
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
fn the_first_text_of_a_thread_makes_no_table() {
    assert!(first_text(&own(), false) < TABLE_KB);
    let tokenizer = foreign();
    assert!(text(&tokenizer) >= TABLE_KB, "the thread that asked for it keeps a table");
    assert!(
        first_text(&tokenizer, false) >= TABLE_KB,
        "a thread has no table of its own: warming is in vain"
    );
    assert!(first_text(&tokenizer, true) < TABLE_KB);
}
