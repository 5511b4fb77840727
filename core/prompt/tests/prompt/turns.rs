//! Whole requests: bodies in, keys out, against a tokenizer, a template and a chain of the test's own that see
//! the whole text each time. Conversations grow, branch and are edited over shared and small stores.

use crate::kinds::KINDS;
use warmpath_core::block::{BlockKey, BlockSize};
use warmpath_core::engine::{Algo, Contract, Engine, Extras, Lora, Scratch, Seed, Terms, Version};
use warmpath_parser::json::{JsonLimits, Members, peek};
use warmpath_prompt::load::Files;
use warmpath_prompt::tokenizer::Choice;
use warmpath_prompt::{Api, Checkpoints, CompletionsBos, Decline, Desk, Model, Policy, Request, Scheme};

const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}\
                      {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

fn model(json: &str, id: u64, choice: Choice, policy: Policy) -> Model {
    let files = Files { tokenizer: json.into(), template: Some(CHATML.into()), ..Files::default() };
    files.model(id, policy, choice).expect("a model")
}

fn contracts() -> Vec<Contract> {
    let contract = |engine: Engine, algo, size, change: fn(&mut Terms<'_>)| {
        let mut terms = Terms {
            version: Some(Version::new(0, 33, 0)),
            seed: Seed::Given("0"),
            ..Terms::plain(algo, BlockSize::new(size).expect("a size"))
        };
        change(&mut terms);
        engine.contract(&terms).expect("a contract")
    };
    vec![
        contract(Engine::Vllm, Algo::Sha256Cbor, 16, |_| ()),
        contract(Engine::Vllm, Algo::XxhashCbor, 16, |terms| terms.lookahead = 3),
        contract(Engine::Vllm, Algo::Tokens, 64, |terms| terms.secret = 7),
        contract(Engine::Sglang, Algo::Sha256Sglang, 1, |_| ()),
        contract(Engine::Sglang, Algo::Sha256Sglang, 8, |terms| terms.bigram = true),
        contract(Engine::Trtllm, Algo::BlockhashTrtllm, 32, |_| ()),
    ]
}

/// The gateway's side.
struct Gateway<'a> {
    model: &'a Model,
    checkpoints: &'a Checkpoints,
    desk: Desk,
    /// Requests that went on with an earlier turn.
    resumed: usize,
}

impl Gateway<'_> {
    /// Runs one request; the bytes that had to be encoded.
    fn keys(&mut self, api: Api, body: &str, scheme: &Scheme, extras: &Extras<'_>) -> Result<usize, Decline> {
        let mut members = Members::new();
        peek(body.as_bytes(), &mut members, JsonLimits::default()).expect("JSON");
        let request = Request { body: body.as_bytes(), members: &members, today: None, tools: None };
        let chat = || api == Api::Chat;
        let resume = || self.model.resume(request, scheme, extras, self.checkpoints, &mut self.desk);
        let plan = match chat().then(resume).flatten() {
            Some(plan) => plan,
            None => {
                let prompt = self.model.read_for(self.checkpoints, api, request)?;
                self.model.plan(prompt, scheme, extras, self.checkpoints, &mut self.desk)?
            }
        };
        self.resumed += usize::from(plan.is_resumed());
        self.model.keys(&plan, scheme, extras, self.checkpoints, &mut self.desk)?;
        Ok(plan.rest().len())
    }
}

/// The test's own side: everything from the beginning.
struct Whole(tokenizers::Tokenizer);

impl Whole {
    fn ids(&self, text: &str, special: bool) -> Vec<u32> {
        self.0.encode_fast(text, special).expect("ids").get_ids().to_vec()
    }

    fn keys(&self, ids: &[u32], contract: &Contract, extras: &Extras<'_>) -> Vec<BlockKey> {
        let mut scratch = Scratch::default();
        let mut keys = Vec::new();
        contract.chain(extras, &mut scratch).expect("a chain").feed(ids, |key, _| keys.push(key));
        keys
    }
}

