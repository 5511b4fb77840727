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
//!
//! ```
//! use warmpath_parser::http1::{Framing, Headers, Limits, Progress, RequestParser};
//!
//! let (limits, mut headers) = (Limits::default(), Headers::default());
//! let mut parser = RequestParser::new();
//! let mut buffer = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n".to_vec();
//! assert_eq!(parser.advance(&buffer, &limits, &mut headers), Ok(Progress::NeedMore));
//! buffer.extend_from_slice(b"Content-Length: 2\r\n\r\n{}");
//! assert_eq!(parser.advance(&buffer, &limits, &mut headers), Ok(Progress::Done));
//! let head = parser.head();
//! assert_eq!(head.path.of(&buffer), b"/v1/completions");
//! assert_eq!(head.body, Framing::Length(2));
//! assert_eq!(&buffer[head.len as usize..], b"{}");
//! ```

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
