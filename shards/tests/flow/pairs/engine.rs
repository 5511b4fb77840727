//! An engine of a pair in the simulated network: prefill, decode or both, in one of three dialects, by hand. It holds
//! the caller to its handshake, does what the request's wish says, and writes down what it did.

use crate::pairs::body::{self, Wish};
use crate::pairs::ledger::{Kept, Ledger};
use crate::sim::Shared;
use crate::sim::engine::{Plan, Serves, Step as AnyStep, paced};
use crate::sim::http::{self, Message};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use warmpath_ring::sim::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Vllm,
    Sglang,
    Trtllm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Prefill,
    Decode,
    Normal,
    Encode,
}

/// `pdBootstrapPort` of the rules.
pub const BOOTSTRAP_PORT: u16 = 9998;

/// How long legs wait for each other in a room.
const MEETING: u64 = 5_000_000_000;

/// An engine of pairs.
pub struct Paired {
    pub kind: Kind,
    pub part: Part,
    pub at: SocketAddr,
    /// Where SGLang's decode would meet it.
    pub bootstrap_port: u16,
    pub ledger: Shared<Ledger>,
    /// The rooms that its connections' requests are in.
    rooms: HashMap<usize, u64>,
    /// Requests that it began.
    begun: u32,
}

/// What a step does in the ledger.
#[derive(Clone, Debug)]
pub enum Note {
    /// Blocks are kept for decode.
    Keep(u64, Kept),
    /// Blocks were read by decode.
    Read(u64),
    /// Waits for the other leg until then; then goes on with these.
    Meet { until: u64, steps: Vec<Step> },
}

type Step = AnyStep<Note>;

impl Serves for Paired {
    type Note = Note;

    fn serve(&mut self, conn: usize, message: &Message, world: &mut World<'_>) -> Vec<Step> {
        self.begun += 1;
        self.ledger.borrow_mut().running += 1;
        let leg: Value = serde_json::from_slice(&message.body).expect("a leg's body is JSON");
        self.execute(conn, message, &leg, world)
    }

    fn serve_early(&mut self, head: &http::Head) -> Option<Vec<Step>> {
        assert!(head.get("x-hop").is_none());
        None
    }

    fn note(&mut self, conn: usize, note: Note, world: &mut World<'_>) -> Plan<Note> {
        match note {
            Note::Keep(handle, mut kept) => {
                kept.until = world.now() + 30_000_000_000;
                self.ledger.borrow_mut().kept.insert(handle, kept);
            }
            Note::Read(handle) => {
                if let Some(kept) = self.ledger.borrow_mut().kept.get_mut(&handle) {
                    kept.read = true;
                }
            }
            Note::Meet { until, steps } => return self.wait(conn, until, steps, world),
        }
        Vec::new()
    }

    fn over(&mut self, conn: usize, aborted: bool) {
        let mut ledger = self.ledger.borrow_mut();
        ledger.running -= 1;
        let room = self.rooms.remove(&conn);
        if let Some(room) = room.filter(|_| aborted).and_then(|room| ledger.rooms.get_mut(&room)) {
            room.broken = true;
        }
    }

    fn executions(&self) -> u32 {
        self.begun
    }
}

impl Paired {
    pub fn new(kind: Kind, part: Part, at: SocketAddr, ledger: &Shared<Ledger>) -> Paired {
        let (ledger, rooms) = (ledger.clone(), HashMap::new());
        Paired { kind, part, at, bootstrap_port: BOOTSTRAP_PORT, ledger, rooms, begun: 0 }
    }

