//! What a rule makes of a profile. Owns the words of `kvExactApiMode`, the states of a binding and what its digest is
//! over; must never decide whether a bound rule may serve: that is proven against the live engines.

use super::{Api, Profile, sha256};
use crate::rule::KvExact;
use std::sync::Arc;

/// The version of what a binding's digest is over: another one makes all digests differ.
const DIGEST_FORM: &str = "warmpath-binding-1";

/// `kvExactApiMode`, as declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApiMode {
    /// Left out: what the profile supports, without a profile both.
    #[default]
    Open,
    /// `completions`.
    Completions,
    /// `chat`.
    Chat,
    /// `both`.
    Both,
}

/// The APIs that a rule routes by blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Surfaces {
    /// `/v1/chat/completions`.
    pub chat: bool,
    /// `/v1/completions`.
    pub completions: bool,
}

/// What a rule says of its profile, and what became of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileTerms {
    /// `kvExactApiMode`.
    pub declared: ApiMode,
    /// `kvModelProfile`; empty where the rule names none.
    pub id: String,
    /// What became of it.
    pub binding: Binding,
}

/// What became of the profile that a rule names.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Binding {
    /// The rule names none: it is served by what can be computed, and attests nothing.
    #[default]
    Legacy,
    /// It came without a profile from a restored snapshot: fenced until one is attached.
    RequiresMigration,
    /// The named profile can't be bound now, for this reason: fenced until it can.
    Unresolved(String),
    /// Bound: fenced until proven.
    Bound(Arc<Bound>),
}

/// A binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// `bindingGen`: from 1; another one, always higher, for each digest that a rule is bound by.
    pub generation: u32,
    /// `bindingDigest`: SHA-256 over the terms of the rule and the profile, hexadecimal.
    pub digest: String,
    /// `profileId`.
    pub profile: String,
    /// The registry's generation since which the profile is as it is.
    pub profile_generation: u32,
    /// The APIs that are routed by blocks.
    pub surfaces: Surfaces,
}

impl ApiMode {
    /// By the word of a rule's `kvExactApiMode`; any other is as if left out.
    pub fn from_word(word: &str) -> ApiMode {
        match word {
            "completions" => ApiMode::Completions,
            "chat" => ApiMode::Chat,
            "both" => ApiMode::Both,
            _ => ApiMode::Open,
        }
    }

    /// As in a rule's `kvExactApiMode`.
    pub const fn word(self) -> &'static str {
        match self {
            ApiMode::Open => "",
            ApiMode::Completions => "completions",
            ApiMode::Chat => "chat",
            ApiMode::Both => "both",
        }
    }

    /// The APIs of a rule with this profile, if it has one.
    pub fn surfaces(self, profile: Option<&Profile>) -> Surfaces {
        let supports = |api| profile.is_none_or(|profile| profile.supports(api));
        match self {
            ApiMode::Open => Surfaces { chat: supports(Api::Chat), completions: supports(Api::Completions) },
            ApiMode::Completions => Surfaces { chat: false, completions: true },
            ApiMode::Chat => Surfaces { chat: true, completions: false },
            ApiMode::Both => Surfaces { chat: true, completions: true },
        }
    }
}

impl Surfaces {
    /// Whether this API is routed by blocks.
    pub const fn has(self, api: Api) -> bool {
        match api {
            Api::Chat => self.chat,
            Api::Completions => self.completions,
        }
    }

    /// As `apiMode` of `kvexactstatus`.
    pub const fn word(self) -> &'static str {
        match (self.chat, self.completions) {
            (true, true) => "both",
            (true, false) => "chat",
            _ => "completions",
        }
    }
}

impl ProfileTerms {
    /// The APIs that are routed by blocks.
    pub fn surfaces(&self) -> Surfaces {
        match &self.binding {
            Binding::Bound(bound) => bound.surfaces,
            _ => self.declared.surfaces(None),
        }
    }
}

/// `bindingDigest`: over what keys and tokens depend on, of the rule and of the profile. Endpoints are not among it.
pub fn digest(exact: &KvExact, model: &str, profile: &Profile, profile_digest: &str) -> String {
    let contract = &exact.contract;
    let version = exact.version.map(|version| version.to_string()).unwrap_or_default();
    let surfaces = exact.profile.declared.surfaces(Some(profile)).word();
    let lines = [
        DIGEST_FORM,
        model,
        &profile.id,
        profile_digest,
        contract.engine().name(),
        &version,
        contract.algo().name(),
        &contract.block_size().tokens().to_string(),
        &exact.ranks.to_string(),
        surfaces,
        "evidence=validated",
    ];
    sha256(lines.join("\n").as_bytes())
}
