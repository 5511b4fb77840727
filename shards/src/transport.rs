//! What lies between a socket's bytes and HTTP's: nothing now, TLS later. Owns the seam for it; must never
//! look at the bytes' meaning.

use warmpath_ring::{Body, Payload, Ring};

/// How the bytes of a connection are wrapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// As they are.
    #[default]
    Plain,
    /// Every byte XORed: stands in for TLS in tests, to prove that the flow reads and writes only through
    /// this seam.
    Xor(u8),
}

impl Transport {
    /// Unwraps received bytes in place.
    #[inline]
    pub fn unwrap<R: Ring>(self, ring: &mut R, held: &warmpath_ring::Held) {
        if let Transport::Xor(key) = self {
            ring.bytes_mut(held).iter_mut().for_each(|b| *b ^= key);
        }
    }

    /// Wraps a payload about to be sent.
    #[inline]
    pub fn wrap<R: Ring>(self, ring: &mut R, payload: &mut Payload) {
        if let Transport::Xor(key) = self {
            wrap_xor(key, ring, payload);
        }
    }

    /// Undoes [`Transport::wrap`] on a payload that came back, so that its bytes can be sent again.
    #[inline]
    pub fn restore<R: Ring>(self, ring: &mut R, payload: &mut Payload) {
        self.wrap(ring, payload);
    }
}

fn wrap_xor<R: Ring>(key: u8, ring: &mut R, payload: &mut Payload) {
    let flip = |b: &mut u8| *b ^= key;
    payload.head.iter_mut().for_each(flip);
    match &mut payload.body {
        Body::None => {}
        Body::Held { buffer, range } => {
            ring.bytes_mut(buffer)[range.start as usize..range.end as usize].iter_mut().for_each(flip);
        }
        Body::Owned { bytes, range } => bytes[range.clone()].iter_mut().for_each(flip),
        Body::Static(bytes) => {
            let bytes = bytes.iter().map(|b| b ^ key).collect::<Vec<u8>>();
            payload.body = Body::Owned { range: 0..bytes.len(), bytes };
        }
    }
}
