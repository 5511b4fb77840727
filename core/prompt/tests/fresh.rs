//! That words nobody has seen cost the same however many came before: no table grows under them. Alone in its process,
//! so that what the process maps can be measured.

mod mapped;

use mapped::{foreign, mapped, own};
use warmpath_prompt::Tokenizer;
use warmpath_prompt::tokenizer::Recent;

/// Words of a text.
const EACH: u64 = 250;

/// Some eight times what a thread keeps of words, more than `fastokens` begins with.
const TEXTS: u64 = 1_000;

/// Writes words of nine letters, each another one.
fn write(words: std::ops::Range<u64>, text: &mut String) {
    text.clear();
    for word in words {
        let mut mixed = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for _ in 0..9 {
            text.push(char::from(b'a' + (mixed >> 59) as u8 % 26));
            mixed = mixed.rotate_left(5);
        }
        text.push(' ');
    }
}

/// What all texts behind the first map, in KB.
fn grown(tokenizer: &Tokenizer) -> usize {
    let (mut recent, mut text) = (Recent::default(), String::with_capacity(1 << 14));
    let mut ids = Vec::with_capacity(1 << 14);
    let mut begun = None;
    for number in 0..TEXTS {
        write(number * EACH..(number + 1) * EACH, &mut text);
        ids.clear();
        tokenizer.encode(&text, &mut recent, &mut ids).expect("ids");
        assert!(ids.len() as u64 > EACH, "words of one token, which are known");
        begun = begun.or_else(|| Some(mapped()));
    }
    mapped() - begun.expect("a text")
}

#[test]
fn fresh_words_make_no_table_grow() {
    assert_eq!(grown(&own()), 0);
    assert!(
        grown(&foreign()) > 0,
        "fastokens grows no longer: this test sees nothing, or a reason to have our own went"
    );
}
