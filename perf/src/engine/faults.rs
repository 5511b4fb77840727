//! The fault switches of a simulated engine, set at start or at run time by `POST /sim/faults`.
//! Pure data: must never act itself; `serve` and `generate` ask it.

use serde::{Deserialize, Serialize};

use super::publish::Fate;

/// Where an answer stalls. It stays there until the switch changes or the client leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stall {
    /// The request was read; not a byte of the answer is sent.
    BeforeHead,
    /// Stops after the first event of a stream, or after the head of a whole answer.
    MidStream,
}

/// What `GET /health` and its kin do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// The engine's healthy answer.
    #[default]
    Ok,
    /// 503.
    Fail,
    /// No answer until the switch changes or the client leaves.
    Stall,
}

/// How replay of cache events goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replay {
    /// A request closes the connection.
    Refuse,
    /// A request gets no answer.
    Silent,
    /// The end mark comes after half of the batches.
    EndsEarly,
    /// The connection closes after half of the batches, without an end mark.
    Cut,
}

/// What goes wrong at the door of a prefill engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Door {
    /// Connections are closed without an answer.
    Refuse,
    /// No answer until the switch changes.
    Stall,
    /// What was computed is not known any more.
    Forget,
}

/// Why prefill's answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// All is said.
    Stop,
    /// By its bound.
    Length,
    /// TensorRT-LLM: generation goes on.
    NotFinished,
}

impl Finish {
    /// As in an answer.
    pub fn text(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
            Finish::NotFinished => "not_finished",
        }
    }
}

/// All switches; every one off by default. Unless said otherwise they concern inference requests
/// (`POST …/completions`), never `/sim/…`, so that a fault can be lifted again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Stop listening: new connections are refused by the kernel, open ones live on (also to lift
    /// this switch). In-process, `Handle::set_faults` lifts it too.
    pub refuse: bool,
    /// With `refuse`: listen again by itself after so many milliseconds.
    pub refuse_ms: Option<u64>,
    /// Close after so many events of a stream (not counting `[DONE]`); a whole answer is cut in half.
    pub close_mid_stream_after: Option<u64>,
    /// Read the whole request, count the execution, close without an answer.
    pub close_before_response: bool,
    /// As `close_before_response`, only for bodies that contain this text.
    pub crash_on_marker: Option<String>,
    /// Stall at a phase.
    pub stall: Option<Stall>,
    /// Answer every inference request with this status and the engine's error shape.
    pub status: Option<u16>,
    /// Only the next so many inference requests fail, with `status` or 500; counts down.
    pub fail_next: Option<u64>,
    /// Send half a response head, then close.
    pub half_head: bool,
    /// Break the framing: a stream's second chunk has a size line `zz`; a whole answer has two
    /// different Content-Length lines.
    pub bad_framing: bool,
    /// Close a connection after so many answers (any path) without having said so.
    pub keepalive_close_after: Option<u64>,
    /// Answer 400 before the body was read, then close.
    pub early_response: bool,
    /// Closings of the other switches become resets; alone: reset after the head was read (any path
    /// but `/sim/…`).
    pub rst: bool,
    /// Read request bodies at so many bytes per second.
    pub slow_read: Option<u64>,
    /// The health answer.
    pub health: Health,
    /// Lose the next so many batches of cache events: their numbers are used, replay has them, nobody is
    /// sent them. Of a drained stream, the events of so many steps. Counts down.
    pub kv_lose_next: Option<u64>,
    /// Send the next so many batches twice. Counts down.
    pub kv_double_next: Option<u64>,
    /// A partition: connections of cache events stay, nothing is sent on them, no answer to a heartbeat
    /// either. What was not sent stays unsent; a drained stream loses it.
    pub kv_silence: bool,
    /// What replay does instead of its work.
    pub kv_replay: Option<Replay>,
    /// Replay answers so many milliseconds late.
    pub kv_replay_late_ms: Option<u64>,
    /// What the door of a prefill engine does instead of its work.
    pub pd_door: Option<Door>,
    /// Prefill keeps nothing and hands over nothing; its answer is 200.
    pub pd_hand_nothing: bool,
    /// What is handed over in an answer is larger by so many bytes.
    pub pd_pad: Option<usize>,
    /// The finish reason of prefill's answer.
    pub pd_finish: Option<Finish>,
}

