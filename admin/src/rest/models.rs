//! Handler of the models whose text can be tokenized. Owns the JSON of it, and which of them are worth a warning.

use crate::answer::Answer;
use crate::gateway::Gateway;
use crate::routes::{Answered, Call};
use serde_json::{Value, json};
use warmpath_core::control::{ModelReport, ModelState};

/// Every model that a rule names or a request asked for.
pub fn list(gateway: &Gateway, _: &Call) -> Answered {
    let shown: Vec<Value> = gateway.outside.data_plane.models().iter().map(model).collect();
    Ok(Answer::json(200, &json!({"models": shown})))
}

fn model(report: &ModelReport) -> Value {
    json!({
        "folder": report.folder,
        "engine": report.engine.name(),
        "state": report.state.word(),
        "error": report.fault,
        "bytes": report.bytes,
        "safe_tokens": report.safe_tokens,
        "no_safe_token": report.no_safe,
        "fast_refused": report.fast_refused,
        "tokenizer_divergence": report.diverged,
    })
}

/// Sentences on those that need a look: missing, failed, or with tokenizers that differ.
pub fn warnings(reports: &[ModelReport]) -> Vec<String> {
    reports.iter().filter_map(warning).collect()
}

fn warning(report: &ModelReport) -> Option<String> {
    let folder = &report.folder;
    let not = "text of this model is not routed by blocks";
    match (report.state, &report.fault) {
        (ModelState::Absent, _) => {
            Some(format!("there is no tokenizers/{folder} below --config-root; {not} until it is there"))
        }
        (ModelState::Failed, Some(fault)) => Some(format!("tokenizers/{folder}: {fault}; {not}")),
        (ModelState::Loaded, Some(fault)) => {
            Some(format!("tokenizers/{folder}: {fault}; the files read before go on being used"))
        }
        _ if report.diverged => Some(format!(
            "tokenizers/{folder}: tokenizer_divergence: the fast tokenizer differed from the reference on a \
             request and is not used again before a restart"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_a_look_is_told_with_its_folder() {
        let of = |state, fault: Option<&str>, diverged| ModelReport {
            folder: "org__m".into(),
            state,
            fault: fault.map(str::to_string),
            diverged,
            ..ModelReport::absent()
        };
        let quiet = [of(ModelState::Loaded, None, false), of(ModelState::Loading, None, false)];
        assert_eq!(warnings(&quiet), [""; 0]);
        for (report, expected) in [
            (of(ModelState::Absent, None, false), "no tokenizers/org__m below --config-root"),
            (of(ModelState::Failed, Some("it is torn"), false), "tokenizers/org__m: it is torn; text"),
            (of(ModelState::Loaded, Some("it is torn"), false), "the files read before"),
            (of(ModelState::Loaded, None, true), "tokenizer_divergence"),
        ] {
            assert!(warnings(&[report])[0].contains(expected), "{expected}");
        }
    }
}
