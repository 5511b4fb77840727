//! What-if: a trace of requests through the gateway's own decision, index and promises, against simulated engines
//! in virtual time. Owns the replay, its inputs and its reports; must never read a clock, nor decide anything that
//! the gateway decides: every choice is made by the code that serves.

pub mod agents;
pub mod cli;
mod engine;
mod gateway;
mod oracle;
mod outcome;
mod page;
mod policy;
mod report;
pub mod trace;
mod world;

pub use engine::Model;
pub use outcome::{Outcome, Spread};
pub use policy::Policy;
pub use report::{Report, Row};
pub use world::{Plan, run};

#[cfg(test)]
mod tests;
