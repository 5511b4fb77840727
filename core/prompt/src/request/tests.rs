//! Every shape of a request and every reason to decline one, by a body each.

use super::completion::{Given, prompt};
use super::*;
use crate::decline::Decline;
use crate::value::value;
use warmpath_core::engine::{Looped, ToolForm, Version};
use warmpath_parser::json::{JsonLimits, peek};

fn members(body: &str) -> Members {
    let mut members = Members::new();
    peek(body.as_bytes(), &mut members, JsonLimits::default()).expect("JSON");
    members
}

fn verified() -> Policy {
    const KWARGS: &[Kwarg] =
        &[Kwarg { name: "enable_thinking", is_text: false }, Kwarg { name: "date_string", is_text: true }];
    Policy { tools: true, template_kwargs: true, kwargs: KWARGS, ..Policy::plain() }
}

fn chat(body: &str, policy: &Policy) -> Result<String, Decline> {
    let members = members(body);
    beside(body.as_bytes(), &members)?;
    conversation(body.as_bytes(), &members, policy, Some(ToolForm::Declared)).map(|read| {
        fn json(value: &impl serde::Serialize) -> String {
            serde_json::to_string(value).expect("JSON")
        }
        format!("{} {} {}", json(&read.messages), json(&read.tools), json(&read.kwargs))
    })
}

fn completion(body: &str) -> Result<Given, Decline> {
    let members = members(body);
    beside(body.as_bytes(), &members)?;
    prompt(body.as_bytes(), &members)
}

#[test]
fn a_plain_conversation_is_read() {
    let body = r#"{"messages": [{"role": "system", "content": "S\n\u00e9"},
        {"name": "n", "role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
         "tool_calls": [], "refusal": null}], "tools": null, "tool_choice": "none", "model": "m"}"#;
    let messages =
        r#"[{"role":"system","content":"S\né"},{"role":"user","content":"a\nb","name":"n"}] null []"#;
    assert_eq!(chat(body, &Policy::plain()).as_deref(), Ok(messages));
    let blank = Policy { content: ContentShape::Text { joiner: " " }, ..Policy::plain() };
    assert!(chat(body, &blank).is_ok_and(|text| text.contains("a b")));
}

#[test]
fn a_template_that_loops_gets_parts() {
    let body = r#"{"messages": [{"role": "user", "content": "a"}]}"#;
    let one = r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}"#;
    let parts = r#"[{"role":"user","content":[{"type":"text","text":"a"}]}] null []"#;
    let text = r#"[{"role":"user","content":"a"}] null []"#;
    for (body, wrap, wanted) in
        [(body, true, parts), (body, false, text), (one, true, parts), (one, false, parts)]
    {
        let policy = Policy { content: ContentShape::Parts { wrap }, ..Policy::plain() };
        assert_eq!(chat(body, &policy).as_deref(), Ok(wanted));
    }
}

#[test]
fn tools_and_arguments_keep_their_order() {
    let body = r#"{"messages": [{"role": "user", "content": "a"}], "tool_choice": "auto",
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": 0.5}, "description": "d"}}],
        "chat_template_kwargs": {"enable_thinking": false, "date_string": "x"}}"#;
    let wanted = r#"[{"role":"user","content":"a"}] [{"type":"function","function":{"name":"f","description":"d","parameters":{"b":1,"a":0.5}}}] [["enable_thinking",false],["date_string","x"]]"#;
    assert_eq!(chat(body, &verified()).as_deref(), Ok(wanted));
}

