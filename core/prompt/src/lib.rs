//! From a request's body to the keys of its blocks: body → rendered text → token ids → keys, each step equal to
//! the engine's or declined with a reason ([`Decline`]). A conversation's next turn costs its tail: what earlier
//! turns gave is kept at checkpoints.
//!
//! Reading order: [`request`] (what a body asks for), [`template`] (the chat template), [`tokenizer`] (two
//! tokenizers that watch each other, and where text may be cut), [`checkpoint`] (what is kept of tokens), `turn` (what
//! is kept of a rendering), [`model`] (all of it in order), [`profile`] (what a
//! publisher pins), [`load`] (files).
//!
//! Must never: read a clock or a socket, draw a random number, branch on the engine, or keep a thread. Locks and
//! atomics live in `shared` alone; files are read in [`load`] alone.

pub mod checkpoint;
pub mod load;
pub mod model;
pub mod profile;
pub mod request;
mod shared;
pub mod template;
pub mod tokenizer;
mod turn;
mod value;

pub use checkpoint::Scheme;
pub use model::{Desk, Model, Plan, Prompt, Request};
pub use request::{Api, Beside, Clock, CompletionsBos, ContentShape, Policy, beside};
pub use shared::Checkpoints;
pub use template::{Date, Template};
pub use tokenizer::Tokenizer;
pub use warmpath_core::decline::{self, Decline};
