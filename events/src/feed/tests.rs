//! A feed against an engine's sockets written by hand.

use super::*;
use warmpath_core::SECOND;

/// `[1.5, [{"type": "BlockStored", …, one block of one token}], 0]`
fn payload(hash: u8) -> Vec<u8> {
    let mut bytes = vec![0x93, 0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0, 0x91, 0x95];
    bytes.extend(b"\xabBlockStored");
    bytes.extend([0x91, hash, 0xc0, 0x91, 1, 1, 0]);
    bytes
}

fn greeting(socket: &str) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    (bytes[0], bytes[9], bytes[10], bytes[11]) = (0xff, 0x7f, 3, 1);
    bytes[12..16].copy_from_slice(b"NULL");
    let mut body = b"\x05READY\x0bSocket-Type\0\0\0".to_vec();
    body.push(socket.len() as u8);
    body.extend(socket.bytes());
    bytes.extend([4, body.len() as u8]);
    bytes.extend(body);
    bytes
}

fn message(frames: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, body) in frames.iter().enumerate() {
        bytes.extend([u8::from(index + 1 < frames.len()), body.len() as u8]);
        bytes.extend_from_slice(body);
    }
    bytes
}

fn live(seq: u64) -> Vec<u8> {
    message(&[b"kv", &seq.to_be_bytes(), &payload(seq as u8 + 1)])
}

fn reply(seq: u64) -> Vec<u8> {
    message(&[b"", b"kv", &seq.to_be_bytes(), &payload(seq as u8 + 1)])
}

fn end() -> Vec<u8> {
    message(&[b"", b"", &framing::END.to_be_bytes(), b""])
}

fn new_feed(replay: bool) -> Feed {
    Feed::new(Terms {
        topic: b"kv".to_vec(),
        limits: Limits::default(),
        policy: Policy { replay, ..Policy::default() },
        naming: HashBytes::Last,
        removal: Removal::One,
        blocks: 100,
        rank: Some(0),
        slice: 1 << 15,
        seed: 7,
    })
}

fn open(feed: &mut Feed, now: Nanos) {
    assert!(feed.wants_live(now));
    feed.live_opened(now);
    feed.live_bytes(now, &greeting("PUB"), &mut |_| ());
}

/// Opens the wanted replay connection and sends these answers; what the engine was asked for.
fn serve(feed: &mut Feed, now: Nanos, answers: &[Vec<u8>]) -> Vec<u8> {
    let attempt = feed.wants_replay(now).expect("a replay");
    feed.replay_opened(now, attempt);
    feed.replay_wrote(attempt, 64);
    feed.replay_bytes(now, attempt, &greeting("ROUTER"), &mut |_| ());
    let asked = feed.replay_output(attempt).to_vec();
    feed.replay_wrote(attempt, asked.len());
    feed.replay_bytes(now, attempt, &answers.concat(), &mut |_| ());
    asked[asked.len() - 8..].to_vec()
}

#[test]
fn a_feed_fills_itself_from_the_replay_and_goes_on_live() {
    let mut feed = new_feed(true);
    open(&mut feed, 0);
    feed.live_bytes(0, &live(2), &mut |_| ());
    let asked = serve(&mut feed, 0, &[reply(0), reply(1), reply(2), end()]);
    assert_eq!(asked, 0_u64.to_be_bytes());
    assert_eq!((feed.standing(), feed.last_applied()), (Standing::Complete, Some(2)));
    assert_eq!(feed.wants_replay(0), None, "a replay that is over is hung up");
    let mut held = 0;
    feed.live_bytes(0, &live(3), &mut |_| held += 1);
    assert_eq!((held, feed.residency().len(), feed.counts().applied), (1, 4, 4));
}

