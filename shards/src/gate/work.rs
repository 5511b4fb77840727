//! What a request costs its tenant, where a gate is fair by tenant. Owns the estimate, and telling the gate of work that
//! was done since it was told last; must never decide whose turn it is.
//!
//! Tokens are estimated by bytes: prompts are weighed before anybody tokenizes them, and answers as they run.

use super::{Pass, Stand};
use crate::conn::Conn;
use crate::exchange::{Answer, Exchange};
use crate::flow::Flow;
use warmpath_core::shared::Work;
use warmpath_parser::http1::Framing;
use warmpath_ring::Ring;

/// Bytes of English text that make a token.
const TOKEN_BYTES: u64 = 4;
/// Bytes of an event that brings a token: engines wrap each in some 200 to 300.
const EVENT_BYTES: u64 = 256;

/// What one request has been charged to its tenant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Charged {
    tenant: u64,
    prompt: u64,
    /// Of prompt and answer.
    so_far: u64,
}

impl Charged {
    /// Nothing yet, of a request of this tenant.
    pub fn nothing(tenant: u64, exchange: &Exchange) -> Charged {
        let length = match exchange.head.body {
            Framing::Length(bytes) => bytes,
            _ => exchange.body.len() as u64,
        };
        Charged { tenant, prompt: length / TOKEN_BYTES, so_far: 0 }
    }

    /// What its turn begins with.
    pub fn first(&self) -> Work {
        Work { tenant: self.tenant, amount: self.prompt }
    }

    /// Its turn came: the gate counted that.
    pub fn has_begun(&mut self) {
        self.so_far = self.prompt;
    }

    /// What is to be charged of it now.
    fn rest(&mut self, answer: &Answer) -> Work {
        let bytes = if answer.streamed { EVENT_BYTES } else { TOKEN_BYTES };
        let whole = self.prompt + answer.bytes_out / bytes;
        let amount = whole.saturating_sub(self.so_far);
        self.so_far += amount;
        Work { tenant: self.tenant, amount }
    }
}

/// Tells the gate what a request has cost since it was told last, if it has a permit.
pub(crate) fn charge(exchange: &mut Exchange) {
    let Exchange { pass, answer, .. } = exchange;
    if let Some(Pass { stand: Stand::In, charged: Some(charged), service, .. }) = pass {
        let work = charged.rest(answer);
        if work.amount > 0 {
            service.admission.gate.serve(work);
        }
    }
}

impl<R: Ring> Flow<R> {
    /// Charges what runs on this shard: while others wait here, long answers count before they end. Where nobody waits, they
    /// count when they end.
    pub(super) fn charge_running(&mut self) {
        let runs = |conn: &Conn| {
            let Conn::Client(client) = conn else { return false };
            let pass = client.exchange.as_ref().and_then(|exchange| exchange.pass.as_ref());
            pass.is_some_and(|pass| pass.charged.is_some())
        };
        for sock in self.conns.socks(runs) {
            let Some(mut client) = self.conns.take_client(sock) else { continue };
            client.exchange.as_deref_mut().into_iter().for_each(charge);
            self.conns.put_client(client);
        }
    }
}