type Turns = Vec<(&'static str, String)>;

fn rendered(turns: &Turns) -> String {
    let turn = |(role, text): &(&str, String)| format!("<|im_start|>{role}\n{text}<|im_end|>\n");
    turns.iter().map(turn).collect::<String>() + "<|im_start|>assistant\n"
}

fn body(turns: &Turns) -> String {
    let turn = |(role, text): &(&str, String)| serde_json::json!({"role": role, "content": text});
    serde_json::json!({"model": "m", "messages": turns.iter().map(turn).collect::<Vec<_>>()}).to_string()
}

/// A generator of 64 bits (SplitMix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }

    fn text(&mut self, words: u64) -> String {
        const WORDS: [&str; 16] = [
            "the",
            "quick",
            " blocks",
            "cache\n",
            "  ",
            "e\u{301}",
            "日本",
            "😀",
            "<|im_end|>",
            "<|im_",
            "12345",
            "it's",
            "\u{a0}",
            "replica",
            "<|pad|>",
            ".",
        ];
        (0..1 + self.below(words)).map(|_| WORDS[self.below(16) as usize].to_string() + " ").collect()
    }
}

/// Turns of several conversations that share a system prompt, grow, branch and are edited.
fn conversations(draw: &mut Draw, requests: usize) -> Vec<Turns> {
    let system = draw.text(300);
    let mut all: Vec<Turns> = (0..3).map(|_| vec![("system", system.clone())]).collect();
    (0..requests)
        .map(|_| {
            let which = draw.below(3) as usize;
            match draw.below(8) {
                0 => {
                    let keep = 1 + draw.below(all[which].len() as u64) as usize;
                    all[which].truncate(keep);
                }
                1 => all[which] = all[(which + 1) % 3].clone(),
                _ => {}
            }
            let (question, answer) = (draw.text(80), draw.text(120));
            all[which].push(("user", question));
            let asked = all[which].clone();
            all[which].push(("assistant", answer));
            asked
        })
        .collect()
}

#[test]
fn keys_are_those_of_the_whole_text() {
    for (kind, (name, json, _)) in KINDS.iter().enumerate() {
        let whole = Whole(tokenizers::Tokenizer::from_bytes(json).expect("a tokenizer"));
        let model = model(json, 1, Choice::Fast, Policy::plain());
        let mut draw = Draw(kind as u64);
        let requests = conversations(&mut draw, 10);
        let ids: Vec<Vec<u32>> = requests.iter().map(|turns| whole.ids(&rendered(turns), false)).collect();
        let (mut reused, mut resumed) = (0, 0);
        for (contract, bytes) in contracts().into_iter().zip([1 << 22, 1 << 22, 1 << 22, 1 << 20, 1 << 17, 0])
        {
            let scheme = Scheme::new(contract);
            let checkpoints = Checkpoints::new(bytes, 3);
            let mut gateway =
                Gateway { model: &model, checkpoints: &checkpoints, desk: Desk::default(), resumed: 0 };
            for (turns, ids) in requests.iter().zip(&ids) {
                let extras = Extras::default();
                gateway.keys(Api::Chat, &body(turns), &scheme, &extras).expect("keys");
                assert_eq!(gateway.desk.tokens, ids.len() as u64, "{name} {turns:?}");
                assert_eq!(gateway.desk.keys, whole.keys(ids, &contract, &extras), "{name} {contract:?}");
                reused += gateway.desk.reused;
            }
            resumed += gateway.resumed;
        }
        assert!(reused > 2_000, "{name}: {reused} tokens came from checkpoints");
        assert!(resumed > 3, "{name}: {resumed} requests went on with an earlier turn");
    }
}

#[test]
fn a_next_turn_costs_its_tail() {
    let (_, json, _) = KINDS[0];
    let model = model(json, 1, Choice::Fast, Policy::plain());
    let scheme = Scheme::new(contracts()[0]);
    let checkpoints = Checkpoints::new(1 << 22, 3);
    let extras = Extras::default();
    let gateway = || Gateway { model: &model, checkpoints: &checkpoints, desk: Desk::default(), resumed: 0 };
    let mut turns: Turns = vec![("system", "blocks of the cache ".repeat(2_000)), ("user", "first".into())];
    let cold = gateway().keys(Api::Chat, &body(&turns), &scheme, &extras).expect("keys");
    assert!(cold > 40_000, "{cold}");
    turns.push(("assistant", "an answer".into()));
    turns.push(("user", "second".into()));
    let next = gateway().keys(Api::Chat, &body(&turns), &scheme, &extras).expect("keys");
    assert!(next < 150, "{next} bytes of the next turn");
    let again = gateway().keys(Api::Chat, &body(&turns), &scheme, &extras).expect("keys");
    assert!(again < 60, "{again} bytes of the same request");
    let other: Turns = vec![turns[0].clone(), ("user", "another conversation".into())];
    let shared = gateway().keys(Api::Chat, &body(&other), &scheme, &extras).expect("keys");
    assert!(shared < 100, "{shared} bytes behind a shared system prompt");
}