    fn execute(&mut self, conn: usize, message: &Message, leg: &Value, world: &mut World<'_>) -> Vec<Step> {
        let wish = Wish::of(leg);
        let id = message.head.get("x-request-id").expect("every leg has an id").to_owned();
        assert!(message.head.get("x-hop").is_none() && message.head.get("expect").is_none());
        let mut ledger = self.ledger.borrow_mut();
        let (counts, role) = match self.part {
            Part::Prefill => (&mut ledger.prefills, "prefill"),
            Part::Decode => (&mut ledger.decodes, "decode"),
            Part::Normal => (&mut ledger.wholes, "whole"),
            Part::Encode => (&mut ledger.encodes, "encode"),
        };
        let times = counts.entry(wish.tag.clone()).or_default();
        *times += 1;
        let first = *times == 1;
        match self.part {
            Part::Normal => {}
            Part::Encode => ledger.check_part_id(&wish.tag, &id),
            Part::Prefill | Part::Decode => ledger.check_id(&wish.tag, &id, self.at, role),
        }
        drop(ledger);
        let word = match self.part {
            Part::Prefill if first || wish.always => wish.prefill.clone(),
            Part::Decode => wish.decode.clone(),
            Part::Normal if !wish.whole.is_empty() => wish.whole.clone(),
            Part::Encode if first || wish.always => wish.encode.clone(),
            _ => "ok".to_owned(),
        };
        let (before, answer, after) = match (self.kind, self.part) {
            (_, Part::Normal) => (None, self.generate(&wish, leg, &id, world), None),
            (_, Part::Encode) => (None, self.encode(&wish, leg, &id, &word, world), None),
            (Kind::Sglang, _) => return self.meet(conn, &wish, leg, &id, &word, world),
            (kind, Part::Prefill) => self.compute(kind, &wish, leg, &id, &word, world),
            (kind, Part::Decode) => {
                let read = self.take_over(kind, &wish, leg, &id);
                (None, self.generate(&wish, leg, &id, world), read)
            }
        };
        let mut steps: Vec<Step> = before.into_iter().collect();
        steps.extend(after);
        steps.extend(answer);
        fault(&word, steps, &id)
    }

    /// An encoder: checks what it is asked for, and answers where the encoding is.
    fn encode(&mut self, wish: &Wish, leg: &Value, id: &str, word: &str, world: &mut World<'_>) -> Vec<Step> {
        let mut ledger = self.ledger.borrow_mut();
        let mut changed = body::changed(leg);
        let (messages, most) = (changed.remove("messages").unwrap_or_default(), changed.remove("max_tokens"));
        let part = messages[0]["content"][0].clone();
        let at = (0..wish.images).find(|at| wish.image(*at) == part);
        let alone = json!([{"role": "user", "content": [part]}]) == messages;
        let Some(at) = at.filter(|_| alone && most == Some(json!(1)) && changed.is_empty()) else {
            ledger.violation(format!("{}: an encoder was asked for {leg}", wish.tag));
            return vec![Step::Close];
        };
        let name = format!("{}-{at}", wish.tag);
        let params =
            json!({"peer_host": self.at.ip().to_string(), "peer_port": self.at.port(), "size_bytes": 1});
        let told = if word == "nothing" { Value::Null } else { json!({name.as_str(): params}) };
        ledger.encodings.insert(name, self.at);
        drop(ledger);
        let answer = json!({"choices": [{"finish_reason": "length"}], "ec_transfer_params": told});
        whole(&serde_json::to_vec(&answer).expect("JSON"), id, "application/json", world)
    }

    /// Prefill is told of encodings: each must be one of this request's, where an encoder has it.
    fn look_for_encodings(&mut self, wish: &Wish, told: Value) {
        let mut ledger = self.ledger.borrow_mut();
        let members = told.as_object().cloned().unwrap_or_default();
        for (name, params) in &members {
            let at = ledger.encodings.get(name).map(|at| (json!(at.ip().to_string()), json!(at.port())));
            let own = (0..wish.images).any(|at| format!("{}-{at}", wish.tag) == *name);
            if !own || at != Some((params["peer_host"].clone(), params["peer_port"].clone())) {
                ledger.violation(format!("{}: prefill was told of {name} at {params}", wish.tag));
            }
        }
        ledger.fetched.insert(wish.tag.clone(), members.len());
    }

