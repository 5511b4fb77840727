//! The simulated driver: a seeded network in virtual time, with the clients and engines that live in it.
//!
//! Owns time, delays, splits, full socket buffers, lost connections and the order of completions, all from
//! one seed: the same seed is the same run, to the byte. Must never read a clock or a real socket.
//!
//! It is unkind within the contract of [`Ring`]: bytes arrive in random pieces, completions late and out of
//! order between sockets, a closed slot serves again only after its last completion, buffers run out, and
//! closing a socket with unread bytes resets the other side, as a kernel does.

mod actor;
mod link;

pub use actor::{Actor, ActorId, PeerEvent, World};

use crate::{Body, Counters, Errno, Event, Held, Listener, Payload, Ring, Sizes, Sock, Wake};
use link::{Link, LinkId, Side};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Connection refused, as Linux numbers it.
const REFUSED: Errno = Errno(111);

/// Connection reset by peer.
const RESET: Errno = Errno(104);

/// How unkind the network is. Times in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Longest delay of a delivery or a completion.
    pub delay_max: u64,
    /// Bytes that a socket's send buffer takes before it is full.
    pub socket_bytes: usize,
    /// Largest piece delivered at once; pieces are random up to it.
    pub piece_max: usize,
}

impl Default for Weather {
    fn default() -> Self {
        Weather { delay_max: 400_000, socket_bytes: 32 * 1024, piece_max: 16 * 1024 }
    }
}

/// The simulated driver of one shard, and its world.
pub struct Sim {
    net: Net,
}

pub(crate) struct Net {
    now: u64,
    order: u64,
    timeline: BTreeMap<(u64, u64), Item>,
    random: u64,
    weather: Weather,
    sizes: Sizes,
    slots: Vec<Slot>,
    free_slots: VecDeque<u32>,
    links: Vec<Link>,
    buffers: Vec<Vec<u8>>,
    free_buffers: Vec<u16>,
    starved: VecDeque<LinkId>,
    listeners: Vec<Option<SocketAddr>>,
    servers: BTreeMap<SocketAddr, ActorId>,
    actors: Vec<Rc<RefCell<dyn Actor>>>,
    ready: VecDeque<Event>,
    counters: Counters,
}

/// What happens at a time.
enum Item {
    /// Bytes, FIN or a reset reach one side of a link.
    Deliver(LinkId, Side),
    /// A completion reaches the shard.
    Complete(Sock, Completion),
    /// A connection attempt of a client actor reaches the VIP.
    Arrive(LinkId, SocketAddr),
    /// An actor is told something.
    Tell(ActorId, PeerEvent),
}

enum Completion {
    Connected(Result<(), Errno>),
    Sent(Payload, Result<(), Errno>),
}

/// A socket of the shard.
struct Slot {
    generation: u32,
    link: LinkId,
    open: bool,
    receiving: bool,
    /// Operations whose completion is still to come; the slot is not free before.
    pending: u32,
    sending: Option<(Payload, usize)>,
}

impl Sim {
    /// A world of `seed`.
    pub fn new(seed: u64, sizes: Sizes, weather: Weather) -> Sim {
        let buffers = usize::from(sizes.buffers);
        Sim {
            net: Net {
                now: 1_000_000_000,
                order: 0,
                timeline: BTreeMap::new(),
                random: seed,
                weather,
                sizes,
                slots: Vec::new(),
                free_slots: VecDeque::new(),
                links: Vec::new(),
                buffers: vec![Vec::new(); buffers],
                free_buffers: (0..sizes.buffers).collect(),
                starved: VecDeque::new(),
                listeners: Vec::new(),
                servers: BTreeMap::new(),
                actors: Vec::new(),
                ready: VecDeque::new(),
                counters: Counters::default(),
            },
        }
    }

    /// Lets an actor live in this world; it is told [`PeerEvent::Begun`] at once.
    pub fn add(&mut self, actor: Rc<RefCell<dyn Actor>>) -> ActorId {
        let id = ActorId(self.net.actors.len());
        self.net.actors.push(actor);
        self.net.tell(id, PeerEvent::Begun, 0);
        id
    }

    /// Makes an actor the server at an address.
    pub fn serve(&mut self, at: SocketAddr, actor: ActorId) {
        self.net.servers.insert(at, actor);
    }

    /// Opens a VIP. In a simulation listeners are made here, not from descriptors.
    pub fn listen_at(&mut self, at: SocketAddr) -> Listener {
        self.net.listeners.push(Some(at));
        Listener(self.net.listeners.len() as u32 - 1)
    }

    /// Time passes while nobody waits, as when work takes long: what is due happens, and is told later.
    pub fn pass(&mut self, nanos: u64) {
        let until = self.net.now.saturating_add(nanos);
        while let Some(first) = self.net.timeline.first_entry().filter(|first| first.key().0 <= until) {
            let ((at, _), item) = first.remove_entry();
            self.net.now = at;
            self.net.run(item);
        }
        self.net.now = self.net.now.max(until);
    }