#[test]
fn a_lost_connection_is_dialled_again_later_and_proven() {
    let mut feed = new_feed(true);
    open(&mut feed, 0);
    serve(&mut feed, 0, &[reply(0), end()]);
    feed.live_closed(SECOND);
    assert!(!feed.wants_live(SECOND) && feed.wants_live(2 * SECOND));
    assert_eq!(feed.wants_replay(2 * SECOND), None);
    open(&mut feed, 2 * SECOND);
    assert_eq!(feed.standing(), Standing::Unproven);
    assert_eq!(serve(&mut feed, 2 * SECOND, &[reply(0), reply(1), end()]), 0_u64.to_be_bytes());
    assert_eq!((feed.standing(), feed.residency().len()), (Standing::Complete, 2));
}

#[test]
fn what_was_asked_for_before_a_breach_is_not_dialled() {
    let mut feed = new_feed(true);
    open(&mut feed, 0);
    feed.live_bytes(0, &live(0), &mut |_| ());
    serve(&mut feed, 0, &[reply(0), end()]);
    feed.live_bytes(0, &[live(4), vec![0xff]].concat(), &mut |_| ());
    assert_eq!(feed.wants_replay(SECOND), None);
    assert!(feed.wants_live(SECOND));
}

#[test]
fn a_malformed_peer_is_hung_up_and_counted() {
    let mut feed = new_feed(true);
    open(&mut feed, 0);
    feed.live_bytes(0, &message(&[b"kv", b"short", b"x"]), &mut |_| ());
    assert_eq!(feed.counts().malformed, 1);
    assert!(!feed.wants_live(0));
    let mut other = new_feed(true);
    other.live_opened(0);
    other.live_bytes(0, b"HTTP/1.1 400", &mut |_| ());
    assert!(other.counts().malformed == 1 && !other.wants_live(0) && other.live_output().is_empty());
}

#[test]
fn a_replay_that_cannot_be_dialled_is_tried_again_later_then_given_up() {
    let mut feed = new_feed(true);
    open(&mut feed, 0);
    feed.live_bytes(0, &live(5), &mut |_| ());
    let mut now = 0;
    for _ in 0..3 {
        let attempt = feed.wants_replay(now).expect("a replay");
        feed.replay_closed(now, attempt, &mut |_| ());
        assert_eq!(feed.wants_replay(now), None);
        now += SECOND;
    }
    assert_eq!((feed.standing(), feed.wants_replay(now)), (Standing::Since(5), None));
    assert_eq!(feed.reason(), Some(Reason::ReplayFailed));
}

#[test]
fn an_undecodable_batch_clears_and_is_counted() {
    let mut feed = new_feed(true);
    open(&mut feed, 0);
    feed.live_bytes(0, &live(0), &mut |_| ());
    serve(&mut feed, 0, &[reply(0), end()]);
    let mut cleared = false;
    let garbled = message(&[b"kv", &1_u64.to_be_bytes(), b"\xc1"]);
    feed.live_bytes(0, &garbled, &mut |change| cleared |= matches!(change, Change::Cleared(_)));
    assert!(cleared && feed.residency().is_empty());
    assert_eq!((feed.counts().undecodable, feed.standing()), (1, Standing::Since(2)));
}

#[test]
fn without_replay_a_feed_waits_for_the_start_identity() {
    let mut feed = new_feed(false);
    open(&mut feed, 0);
    assert!(feed.wants_identity() && feed.wants_replay(0).is_none());
    feed.identified(0, Some(1), &mut |_| ());
    feed.live_bytes(0, &live(0), &mut |_| ());
    feed.live_closed(0);
    open(&mut feed, SECOND);
    feed.identified(SECOND, Some(2), &mut |_| ());
    assert!(feed.residency().is_empty());
    assert_eq!(feed.reason(), Some(Reason::Reconnected));
}

#[test]
fn a_silent_peer_is_hung_up_and_the_next_call_is_told() {
    let mut feed = new_feed(true);
    open(&mut feed, 0);
    let next = feed.tick(0, &mut |_| ());
    assert_eq!(next, 5 * SECOND);
    feed.tick(15 * SECOND, &mut |_| ());
    assert!(!feed.wants_live(15 * SECOND) && feed.wants_live(21 * SECOND));
}