    /// Prefill of an engine that hands over: checks what it is asked for, and answers where its blocks are.
    fn compute(
        &mut self,
        kind: Kind,
        wish: &Wish,
        leg: &Value,
        id: &str,
        word: &str,
        world: &mut World<'_>,
    ) -> (Option<Step>, Vec<Step>, Option<Step>) {
        let mut changed = body::changed(leg);
        self.look_for_encodings(wish, changed.remove("ec_transfer_params").unwrap_or_default());
        let mut ledger = self.ledger.borrow_mut();
        let handle = 1_000 + ledger.kept.len() as u64 + world.draw(1 << 20) * 1_000;
        let blob = "s".repeat(wish.state);
        let answer = match kind {
            Kind::Vllm => {
                let asked = changed.remove("kv_transfer_params").unwrap_or_default();
                let fits = asked["do_remote_decode"] == true && asked["do_remote_prefill"] == false;
                if !fits || changed.remove("max_tokens") != Some(json!(1)) {
                    ledger.violation(format!("{}: prefill was asked for {leg}", wish.tag));
                }
                let params = json!({"do_remote_prefill": true, "remote_block_ids": [[1, 2]], "handle": handle, "blob": blob});
                match word {
                    "nothing" => json!({"choices": [], "kv_transfer_params": null}),
                    _ => {
                        json!({"choices": [{"text": "}\"kv_transfer_params\":{}"}], "kv_transfer_params": params})
                    }
                }
            }
            _ => {
                let asked = changed.remove("disaggregated_params").unwrap_or_default();
                if asked["request_type"] != "context_only" || !asked["disagg_request_id"].is_u64() {
                    ledger.violation(format!("{}: context was asked for {leg}", wish.tag));
                }
                let room = asked["disagg_request_id"].as_u64().unwrap_or_default();
                if !ledger.seen.insert((room, "context")) {
                    ledger.violation(format!("{}: request id {room} twice", wish.tag));
                }
                let state = json!({"request_type": "context_only", "ctx_request_id": handle, "encoded_opaque_state": blob});
                let reason = if word == "final" { "stop" } else { "length" };
                json!({"id": "c", "object": "text_completion", "model": "m", "choices": [
                    {"index": 0, "text": "t", "finish_reason": reason, "disaggregated_params": state}
                ]})
            }
        };
        if !changed.is_empty() {
            ledger.violation(format!("{}: prefill's body differs in {changed:?}", wish.tag));
        }
        drop(ledger);
        let keeps = matches!(word, "ok" | "slow") && self.part == Part::Prefill;
        let kept = Kept { tag: wish.tag.clone(), id: id.to_owned(), read: false, at: self.at, until: 0 };
        let keep = keeps.then_some(Step::Note(Note::Keep(handle, kept)));
        let text = serde_json::to_vec(&answer).expect("JSON");
        (keep, whole(&text, id, "application/json", world), None)
    }

    /// Decode of an engine that hands over: what it is given must be some prefill's of this request, and only once.
    fn take_over(&mut self, kind: Kind, wish: &Wish, leg: &Value, id: &str) -> Option<Step> {
        let mut changed = body::changed(leg);
        changed.remove("stream");
        let given = match kind {
            Kind::Vllm => changed.remove("kv_transfer_params"),
            _ => changed.remove("disaggregated_params"),
        };
        let mut ledger = self.ledger.borrow_mut();
        if !changed.is_empty() {
            ledger.violation(format!("{}: decode's body differs in {changed:?}", wish.tag));
        }
        let Some(given) = given else {
            *ledger.alone.entry(wish.tag.clone()).or_default() += 1;
            return None;
        };
        let (name, blob) = match kind {
            Kind::Vllm => ("handle", "blob"),
            _ => ("ctx_request_id", "encoded_opaque_state"),
        };
        let handle = given[name].as_u64().unwrap_or_default();
        let size = given[blob].as_str().map_or(0, str::len);
        let fits = kind == Kind::Vllm || given["request_type"] == "generation_only";
        match ledger.kept.get(&handle).cloned() {
            Some(kept)
                if kept.tag == wish.tag && kept.id == id && !kept.read && size == wish.state && fits =>
            {
                Some(Step::Note(Note::Read(handle)))
            }
            other => {
                ledger.violation(format!("{}: decode was given {handle}, which is {other:?}", wish.tag));
                None
            }
        }
    }

