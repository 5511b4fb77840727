//! Many seeded lives at once: clients that leave at any moment, by FIN or reset; a shard that pauses, goes on
//! and closes at any moment; queues and buffers so small that every rare path is taken. In the end nothing
//! may be left, and no client may ever have read a byte that it did not send. `RING_CHAOS_SEEDS` sets how many
//! seeds are run.

use crate::harness::{Seen, Shard, small};
use rustix::net::sockopt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;
use warmpath_ring::{Body, Held, Payload, Ring, Sizes, Sock};

const CLIENTS: usize = 24;
const LIVES_EACH: usize = 12;

/// A small generator (xorshift64); the seed names the run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

pub fn survives_any_order_of_events<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let seeds = std::env::var("RING_CHAOS_SEEDS").map_or(3, |text| text.parse().unwrap());
    for seed in 1..=seeds {
        for (completions, buffers) in [(8, 4), (64, 16), (256, 64)] {
            let sizes = Sizes { submissions: 8, completions, buffers, ..small() };
            println!("seed {seed}, {completions} completions, {buffers} buffers");
            one_run(make(sizes), sizes, seed);
        }
    }
}

fn one_run<R: Ring>(ring: R, sizes: Sizes, seed: u64) {
    let mut shard = Shard::new(ring);
    let (_, address) = shard.listen();
    let clients: Vec<_> = (0..CLIENTS as u64).map(|id| client(address, seed * 1000 + id + 1)).collect();
    let mut dice = Dice(seed);
    shard.run(
        |shard, seen| live(shard, seen, &mut dice),
        |shard| shard.accepted + shard.aborted == CLIENTS * LIVES_EACH && shard.open.is_empty(),
    );
    shard.settle(&sizes);
    clients.into_iter().for_each(|client| client.join().unwrap());
}

/// The shard's part in one event.
fn live<R: Ring>(shard: &mut Shard<R>, seen: Seen, dice: &mut Dice) {
    let sock = match seen {
        Seen::Accepted(sock) => {
            shard.ring.receive(sock);
            sock
        }
        Seen::Received(sock, held) => {
            answer(shard, sock, held, dice);
            sock
        }
        Seen::Sent(sock, payload, ok) => {
            shard.release(payload);
            if !ok {
                return shard.close(sock);
            }
            sock
        }
        Seen::Ended(sock) | Seen::Failed(sock) => return shard.close(sock),
        Seen::Connected => return,
    };
    match dice.roll(40) {
        0 => shard.close(sock),
        1 => shard.ring.shutdown_write(sock),
        2..6 => {
            shard.ring.pause(sock);
            shard.ring.receive(sock);
        }
        _ => {}
    }
}

/// Sends back what came, in one part or two, or keeps silent.
fn answer<R: Ring>(shard: &mut Shard<R>, sock: Sock, held: Held, dice: &mut Dice) {
    if shard.peer(sock).sending {
        return shard.ring.release(held);
    }
    let len = held.len();
    let cut = dice.roll(u64::from(len)) as u32;
    let head = shard.ring.bytes(&held)[..cut as usize].to_vec();
    let body = if cut == len { Body::None } else { Body::Held { buffer: held, range: cut..len } };
    shard.send(sock, Payload { head, body });
}

/// Lives one after another: each sends, reads a little or nothing, and leaves somehow.
fn client(to: SocketAddr, seed: u64) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for life in 0..LIVES_EACH {
            let mark = (seed as usize * LIVES_EACH + life) as u8;
            let mut stream = TcpStream::connect(to).unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(1 + dice.roll(10)))).unwrap();
            stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
            for _ in 0..dice.roll(4) {
                exchange(&mut stream, mark, 1 + dice.roll(30_000) as usize);
            }
            if dice.roll(3) == 0 {
                sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
            }
        }
    })
}

/// Sends bytes of one value, this life's own, and checks that no other comes back. The connection may die.
fn exchange(stream: &mut TcpStream, mark: u8, len: usize) {
    let _ = stream.write_all(&vec![mark; len]);
    let mut got = vec![0; 8192];
    while let Ok(count @ 1..) = stream.read(&mut got) {
        assert!(got[..count].iter().all(|byte| *byte == mark), "bytes of another connection");
    }
}
