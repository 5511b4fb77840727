//! JSON: find a few top-level members, read their text, splice them.
//!
//! Owns a validating scanner of RFC 8259 without a tree. It must never change a byte that the gateway does
//! not own. Reading order: `scan` (the grammar), `peek` (top-level members), `text` (unescaping), `tokens`
//! (ids), `walk` (into messages), `splice` (edits by range).

mod peek;
mod scan;
mod splice;
mod text;
mod tokens;
mod walk;

pub use peek::{JsonFault, JsonLimits, Kind, Member, Members, Value, peek};
pub use splice::{Change, Edit, Rewrite, apply, edits, set_in};
pub use text::{prefix_text, text};
pub use tokens::token_ids;
pub use walk::{
    Children, content_text, elements, entries, first_message_content, first_message_text, is_text, member,
    messages,
};
