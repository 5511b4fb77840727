//! What the frames of a message are. Owns the layouts of vLLM's and SGLang's publish and replay sockets; must
//! never look into a payload.

use crate::zmtp::Message;

/// The sequence of a replay's end marker. No batch has it.
pub const END: u64 = u64::MAX;

/// The frame of a published message that is its payload; of an answer to a replay it is the last.
pub(crate) const LIVE_PAYLOAD: usize = 2;

/// A message whose frames fit no layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misframed;

/// A message of the publish socket: topic, sequence (8 bytes, big-endian), payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live<'a> {
    /// Counted from 0 by each publisher process.
    pub seq: u64,
    /// MessagePack.
    pub payload: &'a [u8],
}

/// One answer of the replay socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// A batch that is still in the engine's buffer.
    Batch(Live<'a>),
    /// No more of them.
    End,
}

/// Reads a message of the publish socket. Frames that a later version may add after the payload are ignored.
pub fn live<'a>(message: &'a Message<'_>) -> Result<Live<'a>, Misframed> {
    let (Some(seq), Some(payload)) = (message.frame(1), message.frame(LIVE_PAYLOAD)) else {
        return Err(Misframed);
    };
    match sequence(seq)? {
        END => Err(Misframed),
        seq => Ok(Live { seq, payload }),
    }
}

/// Reads an answer of the replay socket: an empty delimiter, then sequence and payload; since vLLM 0.26 and
/// SGLang 0.5.23 the topic stands before the sequence. The number of frames tells which.
pub fn reply<'a>(message: &'a Message<'_>) -> Result<Reply<'a>, Misframed> {
    if message.frame(0) != Some(b"") {
        return Err(Misframed);
    }
    let at = match message.len() {
        3 => 1,
        4 => 2,
        _ => return Err(Misframed),
    };
    let (Some(seq), Some(payload)) = (message.frame(at), message.frame(at + 1)) else {
        return Err(Misframed);
    };
    match sequence(seq)? {
        END => Ok(Reply::End),
        seq => Ok(Reply::Batch(Live { seq, payload })),
    }
}

/// The sequence frame of a request to the replay socket, which goes out as an empty frame and this one. Without
/// the empty frame the engines give no answer.
pub fn ask(from: u64) -> [u8; 8] {
    from.to_be_bytes()
}

fn sequence(frame: &[u8]) -> Result<u64, Misframed> {
    frame.try_into().map(u64::from_be_bytes).map_err(|_| Misframed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T>(frames: &[&[u8]], test: impl FnOnce(&Message<'_>) -> T) -> T {
        let mut bytes = frames.concat();
        let ends: Vec<usize> = frames
            .iter()
            .scan(0, |end, frame| {
                *end += frame.len();
                Some(*end)
            })
            .collect();
        test(&Message::new(&mut bytes, &ends))
    }

    #[test]
    fn live_messages_have_a_topic_a_sequence_and_a_payload() {
        let seq = 258_u64.to_be_bytes();
        let read = |frames: &[&[u8]]| {
            with(frames, |message| live(message).map(|live| (live.seq, live.payload.to_vec())))
        };
        assert_eq!(read(&[b"kv", &seq, b"p"]), Ok((258, b"p".to_vec())));
        assert_eq!(read(&[b"", &seq, b"p", b"later"]), Ok((258, b"p".to_vec())));
        assert_eq!(read(&[b"kv", &seq]), Err(Misframed));
        assert_eq!(read(&[b"kv", &seq[1..], b"p"]), Err(Misframed));
        assert_eq!(read(&[b"kv", &[255; 8], b"p"]), Err(Misframed));
    }

    #[test]
    fn replies_have_both_framings() {
        let seq = 5_u64.to_be_bytes();
        let read = |frames: &[&[u8]]| {
            with(frames, |message| {
                reply(message).map(|reply| match reply {
                    Reply::Batch(live) => Some((live.seq, live.payload.to_vec())),
                    Reply::End => None,
                })
            })
        };
        assert_eq!(read(&[b"", &seq, b"p"]), Ok(Some((5, b"p".to_vec()))));
        assert_eq!(read(&[b"", b"kv", &seq, b"p"]), Ok(Some((5, b"p".to_vec()))));
        assert_eq!(read(&[b"", b"", &seq, b"p"]), Ok(Some((5, b"p".to_vec()))));
        assert_eq!(read(&[b"", &[255; 8], b""]), Ok(None));
        assert_eq!(read(&[b"", b"", &[255; 8], b""]), Ok(None));
        assert_eq!(read(&[b"kv", &seq, b"p"]), Err(Misframed));
        assert_eq!(read(&[b"", &seq]), Err(Misframed));
        assert_eq!(read(&[b"", b"kv", b"x", &seq, b"p"]), Err(Misframed));
    }
}
