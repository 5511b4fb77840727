//! The PUB and ROUTER sockets of each rank on tokio: subscriptions, heartbeats, replay, and the faults of
//! a link. Must never publish by itself; it sends what a stream hands it.

use std::io;
use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use super::endpoint::{Door, Live};
use super::stream::Batch;
use super::zmtp::{Frame, Parts, Peer};
use crate::engine::Engine;
use crate::engine::faults::Replay;

/// Pause before dialing or accepting is tried again (libzmq: ZMQ_RECONNECT_IVL, 100 ms).
const RETRY: Duration = Duration::from_millis(100);
/// The number that ends a replay.
const END: [u8; 8] = [0xff; 8];

/// Serves one rank's sockets until the runtime ends.
pub(crate) fn serve(engine: &Arc<Engine>, rank: usize, door: Door) {
    match door.live {
        Live::Bound(listener) => {
            tokio::spawn(accept(engine.clone(), rank, listener, Socket::Live));
        }
        Live::Dials(to) => {
            tokio::spawn(dial(engine.clone(), rank, to));
        }
    }
    if let Some(listener) = door.replay {
        tokio::spawn(accept(engine.clone(), rank, listener, Socket::Replay));
    }
}

#[derive(Debug, Clone, Copy)]
enum Socket {
    Live,
    Replay,
}

async fn accept(engine: Arc<Engine>, rank: usize, listener: StdListener, socket: Socket) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(connection(engine.clone(), rank, stream, socket))),
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

async fn dial(engine: Arc<Engine>, rank: usize, to: String) {
    loop {
        if let Ok(stream) = TcpStream::connect(&to).await {
            connection(engine.clone(), rank, stream, Socket::Live).await;
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// One connection, until the peer leaves or all are closed.
async fn connection(engine: Arc<Engine>, rank: usize, stream: TcpStream, socket: Socket) {
    let mut closing = engine.link_closings.subscribe();
    tokio::select! {
        _ = closing.changed() => {}
        _ = async {
            match socket {
                Socket::Live => live(&engine, rank, stream).await,
                Socket::Replay => replay(&engine, rank, stream).await,
            }
        } => {}
    }
}

async fn live(engine: &Engine, rank: usize, stream: TcpStream) -> io::Result<()> {
    let events = &engine.config.events;
    let mut peer = Peer::greet(stream, "PUB", events.zmtp_minor).await?;
    let Some(mut queue) = engine.listen(rank) else { return Ok(()) };
    let (mut topics, mut parts) = (Vec::new(), Parts::default());
    loop {
        tokio::select! {
            frame = peer.frame() => match frame? {
                Frame::Command(name, body) => match name.as_slice() {
                    b"SUBSCRIBE" => topics.push(body),
                    b"CANCEL" => drop_one(&mut topics, &body),
                    b"PING" => pong(engine, &mut peer, &body).await?,
                    _ => {}
                },
                Frame::Part(part, more) => if let Some(message) = parts.take(part, more)? {
                    subscription(&mut topics, &message);
                }
            },
            batch = queue.recv() => {
                let Some(batch) = batch else { return Ok(()) };
                if topics.iter().any(|topic| events.topic.as_bytes().starts_with(topic)) {
                    send(&mut peer, &events.topic, &batch).await?;
                }
            }
        }
    }
}

/// ZMTP 3.0 subscribes by a message: 1 or 0, then the topic.
fn subscription(topics: &mut Vec<Vec<u8>>, message: &[Vec<u8>]) {
    match message.first().map(Vec::as_slice) {
        Some([1, topic @ ..]) => topics.push(topic.to_vec()),
        Some([0, topic @ ..]) => drop_one(topics, topic),
        _ => {}
    }
}

fn drop_one(topics: &mut Vec<Vec<u8>>, topic: &[u8]) {
    if let Some(at) = topics.iter().position(|held| held == topic) {
        topics.swap_remove(at);
    }
}

/// A PING's body is a time to live of two bytes and a context, which comes back.
async fn pong(engine: &Engine, peer: &mut Peer, ping: &[u8]) -> io::Result<()> {
    if engine.faults.borrow().kv_silence {
        return Ok(());
    }
    peer.command(b"PONG", ping.get(2..).unwrap_or_default()).await
}

async fn send(peer: &mut Peer, topic: &str, batch: &Batch) -> io::Result<()> {
    peer.send(&[topic.as_bytes(), &batch.number.to_be_bytes(), &batch.payload]).await
}

async fn replay(engine: &Engine, rank: usize, stream: TcpStream) -> io::Result<()> {
    let mut peer = Peer::greet(stream, "ROUTER", engine.config.events.zmtp_minor).await?;
    let mut parts = Parts::default();
    loop {
        match peer.frame().await? {
            Frame::Command(name, body) if name == b"PING" => pong(engine, &mut peer, &body).await?,
            Frame::Command(..) => {}
            Frame::Part(part, more) => match parts.take(part, more)?.as_deref() {
                // Anything else, a number without the empty delimiter too, gets no answer.
                Some([empty, number]) if empty.is_empty() => {
                    if let Ok(number) = number.as_slice().try_into() {
                        answer(engine, rank, &mut peer, u64::from_be_bytes(number)).await?;
                    }
                }
                _ => {}
            },
        }
    }
}

/// Sends the kept batches from a number on and the end mark, as the replay switches allow.
async fn answer(engine: &Engine, rank: usize, peer: &mut Peer, from: u64) -> io::Result<()> {
    let (fault, late, silent) = {
        let faults = engine.faults.borrow();
        (faults.kv_replay, faults.kv_replay_late_ms, faults.kv_silence)
    };
    if let Some(late) = late {
        tokio::time::sleep(Duration::from_millis(late)).await;
    }
    if silent || fault == Some(Replay::Silent) {
        return Ok(());
    }
    if fault == Some(Replay::Refuse) {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    let mut batches = engine.kept_since(rank, from);
    if fault.is_some() {
        batches.truncate(batches.len() / 2);
    }
    let config = &engine.config;
    let topic = config.kind.replays_topic(&config.release()).then_some(config.events.topic.as_bytes());
    for batch in batches {
        message(peer, topic, &batch.number.to_be_bytes(), &batch.payload).await?;
    }
    if fault == Some(Replay::Cut) {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    message(peer, topic.map(|_| &[][..]), &END, &[]).await
}

async fn message(peer: &mut Peer, topic: Option<&[u8]>, number: &[u8], payload: &[u8]) -> io::Result<()> {
    match topic {
        Some(topic) => peer.send(&[&[], topic, number, payload]).await,
        None => peer.send(&[&[], number, payload]).await,
    }
}
