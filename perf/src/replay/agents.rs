//! Made-up agent sessions: long conversations in which each turn sends all before it again. Owns the law by which
//! they are drawn; must never draw from anything but its seed.
//!
//! The defaults are those of coding agents as their operators tell of them: 43 turns, prompts of 142,000 tokens in
//! the mean, 96 % of each the prompt before it.

use super::trace::{Arrival, BLOCK_TOKENS, Nanos, Trace, key};

/// What sessions are like.
#[derive(Clone, Debug)]
pub struct Agents {
    /// How many of them.
    pub sessions: u32,
    /// Turns of each.
    pub turns: u32,
    /// Tokens of instructions and tools, the same for all sessions of a team.
    pub begin: u32,
    /// Tokens that a turn adds, in the mean: an answer, and what tools gave.
    pub grows: u32,
    /// Tokens of an answer, in the mean.
    pub answer: u32,
    /// Seconds between two turns, in the mean.
    pub pause: f64,
    /// Seconds between two sessions' begins, in the mean.
    pub between: f64,
    /// Teams, each with instructions of its own.
    pub teams: u32,
    /// Of all that is drawn.
    pub seed: u64,
}

impl Default for Agents {
    fn default() -> Self {
        Agents {
            sessions: 100,
            turns: 43,
            begin: 20_000,
            grows: 5_700,
            answer: 400,
            pause: 20.0,
            between: 8.0,
            teams: 4,
            seed: 0,
        }
    }
}

impl Agents {
    /// The requests of all sessions.
    pub fn trace(&self) -> Trace {
        let mut random = Random(self.seed);
        let (mut begins, mut arrivals) = (0.0, Vec::new());
        for session in 0..self.sessions {
            begins += random.exponential(self.between);
            let team = random.next() % u64::from(self.teams.max(1));
            let (mut at, mut tokens) = (begins, self.begin);
            for _ in 0..self.turns {
                let keys = (0..tokens / BLOCK_TOKENS).map(|block| self.key(team, session, block)).collect();
                let answer = random.around(self.answer);
                arrivals.push(Arrival { at: (at * 1e9) as Nanos, prompt: tokens.max(1), answer, keys });
                tokens += random.around(self.grows).max(answer);
                at += random.exponential(self.pause);
            }
        }
        arrivals.sort_by_key(|arrival| arrival.at);
        Trace { block_tokens: BLOCK_TOKENS, arrivals }
    }

    /// The instructions' whole blocks are the team's; the block in which they end is the session's.
    fn key(&self, team: u64, session: u32, block: u32) -> u64 {
        match block < self.begin / BLOCK_TOKENS {
            true => key(team << 32 | u64::from(block)),
            false => key(1 << 63 | u64::from(session) << 32 | u64::from(block)),
        }
    }
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        key(self.0)
    }

    /// 0 to 1, never 0.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }

    /// Half to one and a half of the mean, at least 1.
    fn around(&mut self, mean: u32) -> u32 {
        ((self.unit() + 0.5) * f64::from(mean)).max(1.0) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_sends_again_what_it_sent() {
        let trace = Agents { sessions: 1, ..Agents::default() }.trace();
        assert_eq!(trace.arrivals.len(), 43);
        for pair in trace.arrivals.windows(2) {
            assert!(pair[1].keys.starts_with(&pair[0].keys) && pair[1].prompt > pair[0].prompt);
        }
        let mean = trace.arrivals.iter().map(|a| u64::from(a.prompt)).sum::<u64>() / 43;
        assert!((110_000..175_000).contains(&mean), "{mean}");
    }

    #[test]
    fn sessions_share_their_teams_instructions_and_nothing_else() {
        let agents = Agents { sessions: 2, turns: 1, teams: 1, ..Agents::default() };
        let trace = agents.trace();
        let [one, other] = &trace.arrivals[..] else { panic!("two requests") };
        assert_eq!(one.keys[..39], other.keys[..39], "39 whole blocks of 20,000 tokens");
        let long = Agents { turns: 2, ..agents }.trace();
        let tails: Vec<u64> = long.arrivals.iter().filter_map(|a| a.keys.get(39).copied()).collect();
        assert_eq!(tails.len(), 2);
        assert_ne!(tails[0], tails[1]);
    }

    #[test]
    fn the_seed_is_all_that_is_drawn_from() {
        let of = |seed| Agents { seed, sessions: 3, ..Agents::default() }.trace();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }
}
