//! The load generator: closed loop (connections that always have a request in flight) and open loop
//! (a fixed rate, latency counted from the scheduled time, so a slow server cannot hide its queue).
//! Must never target anything but loopback, and never count an answer as good that it did not check
//! to the last byte.

pub mod answer;
pub mod bodies;
pub mod cli;
mod client;
mod closed;
mod open;
mod progress;
pub mod record;
pub mod report;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use crate::Error;
use bodies::Bodies;
use client::{Client, Timed};
use record::{Failure, Record};
pub use report::Report;

/// How requests are paced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// So many connections, each sending its next request when the last is answered.
    Closed {
        /// Connections, at least 1.
        connections: usize,
    },
    /// So many requests a second whatever the answers do.
    Open {
        /// Requests a second, above 0.
        rate: f64,
    },
}

/// A load to be run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where to; loopback.
    pub target: SocketAddr,
    /// Request path.
    pub path: String,
    /// Pace.
    pub pace: Pace,
    /// When no further request is started.
    pub duration: Duration,
    /// Most requests started; `None` is bounded by the duration alone.
    pub requests: Option<u64>,
    /// What is sent.
    pub bodies: Bodies,
    /// Longest time for one request, after which it has failed.
    pub timeout: Duration,
    /// Prefix of X-Request-Id; a number follows.
    pub id_prefix: String,
    /// Show a live line on standard error, where that is a terminal.
    pub progress: bool,
}

/// What the tasks of one run share; all on one thread.
struct Run {
    plan: Plan,
    record: RefCell<Record>,
    started: Cell<u64>,
    begin: Instant,
}

/// Runs a plan to its end: every request started is answered, failed or timed out on return.
pub fn run(plan: Plan) -> Result<Report, Error> {
    if !plan.target.ip().is_loopback() {
        return Err(Error::new(format!(
            "{} is not a loopback address; the load generator only loads this machine, use 127.0.0.1 or ::1",
            plan.target.ip()
        )));
    }
    let cannot = |e: std::io::Error| Error::new(format!("the load generator's runtime did not start ({e})"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    tokio::task::LocalSet::new().block_on(&runtime, drive(plan))
}

async fn drive(plan: Plan) -> Result<Report, Error> {
    Client::new(plan.target).reach().await?;
    let run = Rc::new(Run {
        record: RefCell::new(Record::new()?),
        plan,
        started: Cell::new(0),
        begin: Instant::now(),
    });
    let progress = run.plan.progress.then(|| tokio::task::spawn_local(progress::show(run.clone())));
    match run.plan.pace {
        Pace::Closed { connections } => closed::run(&run, connections.max(1)).await,
        Pace::Open { rate } => open::run(&run, rate).await,
    }
    if let Some(progress) = progress {
        progress.abort();
    }
    let elapsed = run.begin.elapsed();
    let report = Report::of(&run.plan, &run.record.borrow(), elapsed);
    Ok(report)
}

impl Run {
    /// Takes the number of the next request, or `None` when the plan starts no more.
    fn next(&self) -> Option<u64> {
        let number = self.started.get();
        let over = self.begin.elapsed() >= self.plan.duration;
        if over || self.plan.requests.is_some_and(|limit| number >= limit) {
            return None;
        }
        self.started.set(number + 1);
        Some(number)
    }

    /// Sends one request on `client` and records what came; times count from `from`.
    async fn exchange(&self, client: &mut Client, number: u64, body: &bodies::Body, from: Instant) {
        let request = self.request(number, &body.text);
        let answered = client.exchange(&request, body.stream);
        let outcome = tokio::time::timeout(self.plan.timeout, answered).await;
        let outcome = outcome.unwrap_or(Err(Failure::Timeout));
        if outcome.is_err() {
            client.drop_connection();
        }
        self.note(outcome, from);
    }

    fn note(&self, outcome: Result<Timed, Failure>, from: Instant) {
        let mut record = self.record.borrow_mut();
        match outcome {
            Ok(timed) => record.answered(&timed, from),
            Err(failure) => record.failed(&failure, from.elapsed()),
        }
    }

    fn request(&self, number: u64, body: &str) -> Vec<u8> {
        let Plan { path, target, id_prefix, .. } = &self.plan;
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nHost: {target}\r\nContent-Type: application/json\r\n\
             X-Request-Id: {id_prefix}{number}\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    }
}