    /// A leg of SGLang's pair: checks the room, and waits in it for the other leg.
    fn meet(
        &mut self,
        conn: usize,
        wish: &Wish,
        leg: &Value,
        id: &str,
        word: &str,
        world: &mut World<'_>,
    ) -> Vec<Step> {
        let mut changed = body::changed(leg);
        changed.remove("stream");
        let room = changed.remove("bootstrap_room").and_then(|room| room.as_u64()).unwrap_or(u64::MAX);
        let host = changed.remove("bootstrap_host").unwrap_or_default();
        let port = changed.remove("bootstrap_port").unwrap_or_default();
        let prefills = self.part == Part::Prefill;
        {
            let mut ledger = self.ledger.borrow_mut();
            if room >= 1 << 63 || port != self.bootstrap_port || !changed.is_empty() {
                ledger.violation(format!("{}: room {room}, port {port}, {changed:?}", wish.tag));
            }
            if prefills && host != self.at.ip().to_string() {
                ledger.violation(format!("{}: {host} is not {}", wish.tag, self.at));
            }
            if !ledger.seen.insert((room, if prefills { "prefill" } else { "decode" })) {
                ledger.violation(format!("{}: room {room} twice", wish.tag));
            }
            let place = ledger.rooms.entry(room).or_default();
            let foreign = !place.tag.is_empty() && place.tag != wish.tag;
            place.tag = wish.tag.clone();
            place.prefill |= prefills;
            place.decode |= !prefills;
            // One that hangs is there for all that the other can see.
            place.broken |= !holds_room(word) && word != "hang";
            if foreign {
                ledger.violation(format!("{}: another's room {room}", wish.tag));
            }
        }
        self.rooms.insert(conn, room);
        let answer = self.generate(wish, leg, id, world);
        if holds_room(word) {
            let until = world.now() + MEETING;
            let steps = fault(word, answer, id);
            return vec![Step::Note(Note::Meet { until, steps })];
        }
        fault(word, answer, id)
    }

    /// The tokens: a text, or a stream of events.
    fn generate(&self, wish: &Wish, leg: &Value, id: &str, world: &mut World<'_>) -> Vec<Step> {
        let text = http::pattern(&wish.tag, wish.out);
        if leg["stream"] != true {
            return whole(&text, id, "application/json", world);
        }
        let mut events: Vec<Vec<u8>> =
            text.chunks(1 + wish.out / 5).map(|part| [b"data: ", part, b"\n\n"].concat()).collect();
        events.push(b"data: [DONE]\n\n".to_vec());
        let head = answer_head(200, id, "content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n");
        let mut steps = vec![Step::Send(head)];
        for event in events {
            let framed = [format!("{:x}\r\n", event.len()).as_bytes(), &event, b"\r\n"].concat();
            steps.push(Step::Send(framed));
        }
        steps.push(Step::Send(b"0\r\n\r\n".to_vec()));
        steps.push(Step::Idle);
        steps
    }

    /// A leg waits for the other one.
    fn wait(&mut self, conn: usize, until: u64, steps: Vec<Step>, world: &mut World<'_>) -> Plan<Note> {
        let room = self.rooms.get(&conn).copied().unwrap_or(u64::MAX);
        let mut ledger = self.ledger.borrow_mut();
        let place = ledger.rooms.entry(room).or_default();
        let prefills = self.part == Part::Prefill;
        let meets = place.prefill && place.decode;
        place.ready |= prefills && meets;
        let (ready, broken) = (if prefills { meets } else { place.ready }, place.broken);
        drop(ledger);
        if ready {
            return paced(steps, world);
        }
        if broken || world.now() > until {
            // Engines notice late that the other side is gone.
            return vec![(200_000_000, Step::Send(status(500, "", "no meeting"))), (210_000_000, Step::Idle)];
        }
        vec![(500_000 + world.draw(1_000_000), Step::Note(Note::Meet { until, steps }))]
    }
}

