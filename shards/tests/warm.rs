//! That shards and token cores are ready for a model once it is published to them, before the first request for it.
//! Alone in its process, and one test, so that what the process maps can be measured.
#![allow(clippy::unwrap_used)]

use crossbeam::channel::unbounded;
use std::sync::Arc;
use std::time::Duration;
use warmpath_core::engine::Engine;
use warmpath_prompt::load::Files;
use warmpath_prompt::tokenizer::{Choice, Recent};
use warmpath_prompt::{Checkpoints, Model};
use warmpath_ring::Sizes;
use warmpath_ring::sim::{Sim, Weather};
use warmpath_shards::budget::Budget;
use warmpath_shards::exact::Blocks;
use warmpath_shards::models::{Entry, Models};
use warmpath_shards::tokenize::Text;
use warmpath_shards::{Flow, Settings, loader};

/// The least table that the fast tokenizer makes for a thread.
const TABLE_KB: usize = 2048;

/// What this process has mapped, in KB.
fn mapped() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    size.trim_end_matches("kB").trim().parse().unwrap()
}

fn model() -> Arc<Model> {
    // Of a kind that has a table for each thread.
    let json = include_bytes!("../../core/prompt/tests/tokenizers/o200k.json");
    let files = Files { tokenizer: json.to_vec(), ..Files::default() };
    Arc::new(files.model(1, loader::policy(Engine::Vllm), Choice::Fast).unwrap())
}

fn published(model: &Arc<Model>) -> Arc<Models> {
    let mut models = Models::default();
    models.set_folder("tiny", true);
    models.set("tiny", Entry { model: Some(model.clone()), ..Entry::new(Engine::Vllm) });
    Arc::new(models)
}

/// What a new thread maps for its first text, in KB, once it has run `before`.
fn first_text(model: &Model, before: impl FnOnce() + Send) -> usize {
    let encode = || {
        before();
        // The thread's heap, which is not the tokenizer's.
        drop(std::hint::black_box(vec![0u8; 4096]));
        let mapped_before = mapped();
        model.tokenizer().encode("the quick", &mut Recent::default(), &mut Vec::new()).unwrap();
        mapped() - mapped_before
    };
    std::thread::scope(|scope| scope.spawn(encode).join().unwrap())
}

fn shard(models: &[Arc<Models>]) {
    let weather = Weather { delay_max: 1_000, socket_bytes: 65_536, piece_max: 16_384 };
    let (sizes, budget) = (Sizes::default(), Arc::new(Budget::new(1 << 20)));
    let exact = Blocks::none(1).unwrap().exact().unwrap();
    let mut flow = Flow::new(Sim::new(1, sizes, weather), sizes, Settings::default(), budget, exact, 1);
    models.iter().for_each(|models| flow.publish(models.clone()));
}

fn token_core(models: &[Arc<Models>]) {
    let (publish, published) = unbounded();
    models.iter().for_each(|models| publish.send(models.clone()).unwrap());
    let desk = Text::new(Checkpoints::new(0, 0), || Duration::ZERO).desk;
    desk.run(published);
}

#[test]
fn threads_are_ready_for_what_is_published() {
    let (old, model) = (model(), model());
    let published = [published(&old), published(&model)];
    assert!(first_text(&model, || ()) >= TABLE_KB, "a thread has no table of its own: warming is in vain");
    assert!(first_text(&model, || shard(&published[..1])) >= TABLE_KB, "it is ready for another model");
    assert!(first_text(&model, || shard(&published)) < TABLE_KB, "a shard");
    assert!(first_text(&model, || token_core(&published[..1])) >= TABLE_KB, "it is ready for another model");
    assert!(first_text(&model, || token_core(&published)) < TABLE_KB, "a token core");
}
