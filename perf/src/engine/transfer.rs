//! Prefill and decode, and encoders, as engines of their own: what a leg does beside its own execution. A prefill engine has a *door*, a
//! listener of its own; what it computed stands on a *shelf* or waits in a *room* until a decode engine comes for it.
//! Nothing is transferred but the proof that it could have been: both engines compute the same made-up tokens. Must
//! never let decode have what was not computed, was taken before, or has expired.

mod door;
pub(crate) mod encoding;
mod shelf;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::Engine;
use super::http::Conn;
use super::kinds::{Leg, Reply};
use super::openai::Ask;
use super::text::digest_tokens;
pub(crate) use door::serve;
pub(crate) use shelf::Shelf;

/// The longest line at a door, in bytes.
const LINE: u64 = 64 * 1024;

/// Which half of a pair an engine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// Computes prompts and hands them over (TensorRT-LLM: context).
    Prefill,
    /// Goes on from what was handed over (TensorRT-LLM: generation).
    Decode,
    /// Encodes images and other media for prefill (vLLM).
    Encode,
}

/// By which means vLLM transfers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Connector {
    /// The answer says where the blocks are.
    #[default]
    Nixl,
    /// Both requests carry a transfer id.
    Mooncake,
}

/// How an engine is half of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// Which half.
    pub role: Role,
    /// Port of the door: vLLM's side channel, SGLang's bootstrap server; 0 takes a free one.
    pub port: u16,
    /// How long prefill keeps what nobody takes.
    pub lease: Duration,
    /// How long a leg waits for the other.
    pub wait: Duration,
    /// vLLM's means.
    pub connector: Connector,
}

impl Pair {
    /// A half with a free port, vLLM's lease of 30 s, and 30 s of patience.
    pub fn of(role: Role) -> Self {
        let patience = Duration::from_secs(30);
        Pair { role, port: 0, lease: patience, wait: patience, connector: Connector::Nixl }
    }
}

/// What a decode engine says at a door.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knock {
    /// A handle to take, or a room to join, as text.
    pub name: String,
    /// Whether it is a room.
    pub room: bool,
    /// Digest of the prompt's tokens: what is handed over must be for the same prompt.
    pub prompt: u64,
}

/// What the door answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parcel {
    /// So many blocks.
    Blocks(u64),
    /// Nothing, for this reason.
    Refused(String),
}

/// What was refused at the door for a fault of the caller, which the real engines would not survive unharmed.
pub const UNKNOWN: &str = "unknown_handle";
/// The lease had ended, or another decode took it before.
pub const STALE: &str = "stale_handle";
/// A request names a handle that an earlier one had.
const REUSED: &str = "handle_reused";
/// Prefill computed another prompt.
pub const OTHER_PROMPT: &str = "other_prompt";
/// Not the caller's fault: the other leg did not come, or left.
pub const ALONE: &str = "other_leg_missing";

/// Digests by which both legs know a prompt.
fn prompt_digests(ask: &Ask) -> Vec<u64> {
    ask.prompts.iter().map(|prompt| digest_tokens(0, prompt)).collect()
}

/// Blocks of one prompt; a part counts, since it is transferred too.
fn blocks(engine: &Engine, prompt: &[u32]) -> u64 {
    prompt.len().div_ceil(engine.config.block_size) as u64
}

/// Decode's part before its own first step: the blocks from the door that the request named. Whether there were any;
/// the error is the engine's answer to the client. `None` when the client left before.
pub(crate) async fn fetch(
    engine: &Engine,
    conn: &mut Conn,
    leg: &Leg,
    ask: &Ask,
) -> Option<Result<bool, Reply>> {
    let digests = prompt_digests(ask);
    let (at, names, room) = match leg {
        Leg::Take { at, handle } => (at, vec![handle.clone()], false),
        Leg::Join { at, rooms } => (at, rooms.iter().map(u64::to_string).collect(), true),
        Leg::Alone | Leg::Hold { .. } | Leg::Meet { .. } | Leg::Encode { .. } => return Some(Ok(false)),
    };
    for (name, prompt) in names.into_iter().zip(digests) {
        let knock = Knock { name, room, prompt };
        let parcel = tokio::select! {
            parcel = tokio::time::timeout(engine.config.patience(), call(at, &knock)) => parcel,
            () = conn.gone() => return None,
        };
        match parcel {
            Ok(Ok(Parcel::Blocks(blocks))) => engine.state().stats.pair.blocks_received += blocks,
            Ok(Ok(Parcel::Refused(why))) => return Some(Err(refused(engine, &why))),
            Ok(Err(_)) => return Some(Err(refused(engine, "door_unreachable"))),
            Err(_) => {
                engine.state().stats.pair.timeouts += 1;
                return Some(Err(refused(engine, ALONE)));
            }
        }
    }
    engine.state().stats.pair.decodes += 1;
    Some(Ok(true))
}

