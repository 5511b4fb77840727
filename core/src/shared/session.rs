//! Sessions of the whole gateway: which endpoints serve a conversation, whichever shard its next turn comes to. Owns
//! what is kept of one; must never keep a client's words (a key is a hash) nor an endpoint's place in a rule, which
//! changes with the rule: endpoints are kept by what their address makes of them.
//!
//! All are in one map of bounded bytes ([`super::timed`]), so that a read never waits. Where it is full, the sessions
//! whose time would be over first go.

use super::timed::TimedMap;
use crate::Nanos;
use crate::fleet::EndpointId;

/// Bytes of sessions that a gateway keeps once a rule asks for them: some 160,000.
pub const SESSION_BYTES: usize = 4 << 20;

/// The endpoints that serve a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Who computes its prompts; `None` where one endpoint does both.
    pub prefill: Option<EndpointId>,
    /// Who answers.
    pub decode: EndpointId,
}

impl Pin {
    /// One endpoint for all.
    pub fn on(decode: EndpointId) -> Pin {
        Pin { prefill: None, decode }
    }

    fn word(self) -> u64 {
        u64::from(self.prefill.map_or(0, EndpointId::number)) << 32 | u64::from(self.decode.number())
    }

    fn of(word: u64) -> Option<Pin> {
        let decode = EndpointId::of_number(word as u32)?;
        Some(Pin { prefill: EndpointId::of_number((word >> 32) as u32), decode })
    }
}

/// The sessions. Keys are those of [`crate::session::key`].
#[derive(Debug)]
pub struct Sessions(TimedMap);

impl Sessions {
    /// At most `bytes` of them, 25.6 each.
    pub fn new(bytes: usize) -> Sessions {
        Sessions(TimedMap::new(bytes))
    }

    /// What they occupy, bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Who serves a session; from now on it is kept for `ttl` again.
    pub fn find(&self, key: u64, ttl: Nanos, now: Nanos) -> Option<Pin> {
        self.0.find(key, now.saturating_add(ttl), now).and_then(Pin::of)
    }

    /// From now on `pin` serves the session, which is kept for `ttl`.
    pub fn pin(&self, key: u64, pin: Pin, ttl: Nanos, now: Nanos) {
        // Nearly always it is pinned so already, and finding it was enough.
        if self.find(key, ttl, now) != Some(pin) {
            self.0.put(key, now.saturating_add(ttl), now, |_| pin.word());
        }
    }

    /// The session is nobody's any more, unless another one than `pin` serves it by now.
    pub fn forget(&self, key: u64, pin: Pin) {
        self.0.remove(key, pin.word());
    }

    /// Sessions kept at `now`.
    pub fn active(&self, now: Nanos) -> usize {
        self.0.live(now)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::SECOND;

    fn id(port: u16) -> EndpointId {
        EndpointId::of(([10, 0, 0, 1], port).into())
    }

    #[test]
    fn a_pair_is_kept_together_slides_and_is_forgotten() {
        let sessions = Sessions::new(SESSION_BYTES);
        assert!(sessions.bytes() <= SESSION_BYTES);
        let pair = Pin { prefill: Some(id(1)), decode: id(2) };
        sessions.pin(7, pair, 300 * SECOND, 0);
        assert_eq!(sessions.find(7, 300 * SECOND, 299 * SECOND), Some(pair));
        assert_eq!(sessions.find(7, 300 * SECOND, 598 * SECOND), Some(pair), "it slid");
        assert_eq!((sessions.find(8, SECOND, 0), sessions.active(598 * SECOND)), (None, 1));
        sessions.forget(7, Pin::on(id(2)));
        assert_eq!(sessions.find(7, 300 * SECOND, 599 * SECOND), Some(pair), "another pin was meant");
        sessions.forget(7, pair);
        assert_eq!(sessions.find(7, SECOND, 599 * SECOND), None);
        sessions.pin(7, Pin::on(id(3)), SECOND, 600 * SECOND);
        sessions.pin(7, Pin::on(id(4)), SECOND, 600 * SECOND);
        assert_eq!(sessions.find(7, SECOND, 600 * SECOND), Some(Pin::on(id(4))), "the last wins");
        assert_eq!(sessions.find(7, SECOND, 601 * SECOND), None, "its time was over");
        assert_eq!(sessions.active(601 * SECOND), 0);
    }

    #[test]
    fn many_sessions_cost_no_more_bytes() {
        let sessions = Sessions::new(1 << 16);
        for session in 0..100_000u64 {
            sessions.pin(session.wrapping_mul(0x9E37_79B9_7F4A_7C15), Pin::on(id(1)), SECOND, 0);
        }
        let active = sessions.active(0);
        assert!(sessions.bytes() == 1 << 16 && active > 2_000 && active <= 2_560, "{active}");
    }
}
