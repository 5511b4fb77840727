//! Prompts in text over the simulated network: who gets a conversation by the blocks of its rendered text, and what
//! happens while a token core works on it. What the engines hold is named here by the reference tokenizer alone,
//! from text written out by hand.

use crate::actors::Asked;
use crate::world::{Pool, World};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use warmpath_core::control::DrainPhase;
use warmpath_core::decide::exact::Miss;
use warmpath_core::decline::Decline;
use warmpath_core::engine::Engine;
use warmpath_core::engine::Extras;
use warmpath_core::shared::Tier;
use warmpath_core::trust::{self, Leg, Names, State};
use warmpath_prompt::Tokenizer;
use warmpath_prompt::load::Files;
use warmpath_prompt::tokenizer::{Choice, Recent};
use warmpath_shards::loader;
use warmpath_shards::models::{Entry, Models};

const TINY: &[u8] = include_bytes!("../../../core/prompt/tests/tokenizers/tiny.json");

const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}\
                      {{ '<|im_start|>assistant\n' }}";

fn world(pool: Pool) -> World {
    let mut world = World::new(pool);
    publish(&mut world, "org__tiny");
    world
}

fn publish(world: &mut World, folder: &str) {
    publish_with(world, folder, CHATML);
}

fn publish_with(world: &mut World, folder: &str, template: &str) {
    let files = Files { tokenizer: TINY.to_vec(), template: Some(template.into()), ..Files::default() };
    let model = files.model(1, loader::policy(Engine::Vllm), Choice::Fast).unwrap();
    let mut models = Models::default();
    models.set_folder(folder, true);
    models.set(folder, Entry { model: Some(Arc::new(model)), ..Entry::new(Engine::Vllm) });
    world.flow.publish(Arc::new(models));
}

fn tokens(text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    Tokenizer::load(TINY, Choice::Reference).unwrap().encode(text, &mut Recent::default(), &mut ids).unwrap();
    ids
}

fn chat(turns: &[(&str, &str)]) -> Asked {
    let messages: Vec<Value> =
        turns.iter().map(|(role, content)| json!({"role": role, "content": content})).collect();
    Asked::chat(json!({"model": "org/tiny", "messages": messages}))
}

fn rendered(turns: &[(&str, &str)]) -> String {
    let turn = |(role, content): &(&str, &str)| format!("<|im_start|>{role}\n{content}<|im_end|>\n");
    turns.iter().map(turn).collect()
}

/// Words that no other call has.
fn words(seed: u64, many: usize) -> String {
    (0..many as u64).map(|at| format!("word {} of {seed}, ", at * 7919 + seed)).collect()
}

#[test]
fn a_next_turn_goes_where_the_turn_before_was_computed() {
    let mut world = world(Pool::of(3));
    let (system, question, answer) = (words(1, 90), words(2, 20), words(3, 20));
    let mut turns = vec![("system", system.as_str()), ("user", question.as_str())];
    assert_eq!(world.ask(chat(&turns)).status, 200);
    assert_eq!(world.misses().pop(), Some(Miss::NoSignal));
    // Engine 2 computed the prompt and its own answer.
    let computed = rendered(&turns) + "<|im_start|>assistant\n" + &answer;
    world.hold(2, 0, Tier::Gpu, &tokens(&computed));
    turns.extend([("assistant", answer.as_str()), ("user", "and then?")]);
    assert_eq!(world.ask(chat(&turns)).endpoint, Some(2));
    let exact = world.receipts().pop().unwrap().exact.unwrap();
    let prompt = tokens(&(rendered(&turns) + "<|im_start|>assistant\n"));
    assert_eq!(exact.prompt_tokens as usize, prompt.len());
    assert_eq!(exact.predicted_tokens as usize, tokens(&computed).len() / 16 * 16);
    assert!(!world.checkpoints.is_empty(), "the second turn went on behind the first");
    world.assert_settled();
}