fn refused(engine: &Engine, why: &str) -> Reply {
    let known = [UNKNOWN, STALE, OTHER_PROMPT].into_iter().find(|name| *name == why);
    match known {
        Some(name) => engine.state().stats.violation(name),
        None => engine.state().stats.pair.failed += 1,
    }
    engine.config.kind.transfer_failed(why)
}

async fn call(at: &str, knock: &Knock) -> std::io::Result<Parcel> {
    let mut stream = TcpStream::connect(at).await?;
    let mut line = serde_json::to_vec(knock)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut answer = String::new();
    tokio::io::AsyncReadExt::take(BufReader::new(stream), LINE).read_line(&mut answer).await?;
    Ok(serde_json::from_str(&answer)?)
}

/// Prefill's part once its prompts are computed: it keeps them, or waits until decode has come. The error is the
/// engine's answer; `None` when the client left before, and what was in the rooms is gone.
pub(crate) async fn hand_over(
    engine: &Engine,
    conn: &mut Conn,
    leg: &Leg,
    ask: &Ask,
) -> Option<Result<(), Reply>> {
    let parcels = ask.prompts.iter().map(|prompt| blocks(engine, prompt));
    let parcels: Vec<(u64, u64)> = prompt_digests(ask).into_iter().zip(parcels).collect();
    match leg {
        Leg::Hold { handle } => {
            let computed = parcels.first().copied().unwrap_or_default();
            if !engine.shelf.hold(handle, computed, engine.config.lease()) {
                engine.state().stats.violation(REUSED);
                return Some(Err(engine.config.kind.transfer_failed(REUSED)));
            }
            engine.state().stats.pair.prefills += 1;
            Some(Ok(()))
        }
        Leg::Meet { rooms } => {
            engine.state().stats.pair.prefills += 1;
            let guests = rooms.iter().zip(&parcels).map(|(room, parcel)| engine.shelf.ready(*room, *parcel));
            let guests: Vec<_> = guests.collect();
            let all = async {
                for guest in guests {
                    guest.taken().await;
                }
            };
            tokio::select! {
                met = tokio::time::timeout(engine.config.patience(), all) => match met {
                    Ok(()) => Some(Ok(())),
                    Err(_) => {
                        engine.state().stats.pair.timeouts += 1;
                        Some(Err(refused(engine, ALONE)))
                    }
                },
                () = conn.gone() => None,
            }
        }
        Leg::Encode { name } => {
            engine.shelf.encode(&encoding::place(name));
            engine.state().stats.pair.encodings += 1;
            Some(Ok(()))
        }
        Leg::Alone | Leg::Take { .. } | Leg::Join { .. } => Some(Ok(())),
    }
}

/// Rooms of a prefill leg for as long as it lives: whoever joins later finds nobody.
pub(crate) struct Occupied<'a> {
    engine: &'a Engine,
    rooms: Vec<u64>,
}

impl<'a> Occupied<'a> {
    /// Opens the rooms of a leg; the error names what is wrong with them.
    pub(crate) fn open(engine: &'a Engine, leg: &Leg) -> Result<Option<Self>, &'static str> {
        let Leg::Meet { rooms } = leg else { return Ok(None) };
        let mut held = Occupied { engine, rooms: Vec::new() };
        for room in rooms {
            if !engine.shelf.open(*room) {
                return Err("room_reused");
            }
            held.rooms.push(*room);
        }
        Ok(Some(held))
    }
}

impl Drop for Occupied<'_> {
    fn drop(&mut self) {
        self.rooms.iter().for_each(|room| self.engine.shelf.close(*room));
    }
}
