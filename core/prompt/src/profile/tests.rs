//! Documents that are accepted, and every way to be refused, by a document each.

use super::{apply, claims, read as read_bytes};
use crate::request::{Clock, ContentShape, Policy};
use warmpath_core::engine::Engine;
use warmpath_core::profile::{Profile, ProfileFault};

const WHOLE: &str = "\
profileId: qwen3-0.6b
baseModel: Qwen/Qwen3-0.6B
tokenizerRevision: c1899de289a04d12100db370d81485cdf75e47ca
tokenizerArtifact: sha256/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
tokenizerSha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
templateArtifact: qwen/template.jinja
templateSha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
templateContentFormat: string
renderPolicy:
  addGenerationPrompt: true
  bosToken: <s>
  eosToken: <|im_end|>
  clockPolicy: utc-date
rendererEngine: warmpath
rendererVersion: 0.1.0
oracleEngine: vllm
oracleVersion: 0.31.0
supportedApis: [chat, completions]
aliasPolicy: list
allowedAliases: [qwen, qwen/small]
supportedFeatures: [plain, system, multi_turn]
excludedFeatures: [tools, tool_calls, multimodal, cache_salt, lora_adapter, prompt_embeds, thinking, template_kwargs]
modelType: qwen3
engineQuirks:
  sglang-kv-rank-v1: {completionsBos: true}
  vllm-kv-map-v2: {}
";

fn read(yaml: &str) -> Result<Profile, ProfileFault> {
    read_bytes(yaml.as_bytes())
}

fn applied(yaml: &str) -> Policy {
    let mut policy = Policy {
        tools: true,
        template_kwargs: true,
        looped: Some(ContentShape::Parts { wrap: true }),
        ..Policy::plain()
    };
    apply(&read(yaml).expect("a profile"), &mut policy);
    policy
}

#[test]
fn every_member_is_taken() {
    let profile = read(WHOLE).expect("a profile");
    assert_eq!(profile.id, "qwen3-0.6b");
    assert_eq!(profile.names().collect::<Vec<_>>(), ["Qwen/Qwen3-0.6B", "qwen", "qwen/small"]);
    let (tokenizer, template) = (profile.tokenizer().expect("a pin"), profile.template().expect("a pin"));
    assert!(tokenizer.locator.ends_with(tokenizer.sha256));
    assert_eq!(template.locator, "qwen/template.jinja");
    assert_eq!(profile.model_type.as_deref(), Some("qwen3"));
    let quirks = [Engine::Sglang, Engine::Vllm, Engine::Trtllm].map(|engine| profile.completions_bos(engine));
    assert_eq!(quirks, [true, false, false], "a quirk is of its engine alone");
    let policy = applied(WHOLE);
    assert_eq!((policy.clock, policy.looped), (Clock::UtcDate, None));
    assert!(policy.chats && policy.completions && !policy.tools && !policy.template_kwargs);
    let tokens = [("bos_token".to_string(), "<s>".to_string()), ("eos_token".into(), "<|im_end|>".into())];
    assert_eq!(policy.special_tokens, tokens);
}

#[test]
fn what_is_left_out_changes_nothing() {
    let policy = applied("profileId: a\nbaseModel: m\n");
    assert_eq!(policy.clock, Clock::Unknown);
    assert!(policy.chats && policy.completions && policy.tools && policy.template_kwargs);
    assert!(policy.special_tokens.is_empty() && policy.looped.is_some());
    let parts = applied("profileId: a\nbaseModel: m\ntemplateContentFormat: openai\n");
    assert_eq!((parts.content, parts.looped), (ContentShape::Parts { wrap: true }, None));
    let one = applied("profileId: a\nbaseModel: m\nsupportedApis: [completions]\n");
    assert_eq!((one.chats, one.completions), (false, true));
}

#[test]
fn a_document_is_refused_with_member_value_and_cure() {
    let digest = "tokenizerSha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let cases = [
        ("", "", "baseModel", ""),
        ("clock: utc-date", "", "clock", "unknown"),
        ("renderPolicy: {clock: utc-date}", "", "clock", "clockPolicy"),
        ("renderPolicy: {clockPolicy: utc}", "", "utc", "utc-date"),
        ("renderPolicy: {addGenerationPrompt: false}", "", "addGenerationPrompt", "true"),
        ("templateContentFormat: parts", "", "parts", "openai"),
        ("supportedApis: [responses]", "", "responses", "completions"),
        ("excludedFeatures: [tool]", "", "tool", "tool_calls"),
        ("supportedFeatures: [tools]\nexcludedFeatures: [tools]", "", "both supported", "one of the two"),
        ("allowedAliases: [x]", "", "allowedAliases", "aliasPolicy to list"),
        ("tokenizerArtifact: a", "", "tokenizerArtifact", "both or none"),
        (digest, "", "tokenizerArtifact", "both or none"),
        (digest, "tokenizerArtifact: ../a", "\"../a\"", "without .."),
        (digest, "tokenizerArtifact: /a", "\"/a\"", "below kvprofiles/artifacts"),
        (digest, "tokenizerArtifact: sha256/00", "sha256/00", "pin the digest"),
        ("tokenizerArtifact: a\ntokenizerSha256: ABC", "", "\"ABC\"", "64 lower-case"),
        ("engineQuirks: {sglang-kv-rank-v1: {completionBos: true}}", "", "completionBos", "completionsBos"),
        ("engineQuirks: {ollama-v1: {completionsBos: true}}", "", "ollama-v1", "sglang-kv-rank-v1"),
        (
            "engineQuirks: {vllm-kv-array-v1: {completionsBos: true}, vllm-kv-map-v2: {completionsBos: false}}",
            "",
            "differs between",
            "for all contracts",
        ),
        ("engineQuirks: {sglang-kv-rank-v1: {completionsBos: yes please}}", "", "", ""),
        ("modelType: [a]", "", "", ""),
        ("profileId: b", "", "profileId", ""),
        ("modelType: {", "", "", ""),
    ];
    for (first, second, problem, cure) in cases {
        let base = if first.is_empty() { "" } else { "baseModel: m\n" };
        let yaml = format!("profileId: a\n{base}{first}\n{second}\n");
        let words = read(&yaml).err().map(|fault| fault.to_string()).unwrap_or_default();
        assert!(!words.is_empty(), "{yaml} is accepted");
        assert!(words.contains(problem) && words.contains(cure) && !words.contains('\n'), "{yaml}: {words}");
    }
    for id in ["-a", "a b", "../a", "\"\""] {
        let words = read(&format!("profileId: {id}\nbaseModel: m\n")).err().map(|fault| fault.to_string());
        assert!(words.is_some_and(|words| words.contains("profileId")), "{id}");
    }
}

#[test]
fn a_refused_document_still_says_whom_it_is_about() {
    assert_eq!(claims(b"baseModel: org/m\nallowedAliases: [x]\nclock: 1\n"), ["org/m", "x"]);
    assert!(claims(b"baseModel: {").is_empty());
    assert!(claims(b"profileId: a\n").is_empty());
}