    /// Whether nothing is going to happen any more.
    pub fn is_over(&self) -> bool {
        self.net.timeline.is_empty() && self.net.ready.is_empty()
    }

    /// Sockets of the shard that are open or not yet free.
    pub fn sockets(&self) -> usize {
        self.net.slots.iter().filter(|s| s.open || s.pending > 0).count()
    }
}

impl Net {
    pub(crate) fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0xA076_1D64_78BD_642F);
        let wide = u128::from(self.random) * u128::from(self.random ^ 0xE703_7ED1_A0B4_28DB);
        let bits = (wide >> 64) as u64 ^ wide as u64;
        if below == 0 { 0 } else { bits % below }
    }

    fn at(&mut self, after: u64, item: Item) {
        self.order += 1;
        self.timeline.insert((self.now + after, self.order), item);
    }

    fn soon(&mut self, item: Item) {
        let after = 1 + self.draw(self.weather.delay_max);
        self.at(after, item);
    }

    fn tell(&mut self, actor: ActorId, event: PeerEvent, after: u64) {
        self.at(after, Item::Tell(actor, event));
    }

    /// Schedules the next delivery to one side, unless one is under way or there is none.
    fn pull(&mut self, id: LinkId, side: Side) {
        let wanted = match side {
            Side::Actor => !self.links[id].actor_paused,
            Side::Shard => self.shard_slot(id).is_some_and(|s| s.open && s.receiving),
        };
        let pipe = self.links[id].pipe_to(side);
        if wanted && !pipe.under_way && pipe.has_news() {
            pipe.under_way = true;
            self.soon(Item::Deliver(id, side));
        }
    }

    fn shard_slot(&mut self, id: LinkId) -> Option<&mut Slot> {
        let sock = self.links[id].sock?;
        self.slots.get_mut(sock.slot as usize).filter(|s| s.generation == sock.generation)
    }

    fn run(&mut self, item: Item) {
        match item {
            Item::Deliver(id, Side::Actor) => self.deliver_to_actor(id),
            Item::Deliver(id, Side::Shard) => self.deliver_to_shard(id),
            Item::Complete(sock, completion) => self.complete(sock, completion),
            Item::Arrive(id, vip) => self.arrive(id, vip),
            Item::Tell(actor, event) => {
                let actor_ref = self.actors[actor.0].clone();
                actor_ref.borrow_mut().react(event, &mut World { net: self, actor });
            }
        }
    }

    fn deliver_to_actor(&mut self, id: LinkId) {
        let piece = 1 + self.draw(self.weather.piece_max as u64) as usize;
        let link = &mut self.links[id];
        link.to_actor.under_way = false;
        if link.actor_paused || link.actor_closed {
            return;
        }
        let (actor, conn) = (link.actor, id);
        let event = if link.to_actor.reset {
            link.actor_closed = true;
            PeerEvent::Reset { conn }
        } else if !link.to_actor.bytes.is_empty() {
            PeerEvent::Data { conn, bytes: link.to_actor.take(piece) }
        } else if link.to_actor.fin && !link.to_actor.fin_told {
            link.to_actor.fin_told = true;
            PeerEvent::Ended { conn }
        } else {
            return;
        };
        self.tell(actor, event, 0);
        self.push_out(id);
        self.pull(id, Side::Actor);
    }

    fn deliver_to_shard(&mut self, id: LinkId) {
        let piece =
            1 + self.draw((self.weather.piece_max as u64).min(u64::from(self.sizes.buffer_bytes))) as usize;
        self.links[id].to_shard.under_way = false;
        let Some(sock) = self.links[id].sock else { return };
        let receiving = self.shard_slot(id).is_some_and(|s| s.open && s.receiving);
        // A pause may come too late for what the kernel had completed already.
        let late = self.draw(2) == 0 && self.shard_slot(id).is_some_and(|s| s.open);
        if !receiving && !late {
            return;
        }
        let pipe = &mut self.links[id].to_shard;
        if pipe.reset {
            if !std::mem::replace(&mut pipe.fin_told, true) {
                self.ready.push_back(Event::Failed { sock, error: RESET });
            }
            return;
        }
        if pipe.bytes.is_empty() {
            if pipe.fin && !std::mem::replace(&mut pipe.fin_told, true) {
                self.ready.push_back(Event::Ended { sock });
            }
            return;
        }
        let Some(buffer) = self.free_buffers.pop() else {
            self.counters.starved += 1;
            self.starved.push_back(id);
            return;
        };
        let bytes = pipe.take(piece);
        let len = bytes.len() as u32;
        self.buffers[usize::from(buffer)] = bytes;
        self.ready.push_back(Event::Received { sock, buffer: Held { id: buffer, len } });
        self.pull(id, Side::Shard);
    }

    /// Moves bytes of the send in flight into the socket, as far as there is room.
    fn push_out(&mut self, id: LinkId) {
        let room = self.weather.socket_bytes.saturating_sub(self.links[id].to_actor.bytes.len());
        let broken = self.links[id].to_actor.reset || self.links[id].actor_closed;
        let Some(sock) = self.links[id].sock else { return };
        let Some(slot) = self.shard_slot(id) else { return };
        let Some((payload, offset)) = slot.sending.take() else { return };
        if broken {
            return self.soon(Item::Complete(sock, Completion::Sent(payload, Err(RESET))));
        }
        let bytes = self.flatten(&payload, offset, room);
        let offset = offset + bytes.len();
        self.links[id].to_actor.bytes.extend(bytes);
        if offset == payload.len() {
            self.soon(Item::Complete(sock, Completion::Sent(payload, Ok(()))));
        } else if let Some(slot) = self.shard_slot(id) {
            slot.sending = Some((payload, offset));
        }
        self.pull(id, Side::Actor);
    }

    fn flatten(&self, payload: &Payload, offset: usize, most: usize) -> Vec<u8> {
        let body: &[u8] = match &payload.body {
            Body::None => &[],
            Body::Held { buffer, range } => {
                &self.buffers[usize::from(buffer.id)][range.start as usize..range.end as usize]
            }
            Body::Owned { bytes, range } => &bytes[range.clone()],
            Body::Static(bytes) => bytes,
        };
        payload.head.iter().chain(body).skip(offset).take(most).copied().collect()
    }

    fn complete(&mut self, sock: Sock, completion: Completion) {
        let slot = &mut self.slots[sock.slot as usize];
        slot.pending -= 1;
        let open = slot.open && slot.generation == sock.generation;
        match completion {
            Completion::Connected(result) if open => self.ready.push_back(Event::Connected { sock, result }),
            Completion::Sent(payload, result) if open => {
                self.ready.push_back(Event::Sent { sock, payload, result });
            }
            Completion::Sent(payload, _) => self.drop_payload(payload),
            Completion::Connected(_) => {}
        }
        self.free_if_done(sock.slot);
    }

    fn drop_payload(&mut self, payload: Payload) {
        if let Body::Held { buffer, .. } = payload.body {
            self.give_buffer(buffer);
        }
    }

    fn give_buffer(&mut self, held: Held) {
        self.free_buffers.push(held.id);
        while let Some(id) = self.starved.pop_front() {
            self.pull(id, Side::Shard);
            if self.links[id].to_shard.under_way {
                return;
            }
        }
    }

    fn free_if_done(&mut self, slot: u32) {
        let it = &self.slots[slot as usize];
        if !it.open && it.pending == 0 && !self.free_slots.contains(&slot) {
            self.free_slots.push_back(slot);
        }
    }

    fn open_slot(&mut self, link: LinkId) -> Sock {
        let number = self.free_slots.pop_front().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                link,
                open: false,
                receiving: false,
                pending: 0,
                sending: None,
            });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[number as usize];
        *slot = Slot {
            generation: slot.generation + 1,
            link,
            open: true,
            receiving: false,
            pending: 0,
            sending: None,
        };
        let sock = Sock { slot: number, generation: slot.generation };
        self.links[link].sock = Some(sock);
        sock
    }

    fn arrive(&mut self, id: LinkId, vip: SocketAddr) {
        let actor = self.links[id].actor;
        match self.listeners.iter().position(|l| *l == Some(vip)) {
            Some(listener) => {
                let sock = self.open_slot(id);
                let peer = SocketAddr::from(([10, 9, (id >> 8) as u8, id as u8], 40_000));
                self.ready.push_back(Event::Accepted { listener: Listener(listener as u32), sock, peer });
                self.tell(actor, PeerEvent::Connected { conn: id }, 0);
            }
            None => {
                self.links[id].actor_closed = true;
                self.tell(actor, PeerEvent::Refused { conn: id }, 0);
            }
        }
    }

    /// The next event whose socket is still open; of the others, buffers go home.
    fn next_ready(&mut self) -> Option<Event> {
        loop {
            let event = self.ready.pop_front()?;
            let sock = match &event {
                Event::Received { sock, .. } | Event::Ended { sock } | Event::Failed { sock, .. } => *sock,
                Event::Connected { sock, .. } | Event::Sent { sock, .. } => *sock,
                _ => return Some(event),
            };
            if self.open(sock).is_some() {
                return Some(event);
            }
            match event {
                Event::Received { buffer, .. } => self.give_buffer(buffer),
                Event::Sent { payload, .. } => self.drop_payload(payload),
                _ => {}
            }
        }
    }

    /// The slot of an open socket.
    fn open(&mut self, sock: Sock) -> Option<&mut Slot> {
        self.slots.get_mut(sock.slot as usize).filter(|s| s.open && s.generation == sock.generation)
    }
}

