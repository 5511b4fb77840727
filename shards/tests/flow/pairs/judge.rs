//! How a pair may end, by what its engines were told to do: the table that the gateway is held to.

use crate::pairs::ask::Ask;
use crate::pairs::engine::Kind;
use crate::pairs::ledger::Ledger;
use crate::pairs::world::Mix;
use crate::sim::client::{Came, End};

/// The longest that a client may wait: encoders, prefill's phase, decode's first byte, and some seconds of engines.
const PATIENCE: u64 = (30 + 30 + 60 + 15) * 1_000_000_000;

/// The longest that one of these waits at the gate.
const QUEUED: u64 = 60_000_000_000;

/// Panics where an end is not one that its request may have.
pub fn judge(kind: Kind, mix: Mix, end: &End<Ask>, ledger: &Ledger) {
    let wish = &end.ask.wish;
    let times =
        |counts: &std::collections::BTreeMap<String, u32>| counts.get(&wish.tag).copied().unwrap_or(0);
    let (prefills, decodes, wholes) =
        (times(&ledger.prefills), times(&ledger.decodes), times(&ledger.wholes));
    let what = format!("{end:?}: {prefills} prefills, {decodes} decodes, {wholes} whole");
    let queued = if mix == Mix::Gated { QUEUED } else { 0 };
    assert!(end.took <= PATIENCE + queued, "too late: {what}");
    // One retry of prefill, or of a whole pair where engines meet; a leg that handed over is never repeated.
    assert!(prefills <= 2 && wholes <= 1, "{what}");
    assert!(decodes <= if kind == Kind::Sglang { 2 } else { 1 }, "{what}");
    assert!(times(&ledger.alone) <= 1, "{what}");
    assert!(times(&ledger.encodes) as usize <= 2 * wish.images, "{what}");
    // Of a kind run every image that was encoded is told to prefill.
    let silent = match (wish.encode.as_str(), wish.always) {
        ("nothing", true) => wish.images,
        ("nothing", false) => 1,
        _ => 0,
    };
    let told = ledger.fetched.get(&wish.tag).copied();
    if mix == Mix::Kind && times(&ledger.encodes) > 0 && prefills > 0 {
        assert_eq!(told, Some(wish.images - silent), "{what}");
    }
    if end.came == Came::Answer(200) {
        assert!(decodes + wholes >= 1, "nobody decoded: {what}");
    }
    let leaves = end.ask.leave_after.is_some() || end.ask.leave_within.is_some();
    let by_faults = |end| if kind == Kind::Sglang { together(end) } else { handed_over(end) };
    let fine = match mix {
        Mix::Kind => end.came == Came::Answer(200) || end.came == Came::Early,
        Mix::Leaving if leaves => {
            matches!(end.came, Came::Left | Came::Answer(200))
        }
        Mix::Leaving => end.came == Came::Answer(200),
        Mix::Faulty => by_faults(end),
        Mix::Gated => match &end.came {
            Came::Left => leaves,
            // An endpoint may be full when its pair is to be chosen anew.
            Came::Refusal(503, code) if code == "admission_no_capacity" => true,
            Came::Refusal(_, code) if code.starts_with("admission_") => prefills + decodes + wholes == 0,
            _ => by_faults(end),
        },
    };
    assert!(fine, "it may not end so: {what}");
}

fn refused(came: &Came, status: u16, code: &str) -> bool {
    *came == Came::Refusal(status, code.to_owned())
}

/// Nobody healthy was left for a role.
fn nobody(came: &Came) -> bool {
    refused(came, 503, "pd_pool_unavailable")
}

/// vLLM and TensorRT-LLM.
fn handed_over(end: &End<Ask>) -> bool {
    let (wish, came) = (&end.ask.wish, &end.came);
    match wish.encode.as_str() {
        "400" if wish.images > 0 && *came == Came::Answer(400) => return true,
        "hang" if wish.images > 0 && refused(came, 504, "pd_encode_timeout") => return true,
        _ => {}
    }
    match wish.prefill.as_str() {
        "final" if *came == Came::Early => true,
        "die-before" | "reset-before" | "half-head" | "garbage" | "die-mid" => nobody(came) || decoded(end),
        "hang" => refused(came, 504, "pd_prefill_timeout") || nobody(came) || *came == Came::Answer(200),
        "400" => *came == Came::Answer(400) || nobody(came) || *came == Came::Answer(200),
        _ => decoded(end) || nobody(came),
    }
}

/// How decode ends where prefill did not end it.
fn decoded(end: &End<Ask>) -> bool {
    let (wish, came) = (&end.ask.wish, &end.came);
    // A normal endpoint that took the whole request is kind.
    if *came == Came::Answer(200) {
        return true;
    }
    match wish.decode.as_str() {
        "die-before" | "reset-before" | "half-head" => refused(came, 502, "pd_decode_backend_died"),
        "garbage" => refused(came, 502, "bad_answer"),
        // An answer that only its connection's end ends dies before it, or shows it by being cut.
        "die-mid" | "die-stream" => {
            matches!(came, Came::Cut | Came::ErrorEvent) || refused(came, 502, "pd_decode_backend_died")
        }
        "hang" => refused(came, 504, "pd_decode_timeout"),
        "400" => *came == Came::Answer(400),
        "500" => *came == Came::Answer(500),
        _ => false,
    }
}

/// SGLang: what one leg does the other may tell first.
fn together(end: &End<Ask>) -> bool {
    let (wish, came) = (&end.ask.wish, &end.came);
    let failed = refused(came, 502, "pd_sg_prefill_failed");
    // Decode's own word of a room that fell apart.
    let fell_apart = *came == Came::Answer(500);
    let by_prefill = match wish.prefill.as_str() {
        "die-before" | "reset-before" | "half-head" | "garbage" | "500" => failed || fell_apart,
        "hang" => fell_apart || failed || refused(came, 504, "pd_prefill_timeout"),
        "400" => *came == Came::Answer(400) || fell_apart,
        "die-mid" => failed || fell_apart,
        _ => false,
    };
    let kind = matches!(wish.decode.as_str(), "ok" | "slow");
    by_prefill || nobody(came) || decoded(end) || !kind && (failed || fell_apart)
}
