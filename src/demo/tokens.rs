//! Conversations of token ids: each turn's prompt is the last one with its answer and a next question behind it.
//! Owns their words, made up from a seed; pure.

use serde_json::json;

/// Tokens of a conversation's instructions, which come before its first question.
const INSTRUCTIONS: usize = 600;
/// Tokens of a question.
const QUESTION: usize = 50;
/// Tokens of an answer.
pub const ANSWER: usize = 24;
/// Token ids below this are specials in many vocabularies.
const FIRST_ID: u64 = 1_000;
/// Token ids that are used, from the first on.
const IDS: u64 = 30_000;

/// A conversation before its next turn.
pub struct Conversation {
    prompt: Vec<u32>,
    random: u64,
}

impl Conversation {
    /// One that shares no block with one of another seed.
    pub fn new(seed: u64) -> Conversation {
        let mut new = Conversation { prompt: Vec::new(), random: seed };
        new.prompt = new.draw(INSTRUCTIONS);
        new
    }

    /// Asks the next question: the request's body, whose answer is part of the turn after it.
    pub fn ask(&mut self, model: &str, stream: bool) -> String {
        let (question, answer) = (self.draw(QUESTION), self.draw(ANSWER));
        self.prompt.extend(question);
        // A simulated engine answers what it is told to, as a real one would with a reason of its own.
        let mut body = json!({
            "model": model, "prompt": self.prompt, "max_tokens": ANSWER, "sim_answer_ids": answer,
        });
        if stream {
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
        }
        self.prompt.extend(answer);
        body.to_string()
    }

    /// SplitMix64.
    fn draw(&mut self, tokens: usize) -> Vec<u32> {
        let mut next = || {
            self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (FIRST_ID + (mixed ^ (mixed >> 31)) % IDS) as u32
        };
        (0..tokens).map(|_| next()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn body(conversation: &mut Conversation) -> Value {
        serde_json::from_str(&conversation.ask("small", true)).expect("a body is JSON")
    }

    #[test]
    fn a_turn_goes_on_where_the_answer_of_the_last_ended() {
        let mut conversation = Conversation::new(1);
        let (first, second) = (body(&mut conversation), body(&mut conversation));
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let before = [list(&first["prompt"]), list(&first["sim_answer_ids"])].concat();
        assert_eq!(before.len(), INSTRUCTIONS + QUESTION + ANSWER);
        assert!(list(&second["prompt"]).starts_with(&before));
        assert_eq!(list(&second["prompt"]).len(), before.len() + QUESTION);
        assert_ne!(body(&mut Conversation::new(2))["prompt"][0], first["prompt"][0]);
    }
}
