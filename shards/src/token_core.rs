//! Token cores: threads for prompts that would hold a shard up. Owns the queue to them, its bounds and the order in
//! which jobs are taken; must never touch a connection, and never wait for a shard.

use crate::exchange::Reserved;
use crate::models::Models;
use crate::prompt::{Keys, Left, PromptReader, Terms};
use crossbeam::channel::{Receiver, Sender, bounded, never, select};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use warmpath_core::decide::exact::Miss;
use warmpath_parser::json::Members;
use warmpath_prompt::Checkpoints;
use warmpath_ring::{Sock, Wake};

/// Jobs that wait in each lane. Their bytes are reserved of `--memory`.
const LANE: usize = 256;

/// Bytes of body or text from which on a job is long: some milliseconds.
const LONG: usize = 128 * 1024;

/// After so many short jobs a long one that waits has its turn.
const SHORT_IN_A_ROW: u32 = 8;

/// Something for a token core to do.
pub struct Job {
    /// What.
    pub work: Work,
    /// The memory that it holds while it waits.
    pub reserved: Option<Reserved>,
}

/// What there is to do.
pub enum Work {
    /// A body's prompt into keys, from the beginning.
    Body(Asked, Looked),
    /// A text that a shard rendered into keys.
    Rest(Asked, Box<Left>),
    /// A prompt is made again another way, to see whether both agree.
    Check(Box<Check>),
}

/// A body that a shard looked into: where its members are need not be found again.
pub struct Looked {
    /// The body.
    pub bytes: Vec<u8>,
    /// Its members.
    pub members: Box<Members>,
    /// No earlier turn of it is known, so none is looked for.
    pub is_new: bool,
}

/// A prompt that is checked, for nobody.
pub struct Check {
    left: Left,
    terms: Terms,
    /// The body of one that goes on with an earlier turn.
    body: Option<Vec<u8>>,
}

impl Check {
    /// Of a prompt whose keys are made. The body is copied only where it is needed.
    pub fn of(left: Left, body: &[u8], terms: &Terms) -> Check {
        let body = left.is_resumed().then(|| body.to_vec());
        Check { left, terms: terms.clone(), body }
    }

    fn run(&self, checkpoints: &Checkpoints) {
        if let Ok(model) = &self.terms.model {
            PromptReader::check(model, PromptReader::sample(self.left.text()));
        }
        if let Some(body) = &self.body {
            PromptReader::check_resumed(&self.left, body, &self.terms, checkpoints);
        }
    }
}

/// Who asks for keys, and on what terms.
pub struct Asked {
    /// What the prompt is read by.
    pub terms: Terms,
    /// Whether its text is checked by both tokenizers, once it is answered.
    pub sampled: bool,
    /// Where the answer goes.
    pub to: Reply,
    /// The client.
    pub sock: Sock,
    /// Which of its shard's questions this is.
    pub number: u64,
    /// Nobody waits any more.
    pub cancelled: Arc<AtomicBool>,
}

/// The way back to a shard.
#[derive(Clone)]
pub struct Reply {
    /// Its inbox.
    pub keyed: Sender<Keyed>,
    /// Wakes it.
    pub waker: Arc<dyn Wake>,
}

/// The answer to a question.
pub struct Keyed {
    /// The client.
    pub sock: Sock,
    /// Which of the shard's questions this is.
    pub number: u64,
    /// The keys, or why there are none.
    pub keys: Result<Keys, Miss>,
}

/// A shard's end of the queue. The threads end when the last one is dropped.
#[derive(Clone)]
pub struct TokenQueue {
    short: Sender<Job>,
    long: Sender<Job>,
}

/// A token core's end.
#[derive(Clone)]
pub struct TokenDesk {
    short: Receiver<Job>,
    long: Receiver<Job>,
    checkpoints: Arc<Checkpoints>,
}

/// One token core's memory.
#[derive(Default)]
pub struct Worker {
    reader: PromptReader,
    /// Short jobs since the last long one.
    row: u32,
    /// The models that it is ready for.
    models: Arc<Models>,
}

