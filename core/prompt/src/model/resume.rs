//! A next turn's way to its plan: find the last turn of the conversation that is known, render behind it, and look
//! its tokens up. Owns these steps, and the watch over them; whatever fails here is left to the whole way.

use super::{Around, Input, Model, Plan, Request, WORTH, before_answer, is_in_text};
use crate::checkpoint::{Hashing, Key, Scheme};
use crate::request::{Api, frame, message};
use crate::shared::Checkpoints;
use crate::template::{Date, Resumable, Sparse, Stop};
use crate::tokenizer::Boundary;
use crate::turn::{Raw, Turn};
use minijinja::value::Value;
use warmpath_core::engine::Extras;
use warmpath_parser::Span;
use warmpath_parser::json::{self, Kind, Member};

/// So many messages at the end may be the pivot of the turn that is looked for: an agent adds several a turn.
const LOOKED: usize = 32;

/// A rendering that the next turn may go on with, until its cuts are known.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    raw: Raw,
    index: usize,
    stop: Stop,
}

impl Draft {
    /// Keeps it. `text` begins at `before` bytes of the whole.
    pub(super) fn keep(
        &self,
        text: &str,
        before: usize,
        cuts: &[(Boundary, Key)],
        scheme: u128,
        checkpoints: &Checkpoints,
    ) {
        let cut = cuts.iter().rev().find(|(cut, _)| cut.end <= self.stop.at);
        let Some((cut, key)) = cut else { return };
        let Some(pending) = text.get(cut.start..self.stop.at) else { return };
        let turn = Turn {
            index: self.index,
            stop: self.stop.clone(),
            cut: Boundary { start: before + cut.start, end: before + cut.end, id: cut.id },
            key: *key,
            pending: pending.into(),
        };
        checkpoints.insert(self.raw.key(scheme), turn);
    }
}

impl Model {
    /// What is left to do for a chat of which an earlier turn is known, by rendering what is new alone; `None` where
    /// that can't be told, for [`Model::read_for`] and [`Model::plan`] to begin at the beginning. Some ten times
    /// cheaper than those, so that it may be tried first.
    pub fn resume(
        &self,
        request: Request<'_>,
        scheme: &Scheme,
        extras: &Extras<'_>,
        checkpoints: &Checkpoints,
        desk: &mut super::Desk,
    ) -> Option<Plan> {
        let Request { body, members, .. } = request;
        let template = self.template.as_ref().filter(|_| self.going_on.holds())?;
        template.resumable()?;
        let messages = members.get(Member::Messages).filter(|messages| messages.kind == Kind::Array)?;
        if !is_in_text(extras) || body.len() < WORTH {
            return None;
        }
        let name = scheme.name(extras, &mut desk.scratch).ok()?;
        let mut raw = self.raw(checkpoints, request, messages);
        desk.messages.clear();
        for message in json::messages(body, members) {
            raw.message(body, message);
            desk.messages.push((raw.clone(), message));
        }
        let known = |(index, (raw, _)): (usize, &(Raw, json::Value))| {
            checkpoints.turn(&raw.key(name)).filter(|turn| turn.index == index)
        };
        let turn = desk.messages.iter().enumerate().rev().take(LOOKED).find_map(known)?;
        let (text, draft) = self.go_on(request, &turn, &desk.messages)?;
        let begins = (turn.cut, turn.key);
        let mut hashing = Hashing::behind(checkpoints.secret(), turn.key, turn.cut, &text);
        let cuts: Vec<(Boundary, Key)> =
            self.tokenizer.boundaries().find(&text).map(|cut| (cut, hashing.key(&cut))).collect();
        // The text begins with the cut's token, which nothing behind it can hide.
        cuts.first().filter(|(cut, _)| (cut.start, cut.id) == (0, turn.cut.id))?;
        let known = cuts.iter().rev().find_map(|(cut, key)| Some((*cut, checkpoints.get(key)?)))?;
        if let Some(draft) = draft {
            draft.keep(&text, turn.cut.start, &cuts, name, checkpoints);
        }
        let last = cuts.get(before_answer(&cuts)).filter(|(cut, _)| cut.end > known.0.end).copied();
        let input = Input::Text { text, around: Around::default(), draft: None };
        Some(Plan { input, cuts: last.into_iter().collect(), known: Some(known), begins: Some(begins) })
    }

