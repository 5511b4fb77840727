//! What is known of a bound rule's profile beside its engines: published or not, its manifest, its fixtures, and whether
//! the gateway itself makes the fixtures' tokens. Owns the order of these; must never ask an engine.

use serde_json::{Value, json};
use std::sync::Arc;
use warmpath_core::attest::{Deployed, Reason, Standing, Terms};
use warmpath_core::control::{DataPlane, ModelReport, ModelState};
use warmpath_core::profile::Api;
use warmpath_core::profile::binding::Bound;
use warmpath_core::profile::fixture::{Fixture, FixtureFault};
use warmpath_core::profile::registry::Published;
use warmpath_core::rule::KvExact;
use warmpath_core::table::Service;

/// The fixtures of a rule's profile for its engine, of the APIs that are routed by blocks.
pub fn fixtures(service: &Service, bound: &Bound, plane: &dyn DataPlane) -> Arc<[Fixture]> {
    let registry = plane.registry();
    let published = registry.profile(&bound.profile);
    let own = published.and_then(|own| own.fixtures.of(service.rule.engine).ok()).unwrap_or_default();
    own.iter().filter(|fixture| bound.surfaces.has(fixture.api)).cloned().collect()
}

/// What has to be proven of each endpoint; `None`: the rule has no exact routing.
pub fn terms(service: &Service, bound: &Bound, plane: &dyn DataPlane, fixtures: &[Fixture]) -> Option<Terms> {
    let exact: &KvExact = service.rule.exact.as_ref()?;
    let (contract, engine) = (&exact.contract, exact.contract.engine());
    let tells_hash = engine.questions().is_some_and(|questions| questions.tells_hash);
    let registry = plane.registry();
    let staged = registry.profile(&bound.profile).and_then(|own| own.manifest.as_ref()?.as_ref().ok());
    Some(Terms {
        engine,
        model: service.rule.key.model.clone(),
        block_size: contract.block_size().tokens() as u32,
        algorithm: (tells_hash && !contract.is_by_tokens()).then(|| contract.algo().name().to_owned()),
        ranks: exact.ranks,
        event_port: (engine.has_event_port() && !exact.ports.bind).then_some(exact.ports.publish),
        deployed: staged.map(|staged| Deployed::of(&staged.manifest, engine)),
        fixtures: fixtures.iter().map(|fixture| fixture.expected.clone()).collect(),
        chats: bound.surfaces.chat,
    })
}

/// What is wrong beside the engines, and which manifest there is.
pub fn standing(
    service: &Service,
    bound: &Bound,
    plane: &dyn DataPlane,
    (fixtures, checked): (&Arc<[Fixture]>, &mut Option<Checked>),
    is_installed: bool,
) -> Standing {
    let registry = plane.registry();
    let published = registry.profile(&bound.profile);
    let manifest = published.and_then(|own| Some(own.manifest.as_ref()?.as_ref().ok()?.identity.clone()));
    let fault = match published {
        None if registry.profiles.is_empty() => Some(Reason::ProfileRegistryUnavailable),
        None => Some(Reason::ProfileResolutionFault),
        Some(own) => {
            unprobed(own, service, fixtures).or_else(|| checked_tokens(service, plane, fixtures, checked))
        }
    };
    Standing { faults: fault.into_iter().collect(), manifest, is_installed }
}

fn unprobed(published: &Published, service: &Service, fixtures: &[Fixture]) -> Option<Reason> {
    match published.fixtures.of(service.rule.engine) {
        Err(FixtureFault::Drift { .. }) => Some(Reason::ProbeFixtureDrift),
        Ok(_) if !fixtures.is_empty() => None,
        _ => Some(Reason::ProbeFixturesMissing),
    }
}

/// Which fixtures were made into tokens here, by which model, and what came of it.
#[derive(Debug)]
pub struct Checked {
    fixtures: Arc<[Fixture]>,
    model: Option<ModelReport>,
    fault: Option<Reason>,
}

/// Looks again only where fixtures or the model are others.
fn checked_tokens(
    service: &Service,
    plane: &dyn DataPlane,
    fixtures: &Arc<[Fixture]>,
    checked: &mut Option<Checked>,
) -> Option<Reason> {
    let model = report(service, plane);
    if let Some(known) = checked.as_ref().filter(|own| own.fixtures == *fixtures && own.model == model) {
        return known.fault;
    }
    let is_loading =
        model.as_ref().is_none_or(|own| matches!(own.state, ModelState::Loading | ModelState::Absent));
    let fault = own_tokens(service, plane, fixtures, is_loading);
    *checked = Some(Checked { fixtures: fixtures.clone(), model, fault });
    fault
}

/// What is known of the rule's model.
fn report(service: &Service, plane: &dyn DataPlane) -> Option<ModelReport> {
    let folder = warmpath_core::profile::slug(&service.rule.key.model);
    plane.models().into_iter().find(|own| own.folder == folder && own.engine == service.rule.engine)
}

/// The gateway's own tokens of the fixtures have to be those expected: by them prompts are routed.
fn own_tokens(
    service: &Service,
    plane: &dyn DataPlane,
    fixtures: &[Fixture],
    is_loading: bool,
) -> Option<Reason> {
    let (model, engine) = (&service.rule.key.model, service.rule.engine);
    let own = |fixture: &Fixture| plane.tokens(model, engine, fixture.api, &request(fixture));
    for fixture in fixtures {
        match own(fixture) {
            Some(tokens) if tokens == fixture.expected => {}
            None if is_loading => return Some(Reason::AttestationPending),
            _ => return Some(Reason::TokenMismatch),
        }
    }
    None
}

/// The request that a fixture's stands for: those to a tokenize endpoint have members of their own.
fn request(fixture: &Fixture) -> Vec<u8> {
    let asked: Value = serde_json::from_slice(&fixture.request).unwrap_or_default();
    let body = match fixture.api {
        Api::Chat => json!({"model": asked["model"], "messages": asked["messages"]}),
        Api::Completions => json!({"model": asked["model"], "prompt": asked["prompt"]}),
    };
    body.to_string().into_bytes()
}
