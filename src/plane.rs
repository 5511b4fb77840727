//! Shards and event core of one process, over one index. Owns their start and their end, in order; must never
//! read a flag or serve by itself.

use crate::serve::{random, wall};
use std::sync::Arc;
use warmpath_core::environment::Environment;
use warmpath_core::shared::{Observations, Promises};
use warmpath_events::eventcore::{Pace, Settings};
use warmpath_events::thread::{self, EventCoreHandle};
use warmpath_kvindex::{Plan as IndexPlan, Readers, Writer, index};
use warmpath_prompt::Checkpoints;
use warmpath_ring::{Epoll, Ring, Sizes, Uring};
use warmpath_shards::budget::Budget;
use warmpath_shards::exact::Blocks;
use warmpath_shards::fleet::{Fleet, Plan, TextPlan, Threads};
use warmpath_shards::tokenize::Text;

/// The part of the index's memory (one in this many) that promises get.
const PROMISES_SHARE: u64 = 64;

/// What the event core's ring is made with: few connections, each with much to read.
const EVENT_SIZES: Sizes =
    Sizes { submissions: 256, completions: 4096, buffers: 512, buffer_bytes: 32 * 1024 };

/// How shards and event core speak with the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Driver {
    /// io_uring
    Uring,
    /// epoll, where io_uring is missing or forbidden
    Epoll,
}

/// What the index and the event core are started with.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Bytes of the index, promises included.
    pub bytes: u64,
    /// Ranks and tiers that may hold blocks at once.
    pub holders: usize,
    /// The core to pin the event core to.
    pub core: Option<usize>,
}

/// What makes keys of text is started with.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    /// Bytes of checkpoints.
    pub bytes: u64,
    /// The threads.
    pub plan: TextPlan,
}

/// The running threads.
pub struct Plane {
    /// The shards.
    pub fleet: Arc<Fleet>,
    /// The event core.
    pub kv: Arc<EventCoreHandle>,
    shards: Threads,
    events: thread::Thread,
}

impl Plane {
    /// Starts the event core, then the shards of `plan`. One sentence if one of them can't start.
    pub fn start(
        driver: Driver,
        plan: &Plan,
        budget: Arc<Budget>,
        environment: &Environment,
        known: Known,
        texts: &Texts,
    ) -> Result<Plane, String> {
        let (writer, readers) = make_index(known, plan)?;
        let promises = Arc::new(Promises::new((known.bytes / PROMISES_SHARE) as usize));
        let checkpoints = Checkpoints::new(texts.bytes as usize, random());
        let text = Text::new(checkpoints, wall);
        let observations = Arc::new(Observations::default());
        let tuning = Arc::new(environment.tuning);
        let blocks = Blocks { readers, promises, tuning, text, observations };
        let plane = match driver {
            Driver::Uring => {
                Plane::start_on(plan, budget, environment, known.core, writer, &blocks, |sizes| {
                    Uring::new(sizes).map_err(|e| format!("{e}; or start with --driver epoll"))
                })
            }
            Driver::Epoll => {
                Plane::start_on(plan, budget, environment, known.core, writer, &blocks, |sizes| {
                    Epoll::new(sizes).map_err(|e| format!("epoll: {e}"))
                })
            }
        }?;
        plane.fleet.start_text(&texts.plan, &blocks.text)?;
        Ok(plane)
    }

    fn start_on<R, F>(
        plan: &Plan,
        budget: Arc<Budget>,
        environment: &Environment,
        core: Option<usize>,
        writer: Writer,
        blocks: &Blocks,
        make: F,
    ) -> Result<Plane, String>
    where
        R: Ring + 'static,
        F: Fn(Sizes) -> Result<R, String> + Clone + Send + 'static,
    {
        let event_plan = thread::Plan {
            core,
            sizes: EVENT_SIZES,
            settings: settings(environment, plan.seed),
            seed: environment.none_hash_seed.clone(),
            observations: blocks.observations.clone(),
        };
        let (kv, events) = thread::start(event_plan, writer, make.clone())?;
        match Fleet::start(plan, budget, blocks, make) {
            Ok((fleet, shards)) => Ok(Plane { fleet: Arc::new(fleet), kv: Arc::new(kv), shards, events }),
            Err(fault) => {
                kv.stop();
                Err(fault.to_string())
            }
        }
    }

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Waits for the shards, which the admin thread has told to end, then ends the event core. The first fault
    /// of any.
    pub fn join(self) -> Result<(), String> {
        let panicked = |_| "a thread ended by a panic; see its message above".to_string();
        let mut ended = Ok(());
        for shard in self.shards {
            ended =
                ended.and(shard.join().map_err(panicked).and_then(|done| done.map_err(|e| e.to_string())));
        }
        self.kv.stop();
        ended.and(self.events.join().map_err(panicked).and_then(|done| done))
    }
}

fn make_index(known: Known, plan: &Plan) -> Result<(Writer, Readers), String> {
    let bytes = known.bytes - known.bytes / PROMISES_SHARE;
    let index_plan = IndexPlan::for_bytes(bytes as usize, known.holders, plan.shards).map_err(|fault| {
        format!("the index of blocks: {fault}; raise --index-memory or lower --index-holders")
    })?;
    Ok(index(index_plan, plan.seed))
}

fn settings(environment: &Environment, seed: u64) -> Settings {
    let (min, max) = environment.drain_pause;
    let settings = Settings { pace: Pace { min, max }, seed, ..Settings::default() };
    match environment.max_blocks {
        Some(blocks) => Settings { blocks_per_rank: blocks as usize, ..settings },
        None => settings,
    }
}