#[test]
fn completions_in_text_are_routed_and_settled() {
    let mut world = world(Pool::of(2).tokens());
    let text = words(4, 50);
    world.hold(1, 0, Tier::Gpu, &tokens(&text));
    for prompt in [json!(text), json!([text])] {
        let body = json!({"model": "org/tiny", "prompt": prompt});
        assert_eq!(world.ask(Asked::of(body)).endpoint, Some(1));
        assert_eq!(world.receipts().pop().unwrap().reason.unwrap().word(), "exact");
    }
    let salted = json!({"model": "org/tiny", "prompt": text, "cache_salt": "s"});
    world.ask(Asked::of(salted.clone()));
    assert_eq!(world.misses().pop(), Some(Miss::NoWorker), "a salt gives other names");
    world.hold_with(0, &tokens(&text), &Extras { salt: Some("s"), ..Extras::default() });
    assert_eq!(world.ask(Asked::of(salted)).endpoint, Some(0));
    world.assert_settled();
}

#[test]
fn what_has_no_keys_is_served_with_its_reason() {
    let mut world = world(Pool::of(2));
    world.hold(1, 0, Tier::Gpu, &tokens(&words(5, 50)));
    let user = json!([{"role": "user", "content": "hi"}]);
    let image = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]);
    for (body, miss) in [
        (json!({"model": "other", "messages": user}), Miss::Declined(Decline::NoTokenizer)),
        (json!({"messages": user}), Miss::ModelEmpty),
        (json!({"model": "org/tiny"}), Miss::TextEmpty),
        (json!({"model": "org/tiny", "messages": []}), Miss::TextEmpty),
        (json!({"model": "org/tiny", "messages": image}), Miss::Declined(Decline::MediaPart)),
        (json!({"model": "org/tiny", "messages": user, "tools": [{}]}), Miss::Declined(Decline::Tools)),
        (json!({"model": "org/tiny", "messages": [{"role": "user", "content": "x"}]}), Miss::Hashes),
    ] {
        assert_eq!(world.ask(Asked::chat(body.clone())).status, 200, "{body}");
        assert_eq!(world.misses().pop(), Some(miss), "{body}");
    }
    let many = json!({"model": "org/tiny", "prompt": ["a", "b"]});
    assert_eq!(world.ask(Asked::of(many)).status, 200);
    assert_eq!(world.misses().pop(), Some(Miss::Batch));
    world.assert_settled();
}

