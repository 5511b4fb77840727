//! What the loader makes of files that come, change and go. Owns folders of its own below the target directory.

use serde_json::json;
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use warmpath_core::control::ModelState;
use warmpath_core::decline::Decline;
use warmpath_core::engine::Engine;
use warmpath_core::environment::Environment;
use warmpath_core::rule::body;
use warmpath_core::table::Table;
use warmpath_shards::loader::{Loader, Told};
use warmpath_shards::models::{Models, Wish};

const TINY: &[u8] = include_bytes!("../../../core/prompt/tests/tokenizers/tiny.json");
const LEGACY: &[u8] = include_bytes!("../../../core/prompt/tests/tokenizers/legacy.json");

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(root.join("tokenizers")).unwrap();
        Folder(root)
    }

    fn write(&self, model: &str, file: &str, bytes: &[u8]) {
        let folder = self.0.join("tokenizers").join(model);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(file), bytes).unwrap();
    }

    fn publish(&self, file: &str, yaml: &str) {
        std::fs::create_dir_all(self.0.join("kvprofiles")).unwrap();
        std::fs::write(self.0.join("kvprofiles").join(file), yaml).unwrap();
    }

    fn remove(&self, model: &str) {
        std::fs::remove_dir_all(self.0.join("tokenizers").join(model)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A loader, and all that it published.
struct Following {
    loader: Loader,
    published: RefCell<Vec<Arc<Models>>>,
}

impl Following {
    fn of(folder: &Folder, models: &[&str]) -> Following {
        let mut following = Following { loader: Loader::new(&folder.0), published: RefCell::default() };
        following.loader.hear(Told::Rules(table(models)));
        following.look();
        following
    }

    fn look(&mut self) {
        self.loader.look(&|models| self.published.borrow_mut().push(models));
    }

    fn now(&self) -> Arc<Models> {
        self.published.borrow().last().cloned().unwrap_or_default()
    }

    fn state(&self) -> Option<ModelState> {
        self.now().reports().first().map(|report| report.state)
    }
}

/// A rule with exact routing for each model; an empty name serves every model.
fn table(models: &[&str]) -> Arc<Table> {
    let rule = |(at, model): (usize, &&str)| {
        let mut rule = json!({
            "serviceArguments": {
                "externalIP": "127.0.0.1", "port": 8000 + at, "protocol": "tcp", "mode": 4, "kvExactMode": 3,
                "kvHashAlgo": "tokens", "model_name": model,
            },
            "endpoints": [{"endpointIP": "127.0.0.1", "targetPort": 9000, "weight": 1}],
        });
        if model.is_empty() {
            rule["serviceArguments"].as_object_mut().unwrap().remove("model_name");
        }
        body::parse(&rule, &Environment::default(), || format!("id{at}")).unwrap()
    };
    let rules = models.iter().enumerate().map(rule).collect();
    Arc::new(Table::next(&Table::default(), rules, &mut 0, 0))
}

#[test]
fn files_that_come_tear_and_go_are_followed() {
    let folder = Folder::new("follow");
    let mut following = Following::of(&folder, &["org/a"]);
    assert_eq!(following.state(), Some(ModelState::Absent));
    let of = |following: &Following| following.now().find("org/a", Engine::Vllm).cloned();
    assert_eq!(of(&following).err(), Some(Decline::NoTokenizer));
    folder.write("org__a", "tokenizer.json", b"{");
    following.look();
    assert_eq!(of(&following).err(), Some(Decline::TokenizerFailed));
    assert!(following.now().reports()[0].fault.as_ref().unwrap().contains("tokenizer.json"));
    let states = following.published.borrow().len();
    following.look();
    assert_eq!(following.published.borrow().len(), states, "an unchanged file is not tried again");
    folder.write("org__a", "tokenizer.json", TINY);
    following.look();
    let first = of(&following).ok().unwrap();
    folder.write("org__a", "tokenizer.json", b"{}");
    following.look();
    assert!(Arc::ptr_eq(&of(&following).ok().unwrap(), &first), "the older one goes on");
    assert!(following.now().reports()[0].fault.is_some());
    folder.write("org__a", "tokenizer.json", LEGACY);
    following.look();
    assert!(!Arc::ptr_eq(&of(&following).ok().unwrap(), &first));
    let report = &following.now().reports()[0];
    assert_eq!(
        (report.state, report.fault.clone(), report.bytes),
        (ModelState::Loaded, None, LEGACY.len() as u64)
    );
    folder.remove("org__a");
    following.look();
    assert_eq!(of(&following).err(), Some(Decline::NoTokenizer));
}

#[test]
fn a_model_that_no_rule_names_is_loaded_when_asked_for_and_let_go_with_the_rule() {
    let folder = Folder::new("wish");
    folder.write("a", "tokenizer.json", TINY);
    let mut following = Following::of(&folder, &[""]);
    let of = |following: &Following, engine| following.now().find("a", engine).err();
    assert_eq!(of(&following, Engine::Vllm), Some(Decline::TokenizerLoading), "it is known to be there");
    assert_eq!(following.now().find("b", Engine::Vllm).err(), Some(Decline::NoTokenizer));
    for (folder, engine) in [("a", Engine::Sglang), ("../a", Engine::Vllm), ("a", Engine::Vllm)] {
        following.loader.hear(Told::Wish(Wish { folder: folder.into(), engine }));
    }
    following.look();
    assert_eq!(of(&following, Engine::Vllm), None);
    assert_eq!(following.now().reports().len(), 1, "only what a rule can ask for, and what is there");
    following.loader.hear(Told::Rules(table(&[])));
    following.look();
    assert_eq!(of(&following, Engine::Vllm), Some(Decline::NoTokenizer));
    assert!(following.now().reports().is_empty());
}

#[test]
fn profiles_that_come_change_and_go_are_followed() {
    let folder = Folder::new("profiles");
    folder.write("org__a", "tokenizer.json", TINY);
    let mut following = Following::of(&folder, &["org/a"]);
    let profile = |following: &Following| following.now().reports()[0].profile.clone();
    let model = |following: &Following| following.now().find("org/a", Engine::Vllm).cloned().ok();
    let bare = model(&following).unwrap();
    folder.publish("a.yaml", "profileId: first\nbaseModel: org/a\n");
    following.look();
    assert_eq!(profile(&following).as_deref(), Some("first"));
    let first = model(&following).unwrap();
    assert!(!Arc::ptr_eq(&first, &bare), "another profile, other tokens");
    let states = following.published.borrow().len();
    following.look();
    assert_eq!(following.published.borrow().len(), states, "nothing changed");
    folder.publish("a.yaml", "profileId: first\nbaseModel: org/a\nclock: utc-date\n");
    following.look();
    let report = following.now().reports()[0].clone();
    assert!(
        report.fault.as_ref().is_some_and(|why| why.contains("a.yaml") && why.contains("clock")),
        "{report:?}"
    );
    assert!(Arc::ptr_eq(&model(&following).unwrap(), &first), "the older one goes on");
    assert_eq!(following.now().registry.refused[0].file, "a.yaml");
    folder.publish("b.yaml", "profileId: {");
    following.look();
    assert_eq!(following.now().registry.refused.len(), 2, "also what is about no known model");
    for file in ["a.yaml", "b.yaml"] {
        std::fs::remove_file(folder.0.join("kvprofiles").join(file)).unwrap();
    }
    following.look();
    assert!(following.now().registry.refused.is_empty());
    assert_eq!((profile(&following), following.now().reports()[0].fault.clone()), (None, None));
}
