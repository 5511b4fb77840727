//! What was found out, leg by leg. Owns the legs, their words and when exact routing would work; must never find
//! anything out itself.

/// What must agree between an engine and a rule, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leg {
    /// Its port answers.
    Reachable,
    /// Its release.
    Version,
    /// The model's name.
    Model,
    /// Data-parallel ranks.
    Ranks,
    /// Where its events come from.
    Events,
    /// Where they can be had again.
    Replay,
    /// Tokens in a block.
    BlockSize,
    /// Its block hash.
    Algorithm,
    /// What its first blocks are chained to.
    Root,
    /// How hashes stand in its events.
    HashForm,
    /// `cache_salt` in block names.
    Salt,
    /// Adapters in block names.
    Lora,
    /// Completions in text.
    Tokenizer,
    /// Chats.
    Template,
    /// Whether its answers tell how much was cached.
    Usage,
    /// Whether it is like the rule's other endpoints.
    Alike,
}

impl Leg {
    /// As in the table and in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Leg::Reachable => "reachable",
            Leg::Version => "version",
            Leg::Model => "model",
            Leg::Ranks => "ranks",
            Leg::Events => "events",
            Leg::Replay => "replay",
            Leg::BlockSize => "block_size",
            Leg::Algorithm => "algorithm",
            Leg::Root => "root",
            Leg::HashForm => "hash_form",
            Leg::Salt => "salt",
            Leg::Lora => "lora",
            Leg::Tokenizer => "tokenizer",
            Leg::Template => "template",
            Leg::Usage => "usage",
            Leg::Alike => "alike",
        }
    }

    /// Whether a leg that could not be looked at leaves it open whether prompts of token ids are routed exactly.
    /// The others cost something where they are not proven, and are told.
    const fn is_needed(self) -> bool {
        matches!(
            self,
            Leg::Reachable
                | Leg::Model
                | Leg::Ranks
                | Leg::Events
                | Leg::BlockSize
                | Leg::Algorithm
                | Leg::Root
        )
    }
}

/// Whether engine and rule agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They do: it was tried.
    Equal,
    /// They don't.
    NotEqual,
    /// It was not tried; the row says why.
    NotRun,
}

impl Verdict {
    /// As in the table and in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Verdict::Equal => "equal",
            Verdict::NotEqual => "not_equal",
            Verdict::NotRun => "not_run",
        }
    }
}

/// One leg.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which.
    pub leg: Leg,
    /// Whether it agrees.
    pub verdict: Verdict,
    /// What was seen, or why nothing was.
    pub seen: String,
    /// What to do about it where the engine is started.
    pub engine: Option<String>,
    /// What to do about it in the rule, or where the gateway is started.
    pub rule: Option<String>,
}

impl Row {
    /// It agrees.
    pub fn equal(leg: Leg, seen: impl Into<String>) -> Row {
        Row { leg, verdict: Verdict::Equal, seen: seen.into(), engine: None, rule: None }
    }

    /// It does not.
    pub fn not_equal(leg: Leg, seen: impl Into<String>) -> Row {
        Row { verdict: Verdict::NotEqual, ..Row::equal(leg, seen) }
    }

    /// It was not tried.
    pub fn not_run(leg: Leg, why: impl Into<String>) -> Row {
        Row { verdict: Verdict::NotRun, ..Row::equal(leg, why) }
    }

    /// With what to do about it where the engine is started.
    pub fn engine(self, cure: impl Into<String>) -> Row {
        Row { engine: Some(cure.into()).filter(|cure| !cure.is_empty()), ..self }
    }

    /// With what to do about it on the gateway's side.
    pub fn rule(self, cure: impl Into<String>) -> Row {
        Row { rule: Some(cure.into()).filter(|cure| !cure.is_empty()), ..self }
    }

    /// Whether exact routing would not work for it, or would not be known to.
    pub fn is_in_the_way(&self) -> bool {
        match self.verdict {
            Verdict::Equal => false,
            Verdict::NotEqual => true,
            Verdict::NotRun => self.leg.is_needed(),
        }
    }
}

/// All that was found out about one endpoint.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its address, as in the rule.
    pub endpoint: String,
    /// The kind of engine.
    pub kind: &'static str,
    /// The rule's name, or what stands for it.
    pub rule: String,
    /// Whether the rule names blocks by tokens, whatever the engine calls them.
    pub is_by_tokens: bool,
    /// Which versions name blocks as this one does; none if it is not known.
    pub family: Option<usize>,
    /// In the order of the legs.
    pub rows: Vec<Row>,
}

impl Report {
    /// The legs for which exact routing would not work, or is not known to.
    pub fn in_the_way(&self) -> impl Iterator<Item = Leg> + '_ {
        self.rows.iter().filter(|row| row.is_in_the_way()).map(|row| row.leg)
    }

    /// The row of a leg.
    pub fn row(&self, leg: Leg) -> Option<&Row> {
        self.rows.iter().find(|row| row.leg == leg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_in_the_way_only_where_token_ids_need_it() {
        assert!(!Row::equal(Leg::Root, "").is_in_the_way());
        assert!(Row::not_run(Leg::Root, "").is_in_the_way());
        assert!(!Row::not_run(Leg::Tokenizer, "").is_in_the_way());
        assert!(Row::not_equal(Leg::Tokenizer, "").is_in_the_way());
        assert!(Row::not_equal(Leg::Alike, "").is_in_the_way());
    }
}
