//! `ctl kv status`: rules with exact routing, what is proven of each and what is not. Owns the table; must never show a
//! rule that the gateway does not.

use super::super::show::{aligned, items, word, words};
use super::super::{CtlFault, Printer};
use serde_json::{Value, json};

/// Prints all, or those that a name, an id or a model means.
pub fn run(answer: &Value, rule: Option<&str>, printer: &mut Printer) -> Result<(), CtlFault> {
    let means = |row: &&Value| {
        rule.is_none_or(|rule| ["ruleName", "ruleIdentity", "modelName"].iter().any(|name| row[name] == rule))
    };
    let rows: Vec<&Value> = items(answer, "kvExactStatusAttr").iter().filter(means).collect();
    if let (Some(rule), true) = (rule, rows.is_empty()) {
        return Err(CtlFault(format!(
            "no rule {rule:?} has exact routing; `warmpath ctl kv status` shows those that have"
        )));
    }
    printer.answer(&json!({"kvExactStatusAttr": rows}), table)
}

fn table(answer: &Value) -> String {
    let mut rows = vec![words([
        "RULE",
        "MODEL",
        "PROFILE",
        "STATE",
        "ENDPOINT",
        "RANK",
        "EXACT",
        "TOKENS BY",
        "REASON",
    ])];
    let mut cures = String::new();
    for rule in items(answer, "kvExactStatusAttr") {
        let head = || {
            [&rule["ruleName"], &rule["modelName"], &rule["modelProfileId"], &rule["enforcedState"]].map(word)
        };
        let mut is_shown = false;
        for endpoint in items(rule, "endpoints") {
            for rank in items(endpoint, "ranks") {
                let exact = if rank["exact"] == true { "yes" } else { "no" };
                let rest = [
                    word(&endpoint["endpoint"]),
                    word(&rank["rank"]),
                    exact.into(),
                    word(&endpoint["tokenParity"]),
                    word(&rank["reason"]),
                ];
                rows.push(head().into_iter().chain(rest).collect());
                is_shown = true;
            }
        }
        if !is_shown {
            let reasons: Vec<String> = items(rule, "reasonCodes").iter().map(word).collect();
            let rest = ["-", "-", "-", "-"].map(String::from).into_iter().chain([reasons.join(",")]);
            rows.push(head().into_iter().chain(rest).collect());
        }
        for (reason, cure) in items(rule, "reasonCodes").iter().zip(items(rule, "cures")) {
            cures += &format!("{}: {}: {}\n", word(&rule["ruleName"]), word(reason), word(cure));
        }
    }
    aligned(&rows) + &cures
}