#[test]
fn who_watches_sees_each_step_in_order_and_why_a_peer_was_left() {
    let (tell, told) = std::sync::mpsc::channel();
    let mut feed = new_feed(false);
    feed.watch(Box::new(move |step| {
        let shown = match step {
            Step::Applied { seq, batch } => format!("{seq}: {} event", batch.events.len()),
            Step::Undecodable { seq, reject } => format!("{seq}: {reject:?}"),
            Step::Cleared(reason) => format!("{reason:?}"),
            Step::Asked { from } => format!("from {from}"),
            Step::Reconnecting => "again".into(),
        };
        tell.send(shown).expect("a receiver");
    }));
    open(&mut feed, 0);
    assert!(feed.is_live() && feed.wants_identity());
    feed.identified(0, None, &mut |_| ());
    for bytes in [live(0), live(2), message(&[b"kv", &3_u64.to_be_bytes(), b"\xc1"]), live(4)] {
        feed.live_bytes(0, &bytes, &mut |_| ());
    }
    let steps: Vec<String> = told.try_iter().collect();
    let undecodable = "3: Format(Format)";
    assert_eq!(steps, ["0: 1 event", "Gap", "2: 1 event", undecodable, "Undecodable", "4: 1 event"]);

    feed.live_closed(0);
    assert!(!feed.is_live() && feed.fault().is_none());
    feed.live_opened(10 * SECOND);
    feed.live_bytes(10 * SECOND, b"HTTP/1.1", &mut |_| ());
    assert_eq!((feed.is_live(), feed.fault()), (false, Some(Fault::Signature)));
    assert!(!feed.wants_live(10 * SECOND));
}

/// A message longer than a slice is applied later, whichever way it comes, and what is behind it waits.
#[test]
fn a_long_message_is_worked_off_in_slices() {
    let long = |seq: u64, first: &[u8]| {
        let mut payload = vec![0x93, 0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0, 0x91, 0x95];
        payload.extend(b"\xabBlockStored");
        payload.extend([0xdd, 0, 0, 0x9c, 0x40]);
        (0..40_000_u32).for_each(|hash| payload.extend([&[0xce], &hash.to_be_bytes()[..]].concat()));
        payload.extend([0xc0, 0xc0, 1, 0]);
        let mut bytes = Vec::new();
        for body in [first, &seq.to_be_bytes()] {
            bytes.extend([1, body.len() as u8]);
            bytes.extend(body);
        }
        bytes.push(2);
        bytes.extend((payload.len() as u64).to_be_bytes());
        [bytes, payload].concat()
    };
    let mut feed = new_feed(true);
    feed.cache.residency = Residency::new(Removal::One, 100_000);
    open(&mut feed, 0);
    feed.live_bytes(0, &live(1), &mut |_| ());
    serve(&mut feed, 0, &[long(0, b""), reply(1), end()]);
    let mut slices = 0;
    while feed.is_busy() {
        assert_eq!((feed.last_applied(), feed.is_catching_up()), (None, true), "it was replayed");
        feed.work(0, &mut |_| ());
        slices += 1;
    }
    assert_eq!((feed.residency().len(), feed.last_applied()), (40_000, Some(1)), "{:?}", feed.counts());
    assert!(slices > 200_000 / (1 << 15) + 9, "{slices}");
    for bytes in [&long(2, b"kv")[..], &live(3)].concat().chunks(1 << 14) {
        feed.live_bytes(0, bytes, &mut |_| ());
    }
    assert_eq!((feed.waiting(), feed.last_applied()), (2, Some(1)));
    assert!(!feed.is_catching_up(), "it is live");
    while feed.is_busy() {
        feed.work(0, &mut |_| ());
    }
    assert_eq!((feed.last_applied(), feed.counts().undecodable), (Some(3), 0));
}
