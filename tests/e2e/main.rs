//! End to end: the real binary between raw clients and simulated or scripted engines, on both drivers. Owns
//! the list of themes; must never share code with what it tests.
//!
//! Nothing here asserts a duration: time-outs only bound how long a broken gateway can keep a test.

#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

mod abuse;
mod bodies;
mod breakers;
mod changes;
mod crowd;
mod encoders;
mod exact;
mod faults;
mod fleets;
mod forwarding;
mod gate;
mod life;
mod models;
mod pairs;
mod profiles;
mod rejects;
mod relay;
mod routing;
mod secrets;
mod selectors;
mod sessions;
mod streams;
mod text;
mod tools;
