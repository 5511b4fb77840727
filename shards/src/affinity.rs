//! What decides prompt affinity, read out of a body that was peeked at. Owns which members enter and where
//! the text comes from; must never hash (core does, by the rule).

use warmpath_core::decide::prefix::{PrefixKey, PromptText, TEXT_MAX, USER_TEXT_MAX};
use warmpath_core::rule::Chwbl;
use warmpath_parser::json::{self, Kind, Member, Members, Value};

/// The key of a request under a rule; `None` without a prompt that can be read.
pub fn key(
    body: &[u8],
    members: &Members,
    model: &[u8],
    chwbl: &Chwbl,
    scratch: &mut Vec<u8>,
) -> Option<u64> {
    scratch.clear();
    let role = read_text(body, members, scratch)?;
    let text = std::str::from_utf8(scratch).ok()?;
    let rag = members.get(Member::RagContext).filter(|v| v.kind == Kind::Object);
    let rag_part = |name| Some(json::member(body, rag?, name)?.raw.of(body));
    let part = |member| members.get(member).map(|v: Value| v.raw.of(body));
    let key = PrefixKey {
        model: std::str::from_utf8(model).unwrap_or_default(),
        text: Some(match role {
            Role::Prompt => PromptText::Prompt(text),
            Role::System => PromptText::System(text),
            Role::User => PromptText::User(text),
        }),
        lora: part(Member::LoraAdapter),
        images: part(Member::Images),
        audio: part(Member::Audio),
        cache_salt: part(Member::CacheSalt),
        tools: part(Member::Tools),
        session_context: part(Member::SessionContext),
        rag_template: rag_part("rag_template"),
        rag_document_ids: rag_part("document_ids"),
    };
    key.hash(chwbl)
}

/// Where the text was found.
enum Role {
    Prompt,
    System,
    User,
}

/// Puts the head of the prompt's text into `out`: `prompt`, else the first system message, else the first
/// user message.
fn read_text(body: &[u8], members: &Members, out: &mut Vec<u8>) -> Option<Role> {
    if let Some(prompt) = members.get(Member::Prompt)
        && json::prefix_text(body, prompt, TEXT_MAX, out)
    {
        return Some(Role::Prompt);
    }
    let messages = members.get(Member::Messages)?;
    if json::first_message_text(body, messages, &["system"], TEXT_MAX, out) {
        return Some(Role::System);
    }
    out.clear();
    json::first_message_text(body, messages, &["user"], USER_TEXT_MAX, out).then_some(Role::User)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmpath_parser::json::JsonLimits;

    fn key_of(body: &str) -> Option<u64> {
        let chwbl = Chwbl { level: 1, flags: 0b1000, load_factor: 125, replication: 100, cache_salt: true };
        let mut members = Members::new();
        json::peek(body.as_bytes(), &mut members, JsonLimits::default()).expect("valid JSON");
        key(body.as_bytes(), &members, b"m", &chwbl, &mut Vec::new())
    }

    #[test]
    fn conversations_with_one_system_message_share_a_key() {
        let one =
            r#"{"messages":[{"role":"system","content":"Be \u0062rief"},{"role":"user","content":"a"}]}"#;
        let two = r#"{"user":"x","messages":[{"role":"system","content":"Be brief"},{"role":"user","content":"b"}]}"#;
        let other = r#"{"messages":[{"role":"system","content":"Be long"},{"role":"user","content":"a"}]}"#;
        assert!(key_of(one).is_some());
        assert_eq!(key_of(one), key_of(two));
        assert_ne!(key_of(one), key_of(other));
    }

    #[test]
    fn without_a_system_message_the_first_user_message_counts() {
        let first = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]}"#;
        let later = r#"{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"z"}]}"#;
        assert!(key_of(first).is_some());
        assert_eq!(key_of(first), key_of(later));
    }

    #[test]
    fn a_salt_parts_what_a_prompt_unites() {
        let plain = key_of(r#"{"prompt":"once upon"}"#);
        assert!(plain.is_some());
        assert_ne!(plain, key_of(r#"{"prompt":"once upon","cache_salt":"s"}"#));
    }

    #[test]
    fn no_text_no_key() {
        for body in [r#"{"model":"m"}"#, r#"{"prompt":[1,2,3]}"#, r#"{"messages":[]}"#, r#"{"prompt":""}"#] {
            assert_eq!(key_of(body), None, "{body}");
        }
    }
}
