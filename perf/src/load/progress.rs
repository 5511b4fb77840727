//! The live line on standard error while a run goes on, only on a terminal.
//! Must never write to standard output, which carries the report.

use std::io::{IsTerminal, Write, stderr};
use std::rc::Rc;
use std::time::Duration;

use super::Run;
use super::record::Record;
use super::report::Quantiles;

/// Time between two lines.
const EVERY: Duration = Duration::from_millis(500);

/// Rewrites the line until aborted.
pub async fn show(run: Rc<Run>) {
    if !stderr().is_terminal() {
        return;
    }
    let _wiped = Wipe;
    loop {
        tokio::time::sleep(EVERY).await;
        let text = line(&run.record.borrow(), run.begin.elapsed());
        let _ = write!(stderr(), "\r\x1b[K{text}");
    }
}

/// Clears the line when the task ends.
struct Wipe;

impl Drop for Wipe {
    fn drop(&mut self) {
        let _ = write!(stderr(), "\r\x1b[K");
    }
}

fn line(record: &Record, elapsed: Duration) -> String {
    let (first, end) = (Quantiles::of(&record.ttft), Quantiles::of(&record.end));
    let seconds = elapsed.as_secs_f64();
    format!(
        "{seconds:.0} s  {} good ({:.0}/s)  {} failed  first token p50 {:.1} p99 {:.1} ms  end p50 {:.1} p99 {:.1} ms",
        record.good,
        record.good as f64 / seconds.max(1e-9),
        record.failed_total(),
        first.p50,
        first.p99,
        end.p50,
        end.p99
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::record::Failure;

    #[test]
    fn the_line_shows_rates_and_failures() {
        let mut record = Record::new().unwrap();
        record.good = 30;
        record.failed(&Failure::Cut, Duration::ZERO);
        let line = line(&record, Duration::from_secs(3));
        assert!(line.starts_with("3 s  30 good (10/s)  1 failed"), "{line}");
    }
}