impl Ring for Sim {
    fn listen(&mut self, _: OwnedFd) -> Result<Listener, Errno> {
        Err(Errno(22))
    }

    fn close_listener(&mut self, listener: Listener) {
        self.net.listeners[listener.0 as usize] = None;
        self.net.ready.push_back(Event::ListenerClosed { listener });
    }

    fn connect(&mut self, to: SocketAddr) -> Result<Sock, Errno> {
        let net = &mut self.net;
        let server = net.servers.get(&to).copied();
        let accepts = server.is_some_and(|actor| net.actors[actor.0].borrow().accepts());
        net.links.push(Link::new(server.unwrap_or(ActorId(0))));
        let id = net.links.len() - 1;
        let sock = net.open_slot(id);
        net.slots[sock.slot as usize].pending += 1;
        let result = if accepts { Ok(()) } else { Err(REFUSED) };
        if let (true, Some(actor)) = (accepts, server) {
            net.tell(actor, PeerEvent::Accepted { conn: id }, 1);
        }
        net.soon(Item::Complete(sock, Completion::Connected(result)));
        Ok(sock)
    }

    fn receive(&mut self, sock: Sock) {
        if let Some(slot) = self.net.open(sock) {
            slot.receiving = true;
            let link = slot.link;
            self.net.pull(link, Side::Shard);
        }
    }

