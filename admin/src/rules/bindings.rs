//! Which profile each rule is bound to, and by which number. Owns the numbers, which never go back: not by a replacement,
//! a restart, a restored snapshot or a rule that is deleted and made again. Must never say that a binding is proven.

use super::{Entry, Origin, RuleSet};
use crate::refusal::Refusal;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use warmpath_core::profile::admission::{AdmissionFault, Admitted, admit};
use warmpath_core::profile::binding::{Binding, Bound};
use warmpath_core::profile::registry::Registry;
use warmpath_core::rule::Rule;

/// Numbers of bindings, as they outlive a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings {
    /// The highest number that was ever given.
    high: u32,
    /// By rule, by its id.
    rules: BTreeMap<String, Numbered>,
}

/// What is kept of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Numbered {
    /// It was bound last by this digest.
    Bound { generation: u32, digest: String },
    /// It waits for a profile.
    RequiresMigration,
}

impl Bindings {
    /// Binds `rule` to the profile it names, if it names one. Where that can't be, a rule that is asked for is refused,
    /// and one that was accepted before is fenced.
    pub(super) fn bind(
        &mut self,
        rule: &mut Rule,
        registry: &Registry,
        origin: Origin,
    ) -> Result<(), AdmissionFault> {
        let admitted = match admit(rule, registry) {
            Ok(admitted) => admitted,
            Err(fault) if origin == Origin::Asked => return Err(fault),
            Err(fault) => {
                set(rule, Binding::Unresolved(fault.to_string()));
                return Ok(());
            }
        };
        let binding = match admitted {
            Some(admitted) => Binding::Bound(Arc::new(self.number(rule, &admitted))),
            None if rule.exact.is_none() => {
                self.rules.remove(&rule.id);
                return Ok(());
            }
            None => self.without(rule, origin),
        };
        set(rule, binding);
        Ok(())
    }

    /// The binding of `rule`, by the number it has, or by a new one where it is bound otherwise than it was.
    fn number(&mut self, rule: &Rule, admitted: &Admitted) -> Bound {
        let generation = match self.rules.get(&rule.id) {
            Some(Numbered::Bound { generation, digest }) if *digest == admitted.digest => *generation,
            _ => {
                self.high = self.high.saturating_add(1);
                self.high
            }
        };
        let digest = admitted.digest.clone();
        self.rules.insert(rule.id.clone(), Numbered::Bound { generation, digest: digest.clone() });
        let profile = &admitted.published.profile;
        let declared = rule.exact.as_ref().map(|exact| exact.profile.declared).unwrap_or_default();
        Bound {
            generation,
            digest,
            profile: profile.id.clone(),
            profile_generation: admitted.published.generation,
            surfaces: declared.surfaces(Some(profile)),
        }
    }

    /// What a rule is without a profile. One of a restored snapshot waits for one, and goes on waiting.
    fn without(&mut self, rule: &Rule, origin: Origin) -> Binding {
        let waits = self.rules.get(&rule.id) == Some(&Numbered::RequiresMigration);
        if origin == Origin::Restored || waits {
            self.rules.insert(rule.id.clone(), Numbered::RequiresMigration);
            return Binding::RequiresMigration;
        }
        Binding::Legacy
    }

    /// Forgets a rule: one of the same id is another one.
    pub(super) fn forget(&mut self, id: &str) {
        self.rules.remove(id);
    }

    /// Those of the rules there are.
    fn of(&self, entries: &[Arc<Entry>]) -> Bindings {
        let there = |id: &String| entries.iter().any(|entry| entry.rule.id == *id);
        let rules = self.rules.iter().filter(|(id, _)| there(id));
        Bindings { high: self.high, rules: rules.map(|(id, own)| (id.clone(), own.clone())).collect() }
    }

    /// As in a snapshot.
    pub fn to_json(&self) -> Value {
        let one = |own: &Numbered| match own {
            Numbered::Bound { generation, digest } => json!({"generation": generation, "digest": digest}),
            Numbered::RequiresMigration => json!({"requiresMigration": true}),
        };
        let rules: Map<String, Value> = self.rules.iter().map(|(id, own)| (id.clone(), one(own))).collect();
        json!({"high": self.high, "rules": rules})
    }

    /// From a snapshot; the error says what is wrong with it. A snapshot of an earlier version has none.
    pub fn from_json(value: &Value) -> Result<Bindings, String> {
        if value.is_null() {
            return Ok(Bindings::default());
        }
        let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        let high = number(&value["high"]).ok_or("bindings.high is no number of 32 bits")?;
        let one = |(id, own): (&String, &Value)| {
            let numbered = match (number(&own["generation"]), own["digest"].as_str()) {
                (Some(generation), Some(digest)) if (1..=high).contains(&generation) => {
                    Numbered::Bound { generation, digest: digest.into() }
                }
                _ if own["requiresMigration"] == true => Numbered::RequiresMigration,
                _ => return Err(format!("bindings.rules.{id} has no generation up to {high} and digest")),
            };
            Ok((id.clone(), numbered))
        };
        let rules = value["rules"].as_object().into_iter().flatten().map(one).collect::<Result<_, _>>()?;
        Ok(Bindings { high, rules })
    }
}

impl RuleSet {
    /// No rules yet, whose numbers are known.
    pub fn numbered(bindings: Bindings) -> RuleSet {
        RuleSet { bindings, ..RuleSet::default() }
    }

    /// No rules yet, whose numbers go on from those there are, and from those of another gateway or of an older state of
    /// this one: none of them is given again.
    pub fn renumbered(&self, other: &Bindings) -> RuleSet {
        let own = self.bindings();
        RuleSet::numbered(Bindings { high: own.high.max(other.high), ..own })
    }

    /// No rules any more; what is made now gets new numbers.
    pub fn emptied(&self) -> RuleSet {
        RuleSet::numbered(Bindings { high: self.bindings.high, rules: BTreeMap::new() })
    }

    /// The numbers of the rules there are.
    pub fn bindings(&self) -> Bindings {
        self.bindings.of(&self.entries)
    }

    /// Binds all rules anew, for the registry may have changed; whether that changed a rule.
    pub fn rebind(&mut self, registry: &Registry) -> bool {
        let mut changed = false;
        for at in 0..self.entries.len() {
            let mut rule = self.entries[at].rule.clone();
            // What can't be bound is fenced; nothing of a rule that was accepted is refused.
            let bound = self.bindings.bind(&mut rule, registry, Origin::Kept);
            if bound.is_ok() && rule != self.entries[at].rule {
                changed = true;
                self.entries[at] = Arc::new(Entry { rule, ..Entry::clone(&self.entries[at]) });
            }
        }
        changed
    }
}

impl From<AdmissionFault> for Refusal {
    fn from(fault: AdmissionFault) -> Refusal {
        Refusal::Profile { index: None, fault: Box::new(fault) }
    }
}

/// Why a rule of this binding can't be proven, whatever its engines answer.
pub(super) fn fault(binding: &Binding) -> Option<String> {
    match binding {
        Binding::Unresolved(why) => Some(why.clone()),
        Binding::RequiresMigration => {
            Some("it was restored without a profile; replace it by itself with kvModelProfile".into())
        }
        Binding::Legacy | Binding::Bound(_) => None,
    }
}

fn set(rule: &mut Rule, binding: Binding) {
    if let Some(exact) = &mut rule.exact {
        exact.profile.binding = binding;
    }
}
