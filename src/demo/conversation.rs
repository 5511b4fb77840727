//! Conversations of token ids: instructions that all share, instructions of a tenant, then turn after turn, each with
//! the last one's answer and a next question behind it. Owns their words, made up from seeds; pure.

use serde_json::json;
use std::time::Duration;

/// Tokens of the instructions that come first in every conversation.
pub const SHARED: usize = 256;
/// Tokens of a tenant's own instructions behind them.
pub const TENANT: usize = 512;
/// Tokens of a question.
const QUESTION: usize = 96;
/// Tokens of an answer.
pub const ANSWER: usize = 24;
/// Token ids used: those that even a vocabulary of 512 has, specials apart.
const IDS: std::ops::Range<u64> = 10..250;
/// Tenants by name.
pub const TENANTS: [&str; 8] = ["acme", "birch", "cobalt", "delta", "ember", "fjord", "grove", "heron"];

/// Who is asked and how.
#[derive(Clone, Debug)]
pub struct Manner {
    /// The model's name.
    pub model: String,
    /// The engine answers with the ids it is given, as a real one would with its own.
    pub scripted: bool,
    /// Conversations of another mark share nothing with those of this one.
    pub mark: u64,
}

/// A conversation before its next turn.
pub struct Conversation {
    name: String,
    turn: u64,
    answer: usize,
    prompt: Vec<u32>,
    dice: Dice,
}

impl Conversation {
    /// Conversation `number` of all; tenants take turns.
    pub fn of_tenant(manner: &Manner, number: u64) -> Conversation {
        let tenant = number as usize % TENANTS.len();
        let mut prompt = Dice::new(manner.mark, 1, 0).draw(SHARED);
        prompt.extend(Dice::new(manner.mark, 2, tenant as u64).draw(TENANT));
        let name = format!("{}-{number}", TENANTS[tenant]);
        Conversation { name, turn: 0, answer: ANSWER, prompt, dice: Dice::new(manner.mark, 3, number) }
    }

    /// One that shares no block with any other: as long, but with instructions of its own.
    pub fn of_stranger(manner: &Manner, number: u64) -> Conversation {
        let mut dice = Dice::new(manner.mark, 4, number);
        let (name, prompt) = (format!("new-{number}"), dice.draw(SHARED + TENANT));
        Conversation { name, turn: 0, answer: ANSWER, prompt, dice }
    }

    /// The same with answers of a single token, which fill no block.
    pub fn briefly(self) -> Conversation {
        Conversation { answer: 1, ..self }
    }

    /// Its next turn: a name for the request, and the request's body.
    pub fn ask(&mut self, manner: &Manner, stream: bool) -> (String, String) {
        let (question, answer) = (self.dice.draw(QUESTION), self.dice.draw(self.answer));
        self.prompt.extend(question);
        let mut body = json!({
            "model": manner.model, "prompt": self.prompt, "max_tokens": self.answer, "ignore_eos": true,
            "temperature": 0,
        });
        if manner.scripted {
            body["sim_answer_ids"] = json!(answer);
        }
        if stream {
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
        }
        // What a real engine answers is not read; these ids stand for it.
        self.prompt.extend(answer);
        self.turn += 1;
        (format!("{}.{}", self.name, self.turn), body.to_string())
    }

    /// How long its person reads before the next turn: up to twice the mean. Turns of equal length would fall on engines
    /// in step, and going in turn would find them warm by chance.
    pub fn reading(&mut self, mean: Duration) -> Duration {
        let part: u32 = self.dice.draw(1).into_iter().map(|id| id - IDS.start as u32).sum();
        2 * mean * part / (IDS.end - IDS.start) as u32
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn new(mark: u64, kind: u64, number: u64) -> Dice {
        Dice(mark << 40 | kind << 32 | number)
    }

    fn draw(&mut self, tokens: usize) -> Vec<u32> {
        let mut next = || {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (IDS.start + (mixed ^ (mixed >> 31)) % (IDS.end - IDS.start)) as u32
        };
        (0..tokens).map(|_| next()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn manner(mark: u64) -> Manner {
        Manner { model: "small".into(), scripted: true, mark }
    }

    fn prompt(body: &str, member: &str) -> Vec<Value> {
        let body: Value = serde_json::from_str(body).expect("a body is JSON");
        body[member].as_array().cloned().unwrap_or_default()
    }

    #[test]
    fn a_turn_goes_on_where_the_answer_of_the_last_ended() {
        let manner = manner(0);
        let mut talk = Conversation::of_tenant(&manner, 9);
        let (first, second) = (talk.ask(&manner, true), talk.ask(&manner, true));
        assert_eq!((first.0.as_str(), second.0.as_str(), talk.name()), ("birch-9.1", "birch-9.2", "birch-9"));
        let before = [prompt(&first.1, "prompt"), prompt(&first.1, "sim_answer_ids")].concat();
        assert_eq!(before.len(), SHARED + TENANT + QUESTION + ANSWER);
        assert!(prompt(&second.1, "prompt").starts_with(&before));
        assert_eq!(prompt(&second.1, "prompt").len(), before.len() + QUESTION);
    }

    #[test]
    fn people_read_for_times_of_their_own() {
        let mean = Duration::from_millis(100);
        let times = |number| {
            let mut talk = Conversation::of_tenant(&manner(0), number);
            [talk.reading(mean), talk.reading(mean)]
        };
        assert!(times(1) == times(1) && times(1) != times(2) && times(1)[0] != times(1)[1]);
        assert!((0..50).flat_map(times).all(|time| time < 2 * mean));
    }

    #[test]
    fn tenants_share_their_instructions_and_all_share_the_first() {
        let alike = |left: &mut Conversation, right: &mut Conversation| {
            let (left, right) = (left.ask(&manner(0), false).1, right.ask(&manner(0), false).1);
            let (left, right) = (prompt(&left, "prompt"), prompt(&right, "prompt"));
            left.iter().zip(&right).take_while(|(l, r)| l == r).count()
        };
        let of = |number| Conversation::of_tenant(&manner(0), number);
        let (one_tenant, two_tenants) = (alike(&mut of(1), &mut of(9)), alike(&mut of(1), &mut of(2)));
        assert!((SHARED + TENANT..SHARED + TENANT + 4).contains(&one_tenant), "{one_tenant}");
        assert!((SHARED..SHARED + 4).contains(&two_tenants), "{two_tenants}");
        let apart = alike(&mut of(1), &mut Conversation::of_stranger(&manner(0), 1));
        assert!(apart < 4 && alike(&mut of(1), &mut Conversation::of_tenant(&manner(1), 1)) < 4);
        assert_eq!(alike(&mut of(1), &mut of(1)), SHARED + TENANT + QUESTION, "the same on both sides");
    }
}
