//! `events tail --kind trtllm`: POST /kv_cache_events again and again. Owns the exchange, in HTTP/1.0 so that
//! an answer ends where the connection does; must never run unless the person said that events may be taken.

use super::anomaly::Anomaly;
use super::drained::Drained;
use super::line::Line;
use super::print::{Printer, Stop};
use super::{Extent, HostPort};
use std::io::{Read, Write};
use std::time::Duration;
use warmpath_events::trtllm_json::{DrainEvent, parse};

/// What was asked for.
#[derive(Debug)]
pub struct Wanted {
    pub endpoint: HostPort,
    pub extent: Extent,
}

/// Between two answers.
const PAUSE: Duration = Duration::from_millis(500);
/// How long the engine may take to accept, and to go on with an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of one answer.
const ANSWER_MAX: u64 = 256 << 20;

/// Prints events until enough are printed.
pub fn run(wanted: &Wanted) -> Result<(), String> {
    eprintln!(
        "warmpath: taking events from http://{}/kv_cache_events; whoever else drains this engine loses them",
        wanted.endpoint
    );
    let mut poller = Poller { printer: Printer::new(wanted.extent), ranks: Vec::new(), answers: 0 };
    loop {
        if let Err(stop) = poller.turn(&wanted.endpoint) {
            return stop.verdict();
        }
    }
}

struct Poller {
    printer: Printer,
    ranks: Vec<Drained>,
    /// Good ones so far.
    answers: u64,
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
struct NoAnswer {
    /// Events may have been given away.
    asked: bool,
    cause: String,
}

impl Poller {
    fn turn(&mut self, endpoint: &HostPort) -> Result<(), Stop> {
        match fetch(endpoint).and_then(|answer| events(&answer)) {
            Ok(events) => {
                self.answers += 1;
                // All of them, even if fewer are wanted: nobody can have them again.
                for event in &events {
                    self.apply(event)?;
                }
            }
            Err(fault) => self.miss(endpoint, fault)?,
        }
        std::thread::sleep(self.printer.wait(PAUSE)?);
        Ok(())
    }

    fn apply(&mut self, event: &DrainEvent) -> Result<(), Stop> {
        let at = self.ranks.iter().position(|known| known.rank == event.rank).unwrap_or_else(|| {
            self.ranks.push(Drained::new(event.rank));
            self.ranks.len() - 1
        });
        let mut lines = Vec::new();
        self.ranks[at].apply(event, &mut |line| lines.push(line));
        lines.iter().try_for_each(|line| self.printer.print(line))
    }

    /// Without any good answer yet, that is the end.
    fn miss(&mut self, endpoint: &HostPort, fault: NoAnswer) -> Result<(), Stop> {
        let sentence = format!("POST http://{endpoint}/kv_cache_events: {}", fault.cause);
        if self.answers == 0 {
            return Err(Stop::Failed(sentence));
        }
        self.printer.print(&Line::Note(sentence))?;
        if fault.asked {
            self.ranks.iter_mut().for_each(Drained::lost);
            self.printer.print(&Line::Anomaly(None, Anomaly::lost()))?;
        }
        Ok(())
    }
}

/// One whole answer: its head and body.
fn fetch(endpoint: &HostPort) -> Result<Vec<u8>, NoAnswer> {
    let unasked = |fault: std::io::Error| NoAnswer {
        asked: false,
        cause: format!("{fault}; give the HTTP address of a TensorRT-LLM server that is up"),
    };
    let asked = |fault: std::io::Error| NoAnswer { asked: true, cause: format!("no whole answer: {fault}") };
    let mut stream = endpoint.dial(PATIENCE).map_err(unasked)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(unasked)?;
    let head = format!("POST /kv_cache_events HTTP/1.0\r\nHost: {endpoint}\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(head.as_bytes()).map_err(asked)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer).map_err(asked)?;
    Ok(answer)
}

/// The events of an answer to an HTTP/1.0 request.
fn events(answer: &[u8]) -> Result<Vec<DrainEvent>, NoAnswer> {
    let lost = |cause: String| NoAnswer { asked: true, cause };
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.ok_or_else(|| lost("the answer has no whole HTTP head".into()))?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let body = &answer[end + 4..];
    let status = head.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)).unwrap_or_default();
    if status != "200" {
        return Err(lost(format!(
            "answered {status:?}; is it TensorRT-LLM, with kv_cache_config.event_buffer_max_size over 0?"
        )));
    }
    let member = |name: &str| {
        let members = head.lines().skip(1).filter_map(|line| line.split_once(':'));
        members.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    };
    if member("transfer-encoding").is_some() {
        return Err(lost("the answer is chunked, which HTTP/1.0 does not know; ask without a proxy".into()));
    }
    if let Some(length) = member("content-length").filter(|length| length.parse() != Ok(body.len())) {
        return Err(lost(format!("the answer broke off: {} of {length} bytes came", body.len())));
    }
    parse(body).map_err(|fault| lost(format!("the answer is no list of events: {}", fault.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_whole_or_not_at_all() {
        let good = "HTTP/1.1 200 OK\r\ncontent-LENGTH: 52\r\n\r\n\
                    [{\"event_id\": 3, \"data\": {\"type\": \"later\"}}]        ";
        assert_eq!(events(good.as_bytes()).unwrap()[0].id, 3);
        for (answer, part) in [
            (&good[..good.len() - 1], "51 of 52 bytes came"),
            ("HTTP/1.1 200 OK\r\n\r\n{}", "no list of events"),
            ("HTTP/1.1 404 Not Found\r\n\r\n", "answered \"404\""),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "is chunked"),
            ("HTTP/1.1 200 OK\r\n", "no whole HTTP head"),
            ("SSH-2.0\r\n\r\n", "answered \"\""),
        ] {
            let fault = events(answer.as_bytes()).unwrap_err();
            assert!(fault.asked && fault.cause.contains(part), "{answer}: {}", fault.cause);
        }
    }
}
