//! Next turns against whole renderings: what is rendered behind an earlier turn must be the whole text's end, to the
//! byte, whatever the template looks at and however the conversation goes on.

use crate::conversations::{self, Went};
use warmpath_prompt::Template;
use warmpath_prompt::load::Files;

const TINY: &[u8] = include_bytes!("../tokenizers/tiny.json");

/// Templates of many kinds, and what is particular to each.
const TEMPLATES: &[(&str, &str)] = &[
    ("qwen3: where the last question is", include_str!("../templates/qwen3.jinja")),
    (
        "deepseek_v3: system messages first, flags from message to message",
        include_str!("../templates/deepseek_v3.jinja"),
    ),
    (
        "plain",
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n",
    ),
    (
        "a check of turns by number, and system before the last question",
        "{{ bos_token }}{% if messages[0].role == 'system' %}{% set own = messages[1:] %}{% set system = messages[0].content %}\
         {% else %}{% set own = messages %}{% endif %}{% for m in own %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}\
         {{ raise_exception('turns') }}{% endif %}{% if m.role == 'user' %}<|im_start|>{% if loop.last and system is defined %}\
         {{ system }}\n\n{% endif %}{{ m.content | trim }}{% else %}<|im_end|>{{ m.content }}{% endif %}{% endfor %}",
    ),
    (
        "the last question found forwards, thoughts dropped before it",
        "{%- set ns = namespace(last=-1) -%}\n{%- for m in messages -%}\n  {%- if m.role == 'user' -%}\n    \
         {%- set ns.last = loop.index0 -%}\n  {%- endif -%}\n{%- endfor -%}\n{%- for m in messages -%}\n<|im_start|>{{ m.role }}\n\
         {%- if m.role == 'assistant' and loop.index0 <= ns.last and '</think>' in m.content -%}\n\
         {{ m.content.split('</think>')[-1].strip() }}\n{%- else -%}\n{{ m.content }}\n{%- endif -%}\n<|im_end|>\n{%- endfor -%}",
    ),
    (
        "a count from message to message, and what a neighbour is",
        "{% set ns = namespace(n=0, names='') %}{% for m in messages %}{% set ns.n = ns.n + m.content | length %}\
         {% set ns.names = ns.names ~ m.role[0] %}{% if not loop.first and messages[loop.index0 - 1].role == m.role %}again \
         {% endif %}<|im_start|>{{ loop.index }} {{ ns.n }} {{ ns.names }} {{ m.content }}<|im_end|>{% if loop.last or \
         messages[loop.index0 + 1].role != 'assistant' %}\n{% endif %}{% endfor %}{{ ns.n }}{{ messages | length }}",
    ),
    (
        "a macro, tools, and a day",
        "{% macro show(m) %}<|im_start|>{{ m.role }}: {% if m.content is string %}{{ m.content }}{% endif %}<|im_end|>{% endmacro %}\
         {% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}{{ strftime_now('%d %b %Y') }}\
         {% for m in messages %}{{ show(m) }}{% if loop.last %}{{ messages[0].content }}{% endif %}{% endfor %}",
    ),
];

/// A small model with a template.
fn tiny(template: &str) -> Files {
    let config = br#"{"bos_token": "<s>", "eos_token": "</s>"}"#.to_vec();
    Files {
        tokenizer: TINY.into(),
        template: Some(template.into()),
        config: Some(config),
        ..Files::default()
    }
}

#[test]
fn what_is_rendered_behind_a_turn_is_the_end_of_the_whole() {
    for (seed, (what, source)) in TEMPLATES.iter().enumerate() {
        let why = Template::compile(source).expect("a template").not_resumable().map(str::to_string);
        assert_eq!(why, None, "{what}");
        let Went { resumed, whole } = conversations::run(&tiny(source), seed as u64, 120);
        assert!(resumed > 25, "{what}: {resumed} went on, {whole} did not");
    }
}

/// What a template does that forbids going on.
const LOOKING_AHEAD: &[&str] = &[
    "{{ messages[-1].content }}{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}",
    "{% for m in messages %}<|im_start|>{{ loop.length }}{{ m.content }}{% endfor %}",
    "{% for m in messages %}<|im_start|>{{ m.content }}{{ messages | length }}{% endfor %}",
    "{% for m in messages %}<|im_start|>{% if loop.revindex < 3 %}{{ m.content }}{% endif %}{% endfor %}",
    "{% for m in messages %}<|im_start|>{{ messages[loop.index0 + 2].content }}{{ m.content }}{% endfor %}",
    "{% for m in messages %}<|im_start|>{{ messages[loop.index0 - 1].content }}{{ m.content }}{% endfor %}",
    "{% for m in messages[::-1] %}<|im_start|>{{ m.content }}{% endfor %}",
    "{% for m in messages if loop.last %}<|im_start|>{{ m.content }}{% endfor %}",
    "{% for m in messages | selectattr('role', 'equalto', 'user') %}<|im_start|>{{ m.content }}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}\
     {% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}",
    "{% set ns = namespace(a='') %}{% for m in messages %}{% if m.role == 'assistant' %}{% set ns.a = m.content %}{% endif %}\
     {% endfor %}{% for m in messages %}<|im_start|>{{ m.content }}{% if m.content == ns.a %}!{% endif %}{% endfor %}",
    "{% set ns = namespace(u=true) %}{% for m in messages[::-1] %}{% if m.role == 'assistant' %}{% set ns.u = false %}{% endif %}\
     {% endfor %}{% for m in messages %}<|im_start|>{% if ns.u %}{{ m.content }}{% endif %}{% endfor %}",
    "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}{% for m in messages %}{{ m.role }}{% endfor %}",
    "{{ messages | tojson }}{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}",
    "{% macro all() %}{{ messages | length }}{% endmacro %}{{ all() }}{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}",
    "{% for m in messages %}<|im_start|>{{ m.content }}{% if m.content == 'x' %}{% break %}{% endif %}{% endfor %}",
];

#[test]
fn a_template_that_looks_ahead_is_rendered_whole() {
    for (seed, source) in LOOKING_AHEAD.iter().enumerate() {
        let why = Template::compile(source).expect("a template").not_resumable().map(str::to_string);
        assert!(why.is_some(), "{source}");
        let Went { resumed, .. } = conversations::run(&tiny(source), seed as u64, 10);
        assert_eq!(resumed, 0, "{source}");
    }
}
