//! The shards: the way of a request, one pinned thread each.
//!
//! Read in this order, a file a stage:
//!
//! ```text
//! accept → intake → route → gate → dial → relay → account
//! socket   head,    pool   permit, pooled  bytes,  receipt,
//!          body            choice  or new  events  settle once
//! ```
//!
//! [`flow`] holds the loop that hands each event to its stage; [`refuse`] has the gateway's own answers,
//! [`upload`] bodies too long to be held. Where two endpoints serve a request, [`pair`] stands between route and dial and
//! [`leg`] has the leg beside the answer's. [`conn`] is what a shard knows of a connection, [`exchange`] what
//! it knows of a request. [`fleet`] starts the threads and speaks with the admin thread.
//!
//! Must never: hold policy (it asks `decide`), block, or read another shard's memory.

mod accept;
mod account;
mod affinity;
mod breaker;
pub mod budget;
mod buffers;
mod conn;
mod counts;
mod dial;
mod encode;
mod estimate;
pub mod exact;
mod exchange;
mod explain;
pub mod fleet;
mod flow;
mod forward;
mod framing;
pub mod gate;
mod intake;
mod leg;
pub mod loader;
mod meter;
pub mod models;
mod outbox;
pub mod overlap;
mod pair;
mod pair_choice;
mod pool;
pub mod prompt;
mod proof;
mod random;
mod refuse;
mod relay;
mod route;
mod services;
mod session;
pub mod settings;
mod stages;
mod tally;
mod timers;
pub mod token_core;
pub mod tokenize;
mod transport;
mod upload;
pub mod usage;
pub mod valve;

pub use buffers::SPARE_BYTES_MAX;
pub use flow::Flow;
pub use settings::Settings;
pub use transport::Transport;