/// A queue, empty.
pub fn queue(checkpoints: Arc<Checkpoints>) -> (TokenQueue, TokenDesk) {
    let (short, short_jobs) = bounded(LANE);
    let (long, long_jobs) = bounded(LANE);
    (TokenQueue { short, long }, TokenDesk { short: short_jobs, long: long_jobs, checkpoints })
}

impl TokenQueue {
    /// Hands a job over; false if its lane is full, or nobody works.
    pub fn push(&self, job: Job) -> bool {
        let lane = if job.work.is_long() { &self.long } else { &self.short };
        lane.try_send(job).is_ok()
    }
}

impl Work {
    fn is_long(&self) -> bool {
        match self {
            Work::Body(_, body) => body.bytes.len() >= LONG,
            Work::Rest(_, left) => left.text().len() >= LONG,
            // Nobody waits for it, and the reference is slow.
            Work::Check(..) => true,
        }
    }
}

impl TokenDesk {
    /// Works until nobody can ask any more, and is made ready for models as they are `published`.
    pub fn run(&self, mut published: Receiver<Arc<Models>>) {
        let mut worker = Worker::default();
        while let Some(job) = self.next(&mut worker, &mut published) {
            worker.work(job, &self.checkpoints);
        }
    }

    /// Does one job, if there is one.
    pub fn work_once(&self, worker: &mut Worker) -> bool {
        self.take(worker).map(|job| worker.work(job, &self.checkpoints)).is_some()
    }

    /// Short jobs first, but a long one is never passed over for ever.
    fn take(&self, worker: &mut Worker) -> Option<Job> {
        let short_first = worker.row < SHORT_IN_A_ROW;
        let short = || self.short.try_recv().ok();
        let taken = short_first.then(short).flatten();
        if taken.is_some() {
            worker.row += 1;
            return taken;
        }
        worker.row = 0;
        self.long.try_recv().ok().or_else(short)
    }

    /// Waits for a job; models first, since jobs behind them may be for them. `None` at the end.
    fn next(&self, worker: &mut Worker, published: &mut Receiver<Arc<Models>>) -> Option<Job> {
        loop {
            published.try_iter().for_each(|models| worker.publish(models));
            if let Some(job) = self.take(worker) {
                return Some(job);
            }
            select! {
                recv(self.short) -> job => return job.ok(),
                recv(self.long) -> job => return job.ok(),
                recv(published) -> models => match models {
                    Ok(models) => worker.publish(models),
                    // Nobody publishes any more.
                    Err(_) => *published = never(),
                },
            }
        }
    }
}

impl Worker {
    fn publish(&mut self, models: Arc<Models>) {
        models.warm(&self.models);
        self.models = models;
    }

    fn work(&mut self, job: Job, checkpoints: &Checkpoints) {
        match job.work {
            Work::Body(asked, body) => match self.begin(&asked, &body, checkpoints) {
                Ok(Some(left)) => self.finish(asked, left, &body.bytes, checkpoints),
                done => self.answer(&asked, done.map(drop)),
            },
            Work::Rest(asked, left) => self.finish(asked, *left, &[], checkpoints),
            Work::Check(check) => check.run(checkpoints),
        }
    }

    fn begin(
        &mut self,
        asked: &Asked,
        body: &Looked,
        checkpoints: &Checkpoints,
    ) -> Result<Option<Left>, Miss> {
        if asked.is_cancelled() {
            return Err(Miss::TokenizerBusy);
        }
        let Looked { bytes, members, is_new } = body;
        let resume = |reader: &mut PromptReader| reader.resume(bytes, members, &asked.terms, checkpoints);
        match (!is_new).then(|| resume(&mut self.reader)).flatten() {
            None => self.reader.begin(bytes, members, &asked.terms, checkpoints),
            resumed => Ok(resumed),
        }
    }

    /// `body` is empty where a shard had it.
    fn finish(&mut self, asked: Asked, left: Left, body: &[u8], checkpoints: &Checkpoints) {
        if asked.is_cancelled() {
            return;
        }
        let done = self.reader.finish(&left, &asked.terms, checkpoints);
        self.answer(&asked, done);
        if asked.sampled {
            let body = (left.is_resumed() && !body.is_empty()).then(|| body.to_vec());
            Check { left, terms: asked.terms, body }.run(checkpoints);
        }
    }

