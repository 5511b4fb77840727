//! The texts that the two tokenizers must agree on before the fast one is used. Owns them; they touch every
//! branch of the pre-tokenizers in use: words, contractions, digits, code, scripts without blanks, marks, emoji,
//! runs of blanks, line ends, and added tokens whole, doubled and cut.

const TEXTS: &[&str] = &[
    "",
    " ",
    "a",
    "Hello, world! It's the user's turn; they'll say WE'RE done, I'd've said don't.",
    "The quick brown fox jumps over 13 lazy dogs, 1,234,567.89 times at 10:45pm on 2026-12-01.",
    "    indented\n\tfn main() {\n\t\tlet x = vec![1, 2, 3];\n\t\tprintln!(\"{x:?}\");\n\t}\n\n\n",
    "def f(a: int = 0) -> str:\r\n    return f\"{a!r}\"  # comment\r\n\r\n",
    "SELECT * FROM t WHERE a >= 1 AND b != 'x''y'; -- done\n",
    "https://example.com/a_b-c/d.html?q=1&r=%20#frag user@example.com C:\\dir\\file.txt",
    "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": [1, 2.5e-3, null]}}",
    "你好，世界！今天天气怎么样？我们去北京吧。",
    "吾輩は猫である。名前はまだ無い。カタカナとﾊﾝｶｸ。",
    "안녕하세요, 반갑습니다. 오늘 날씨가 좋네요.",
    "Привет, мир! Съешь ещё этих мягких французских булок.",
    "مرحبا بالعالم، كيف حالك؟ שלום עולם",
    "नमस्ते दुनिया। สวัสดีชาวโลก Xin chào thế giới",
    "e\u{301}\u{323} o\u{308}u\u{308} n\u{303} A\u{30a} \u{1100}\u{1161}\u{11a8} a\u{300}\u{301}\u{302}\u{303}",
    "😀😃 👩‍👩‍👧‍👦 🇨🇭🇩🇪 👍🏽 ❤️ ☃︎ 🏴‍☠️",
    "∑∫√≈≠ αβγ ℝⁿ ½ ² ① Ⅳ ﬁ Å ſ",
    "a  b   c    d     e      f       g        h\u{a0}\u{2003}\u{3000}i\u{200b}j\u{feff}k",
    "\n\n\n   \n \t \n\r\n\r\r\n  x  \n",
    "!!!???...---___***###@@@ ~`^|\\ <<>> [[ ]] {{ }} %% $$ ^^",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "00000000000000000000 1234567890123456789012345678901234567890",
    "<|im_start|>user\n<|im_end|> <|eot_id|> </s> [INST] <s> <｜User｜> <|im_start <|im_end|| |> <| <",
    "\u{0}\u{1}\u{7f}\u{80}\u{fffd}\u{10ffff}\u{e000}",
    "XMLHttpRequest camelCaseWords snake_case_words SCREAMING_CASE iPhone12ProMax 3D 2nd v1.2.3-rc4",
];

/// What a thread encodes to be ready: words that are tokens, and some that must be merged.
pub(super) const WARMING: &str = "Hello, world! The XMLHttpRequest of iPhone12ProMax\n";

/// Letters on which `fastokens` 0.3 is known to differ for some vocabularies, each with texts that show it. Texts
/// with such a letter go to the reference where they do. U+017F folds to an s: with `(?i:'s)` in the pattern the
/// two read an apostrophe before it differently (gpt-oss).
pub(super) const RARE: &[(&str, &[&str])] =
    &[("\u{17f}", &["'\u{17f}", "it'\u{17f} a", "x'\u{17f}t", "\u{17f}'\u{17f}", "IT'\u{17f}"])];

/// All samples for a tokenizer with these added tokens.
pub(super) fn samples(added: &[&str]) -> Vec<String> {
    let mut samples: Vec<String> = TEXTS.iter().map(|text| text.to_string()).collect();
    samples.push(TEXTS.join("\n"));
    samples.push(TEXTS.join(" ").repeat(4));
    // A tokenizer may have thousands; those that differ in kind stand at the two ends.
    let ends = added.iter().take(40).chain(added.iter().skip(40).rev().take(40));
    for token in ends {
        let half = token.len() / 2;
        let cut = (half..token.len()).find(|at| token.is_char_boundary(*at)).unwrap_or(0);
        let (head, tail) = token.split_at(cut);
        samples.push(format!("a {token} b{token}{token}\n{token}  {head} {tail}{head}{token}e\u{301}"));
    }
    samples
}
