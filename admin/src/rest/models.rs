//! Handler of the models whose text can be tokenized. Owns the JSON of it, and which of them are worth a warning.

use crate::answer::Answer;
use crate::gateway::Gateway;
use crate::routes::{Answered, Call, Route};
use serde_json::{Value, json};
use warmpath_core::control::{DataPlane, ModelReport, ModelState, RefusedProfile};

/// Rows of models.
pub const ROUTES: &[Route] =
    &[Route::own("/netlox/v1/config/ai/models", list, "models whose text can be tokenized")];

/// Every model that a rule names or a request asked for, and the profiles that are not taken.
pub fn list(gateway: &Gateway, _: &Call) -> Answered {
    let plane = &gateway.outside.data_plane;
    let models: Vec<Value> = plane.models().iter().map(model).collect();
    let refused: Vec<Value> = plane.registry().refused.iter().map(refusal).collect();
    Ok(Answer::json(200, &json!({"models": models, "refused_profiles": refused})))
}

fn refusal(refused: &RefusedProfile) -> Value {
    json!({"file": refused.file, "error": refused.fault})
}

fn model(report: &ModelReport) -> Value {
    json!({
        "folder": report.folder,
        "engine": report.engine.name(),
        "state": report.state.word(),
        "error": report.fault,
        "bytes": report.bytes,
        "profile": report.profile,
        "safe_tokens": report.safe_tokens,
        "no_safe_token": report.no_safe,
        "fast_refused": report.fast_refused,
        "renders_whole": report.renders_whole,
        "tokenizer_divergence": report.diverged,
    })
}

/// Sentences on what needs a look: models that are missing, failed, or with tokenizers that differ, and profiles
/// that are not taken.
pub fn warnings(plane: &dyn DataPlane) -> Vec<String> {
    let models = plane.models().iter().filter_map(warning).collect();
    let of =
        |refused: &RefusedProfile| format!("kvprofiles/{} is not taken: {}", refused.file, refused.fault);
    [models, plane.registry().refused.iter().map(of).collect::<Vec<String>>()].concat()
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
    use std::sync::Arc;
    use warmpath_core::control::{DrainPhase, InstallFault, ShardReport};
    use warmpath_core::profile::registry::Registry;
    use warmpath_core::table::Table;

    struct Told(Vec<ModelReport>, Vec<RefusedProfile>);

    impl DataPlane for Told {
        fn install(&self, _: Arc<Table>) -> Result<(), InstallFault> {
            Ok(())
        }

        fn reports(&self) -> Vec<ShardReport> {
            Vec::new()
        }

        fn drain(&self, _: DrainPhase) {}

        fn models(&self) -> Vec<ModelReport> {
            self.0.clone()
        }

        fn registry(&self) -> Arc<Registry> {
            Arc::new(Registry { refused: self.1.clone(), ..Registry::default() })
        }
    }

    #[test]
    fn what_needs_a_look_is_told_with_its_folder() {
        let of = |state, fault: Option<&str>, diverged| ModelReport {
            folder: "org__m".into(),
            state,
            fault: fault.map(str::to_string),
            diverged,
            ..ModelReport::absent()
        };
        let quiet = vec![of(ModelState::Loaded, None, false), of(ModelState::Loading, None, false)];
        assert_eq!(warnings(&Told(quiet, Vec::new())), [""; 0]);
        for (report, expected) in [
            (of(ModelState::Absent, None, false), "no tokenizers/org__m below --config-root"),
            (of(ModelState::Failed, Some("it is torn"), false), "tokenizers/org__m: it is torn; text"),
            (of(ModelState::Loaded, Some("it is torn"), false), "the files read before"),
            (of(ModelState::Loaded, None, true), "tokenizer_divergence"),
        ] {
            assert!(warnings(&Told(vec![report], Vec::new()))[0].contains(expected), "{expected}");
        }
        let refused = RefusedProfile { file: "m.yaml".into(), fault: "clock: unknown".into() };
        let told = warnings(&Told(Vec::new(), vec![refused]));
        assert_eq!(told, ["kvprofiles/m.yaml is not taken: clock: unknown"]);
    }
}
