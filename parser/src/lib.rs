//! HTTP/1.1, JSON members and server-sent events, read in place.
//!
//! Sans-io: a machine is fed bytes and says *need more*, *here is an item* or *this breaks that rule*; it
//! owns no buffer, socket or clock and knows no engine and no route. Items are ranges into the caller's
//! buffer. Bounds are parameters. For any input, split in any way, the verdict is the same and nothing
//! panics or allocates; encoders and unescaping push into a buffer that the caller lends.
//!
//! - [`http1`]: request and response heads, body framing, chunks, encoders
//! - [`json`]: peek at top-level members, splice them, read the text of messages
//! - [`sse`]: event framing of a stream

mod error;
#[doc(hidden)]
pub mod fuzz;
pub mod http1;
pub mod json;
mod scan;
mod span;
pub mod sse;

pub use error::Malformed;
pub use span::Span;