    /// The text from the turn's cut on.
    fn go_on(
        &self,
        request: Request<'_>,
        turn: &Turn,
        messages: &[(Raw, json::Value)],
    ) -> Option<(String, Option<Draft>)> {
        let Request { body, members, tools, .. } = request;
        let mut rest = Vec::new();
        let mut role = String::new();
        for (_, raw) in messages.get(turn.index..)? {
            let (own, cell) = message(body, *raw, &self.policy).ok()?;
            if !Resumable::may_follow(&own) {
                return None;
            }
            rest.push(cell);
            role = own;
        }
        // Such a request is declined, which is the whole way's to say.
        if role == "assistant" {
            return None;
        }
        let conversation = frame(body, members, &self.policy, tools).ok()?;
        let more = self.more(&conversation);
        let [_, seen @ ..] = self.seen(conversation);
        let (earlier, policy) = (earlier(body, turn.index, messages), self.policy.clone());
        let earlier = move |at| {
            let (_, bytes) = earlier.iter().find(|(own, _)| *own == at)?;
            let raw = Span::new(0, bytes.len());
            let whole = json::Value { raw, key: Span::default(), kind: Kind::Object, index: 0 };
            message(bytes, whole, &policy).ok().map(|(_, cell)| cell)
        };
        let last = rest.last().cloned()?;
        let sparse = Sparse { earlier: Box::new(earlier), from: turn.index, rest };
        let template = self.template.as_ref()?;
        let (tail, stop) = template.go_on(seen, &more, self.today(request), &turn.stop, sparse)?;
        let text = [&turn.pending, tail.as_str()].concat();
        let draft = stop.and_then(|stop| {
            let stop = stop.behind(turn.pending.len());
            let (index, (raw, _)) = messages.iter().enumerate().next_back()?;
            let is_pivot = template.resumable()?.is_pivot(index, &last);
            is_pivot.then(|| Draft { raw: raw.clone(), index, stop })
        });
        Some((text, draft))
    }

    /// What the next turn may go on with, if this one ends on a pivot.
    pub(super) fn draft(
        &self,
        checkpoints: &Checkpoints,
        request: Request<'_>,
        list: &Value,
        stop: Stop,
    ) -> Option<Draft> {
        let index = list.len()?.checked_sub(1)?;
        let last = list.get_item_by_index(index).ok()?;
        self.template.as_ref()?.resumable().filter(|template| template.is_pivot(index, &last))?;
        let messages = request.members.get(Member::Messages)?;
        let mut raw = self.raw(checkpoints, request, messages);
        json::messages(request.body, request.members).for_each(|message| raw.message(request.body, message));
        Some(Draft { raw, index, stop })
    }

    /// The hash of a request, without its messages yet.
    fn raw(&self, checkpoints: &Checkpoints, request: Request<'_>, messages: json::Value) -> Raw {
        let form = request.tools.map_or(0, |form| form as u8 + 1);
        let day = self.today(request).map_or(i64::MIN, Date::number);
        let mut raw = Raw::new(checkpoints.secret(), self.id, messages);
        raw.beside(&[&[form], &day.to_le_bytes()[..]].concat());
        raw.members(request.body, request.members);
        raw
    }

    /// Why every turn is rendered from the beginning; `None` while what is new is rendered alone.
    pub fn renders_anew(&self) -> Option<String> {
        match &self.template {
            None => Some("it has no chat template".into()),
            Some(_) if !self.going_on.holds() => Some(
                "going on with an earlier turn differed on a request; not used again before a restart".into(),
            ),
            Some(template) => template.not_resumable().map(str::to_string),
        }
    }

    /// Renders a resumed chat from the beginning. False if that gives another text: then no turn is gone on with
    /// again. Slow, for a sampler beside the hot path.
    pub fn check_resumed(
        &self,
        plan: &Plan,
        request: Request<'_>,
        scheme: &Scheme,
        extras: &Extras<'_>,
        checkpoints: &Checkpoints,
    ) -> bool {
        let Some((cut, key)) = plan.begins else { return true };
        let agrees = || {
            let whole = self.read_under(None, Api::Chat, request).ok()?;
            let whole = whole.text()?;
            let name = scheme.name(extras, &mut Default::default()).ok()?;
            let mut hashing = Hashing::new(checkpoints.secret(), self.id, name, &[], whole);
            let mut cuts = self.tokenizer.boundaries().find(whole).map(|cut| (cut, hashing.key(&cut)));
            let begins = cuts.any(|(at, own)| at == cut && own == key);
            Some(begins && whole.get(cut.start..) == plan.text())
        };
        let agrees = agrees() == Some(true);
        if !agrees {
            self.going_on.end();
        }
        agrees
    }
}

