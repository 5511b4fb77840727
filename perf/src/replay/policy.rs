//! How a rule would choose: its selector, or exact routing and how that weighs. Owns the words for it on the command
//! line; must never weigh anything.

use crate::Error;
use std::fmt;
use warmpath_core::decide::tuning::{LbMode, Tuning};

/// One way to choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// `kvExactMode` 3, with `LOXILB_KV_LB_MODE` and the number that belongs to it.
    Exact(Tuning),
    /// `sel` 8, with `chwbl_mean_load_factor`.
    Chwbl(u32),
    /// `sel` 0.
    RoundRobin,
    /// `sel` 4.
    LeastConnections,
}

/// Every form, for errors and help.
const FORMS: &str = "exact[:MODE[:N]] (MODE off, hard, soft, adaptive or adaptive-soft; N the load factor in percent, \
                     100 to 1000, or for soft the load penalty, 1 to 100000), chwbl[:N] (100 to 300), \
                     round_robin, least_connections";

impl Policy {
    /// The policy that a word of the command line names.
    pub fn parse(word: &str) -> Result<Policy, Error> {
        let unknown = || Error::new(format!("policy {word:?} is not known; give {FORMS}"));
        let parts: Vec<&str> = word.split(':').collect();
        match parts[..] {
            ["exact"] => Ok(Policy::Exact(Tuning::default())),
            ["exact", mode] => {
                Ok(Policy::Exact(Tuning { mode: mode_of(mode, unknown)?, ..Tuning::default() }))
            }
            ["exact", mode, number] => {
                Ok(Policy::Exact(tuned(mode_of(mode, unknown)?, number).ok_or_else(unknown)?))
            }
            ["chwbl"] => Ok(Policy::Chwbl(125)),
            ["chwbl", number] => Ok(Policy::Chwbl(within(number, 100, 300).ok_or_else(unknown)?)),
            ["round_robin"] => Ok(Policy::RoundRobin),
            ["least_connections"] => Ok(Policy::LeastConnections),
            _ => Err(unknown()),
        }
    }

    /// `sel` of the rule: where blocks decide, that of what they leave undecided.
    pub fn selector(&self) -> u32 {
        match self {
            Policy::Exact(_) | Policy::LeastConnections => 4,
            Policy::Chwbl(_) => 8,
            Policy::RoundRobin => 0,
        }
    }

    /// The knobs of exact routing, if blocks decide.
    pub fn tuning(&self) -> Option<&Tuning> {
        match self {
            Policy::Exact(tuning) => Some(tuning),
            _ => None,
        }
    }
}

fn mode_of(word: &str, unknown: impl Fn() -> Error) -> Result<LbMode, Error> {
    LbMode::ALL.into_iter().find(|mode| mode.word() == word).ok_or_else(unknown)
}

fn tuned(mode: LbMode, number: &str) -> Option<Tuning> {
    let default = Tuning { mode, ..Tuning::default() };
    match mode {
        LbMode::Soft | LbMode::AdaptiveSoft => {
            Some(Tuning { load_penalty: within(number, 1, 100_000)?, ..default })
        }
        LbMode::Off => None,
        LbMode::Hard | LbMode::Adaptive => {
            Some(Tuning { mean_load_factor: within(number, 100, 1000)?, ..default })
        }
    }
}

fn within(number: &str, least: u32, most: u32) -> Option<u32> {
    number.parse().ok().filter(|n| (least..=most).contains(n))
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Exact(Tuning { mode: LbMode::Off, .. }) => write!(f, "exact:off"),
            Policy::Exact(t) if matches!(t.mode, LbMode::Soft | LbMode::AdaptiveSoft) => {
                write!(f, "exact:{}:{}", t.mode.word(), t.load_penalty)
            }
            Policy::Exact(t) => write!(f, "exact:{}:{}", t.mode.word(), t.mean_load_factor),
            Policy::Chwbl(factor) => write!(f, "chwbl:{factor}"),
            Policy::RoundRobin => write!(f, "round_robin"),
            Policy::LeastConnections => write!(f, "least_connections"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_reads_back_as_it_is_written() {
        for word in
            ["exact:hard:150", "exact:soft:32", "exact:off", "chwbl:125", "round_robin", "least_connections"]
        {
            assert_eq!(Policy::parse(word).unwrap().to_string(), word);
        }
        assert_eq!(Policy::parse("exact").unwrap().to_string(), "exact:hard:175");
    }

    #[test]
    fn what_no_policy_is_is_refused_with_the_forms() {
        for word in
            ["", "exakt", "exact:hard:99", "exact:off:3", "chwbl:301", "exact:hard:1:2", "round_robin:1"]
        {
            assert!(Policy::parse(word).unwrap_err().to_string().contains("exact[:MODE[:N]]"), "{word}");
        }
    }
}
