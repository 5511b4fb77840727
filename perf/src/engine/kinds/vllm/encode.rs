//! vLLM as an encoder (`ec_role` producer) with `ECCPUConnector`, 0.30 to 0.32: a chat of one part for one token, and in its
//! answer `ec_transfer_params`, by which prefill finds the encoding.

use serde_json::{Value, json};

use crate::engine::kinds::pair::{Half, Leg};
use crate::engine::openai::Ask;

/// Bytes of an encoding, made up.
const SIZE: u64 = 4096;

/// The part to encode; what is asked of an encoder in vain is counted.
pub fn leg(half: &mut Half<'_>, ask: &Ask) -> Leg {
    if ask.max_tokens != Some(1) {
        half.blame("not_one_token");
    }
    if ask.stream {
        half.blame("streamed_encode");
    }
    match &ask.media.names[..] {
        [name] if ask.media.texts == 0 && ask.chat => Leg::Encode { name: name.clone() },
        _ => half.alone("not_one_part"),
    }
}

/// `ec_transfer_params`, by the name of the part.
pub fn handed(half: &Half<'_>, name: &str) -> Value {
    let Some(door) = half.door else { return Value::Null };
    json!({name: {"peer_host": door.ip().to_string(), "peer_port": door.port(), "size_bytes": SIZE}})
}
