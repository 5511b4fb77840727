//! Which templates are proven, which are not and why.

use crate::template::Template;

fn why_not(source: &str) -> Option<String> {
    Template::compile(source).expect("a template").not_resumable().map(str::to_string)
}

#[test]
fn vendors_templates_are_proven() {
    for source in [
        include_str!("../../../tests/templates/qwen3.jinja"),
        include_str!("../../../tests/templates/deepseek_v3.jinja"),
    ] {
        assert_eq!(why_not(source), None);
    }
}

#[test]
fn a_plain_template_is_proven() {
    assert_eq!(
        why_not(
            "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
        ),
        None
    );
}