/// The text is Qwen3's template on them, written out by hand; vLLM adds the description that the client left out.
#[test]
fn a_chat_with_tools_is_routed_where_its_template_is_verified() {
    const QWEN3: &str = include_str!("../../../core/prompt/tests/templates/qwen3_later.jinja");
    let mut world = World::new(Pool::of(3));
    publish_with(&mut world, "org__tiny", QWEN3);
    let body = json!({
        "model": "org/tiny", "chat_template_kwargs": {"enable_thinking": false},
        "tools": [{"type": "function", "function": {"name": "add", "parameters": {"b": 1.0, "a": {}}}}],
        "messages": [
            {"role": "user", "content": words(21, 40)},
            {"role": "assistant", "content": null, "tool_calls": [
                {"type": "function", "id": "c", "function": {"arguments": "{\"b\":2,\"a\":[\"x\"]}", "name": "add"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "3"},
        ],
    });
    let text = format!(
        "<|im_start|>system\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are \
         provided with function signatures within <tools></tools> XML tags:\n<tools>\n{{\"type\": \"function\", \
         \"function\": {{\"name\": \"add\", \"description\": null, \"parameters\": {{\"b\": 1.0, \"a\": {{}}}}}}}}\n\
         </tools>\n\nFor each function call, return a json object with function name and arguments within \
         <tool_call></tool_call> XML tags:\n<tool_call>\n{{\"name\": <function-name>, \"arguments\": \
         <args-json-object>}}\n</tool_call><|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n\
         <tool_call>\n{{\"name\": \"add\", \"arguments\": {{\"b\": 2, \"a\": [\"x\"]}}}}\n</tool_call><|im_end|>\n\
         <|im_start|>user\n<tool_response>\n3\n</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        words(21, 40)
    );
    world.hold(2, 0, Tier::Gpu, &tokens(&text));
    assert_eq!(world.ask(Asked::chat(body)).endpoint, Some(2));
    let exact = world.receipts().pop().unwrap().exact.unwrap();
    assert_eq!(exact.prompt_tokens as usize, tokens(&text).len());
    assert_eq!(exact.predicted_tokens as usize, (tokens(&text).len() - 1) / 16 * 16, "all of it is held");
    world.assert_settled();
}

#[test]
fn the_rule_s_model_goes_before_the_request_s() {
    let mut world = world(Pool::of(2).model("org/tiny"));
    world.hold(1, 0, Tier::Gpu, &tokens(&words(6, 50)));
    let body = json!({"model": "org/tiny", "prompt": words(6, 50)});
    assert_eq!(world.ask(Asked::of(body.clone())).endpoint, Some(1));
    // Its files went.
    world.flow.publish(Arc::default());
    world.ask(Asked::of(body));
    assert_eq!(world.misses().pop(), Some(Miss::Declined(Decline::NoTokenizer)));
}

#[test]
fn chats_are_left_alone_where_the_rule_says_completions() {
    let mut world = world(Pool::of(2).completions_only());
    let text = words(7, 50);
    world.hold(1, 0, Tier::Gpu, &tokens(&text));
    world.ask(chat(&[("user", text.as_str())]));
    assert_eq!(world.misses().pop(), Some(Miss::ModeOff));
    assert_eq!(world.ask(Asked::of(json!({"model": "org/tiny", "prompt": text}))).endpoint, Some(1));
}

#[test]
fn long_prompts_are_left_to_a_token_core() {
    for (kind, many) in [("rendered here, encoded there", 700), ("all of it there", 4_000)] {
        let mut world = world(Pool::of(3));
        let text = words(8, many);
        world.hold(2, 0, Tier::Gpu, &tokens(&rendered(&[("user", &text)])));
        world.works = false;
        let answers = world.begin(vec![chat(&[("user", &text)])]);
        world.turns(40);
        assert!(answers[0].borrow().is_none(), "{kind}: it waits");
        assert!(world.desk.work_once(&mut world.worker), "{kind}: for this job");
        assert_eq!(world.wait(&answers)[0].endpoint, Some(2), "{kind}");
        world.assert_settled();
    }
}

#[test]
fn a_next_turn_stays_on_its_shard_however_long_the_chat_is() {
    let mut world = world(Pool::of(2));
    let system = words(12, 7_000);
    let mut turns = vec![("system", system.as_str()), ("user", "what?")];
    assert_eq!(world.ask(chat(&turns)).status, 200);
    world.works = false;
    for (answer, question) in [("this", "and then?"), ("that", "why?")] {
        turns.extend([("assistant", answer), ("user", question)]);
        assert_eq!(world.ask(chat(&turns)).status, 200);
        assert_eq!(world.misses().pop(), Some(Miss::NoSignal), "it has keys, of which nobody holds any");
    }
    assert!(!world.desk.work_once(&mut world.worker), "nothing was left to a token core");
    world.assert_settled();
}

#[test]
fn a_text_that_merges_slowly_is_left_to_a_token_core_however_short() {
    for (text, waits) in [(words(8, 150), false), ("x".repeat(2_400), true), (" ".repeat(2_400), true)] {
        let mut world = world(Pool::of(3));
        world.hold(2, 0, Tier::Gpu, &tokens(&rendered(&[("user", &text)])));
        world.works = false;
        let answers = world.begin(vec![chat(&[("user", &text)])]);
        world.turns(40);
        assert_eq!(answers[0].borrow().is_none(), waits, "{text:.40}");
        assert_eq!(world.desk.work_once(&mut world.worker), waits, "{text:.40}");
        assert_eq!(world.wait(&answers)[0].endpoint, Some(2), "{text:.40}");
        world.assert_settled();
    }
}

#[test]
fn token_ids_that_are_many_are_hashed_on_a_token_core() {
    let mut world = world(Pool::of(2));
    let ids: Vec<u32> = (0..20_000).collect();
    world.hold(1, 0, Tier::Gpu, &ids);
    assert_eq!(world.ask(Asked::of(json!({"prompt": ids}))).endpoint, Some(1));
    assert!(!world.desk.work_once(&mut world.worker), "no job is left");
}

#[test]
fn a_request_goes_on_when_token_cores_are_busy_and_a_late_answer_is_for_nobody() {
    let mut world = world(Pool::of(2));
    let text = words(9, 4_000);
    world.hold(1, 0, Tier::Gpu, &tokens(&rendered(&[("user", &text)])));
    world.works = false;
    assert_eq!(world.ask(chat(&[("user", &text)])).status, 200);
    assert_eq!(world.misses().pop(), Some(Miss::TokenizerBusy));
    assert!(world.desk.work_once(&mut world.worker));
    assert!(world.checkpoints.is_empty(), "nobody waits for it: it is not even begun");
    world.turns(5);
    world.assert_settled();
}

#[test]
fn whoever_leaves_takes_the_work_along() {
    let mut world = world(Pool::of(2));
    let text = words(10, 4_000);
    world.works = false;
    world.ask(chat(&[("user", &text)]).leaving());
    world.turns(20);
    let receipt = world.receipts().pop().unwrap();
    assert_eq!((receipt.status, receipt.endpoint), (0, None));
    assert!(world.desk.work_once(&mut world.worker));
    assert!(world.checkpoints.is_empty(), "dropped unread");
    world.assert_settled();
    assert_eq!(world.report().clients, 0);
}

#[test]
fn who_waits_for_keys_is_served_while_the_shard_goes_down() {
    let mut world = world(Pool::of(2));
    let text = words(11, 4_000);
    world.works = false;
    let answers = world.begin(vec![chat(&[("user", &text)])]);
    world.turns(40);
    world.flow.drain(DrainPhase::Closing);
    world.turns(5);
    assert!(answers[0].borrow().is_none());
    world.works = true;
    assert_eq!(world.wait(&answers)[0].status, 200);
    for _ in 0..20 {
        world.flow.turn(Some(Duration::from_secs(1))).unwrap();
    }
    assert!(world.flow.is_quiet());
}

#[test]
fn after_a_dead_endpoint_the_keys_are_still_known() {
    let mut world = world(Pool::of(3).refusing(2));
    let text = words(12, 4_000);
    world.hold(2, 0, Tier::Gpu, &tokens(&rendered(&[("user", &text)])));
    world.hold(1, 0, Tier::Gpu, &tokens(&rendered(&[("user", &text)])[..2_000]));
    assert_eq!(world.ask(chat(&[("user", &text)])).endpoint, Some(1));
    assert_eq!(world.receipts().pop().unwrap().retries, 1);
    world.assert_settled();
}

/// The engine tells of so many prompt tokens, whatever the prompt.
fn counting(prompt: usize, cached: usize) -> World {
    let body =
        json!({"usage": {"prompt_tokens": prompt, "prompt_tokens_details": {"cached_tokens": cached}}});
    world(Pool::of(1).saying(crate::usage::by_length(&body.to_string())))
}

/// Tokens are counted as the engine does it in text and not in chats: it has another template. In text neither: another
/// tokenizer. Of chats alone it can't be told.
#[test]
fn what_the_engine_counts_otherwise_names_tokenizer_or_template() {
    let text = words(4, 50);
    let ids = tokens(&text);
    let named = |cases: &[(bool, bool)]| {
        let cached = (ids.len() - 1) / 16 * 16;
        let mut world = counting(ids.len(), cached);
        world.hold(0, 0, Tier::Gpu, &ids);
        for (seed, (is_chat, is_own)) in cases.iter().enumerate() {
            let other = words(100 + seed as u64, 30);
            let asked = match (is_chat, is_own) {
                (true, _) => chat(&[("user", other.as_str())]),
                (false, true) => Asked::of(json!({"model": "org/tiny", "prompt": text})),
                (false, false) => Asked::of(json!({"model": "org/tiny", "prompt": other})),
            };
            assert_eq!(world.ask(asked).status, 200);
        }
        let symptoms = world.trust(0).symptoms();
        let legs = trust::legs(&symptoms, &Names::default(), None);
        (legs.iter().map(Leg::word).collect::<Vec<_>>(), world.trust(0).state())
    };
    let (chats, own, others) = ([(true, true); 21], [(false, true); 1], [(false, false); 21]);
    assert_eq!(named(&[&chats[..], &own].concat()), (vec!["template"], State::LoadOnly));
    assert_eq!(named(&chats), (vec!["tokenizer", "template"], State::LoadOnly));
    assert_eq!(named(&others), (vec!["tokenizer"], State::LoadOnly));
    assert_eq!(named(&own), (vec![], State::Trusted));
}