#[test]
fn what_names_blocks_otherwise_shares_no_checkpoint() {
    let (_, json, _) = KINDS[0];
    let checkpoints = Checkpoints::new(1 << 22, 3);
    let turns: Turns = vec![("system", "blocks of the cache ".repeat(500)), ("user", "first".into())];
    let models = [1, 2].map(|id| model(json, id, Choice::Fast, Policy::plain()));
    let schemes: Vec<Scheme> = contracts().into_iter().map(Scheme::new).collect();
    let lora = Extras { lora: Some(Lora { name: "a", path: Some("/a") }), ..Extras::default() };
    let salt = Extras { salt: Some("s"), ..Extras::default() };
    let mut keys = Vec::new();
    for (model, scheme, extras) in [
        (&models[0], &schemes[0], Extras::default()),
        (&models[1], &schemes[0], Extras::default()),
        (&models[0], &schemes[1], Extras::default()),
        (&models[0], &schemes[0], lora),
        (&models[0], &schemes[0], salt),
    ] {
        let mut gateway = Gateway { model, checkpoints: &checkpoints, desk: Desk::default(), resumed: 0 };
        gateway.keys(Api::Chat, &body(&turns), scheme, &extras).expect("keys");
        assert_eq!(gateway.desk.reused, 0, "{extras:?}");
        gateway.keys(Api::Chat, &body(&turns), scheme, &extras).expect("keys");
        assert!(gateway.desk.reused > 0, "{extras:?}");
        keys.push(gateway.desk.keys[0]);
    }
    assert_eq!(keys[0], keys[1], "the model is no part of a block's name");
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 4);
}

#[test]
fn completions_have_the_tokens_that_the_engine_puts_around() {
    let (_, json, _) = KINDS.iter().find(|(name, ..)| *name == "around").expect("the kind");
    let whole = Whole(tokenizers::Tokenizer::from_bytes(json).expect("a tokenizer"));
    let contract = contracts()[3];
    let (scheme, extras) = (Scheme::new(contract), Extras::default());
    let checkpoints = Checkpoints::new(1 << 22, 3);
    let quirk = Policy { completions_bos: CompletionsBos::Always(7), ..Policy::plain() };
    let models = [model(json, 1, Choice::Fast, Policy::plain()), model(json, 1, Choice::Fast, quirk)];
    let text = "blocks of <|im_start|>the cache ".repeat(100);
    let bare = whole.ids(&text, false);
    let cases = [
        (&models[0], serde_json::json!({"prompt": text}), whole.ids(&text, true)),
        (&models[0], serde_json::json!({"prompt": [text], "add_special_tokens": false}), bare.clone()),
        (&models[1], serde_json::json!({"prompt": text}), [&[7], bare.as_slice()].concat()),
        (&models[0], serde_json::json!({"prompt": [1, 2, 3]}), vec![1, 2, 3]),
    ];
    assert_ne!(cases[0].2, bare, "this tokenizer puts tokens around");
    for _ in 0..2 {
        for (model, body, ids) in &cases {
            let mut gateway = Gateway { model, checkpoints: &checkpoints, desk: Desk::default(), resumed: 0 };
            gateway.keys(Api::Completions, &body.to_string(), &scheme, &extras).expect("keys");
            assert_eq!(gateway.desk.keys, whole.keys(ids, &contract, &extras));
        }
    }
}

#[test]
fn a_plan_may_be_finished_on_another_thread() {
    let (_, json, _) = KINDS[0];
    let model = model(json, 1, Choice::Fast, Policy::plain());
    let scheme = Scheme::new(contracts()[0]);
    let checkpoints = Checkpoints::new(1 << 22, 3);
    let body = body(&vec![("user", "blocks of the cache ".repeat(500))]);
    let mut members = Members::new();
    peek(body.as_bytes(), &mut members, JsonLimits::default()).expect("JSON");
    let prompt = model.read(Api::Chat, body.as_bytes(), &members, None, None).expect("a prompt");
    let plan =
        model.plan(prompt, &scheme, &Extras::default(), &checkpoints, &mut Desk::default()).expect("a plan");
    let keys = std::thread::scope(|scope| {
        let finish = || {
            let mut desk = Desk::default();
            model.keys(&plan, &scheme, &Extras::default(), &checkpoints, &mut desk).map(|()| desk.keys)
        };
        scope.spawn(finish).join().expect("no panic")
    });
    assert!(keys.expect("keys").len() > 50);
}