    fn pause(&mut self, sock: Sock) {
        if let Some(slot) = self.net.open(sock) {
            slot.receiving = false;
        }
    }

    fn send(&mut self, sock: Sock, payload: Payload) {
        assert!(!payload.is_empty(), "an empty send");
        let Some(slot) = self.net.open(sock) else { return self.net.drop_payload(payload) };
        assert!(slot.sending.is_none() && slot.pending == 0, "two sends in flight on one socket");
        slot.pending += 1;
        slot.sending = Some((payload, 0));
        let link = slot.link;
        self.net.push_out(link);
    }

    fn shutdown_write(&mut self, sock: Sock) {
        if let Some(slot) = self.net.open(sock) {
            let link = slot.link;
            self.net.links[link].to_actor.fin = true;
            self.net.pull(link, Side::Actor);
        }
    }

    fn close(&mut self, sock: Sock) {
        let Some(slot) = self.net.open(sock) else { return };
        slot.open = false;
        let link = slot.link;
        if let Some((payload, _)) = slot.sending.take() {
            self.net.soon(Item::Complete(sock, Completion::Sent(payload, Err(Errno(125)))));
        }
        let unread = !self.net.links[link].to_shard.bytes.is_empty();
        let pipe = &mut self.net.links[link].to_actor;
        if unread {
            pipe.reset = true;
            pipe.bytes.clear();
        }
        pipe.fin = true;
        self.net.links[link].shard_closed = true;
        self.net.pull(link, Side::Actor);
        self.net.free_if_done(sock.slot);
    }

    fn acknowledged(&mut self, sock: Sock) -> Option<u64> {
        let link = self.net.open(sock)?.link;
        Some(1 + self.net.links[link].to_actor.taken)
    }

    fn bytes(&self, held: &Held) -> &[u8] {
        &self.net.buffers[usize::from(held.id)]
    }

    fn bytes_mut(&mut self, held: &Held) -> &mut [u8] {
        &mut self.net.buffers[usize::from(held.id)]
    }

    fn release(&mut self, held: Held) {
        self.net.give_buffer(held);
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> Result<(), Errno> {
        let net = &mut self.net;
        let until = timeout.map_or(u64::MAX, |t| net.now.saturating_add(t.as_nanos() as u64));
        while net.ready.is_empty() {
            match net.timeline.first_key_value() {
                Some(((at, _), _)) if *at <= until => {}
                _ => break,
            }
            let Some(((at, _), item)) = net.timeline.pop_first() else { break };
            net.now = at;
            net.run(item);
        }
        if net.ready.is_empty() && timeout.is_some() {
            net.now = net.now.max(until);
        }
        // One by one or several at once: both happen.
        for _ in 0..1 + net.draw(8) {
            events.extend(net.next_ready());
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        self.net.now
    }

    fn cpu_time(&self) -> u64 {
        0
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(Asleep)
    }

    fn counters(&self) -> Counters {
        Counters {
            sockets: self.sockets() as u64,
            buffers_free: self.net.free_buffers.len() as u64,
            ..self.net.counters
        }
    }
}

struct Asleep;

impl Wake for Asleep {
    fn wake(&self) {}
}
