//! Conversations that grow, branch and are edited, asked of one model over one store, each request on its own. Owns
//! how they go on, and the comparison of every next turn with the whole rendering.

use serde_json::{Value, json};
use warmpath_core::block::BlockSize;
use warmpath_core::engine::{Algo, Engine, Extras, Terms, ToolForm};
use warmpath_parser::json::{JsonLimits, Members, peek};
use warmpath_prompt::load::Files;
use warmpath_prompt::tokenizer::Choice;
use warmpath_prompt::{Api, Checkpoints, Clock, Date, Desk, Model, Policy, Request, Scheme};

/// How many requests went on with an earlier turn, and how many were rendered whole.
pub struct Went {
    pub resumed: usize,
    pub whole: usize,
}

/// A generator of 64 bits (SplitMix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % most as u64) as usize
    }

    /// What templates look for is among it, and what looks like their own output and our marks.
    fn text(&mut self) -> String {
        const PIECES: [&str; 16] = [
            "the quick brown fox ",
            "<think>\nwhy\n</think>\n\n",
            "</think>",
            "<tool_response>\n1\n</tool_response>",
            "<|im_end|>\n",
            "<|im_start|>user\n",
            "  ",
            "\n\n",
            "日本語 ",
            "😀",
            "e\u{301}",
            "\"quoted\" \\ ",
            "{{ braces }} {% if %}",
            "\u{fdd0}",
            "\u{fdd0}last\u{fdd1}",
            "it's 12345.\t",
        ];
        match self.below(12) {
            0 => String::new(),
            1 => "<tool_response>\n{}\n</tool_response>".into(),
            // Those at the end are rare: whoever has them is rendered whole.
            _ => {
                let among = if self.below(8) == 0 { 16 } else { 13 };
                (0..1 + self.below(6)).map(|_| PIECES[self.below(among)]).collect()
            }
        }
    }

    fn message(&mut self, role: &str) -> Value {
        let content = self.text();
        match self.below(8) {
            0 => json!({"content": content, "role": role}),
            1 => json!({"role": role, "content": [{"type": "text", "text": content}]}),
            _ => json!({"role": role, "content": content}),
        }
    }
}

struct Asked<'m> {
    model: &'m Model,
    checkpoints: Checkpoints,
    scheme: Scheme,
}

impl Asked<'_> {
    /// Asks once; whether it went on with an earlier turn. What it gave must be the whole's end, and its keys those of
    /// a model that remembers nothing.
    fn ask(&self, body: &str, today: Date) -> Option<bool> {
        let mut members = Members::new();
        let mut desk = Desk::default();
        let extras = Extras::default();
        peek(body.as_bytes(), &mut members, JsonLimits::default()).expect("JSON");
        let tools = Some(ToolForm::Declared);
        let request = Request { body: body.as_bytes(), members: &members, today: Some(today), tools };
        let resumed = self.model.resume(request, &self.scheme, &extras, &self.checkpoints, &mut desk);
        let whole = self.model.read(Api::Chat, body.as_bytes(), &members, Some(today), tools);
        let Ok(whole) = whole else {
            assert!(resumed.is_none(), "went on where the whole is declined: {body}");
            return None;
        };
        let text = whole.text().expect("a text").to_string();
        let is_resumed = resumed.is_some();
        let read = || self.model.read_for(&self.checkpoints, Api::Chat, request);
        let plan = resumed.unwrap_or_else(|| {
            let prompt = read().expect("what was read");
            assert_eq!(prompt.text(), Some(&*text), "the text that is kept of {body}");
            self.model
                .plan(prompt, &self.scheme, &extras, &self.checkpoints, &mut Desk::default())
                .expect("a plan")
        });
        let tail = plan.text().expect("a text");
        assert!(text.ends_with(tail), "\n{tail:?}\nis no end of\n{text:?}\nfor {body}");
        assert!(self.model.check_resumed(&plan, request, &self.scheme, &extras, &self.checkpoints), "{body}");
        self.model.keys(&plan, &self.scheme, &extras, &self.checkpoints, &mut desk).expect("keys");
        let (none, mut anew) = (Checkpoints::new(0, 0), Desk::default());
        let plan = self.model.plan(whole, &self.scheme, &extras, &none, &mut anew).expect("a plan");
        self.model.keys(&plan, &self.scheme, &extras, &none, &mut anew).expect("keys");
        assert_eq!((desk.tokens, &desk.keys), (anew.tokens, &anew.keys), "{body}");
        Some(is_resumed)
    }
}

/// Runs requests of conversations with a model.
pub fn run(files: &Files, seed: u64, requests: usize) -> Went {
    let policy = Policy { tools: true, template_kwargs: true, clock: Clock::UtcDate, ..Policy::plain() };
    let model = files.model(1, policy, Choice::Fast).expect("a model");
    let contract = Engine::Vllm.contract(&Terms::plain(Algo::Tokens, BlockSize::new(16).expect("a size")));
    let scheme = Scheme::new(contract.expect("a contract"));
    let asked = Asked { model: &model, checkpoints: Checkpoints::new(1 << 22, 9), scheme };
    let mut draw = Draw(seed);
    let system = "You are of help. ".repeat(70);
    let begin = |draw: &mut Draw| match draw.below(3) {
        0 => vec![json!({"role": "user", "content": system}), draw.message("assistant")],
        _ => vec![json!({"role": "system", "content": system})],
    };
    let mut all: Vec<Vec<Value>> = (0..3).map(|_| begin(&mut draw)).collect();
    let mut went = Went { resumed: 0, whole: 0 };
    for _ in 0..requests {
        let which = draw.below(3);
        let messages = &mut all[which];
        messages.push(draw.message("user"));
        let mut frame = json!({"model": "m", "stream": true});
        match draw.below(10) {
            0 => frame["tools"] = json!([{"type": "function", "function": {"name": "f", "parameters": {}}}]),
            1 => frame["chat_template_kwargs"] = json!({"enable_thinking": false}),
            2 => frame["max_tokens"] = json!(draw.below(100)),
            _ => {}
        }
        frame["messages"] = json!(messages);
        let today = Date::of_unix(86_400 * draw.below(20).min(1) as i64);
        for _ in 0..1 + draw.below(2) {
            match asked.ask(&frame.to_string(), today) {
                Some(true) => went.resumed += 1,
                Some(false) => went.whole += 1,
                None => {}
            }
        }
        messages.push(draw.message("assistant"));
        change(&mut all, which, &mut draw, begin);
    }
    assert_eq!(model.renders_anew().is_some(), went.resumed == 0);
    went
}

/// Conversations are cut back, edited in their midst, take a system message in, branch and end.
fn change(all: &mut [Vec<Value>], which: usize, draw: &mut Draw, begin: impl Fn(&mut Draw) -> Vec<Value>) {
    let messages = &mut all[which];
    match draw.below(24) {
        0 => messages.truncate(messages.len() - 2),
        1 => {
            let at = draw.below(messages.len());
            let role = messages[at]["role"].as_str().expect("a role").to_string();
            messages[at] = draw.message(&role);
        }
        2 => messages.push(draw.message("system")),
        3 => all[which] = all[(which + 1) % 3].clone(),
        4 => messages.push(draw.message("user")),
        5 => all[which] = begin(draw),
        _ => {}
    }
}
