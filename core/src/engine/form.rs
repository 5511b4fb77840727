//! The two ways in which vLLM serializes what it hashes, behind one set of calls. Owns that set; the bytes
//! are in `cbor` and `pickle`.

use super::preimage::Preimage;
use crate::block::Digest;

/// Writes the values that a block's preimage consists of.
pub(super) trait Form {
    /// What stands before the one value.
    fn begin(out: &mut Preimage);
    /// What stands behind it.
    fn end(out: &mut Preimage);
    /// Opens a tuple of `items`.
    fn open(out: &mut Preimage, items: usize);
    /// Closes it; `items` is as in [`Form::open`].
    fn close(out: &mut Preimage, items: usize);
    /// Python's `None`.
    fn none(out: &mut Preimage);
    /// A text string.
    fn text(out: &mut Preimage, text: &str);
    /// A byte string.
    fn bytes(out: &mut Preimage, bytes: &[u8]);
    /// A digest, as a byte string.
    fn digest(out: &mut Preimage, digest: &Digest);
    /// An integer.
    fn int(out: &mut Preimage, value: i64);
    /// Token ids, one after the other, without the tuple around them.
    fn tokens(out: &mut Preimage, tokens: &[u32]);
}
