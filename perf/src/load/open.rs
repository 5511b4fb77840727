//! The open loop: request `i` is due at `i ÷ rate` seconds, whether or not earlier ones are answered.
//! Latency counts from the due time, so waiting in the generator or in a queue is never left out.
//! Must never delay a due request because another is slow.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Run;
use super::client::Client;
use super::record::Failure;

/// Most requests in flight; one due beyond them fails as unsent.
const MAX_IN_FLIGHT: usize = 8192;
/// Conversations interleaved, so that turns of one follow each other and do not overlap much.
const CONVERSATIONS: u64 = 64;
/// A connection idle for longer is not used again, as the server may be closing it (uvicorn: 5 s).
const MAX_IDLE: Duration = Duration::from_secs(3);

type Pool = Rc<RefCell<Vec<Client>>>;

/// Starts requests at their due times until the plan starts no more, then waits for all answers.
pub async fn run(run: &Rc<Run>, rate: f64) {
    let pool = Pool::default();
    let mut tasks = JoinSet::new();
    let mut due_times = pacer(run.begin, rate);
    while let Some(due) = due_times.recv().await {
        let Some(number) = run.next() else { break };
        while tasks.try_join_next().is_some() {}
        if tasks.len() < MAX_IN_FLIGHT {
            tasks.spawn_local(one(run.clone(), pool.clone(), number, due));
        } else {
            run.record.borrow_mut().failed(&Failure::Unsent, Duration::ZERO);
        }
    }
    drop(due_times);
    while tasks.join_next().await.is_some() {}
}

/// The due times, each sent when it has come. A thread of its own sleeps more exactly than the
/// runtime's timer, which has steps of a millisecond. It ends soon after the receiver is dropped.
fn pacer(begin: Instant, rate: f64) -> mpsc::UnboundedReceiver<Instant> {
    let (due_times, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for number in 0_u64.. {
            let due = begin + Duration::from_secs_f64(number as f64 / rate);
            while let Some(wait) = due.checked_duration_since(Instant::now()).filter(|wait| !wait.is_zero()) {
                std::thread::sleep(wait.min(Duration::from_millis(100)));
                if due_times.is_closed() {
                    return;
                }
            }
            if due_times.send(due).is_err() {
                return;
            }
        }
    });
    receiver
}

async fn one(run: Rc<Run>, pool: Pool, number: u64, due: Instant) {
    run.record.borrow_mut().late(due.elapsed());
    let body = run.plan.bodies.body(number % CONVERSATIONS, number / CONVERSATIONS);
    let mut client = take(&pool).unwrap_or_else(|| Client::new(run.plan.target));
    run.exchange(&mut client, number, &body, due).await;
    pool.borrow_mut().push(client);
}

/// The most recently used connection; those idle for too long are dropped with it.
fn take(pool: &Pool) -> Option<Client> {
    let mut pool = pool.borrow_mut();
    pool.retain(|client| client.idle() < MAX_IDLE);
    pool.pop()
}
