//! Registries for tests, published without a file.

use crate::fake::FakePlane;
use serde_json::{Value, json};
use std::sync::Arc;
use warmpath_core::profile::registry::{Document, Fixtures, Published, Registry};
use warmpath_core::profile::{Profile, sha256};

/// A profile of `model` for chats and completions, with these members in the place of its own.
pub fn profile(id: &str, model: &str, members: &Value) -> Value {
    let pin = "0123456789abcdef".repeat(4);
    let mut own = json!({
        "profileId": id, "baseModel": model, "tokenizerArtifact": "t.json", "tokenizerSha256": pin,
        "templateArtifact": "t.jinja", "templateSha256": pin, "rendererEngine": "warmpath",
        "supportedApis": ["chat", "completions"],
    });
    for (name, value) in members.as_object().into_iter().flatten() {
        own[name] = value.clone();
    }
    own.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    own
}

impl FakePlane {
    /// Publishes these and no others.
    pub fn publish(&self, profiles: &[Value]) {
        let before = self.registry.lock().unwrap().clone();
        let documents: Vec<Document> = profiles.iter().map(document).collect();
        *self.registry.lock().unwrap() = Arc::new(Registry::next(&before, &documents));
    }
}

fn document(yaml: &Value) -> Document {
    let id = yaml["profileId"].as_str().unwrap();
    let read = serde_json::from_value::<Profile>(yaml.clone()).map_err(|e| e.to_string());
    let read = read.and_then(|profile| profile.check().map(|()| profile).map_err(|e| e.to_string()));
    let published = |profile: Profile| Published {
        file: format!("{id}.yaml"),
        generation: 0,
        digest: sha256(yaml.to_string().as_bytes()),
        has_tokenizer: profile.tokenizer().is_some(),
        manifest: None,
        fixtures: Fixtures::default(),
        profile,
    };
    Document {
        file: format!("{id}.yaml"),
        read: read.map(published).map(Arc::new),
        claims: vec![yaml["baseModel"].as_str().unwrap().to_string()],
    }
}
