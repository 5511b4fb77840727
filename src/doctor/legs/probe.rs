//! Prompts of token ids that are new to an engine's cache, and their blocks as its events tell of them. Owns the probes
//! and what is said when nothing comes; must never judge a name.

use super::events;
use crate::doctor::blocks::Block;
use crate::doctor::look::{Look, completion, owned};
use crate::doctor::row::{Leg, Row};
use serde_json::Value;

/// Blocks that a probe fills.
const BLOCKS: usize = 4;
/// Tokens of a block where nobody tells: more than this no engine has by default.
const LARGEST: usize = 256;
/// Probes that are sent: the first may be missed by a subscription that the engine has not taken in yet.
const TRIES: usize = 3;

/// A prompt of token ids, and its blocks as events told of them.
pub struct Probed {
    /// The prompt.
    pub ids: Vec<u32>,
    /// Its blocks on rank 0, in order; at least one.
    pub chain: Vec<Block>,
}

/// Probes every rank with a plain prompt; that of rank 0.
pub fn plain(look: &mut Look<'_>) -> Option<Probed> {
    let ranks = look.wanted.exact.as_ref().map_or(1, |exact| exact.ranks);
    let mut first = None;
    for rank in 0..ranks {
        match probed(look, &look.model(), look.pinned(rank), None) {
            Ok(probed) => {
                if let Some(row) = another_rank(look, rank, &probed) {
                    look.tell(row);
                    return None;
                }
                first = first.or(Some(probed));
            }
            Err(why) => {
                look.tell(silent(look, rank, &why));
                return None;
            }
        }
    }
    events::came(look);
    first
}

/// A request that was sent to one rank must be told of by that rank's publisher.
fn another_rank(look: &Look<'_>, rank: u8, probed: &Probed) -> Option<Row> {
    let exact = look.wanted.exact.as_ref()?;
    let told = probed.chain.iter().find(|block| exact.ranks > 1 && block.rank != u32::from(rank))?;
    Some(
        Row::not_equal(Leg::Events, format!("a probe of rank {rank} is told of as rank {}", told.rank))
            .rule("kvZmqPort: the port of rank 0; the others follow it one by one"),
    )
}

fn silent(look: &Look<'_>, rank: u8, why: &str) -> Row {
    let port = look.wanted.exact.as_ref().map_or(0, |exact| exact.ports.publish);
    let said = match (&look.heard.reject, look.heard.unkept) {
        (Some(reject), _) => format!("; batches came that can't be read: {reject}"),
        (None, 0) => String::new(),
        (None, unkept) => format!("; {unkept} blocks came without their tokens"),
    };
    Row::not_equal(Leg::Events, format!("rank {rank}: {why}{said}"))
        .engine((look.launch.events)(port))
        .rule("kvZmqPort: the port at which this engine publishes, not another's")
}

/// Sends prompts until the blocks of one come.
pub fn probed(
    look: &mut Look<'_>,
    model: &str,
    rank: Option<u8>,
    salt: Option<&str>,
) -> Result<Probed, String> {
    let rule = look.wanted.exact.as_ref().map_or(16, |exact| exact.contract.block_size().tokens());
    let told = look.facts.block_size.map(|own| own as usize);
    let mut size = told.unwrap_or(rule).max(1);
    let mut why = String::new();
    for _ in 0..TRIES {
        let ids = look.token_ids(BLOCKS * size + 5);
        let sent =
            match look.send("/v1/completions", &completion(model, Value::from(ids.clone()), salt), rank) {
                Ok(sent) => sent,
                Err(fault) => return Err(format!("a probe of {} token ids: {fault}", ids.len())),
            };
        look.hear_until(|heard| heard.chain(sent.since, &ids, None).len() >= BLOCKS)?;
        let chain = owned(look.heard.chain(sent.since, &ids, None));
        if !chain.is_empty() {
            return Ok(Probed { ids, chain });
        }
        why = format!("a probe of {} token ids was answered, and no event told of its blocks", ids.len());
        size = told.unwrap_or(LARGEST);
    }
    Err(why)
}
