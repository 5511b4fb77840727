//! The group-forward probe: whether a request that goes through a group comes back as the request it was. Owns what an
//! answer proves and what follows for the member; must never withdraw by a probe: only a failed health check does.

use super::{Build, Compat, Release};
use crate::engine::GroupAsk;
use serde_json::Value;

/// What came of one probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupProbe {
    /// The answer is bound to the request.
    Verified,
    /// It is not, or it can't be told: grants nothing, withdraws nothing.
    Unknown,
}

impl GroupProbe {
    /// Reads the answer of an engine to a request that carried `id`.
    pub fn read(ask: &GroupAsk, id: &str, answer: &Value) -> GroupProbe {
        match (ask.bound_to)(answer) {
            Some(told) if told == id && !id.is_empty() => GroupProbe::Verified,
            _ => GroupProbe::Unknown,
        }
    }
}

impl Compat {
    /// Whether the binding was read of this very version. It is no condition: on others the answer decides all the same.
    pub fn is_probe_read(&self, engine: Build, version: &Release) -> bool {
        let own = self.group_probes.iter().filter(|row| row.engine == engine);
        own.flat_map(|row| &row.versions).any(|read| read == version)
    }
}

/// A member of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Member {
    admitted: bool,
}

impl Member {
    /// Whether requests may be forwarded to it.
    pub fn is_admitted(self) -> bool {
        self.admitted
    }

    /// After a probe.
    pub fn probed(self, probe: GroupProbe) -> Member {
        Member { admitted: self.admitted || probe == GroupProbe::Verified }
    }

    /// After a health check.
    pub fn checked(self, is_healthy: bool) -> Member {
        Member { admitted: self.admitted && is_healthy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use serde_json::json;

    #[test]
    fn an_answer_is_bound_to_its_request_or_proves_nothing() {
        let [vllm, sglang] = [Engine::Vllm, Engine::Sglang].map(|engine| engine.group_ask().unwrap());
        let read = |ask, answer: Value| GroupProbe::read(ask, "r7", &answer);
        assert_eq!((sglang.body)("m", "r7")["rid"], "r7");
        assert_eq!(read(vllm, json!({"id": "cmpl-r7"})), GroupProbe::Verified);
        assert_eq!(read(sglang, json!({"meta_info": {"id": "r7"}})), GroupProbe::Verified);
        for answer in
            [json!({}), json!({"id": "r7"}), json!({"id": "cmpl-r77"}), json!({"id": 7}), json!(null)]
        {
            assert_eq!(read(vllm, answer), GroupProbe::Unknown);
        }
        assert_eq!(read(sglang, json!({"id": "r7"})), GroupProbe::Unknown);
        assert_eq!(GroupProbe::read(vllm, "", &json!({"id": "cmpl-"})), GroupProbe::Unknown);
    }

    #[test]
    fn only_a_failed_health_check_withdraws() {
        let new = Member::default();
        assert!(!new.probed(GroupProbe::Unknown).is_admitted() && !new.checked(true).is_admitted());
        let admitted = new.probed(GroupProbe::Verified);
        assert!(admitted.probed(GroupProbe::Unknown).checked(true).is_admitted());
        assert!(!admitted.checked(false).is_admitted());
        assert!(!admitted.checked(false).probed(GroupProbe::Unknown).is_admitted());
        assert!(admitted.checked(false).probed(GroupProbe::Verified).is_admitted());
    }
}
