//! What exact routing was good for: tokens of prompts, predicted to be cached and really cached. Owns the sums and
//! the judgement over them; pure, from receipts alone.

use std::fmt;
use warmpath_core::decide::Reason;
use warmpath_core::receipt::{Outcome, Receipt};

/// Failed predictions that are named; further ones are counted.
const NAMED: usize = 3;

/// Sums over the prompts of token ids that were answered.
#[derive(Debug, Default)]
pub struct Warmth {
    prompts: u64,
    tokens: u64,
    predicted: u64,
    cached: u64,
    /// Those with tokens cached, as many as predicted.
    warm: u64,
    /// Those with another number than predicted: request, prediction, what the engine told.
    wrong: Vec<(String, u32, Option<u32>)>,
}

impl Warmth {
    /// Takes a receipt; one without a keyed prompt or without a good answer counts for nothing.
    pub fn add(&mut self, receipt: &Receipt) {
        let Some(exact) = receipt.exact.filter(|exact| exact.prompt_tokens > 0) else { return };
        if receipt.outcome != Outcome::Completed || receipt.status != 200 {
            return;
        }
        self.prompts += 1;
        self.tokens += u64::from(exact.prompt_tokens);
        self.predicted += u64::from(exact.predicted_tokens);
        self.cached += u64::from(exact.cached_tokens.unwrap_or(0));
        // What is only promised may be there or not when the request arrives.
        let held = matches!(receipt.reason, Some(Reason::Exact | Reason::ExactSpill | Reason::ExactRelief));
        match exact.cached_tokens {
            Some(cached) if held && cached == exact.predicted_tokens => self.warm += u64::from(cached > 0),
            told if held => self.wrong.push((receipt.id.clone(), exact.predicted_tokens, told)),
            _ => {}
        }
    }

    /// Whether some prompt was found warm, and each that was routed exactly as warm as predicted.
    pub fn verdict(&self) -> Result<(), String> {
        if !self.wrong.is_empty() {
            let told = |told: &Option<u32>| told.map_or_else(|| "no number".into(), |n| n.to_string());
            let named = |(id, predicted, cached): &(String, u32, Option<u32>)| {
                format!("{id}: {predicted} tokens predicted, the engine told {}", told(cached))
            };
            let named: Vec<String> = self.wrong.iter().take(NAMED).map(named).collect();
            let count = self.wrong.len();
            return Err(format!("{count} prompt(s) were not as warm as predicted: {}", named.join("; ")));
        }
        match self.warm {
            0 => Err(format!("of {} prompts in token ids none was found warm", self.prompts)),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Warmth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = (self.cached * 100).checked_div(self.tokens);
        let share = share.map_or_else(|| "-".into(), |percent| format!("{percent} %"));
        writeln!(
            f,
            "Prompts in token ids: {} of {} tokens; predicted cached {}, really cached {} ({share})",
            self.prompts, self.tokens, self.predicted, self.cached
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmpath_core::decide::exact::{Explanation, Miss};
    use warmpath_core::receipt::ExactReceipt;

    fn receipt(reason: Reason, predicted: u32, cached: Option<u32>) -> Receipt {
        Receipt {
            at: 1,
            id: "r".into(),
            service: 1,
            model: "m".into(),
            endpoint: None,
            exact: Some(ExactReceipt {
                explanation: Explanation::unasked(Miss::NoSignal),
                rank: None,
                prompt_tokens: 100,
                predicted_tokens: predicted,
                cached_tokens: cached,
                engine_tokens: Some(100),
                finding: None,
            }),
            pair: None,
            reason: Some(reason),
            status: 200,
            outcome: Outcome::Completed,
            streamed: false,
            first_byte: 1,
            total: 1,
            bytes_out: 1,
            retries: 0,
        }
    }

    fn after(receipts: &[Receipt]) -> Warmth {
        let mut warmth = Warmth::default();
        receipts.iter().for_each(|receipt| warmth.add(receipt));
        warmth
    }

    #[test]
    fn sums_are_of_answered_prompts_that_had_keys() {
        let chat = Receipt {
            exact: Some(ExactReceipt {
                prompt_tokens: 0,
                ..receipt(Reason::RoundRobin, 0, None).exact.expect("one")
            }),
            ..receipt(Reason::RoundRobin, 0, Some(16))
        };
        let failed = Receipt { status: 502, ..receipt(Reason::Exact, 48, None) };
        let warmth = after(&[
            receipt(Reason::RoundRobin, 0, Some(0)),
            receipt(Reason::Exact, 48, Some(48)),
            receipt(Reason::ExactPromised, 0, Some(32)),
            chat,
            failed,
        ]);
        let line = warmth.to_string();
        assert!(line.contains("3 of 300 tokens; predicted cached 48, really cached 80 (26 %)"), "{line}");
        assert_eq!(warmth.verdict(), Ok(()), "what was promised is not judged");
    }

    #[test]
    fn it_fails_without_a_warm_prompt_and_with_a_wrong_prediction() {
        let cold = after(&[receipt(Reason::RoundRobin, 0, Some(0)), receipt(Reason::Exact, 0, Some(0))]);
        assert!(cold.verdict().is_err_and(|told| told.contains("of 2 prompts")));
        assert!(after(&[]).verdict().is_err());
        for (cached, told) in [(Some(16), "told 16"), (None, "told no number"), (Some(64), "told 64")] {
            let wrong = after(&[receipt(Reason::Exact, 48, Some(48)), receipt(Reason::Exact, 48, cached)]);
            assert!(wrong.verdict().is_err_and(|sentence| sentence.contains(told)), "{told}");
        }
    }
}
