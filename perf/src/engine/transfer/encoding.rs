//! Encodings of media: an encoder keeps each by its name, and prefill engines come for it to its door, however often.
//! Must never let prefill have one that was not made, nor one that its request has no part for.

use serde_json::Value;

use super::{Knock, Parcel, call};
use crate::engine::Engine;
use crate::engine::http::Conn;
use crate::engine::openai::Ask;
use crate::engine::transfer::Role;

/// What an encoding is called at a door.
pub(super) fn place(name: &str) -> String {
    format!("encoding/{name}")
}

/// Prefill's part before it computes a prompt with media: their encodings from where its request says; what is not told,
/// or not there any more, it encodes itself, as the real engine does. `None` when the client left before.
pub(crate) async fn fetch(engine: &Engine, conn: &mut Conn, ask: &Ask) -> Option<()> {
    if engine.config.pair.is_none_or(|pair| pair.role != Role::Prefill) {
        return Some(());
    }
    let told = ask.handshake.encoder.as_object().cloned().unwrap_or_default();
    if told.keys().any(|name| !ask.media.names.contains(name)) {
        engine.state().stats.violation("foreign_encoding");
    }
    for name in &ask.media.names {
        let fetched = match told.get(name) {
            None => false,
            Some(params) => {
                let knock = Knock { name: place(name), room: false, prompt: 0 };
                let (at, patience) = (peer(params), engine.config.patience());
                tokio::select! {
                    parcel = tokio::time::timeout(patience, call(&at, &knock)) => {
                        matches!(parcel, Ok(Ok(Parcel::Blocks(_))))
                    }
                    () = conn.gone() => return None,
                }
            }
        };
        let pair = &mut engine.state().stats.pair;
        *if fetched { &mut pair.encodings_received } else { &mut pair.encoded_here } += 1;
    }
    Some(())
}

fn peer(params: &Value) -> String {
    let host = params["peer_host"].as_str().unwrap_or_default();
    format!("{host}:{}", params["peer_port"].as_u64().unwrap_or(0))
}