    /// Tells, unless nobody waits any more.
    fn answer(&mut self, asked: &Asked, done: Result<(), Miss>) {
        if asked.is_cancelled() {
            return;
        }
        let keys = done.map(|()| std::mem::take(&mut self.reader.keys));
        // A shard that is gone waits for nothing.
        if asked.to.keyed.send(Keyed { sock: asked.sock, number: asked.number, keys }).is_ok() {
            asked.to.waker.wake();
        }
    }
}

impl Asked {
    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam::channel::unbounded;
    use warmpath_core::block::BlockSize;
    use warmpath_core::engine::{Algo, Engine, Terms as Naming};
    use warmpath_parser::json::{self, JsonLimits};
    use warmpath_prompt::{Api, Scheme};

    struct Deaf;

    impl Wake for Deaf {
        fn wake(&self) {}
    }

    fn job(number: u64, bytes: usize, keyed: &Sender<Keyed>) -> (Job, Arc<AtomicBool>) {
        let naming = Naming::plain(Algo::Tokens, BlockSize::SIXTEEN);
        let scheme = Scheme::new(Engine::Vllm.contract(&naming).expect("a contract"));
        let cancelled: Arc<AtomicBool> = Arc::default();
        let asked = Asked {
            terms: Terms {
                scheme,
                model: Err(Miss::ModelEmpty),
                adapter: None,
                api: Api::Completions,
                today: None,
            },
            sampled: false,
            to: Reply { keyed: keyed.clone(), waker: Arc::new(Deaf) },
            sock: Sock { slot: 0, generation: 0 },
            number,
            cancelled: cancelled.clone(),
        };
        let bytes = format!("{{\"prompt\": \"{}\"}}", "x".repeat(bytes)).into_bytes();
        let mut members = Box::new(Members::new());
        json::peek(&bytes, &mut members, JsonLimits::default()).expect("JSON");
        let work = Work::Body(asked, Looked { bytes, members, is_new: true });
        (Job { work, reserved: None }, cancelled)
    }

    fn numbers(answers: &Receiver<Keyed>) -> Vec<u64> {
        answers.try_iter().map(|keyed| keyed.number).collect()
    }

    #[test]
    fn short_jobs_overtake_long_ones_and_starve_none() {
        let (queue, desk) = queue(Arc::new(Checkpoints::new(0, 0)));
        let (keyed, answers) = unbounded();
        let sizes = [vec![LONG; 2], vec![1; 20]].concat();
        assert!(sizes.iter().zip(0..).all(|(bytes, number)| queue.push(job(number, *bytes, &keyed).0)));
        let mut worker = Worker::default();
        while desk.work_once(&mut worker) {}
        let order = numbers(&answers);
        assert_eq!((order.len(), &order[..3]), (22, &[2, 3, 4][..]));
        assert_eq!((order[8], order[17]), (0, 1), "each after eight short ones: {order:?}");
    }

    #[test]
    fn what_nobody_waits_for_is_not_answered() {
        let (queue, desk) = queue(Arc::new(Checkpoints::new(0, 0)));
        let (keyed, answers) = unbounded();
        let ((first, cancelled), (second, _)) = (job(1, 1, &keyed), job(2, 1, &keyed));
        assert!(queue.push(first) && queue.push(second));
        cancelled.store(true, Relaxed);
        let mut worker = Worker::default();
        while desk.work_once(&mut worker) {}
        assert_eq!(numbers(&answers), [2]);
    }

    #[test]
    fn a_full_lane_and_an_empty_desk_take_nothing() {
        let (queue, desk) = queue(Arc::new(Checkpoints::new(0, 0)));
        let (keyed, _answers) = unbounded();
        assert!((0..LANE as u64).all(|number| queue.push(job(number, 1, &keyed).0)));
        assert!(!queue.push(job(0, 1, &keyed).0));
        assert!(queue.push(job(0, LONG, &keyed).0), "the other lane has room");
        drop(desk);
        assert!(!queue.push(job(0, LONG, &keyed).0));
    }
}
