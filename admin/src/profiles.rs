//! The registry of model profiles, as the admin thread follows it: what is published anew is bound anew. Owns when that
//! happens and what is said of it; must never read a file, which the loader does beside the shards.

use crate::change::{Wanted, change};
use crate::gateway::Outside;
use crate::serve::Shared;
use std::sync::Arc;
use std::time::Duration;
use warmpath_core::profile::registry::Registry;

/// How often the registry is looked at; the loader looks at its files every 2 s.
const LOOK: Duration = Duration::from_millis(500);

/// Follows the registry for as long as the admin thread lives.
pub async fn watch(gateway: Shared) {
    let mut before = gateway.borrow().outside.data_plane.registry();
    tell(&gateway.borrow().outside, &Registry::default(), &before);
    loop {
        tokio::time::sleep(LOOK).await;
        let now = gateway.borrow().outside.data_plane.registry();
        if Arc::ptr_eq(&now, &before) {
            continue;
        }
        tell(&gateway.borrow().outside, &before, &now);
        // Not bound: it is tried again the next time.
        if rebind(&gateway, &now).await {
            before = now;
        }
    }
}

/// Binds the rules to what is published now; false if that can't be kept, which the operator was told.
pub(crate) async fn rebind(gateway: &Shared, registry: &Registry) -> bool {
    let done = change(gateway, |gateway| {
        let mut rules = gateway.rules.clone();
        let changed = rules.rebind(registry);
        let mut wanted = Wanted::rules(rules);
        wanted.rules = wanted.rules.filter(|_| changed);
        Ok(wanted)
    });
    if done.await.is_err() {
        return false;
    }
    let gateway = gateway.borrow();
    gateway.rules.warnings().for_each(|warning| (gateway.outside.say)(&warning));
    true
}

/// Says what changed.
fn tell(outside: &Outside, before: &Registry, now: &Registry) {
    for refused in now.refused.iter().filter(|own| !before.refused.contains(own)) {
        (outside.say)(&format!(
            "[KV_PROFILE] kvprofiles/{} is not published: {}",
            refused.file, refused.fault
        ));
    }
    let count = now.profiles.len();
    if now.generation != before.generation {
        (outside.say)(&format!(
            "[KV_PROFILE] generation {} of the registry: {count} profile(s), set digest {}",
            now.generation, now.set_digest
        ));
    }
}