/// The bytes of the first message and of the one before the pivot, which templates look back at.
fn earlier(body: &[u8], pivot: usize, messages: &[(Raw, json::Value)]) -> Vec<(usize, Vec<u8>)> {
    let mut wanted = vec![0, pivot.saturating_sub(1)];
    wanted.dedup();
    wanted.into_iter().filter_map(|at| Some((at, messages.get(at)?.1.raw.of(body).to_vec()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Files;
    use crate::model::Desk;
    use crate::request::Policy;
    use crate::tokenizer::Choice;
    use warmpath_core::block::BlockSize;
    use warmpath_core::engine::{Algo, Engine, Terms};
    use warmpath_parser::json::{JsonLimits, Members, peek};

    /// Asks for the plan of a chat, and has it checked against a body.
    struct World {
        model: Model,
        scheme: Scheme,
        checkpoints: Checkpoints,
    }

    impl World {
        fn new() -> World {
            let files = Files {
                tokenizer: include_bytes!("../../tests/tokenizers/tiny.json").to_vec(),
                template: Some(
                    "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}".into(),
                ),
                ..Files::default()
            };
            let contract =
                Engine::Vllm.contract(&Terms::plain(Algo::Tokens, BlockSize::SIXTEEN)).expect("a contract");
            World {
                model: files.model(1, Policy::plain(), Choice::Fast).expect("a model"),
                scheme: Scheme::new(contract),
                checkpoints: Checkpoints::new(1 << 20, 1),
            }
        }

        fn plan(&self, body: &str) -> Plan {
            let (extras, mut desk, mut members) = (Extras::default(), Desk::default(), Members::new());
            peek(body.as_bytes(), &mut members, JsonLimits::default()).expect("JSON");
            let request = Request { body: body.as_bytes(), members: &members, today: None, tools: None };
            let plan = self
                .model
                .resume(request, &self.scheme, &extras, &self.checkpoints, &mut desk)
                .unwrap_or_else(|| {
                    let prompt = self.model.read_for(&self.checkpoints, Api::Chat, request);
                    let prompt = prompt.expect("a prompt");
                    self.model
                        .plan(prompt, &self.scheme, &extras, &self.checkpoints, &mut desk)
                        .expect("a plan")
                });
            self.model.keys(&plan, &self.scheme, &extras, &self.checkpoints, &mut desk).expect("keys");
            plan
        }

        fn check(&self, plan: &Plan, body: &str) -> bool {
            let mut members = Members::new();
            peek(body.as_bytes(), &mut members, JsonLimits::default()).expect("JSON");
            let request = Request { body: body.as_bytes(), members: &members, today: None, tools: None };
            self.model.check_resumed(plan, request, &self.scheme, &Extras::default(), &self.checkpoints)
        }
    }

    fn body(system: &str, answers: usize) -> String {
        let turn = |at: usize| {
            [
                serde_json::json!({"role": "user", "content": format!("question {at}")}),
                serde_json::json!({"role": "assistant", "content": format!("answer {at}")}),
            ]
        };
        let mut messages = vec![serde_json::json!({"role": "system", "content": system.repeat(400)})];
        messages.extend((0..answers).flat_map(turn));
        messages.push(serde_json::json!({"role": "user", "content": "the last"}));
        serde_json::json!({"messages": messages}).to_string()
    }

    #[test]
    fn a_difference_ends_going_on_once_and_for_all() {
        let world = World::new();
        assert!(!world.plan(&body("blocks ", 0)).is_resumed());
        // The question stays, so that its rendering is known.
        let next = body("blocks ", 0).replace(
            "the last\"}",
            "the last\"},{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"}",
        );
        let plan = world.plan(&next);
        assert!(plan.is_resumed() && world.check(&plan, &next));
        assert_eq!(world.model.renders_anew(), None);
        assert!(!world.check(&plan, &next.replace("blocks ", "BLOCKS ")), "another beginning");
        assert!(world.model.renders_anew().is_some());
        assert!(!world.plan(&next).is_resumed());
    }

    #[test]
    fn another_end_is_a_difference() {
        let world = World::new();
        world.plan(&body("blocks ", 0));
        let plan = world.plan(&body("blocks ", 0));
        assert!(plan.is_resumed());
        assert!(!world.check(&plan, &body("blocks ", 0).replace("the last", "the least")));
    }

    #[test]
    fn a_turn_is_small() {
        let world = World::new();
        world.plan(&body("blocks ", 3));
        let (many, bytes) = (world.checkpoints.len(), world.checkpoints.bytes());
        assert_eq!(many, 3, "the first cut, the last, and the turn");
        assert!(bytes < 6_000, "{bytes}");
    }
}