/// A chat with these members before its one message.
fn with(members: &str) -> String {
    format!(r#"{{{members}, "messages": [{{"role": "user", "content": "a"}}]}}"#)
}

/// A chat with a tool of these members.
fn tool(function: &str) -> String {
    with(&format!(r#""tools": [{{"type": "function", "function": {{{function}}}}}]"#))
}

/// A chat with a call of this function.
fn call(function: &str) -> String {
    let call = format!(r#"{{"id": "1", "type": "function", "function": {function}}}"#);
    message(&format!(r#"{{"role": "assistant", "content": null, "tool_calls": [{call}]}}"#))
}

/// A chat with this one message before a plain one.
fn message(message: &str) -> String {
    format!(r#"{{"messages": [{message}, {{"role": "user", "content": "a"}}]}}"#)
}

#[test]
fn what_can_t_be_proven_is_declined() {
    let cases = [
        (with(r#""functions": []"#), Decline::Functions),
        (with(r#""documents": [{"text": "x"}]"#), Decline::Documents),
        (with(r#""reasoning_effort": "low""#), Decline::ReasoningEffort),
        (with(r#""chat_template": "x""#), Decline::OwnTemplate),
        (with(r#""add_generation_prompt": false"#), Decline::GenerationPrompt),
        (with(r#""continue_final_message": true"#), Decline::ContinueFinal),
        (with(r#""add_special_tokens": true"#), Decline::AddSpecialTokens),
        (with(r#""prompt_embeds": "x""#), Decline::PromptEmbeds),
        (with(r#""prompt_token_ids": [1]"#), Decline::PromptTokenIds),
        (with(r#""prompt_token_ids_b64": "x""#), Decline::PromptTokenIds),
        (with(r#""truncate_prompt_tokens": 3"#), Decline::Truncated),
        (with(r#""lora_path": "x""#), Decline::LoraPath),
        (with(r#""cache_salt": 1"#), Decline::MemberType),
        (with(r#""tools": {}"#), Decline::MemberType),
        (tool(r#""name": "f", "parameters": {"maximum": 100000000000000000000}"#), Decline::Number),
        (tool(r#""name": "f", "parameters": []"#), Decline::ToolShape),
        (tool(r#""name": "f", "strict": null"#), Decline::ToolShape),
        (tool(r#""name": "f", "defer_loading": true"#), Decline::ToolShape),
        (tool(r#""description": "d""#), Decline::ToolShape),
        (with(r#""tools": [{}]"#), Decline::ToolShape),
        (with(r#""tools": [{"type": "web_search", "function": {"name": "f"}}]"#), Decline::ToolShape),
        (with(r#""tools": [{"function": {"name": "f"}, "x": 1}]"#), Decline::ToolShape),
        (with(r#""tools": [], "tool_choice": "required""#), Decline::ToolChoice),
        (with(r#""tool_choice": {"type": "function"}"#), Decline::ToolChoice),
        (with(r#""chat_template_kwargs": {"tools": []}"#), Decline::TemplateKwargs),
        (with(r#""chat_template_kwargs": {"enable_thinking": 0}"#), Decline::TemplateKwargs),
        (with(r#""chat_template_kwargs": {"enable_thinking": "no"}"#), Decline::TemplateKwargs),
        (with(r#""chat_template_kwargs": {"date_string": null}"#), Decline::TemplateKwargs),
        (with(r#""chat_template_kwargs": []"#), Decline::MemberType),
        (message(r#"{"role": "assistant", "content": "", "tool_calls": [{}]}"#), Decline::ToolCalls),
        (message(r#"{"role": "assistant", "content": "", "function_call": {}}"#), Decline::ToolCalls),
        (message(r#"{"role": "function", "content": "x"}"#), Decline::ToolResult),
        (message(r#"{"role": "tool", "content": null}"#), Decline::MessageShape),
        (call(r#"{"name": "f", "arguments": ""}"#), Decline::ToolCalls),
        (call(r#"{"name": "f", "arguments": "[]"}"#), Decline::ToolCalls),
        (call(r#"{"name": "f", "arguments": "{"}"#), Decline::ToolCalls),
        (call(r#"{"name": "f", "arguments": "{} x"}"#), Decline::ToolCalls),
        (call(r#"{"name": "f", "arguments": {}}"#), Decline::ToolCalls),
        (call(r#"{"name": "f"}"#), Decline::ToolCalls),
        (call(r#"{"arguments": "{}"}"#), Decline::ToolCalls),
        (call(r#"{"name": "f", "arguments": "{\"x\": -0}"}"#), Decline::Number),
        (call(r#"{"name": "f", "arguments": "{\"x\": NaN}"}"#), Decline::ToolCalls),
        (message(r#"{"role": "user", "content": "x", "tool_calls": [{}]}"#), Decline::ToolCalls),
        (message(r#"{"role": "user", "content": "x", "tool_call_id": "1"}"#), Decline::ToolResult),
        (message(r#"{"role": "assistant", "content": "x", "reasoning": "y"}"#), Decline::Reasoning),
        (message(r#"{"role": "system", "content": "x", "tools": [{}]}"#), Decline::Tools),
        (message(r#"{"role": "user", "content": [{"type": "image_url"}]}"#), Decline::MediaPart),
        (message(r#"{"role": "user", "content": ["x"]}"#), Decline::MessageShape),
        (
            message(
                r#"{"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "a"}]}"#,
            ),
            Decline::EmptyTextPart,
        ),
        (message(r#"{"role": "user", "content": null}"#), Decline::MessageShape),
        (message(r#"{"role": "user"}"#), Decline::MessageShape),
        (message(r#"{"content": "x"}"#), Decline::MessageShape),
        (message(r#"{"role": 1, "content": "x"}"#), Decline::MessageShape),
        (message(r#""x""#), Decline::MessageShape),
        (message(r#"{"role": "user", "content": "\ud800x"}"#), Decline::LoneSurrogate),
        (r#"{"messages": []}"#.into(), Decline::NoMessages),
        (r#"{"prompt": "x"}"#.into(), Decline::NoMessages),
        (r#"{"messages": [{"role": "assistant", "content": "x"}]}"#.into(), Decline::EndsOnAssistant),
    ];
    for (body, wanted) in cases {
        assert_eq!(chat(&body, &verified()).err(), Some(wanted), "{body}");
    }
}

#[test]
fn what_is_not_verified_is_declined() {
    let plain = Policy::plain();
    assert_eq!(chat(&with(r#""tools": [{}]"#), &plain).err(), Some(Decline::Tools));
    let called = call(r#"{"name": "f", "arguments": "{}"}"#);
    assert_eq!(chat(&called, &plain).err(), Some(Decline::ToolCalls));
    assert!(chat(&called, &verified()).is_ok());
    let result = message(r#"{"role": "tool", "content": "x", "tool_call_id": "1"}"#);
    assert_eq!(chat(&result, &plain).err(), Some(Decline::ToolResult));
    let body = tool(r#""name": "f""#);
    let unknown = conversation(body.as_bytes(), &members(&body), &verified(), None);
    assert_eq!(unknown.err(), Some(Decline::ToolVersion));
    let cut = Policy { cut_header: Some("x-header"), ..Policy::plain() };
    let system = message(r#"{"role": "system", "content": "x-header: 1\nyou are"}"#);
    assert_eq!(chat(&system, &cut).err(), Some(Decline::SystemHeader));
    assert!(chat(&system, &Policy::plain()).is_ok());
    let kwargs = with(r#""chat_template_kwargs": {"a": 1}"#);
    assert_eq!(chat(&kwargs, &plain).err(), Some(Decline::TemplateKwargs));
    assert!(chat(&with(r#""chat_template_kwargs": {}"#), &plain).is_ok());
    let other = Policy { chats_by_template: false, ..Policy::plain() };
    assert_eq!(chat(&with(r#""a": 1"#), &other).err(), Some(Decline::ModelType));
    let two =
        r#"{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}"#;
    let parts = Policy { content: ContentShape::Parts { wrap: true }, ..Policy::plain() };
    assert_eq!(chat(&message(two), &parts).err(), Some(Decline::ManyTextParts));
}

#[test]
fn salts_and_namespaces_are_data() {
    let body = r#"{"cache_salt": "a\"b", "extra_key": "k", "lora_path": null}"#;
    let read = beside(body.as_bytes(), &members(body)).expect("both");
    assert_eq!(read, Beside { salt: Some("a\"b".into()), namespace: Some("k".into()) });
}

#[test]
fn completions_take_one_prompt() {
    let text = |text: &str, specials| Ok(Given::Text { text: text.into(), specials });
    let cases = [
        (r#"{"prompt": "a\tb"}"#, text("a\tb", true)),
        (r#"{"prompt": ["a"], "add_special_tokens": true}"#, text("a", true)),
        (r#"{"prompt": "a", "add_special_tokens": false}"#, text("a", false)),
        (r#"{"prompt": [1, 2, 4294967295]}"#, Ok(Given::Tokens(vec![1, 2, u32::MAX]))),
        (r#"{"prompt": [[7]]}"#, Ok(Given::Tokens(vec![7]))),
        (r#"{"prompt": ["a", "b"]}"#, Err(Decline::ManyPrompts)),
        (r#"{"prompt": [[1], [2]]}"#, Err(Decline::ManyPrompts)),
        (r#"{"prompt": []}"#, Err(Decline::NoPrompt)),
        (r#"{"prompt": [[]]}"#, Err(Decline::NoPrompt)),
        (r#"{"model": "m"}"#, Err(Decline::NoPrompt)),
        (r#"{"prompt": {}}"#, Err(Decline::PromptShape)),
        (r#"{"prompt": [null]}"#, Err(Decline::PromptShape)),
        (r#"{"prompt": [1, 4294967296]}"#, Err(Decline::TokenIds)),
        (r#"{"prompt": [1, "a"]}"#, Err(Decline::TokenIds)),
        (r#"{"prompt": [1.0]}"#, Err(Decline::TokenIds)),
        (r#"{"prompt": "a", "suffix": "b"}"#, Err(Decline::Suffix)),
        (r#"{"prompt": "a", "add_special_tokens": 1}"#, Err(Decline::AddSpecialTokens)),
        (r#"{"prompt": "\udc00"}"#, Err(Decline::LoneSurrogate)),
    ];
    for (body, wanted) in cases {
        assert_eq!(completion(body), wanted, "{body}");
    }
}

#[test]
fn pairs_of_surrogates_are_characters() {
    for (inner, lone) in [
        (r"a\ud83d\ude00b", false),
        (r"\\ud800", false),
        (r"\\\ud800", true),
        (r"\ud83d\ud83d\ude00", true),
        (r"\ude00\ud83d", true),
        (r"\u00e9\n", false),
    ] {
        assert_eq!(has_lone_surrogate(inner.as_bytes()), lone, "{inner}");
    }
}

/// How an engine of this name hands over a conversation, where the template takes text or loops over parts.
fn policy_of(engine: Engine, loops: bool) -> Policy {
    let terms = engine.text_terms();
    let looped = match terms.looped {
        Looped::Joined => ContentShape::Text { joiner: terms.joiner },
        Looped::Parts => ContentShape::Parts { wrap: false },
        Looped::Wrapped => ContentShape::Parts { wrap: true },
    };
    let text = ContentShape::Text { joiner: terms.joiner };
    let content = if loops { looped } else { text };
    Policy { content, joiner: terms.joiner, names: terms.names, ..verified() }
}

/// What the engines' released code made of tools and messages: see `tests/oracle/engines.py`.
#[test]
fn tools_and_messages_get_to_templates_as_from_the_engines() {
    fn json(cell: &minijinja::Value) -> String {
        serde_json::to_string(cell).expect("JSON")
    }
    // Members that no verified template prints, and their order, are the engine's own.
    fn bare(json: &str) -> serde_json::Value {
        let text = json.replace(r#""index":0,"#, "").replace(r#""index":null,"#, "");
        serde_json::from_str(&text).expect("JSON")
    }
    let mut rows = 0;
    for line in include_str!("../../tests/golden/engines.jsonl").lines() {
        let row = value(line.as_bytes()).expect("a row");
        let of = |name: &str| row.get_attr(name).expect("a member");
        let engine = Engine::from_name(of("engine").as_str().expect("a name")).expect("an engine");
        for version in of("versions").try_iter().expect("versions") {
            let form = engine.tool_form(Version::read(version.as_str().expect("a version")));
            let given = json(&of("given"));
            rows += 1;
            if of("tools").is_undefined() {
                let policy = policy_of(engine, of("format").as_str() == Some("openai"));
                let body = format!(r#"{{"messages": {}}}"#, json(&of("messages")));
                let read = conversation(body.as_bytes(), &members(&body), &policy, form);
                let read = read.map(|read| json(&read.messages));
                assert_eq!(read.as_deref().map(bare), Ok(bare(&given)), "{engine:?} {version}: {body}");
            } else {
                let body = with(&format!(r#""tools": {}"#, json(&of("tools"))));
                let read = conversation(body.as_bytes(), &members(&body), &policy_of(engine, false), form);
                assert_eq!(read.map(|read| json(&read.tools)), Ok(given), "{engine:?} {version}: {body}");
            }
        }
    }
    assert!(rows > 150, "{rows}");
    for (engine, version) in
        [(Engine::Sglang, None), (Engine::Sglang, Some("0.5.21")), (Engine::Trtllm, None)]
    {
        assert_eq!(
            engine.tool_form(version.and_then(Version::read)),
            None,
            "{engine:?} {version:?} was not run"
        );
    }
}
