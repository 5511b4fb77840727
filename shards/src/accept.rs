//! A client connects, idles, leaves. Owns the life of a client connection outside of its requests; must
//! never parse.

use crate::conn::{Client, Deadline, Stage};
use crate::flow::Flow;
use crate::outbox::Outbox;
use std::net::SocketAddr;
use warmpath_core::Nanos;
use warmpath_core::control::{Count, DrainPhase};
use warmpath_core::fault::Fault;
use warmpath_core::receipt::Outcome;
use warmpath_core::rule::HalfClose;
use warmpath_parser::http1::RequestParser;
use warmpath_ring::{Ring, Sock};

impl<R: Ring> Flow<R> {
    /// Takes in a new client.
    pub(crate) fn accept(&mut self, vip: usize, sock: Sock, peer: SocketAddr) {
        self.tally.count(Count::Accepted);
        let mut client = Box::new(Client {
            sock,
            transport: self.settings.client_transport,
            vip,
            peer,
            stage: Stage::Head,
            parser: RequestParser::new(),
            inbuf: Vec::new(),
            outbox: Outbox::default(),
            deadline: Deadline { at: 0, armed: Nanos::MAX },
            exchange: None,
            receiving: false,
            ended: false,
            close_after: false,
            lingered: 0,
            seat: None,
        });
        self.seat_client(&mut client);
        let closing = self.phase >= DrainPhase::Closing;
        let within = if closing { self.settings.linger } else { self.settings.client_idle };
        self.expect_client(&mut client, within);
        self.conns.add_client(client);
    }

    /// Receives from the client again.
    pub(crate) fn resume_client(&mut self, client: &mut Client) {
        if !client.receiving && !client.ended {
            client.receiving = true;
            self.ring.receive(client.sock);
        }
    }

    /// Stops receiving from the client.
    pub(crate) fn pause_client(&mut self, client: &mut Client) {
        if client.receiving {
            client.receiving = false;
            self.ring.pause(client.sock);
        }
    }

    /// The client sent FIN, or its connection failed. After a whole request a FIN means that it left,
    /// unless the rule says that half-closed clients are served.
    pub(crate) fn client_ended(&mut self, client: &mut Client, failed: bool) {
        client.ended = true;
        client.receiving = false;
        client.close_after = true;
        let serves = || {
            let service = client.exchange.as_ref()?.route.service.as_ref()?;
            Some(service.service.rule.half_close == HalfClose::Serve)
        };
        let stays = match client.stage {
            Stage::Queued
            | Stage::Tokenizing
            | Stage::Prefilling
            | Stage::Dialing
            | Stage::Waiting
            | Stage::Relaying => {
                client.exchange.as_ref().is_some_and(|e| e.upload.is_done()) && serves().unwrap_or(false)
            }
            Stage::Answering => true,
            Stage::Head | Stage::Memory | Stage::Body | Stage::Lingering | Stage::Closed => false,
        };
        if failed || !stays {
            self.abandon(client);
        }
    }

    /// The client is gone, or must go: every leg is closed at once.
    pub(crate) fn abandon(&mut self, client: &mut Client) {
        self.leave_queue(client);
        if let Some(exchange) = &mut client.exchange {
            let status = exchange.answer.status;
            let outcome = exchange.answer.fault.map_or(Outcome::ClientLeft, Outcome::Faulted);
            let upstream = exchange.route.upstream.take();
            if exchange.times.begun != 0 {
                self.account(exchange, outcome, status);
                if outcome == Outcome::ClientLeft && !exchange.answer.complete {
                    self.tally.count(Count::ClientsLeft);
                }
            }
            self.drop_leg(upstream);
        }
        self.close_client(client);
    }

    /// The client's deadline passed.
    pub(crate) fn client_timeout(&mut self, client: &mut Client) {
        match client.stage {
            Stage::Head if client.exchange.is_none() => self.close_client(client),
            Stage::Head => self.refuse_slow(client, Fault::HeadTimeout),
            Stage::Body => self.refuse_slow(client, Fault::BodyTimeout),
            Stage::Memory => self.refuse(client, Fault::MemoryPressure),
            Stage::Queued => self.queue_timeout(client),
            Stage::Tokenizing => self.tokenizing_timeout(client),
            Stage::Prefilling => self.refuse(client, Fault::PrefillTimeout),
            Stage::Dialing => self.dial_timeout(client),
            Stage::Waiting | Stage::Relaying => self.answer_timeout(client),
            Stage::Answering | Stage::Lingering => {
                self.tally.count(Count::SlowClients);
                self.abandon(client);
            }
            Stage::Closed => {}
        }
    }

    fn refuse_slow(&mut self, client: &mut Client, fault: Fault) {
        self.tally.count(Count::SlowClients);
        self.refuse(client, fault);
    }

    /// The answer is out: the connection goes on with the next request, or ends.
    pub(crate) fn next_request(&mut self, client: &mut Client) {
        if let Some(exchange) = client.exchange.take() {
            self.keep_exchange(exchange);
        }
        if client.close_after || client.ended || self.phase >= DrainPhase::Closing {
            return self.finish_connection(client);
        }
        client.stage = Stage::Head;
        client.outbox.over_budget = false;
        client.parser = RequestParser::new();
        self.resume_client(client);
        self.expect_client(client, self.settings.client_idle);
        if !client.inbuf.is_empty() {
            self.read_head(client);
        }
    }

    /// Ends the connection so that the client can still read what was sent: FIN, then whatever it sends is
    /// thrown away until its own FIN. A close with unread bytes would reset it.
    pub(crate) fn finish_connection(&mut self, client: &mut Client) {
        if client.ended {
            return self.close_client(client);
        }
        client.stage = Stage::Lingering;
        self.memory.spare.give(std::mem::take(&mut client.inbuf));
        self.ring.shutdown_write(client.sock);
        self.resume_client(client);
        self.expect_client(client, self.settings.linger);
    }
}