impl Faults {
    /// Switches from their JSON object. The error names the unknown switch or wrong value.
    pub fn from_json(body: &[u8]) -> Result<Self, String> {
        let faults: Faults = serde_json::from_slice(body).map_err(|e| e.to_string())?;
        match faults.status {
            Some(status) if !(400..=599).contains(&status) => {
                Err(format!("status is {status}; it must be 400 to 599"))
            }
            _ => Ok(faults),
        }
    }

    /// The status with which the next inference request fails, if any; counts `fail_next` down.
    pub fn take_failure(&mut self) -> Option<u16> {
        match self.fail_next {
            Some(0) => None,
            Some(left) => {
                self.fail_next = Some(left - 1);
                Some(self.status.unwrap_or(500))
            }
            None => self.status,
        }
    }

    /// What becomes of the next batch of cache events; counts down.
    pub fn take_fate(&mut self) -> Fate {
        let mut counts = |switch: fn(&mut Self) -> &mut Option<u64>| match switch(self) {
            Some(left @ 1..) => {
                *left -= 1;
                true
            }
            _ => false,
        };
        if counts(|faults| &mut faults.kv_lose_next) {
            return Fate::Lost;
        }
        let doubled = counts(|faults| &mut faults.kv_double_next);
        match (self.kv_silence, doubled) {
            (true, _) => Fate::Lost,
            (false, true) => Fate::Doubled,
            (false, false) => Fate::Sent,
        }
    }

    /// True when this body makes the engine close without an answer.
    pub fn crashes_on(&self, body: &[u8]) -> bool {
        let marked = |marker: &String| {
            !marker.is_empty() && body.windows(marker.len()).any(|part| part == marker.as_bytes())
        };
        self.close_before_response || self.crash_on_marker.as_ref().is_some_and(marked)
    }

    /// True when `rst` stands alone, so that each request is reset after its head.
    pub fn resets_at_head(&self) -> bool {
        let closing = self.half_head
            || self.close_before_response
            || self.crash_on_marker.is_some()
            || self.close_mid_stream_after.is_some()
            || self.keepalive_close_after.is_some()
            || self.early_response;
        self.rst && !closing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_switches_and_values_are_refused_by_name() {
        assert!(Faults::from_json(b"{\"refus\": true}").unwrap_err().contains("refus"));
        assert!(Faults::from_json(b"{\"stall\": \"later\"}").unwrap_err().contains("later"));
        assert!(Faults::from_json(b"{\"status\": 200}").unwrap_err().contains("400 to 599"));
        assert_eq!(Faults::from_json(b"{}").unwrap(), Faults::default());
    }

    #[test]
    fn fail_next_counts_down_and_status_alone_stays() {
        let mut faults = Faults { fail_next: Some(2), status: Some(503), ..Faults::default() };
        assert_eq!(
            [faults.take_failure(), faults.take_failure(), faults.take_failure()],
            [Some(503), Some(503), None]
        );
        let mut faults = Faults { status: Some(500), ..Faults::default() };
        assert_eq!([faults.take_failure(), faults.take_failure()], [Some(500), Some(500)]);
    }

    #[test]
    fn fates_count_down_and_loss_comes_first() {
        let mut faults =
            Faults { kv_lose_next: Some(1), kv_double_next: Some(1), kv_silence: false, ..Faults::default() };
        let fates = std::iter::repeat_with(|| faults.take_fate()).take(3).collect::<Vec<_>>();
        assert_eq!(fates, [Fate::Lost, Fate::Doubled, Fate::Sent]);
        faults.kv_silence = true;
        assert_eq!(faults.take_fate(), Fate::Lost);
    }

    #[test]
    fn marker_is_searched_in_the_body() {
        let faults = Faults { crash_on_marker: Some("boom".into()), ..Faults::default() };
        assert!(faults.crashes_on(b"xxboomxx"));
        assert!(!faults.crashes_on(b"boo"));
    }
}