/// Whether a leg that does so is in its room until the other one had what it wanted.
fn holds_room(word: &str) -> bool {
    matches!(word, "ok" | "slow" | "die-mid" | "die-stream" | "reset-mid")
}

/// What becomes of a good answer's steps.
fn fault(word: &str, mut steps: Vec<Step>, id: &str) -> Vec<Step> {
    let sends = |step: &Step| matches!(step, Step::Send(_) | Step::Note(Note::Read(_)));
    match word {
        "ok" | "nothing" | "final" => steps,
        "slow" => {
            steps.insert(0, Step::Wait);
            steps
        }
        "die-before" => vec![Step::Close],
        "reset-before" => vec![Step::Reset],
        "half-head" => vec![Step::Send(b"HTTP/1.1 200 OK\r\nconte".to_vec()), Step::Close],
        "garbage" => vec![Step::Send(b"SSH-2.0-OpenSSH\r\n\r\n".to_vec()), Step::Close],
        "hang" => vec![],
        // Most of it comes, and then nothing more.
        "reset-mid" => {
            let streams = steps.len() > 4;
            steps.retain(sends);
            match steps.last_mut() {
                _ if streams => steps.truncate(3),
                Some(Step::Send(bytes)) => bytes.truncate(bytes.len() - 1),
                _ => {}
            }
            steps.extend([Step::Wait, Step::Reset]);
            steps
        }
        // The last bytes never come.
        // An answer that its connection's end ends would seem whole.
        "die-mid" if matches!(steps.last(), Some(Step::Close)) => vec![Step::Close],
        "die-mid" => {
            steps.retain(sends);
            if let Some(Step::Send(bytes)) = steps.last_mut() {
                bytes.truncate(bytes.len() - 1);
            }
            steps.push(Step::Close);
            steps
        }
        "die-stream" => {
            steps.retain(sends);
            // What was read, the head, and an event.
            steps.truncate(if matches!(steps.first(), Some(Step::Note(Note::Read(_)))) { 3 } else { 2 });
            steps.push(Step::Close);
            steps
        }
        code => {
            let code: u16 = code.parse().unwrap_or_else(|_| panic!("a fault called {code}"));
            vec![Step::Send(status(code, id, "refused")), Step::Idle]
        }
    }
}

/// A whole answer in one of three framings.
fn whole(text: &[u8], id: &str, kind: &str, world: &mut World<'_>) -> Vec<Step> {
    let kind = format!("content-type: {kind}\r\n");
    match world.draw(3) {
        0 => {
            let head = answer_head(200, id, &format!("{kind}content-length: {}\r\n", text.len()));
            vec![Step::Send([head, text.to_vec()].concat()), Step::Idle]
        }
        1 => {
            let head = answer_head(200, id, &format!("{kind}transfer-encoding: chunked\r\n"));
            let framed = http::chunked(text, 1 + text.len() / 3);
            vec![Step::Send(head), Step::Send(framed), Step::Idle]
        }
        _ => vec![Step::Send(answer_head(200, id, &kind)), Step::Send(text.to_vec()), Step::Close],
    }
}

fn status(code: u16, id: &str, text: &str) -> Vec<u8> {
    let head =
        answer_head(code, id, &format!("content-type: text/plain\r\ncontent-length: {}\r\n", text.len()));
    [head, text.as_bytes().to_vec()].concat()
}

fn answer_head(code: u16, id: &str, lines: &str) -> Vec<u8> {
    format!("HTTP/1.1 {code} X\r\nx-request-id: {id}\r\n{lines}\r\n").into_bytes()
}
