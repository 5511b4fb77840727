//! The admin thread: the rules an operator wants, made durable and put in force; REST over TCP and a unix
//! socket; health probes; metrics; going down in order; and `warmpath ctl`, the client of all that.
//!
//! Must never: touch a request of a client, or know a shard or the event core other than by
//! [`warmpath_core::control`].

mod access;
pub mod answer;
pub mod attest;
mod boot;
mod breakers;
pub mod change;
mod compat;
pub mod ctl;
mod disk;
mod down;
#[cfg(test)]
mod fake;
pub mod gateway;
pub mod health;
pub mod hosts;
pub mod kv;
pub mod metrics;
mod out_of_service;
mod page;
pub mod profiles;
pub mod refusal;
pub mod rest;
pub mod routes;
pub mod rules;
mod rules_file;
mod run;
pub mod serve;
mod store;
pub mod telemetry;
mod transfers;
pub mod trust;
mod watchdog;
pub mod why;

pub use ctl::{CtlArgs, CtlFault, run_ctl};
pub use gateway::Outside;
pub use kv::NoKv;
pub use rules_file::RulesFile;
pub use run::{AdminFault, DEFAULT_ADMIN, DEFAULT_SOCKET, DEFAULT_STATE_DIR, Options, run};
