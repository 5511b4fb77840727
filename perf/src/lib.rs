//! Simulated engines and the load generator: what the gateway is tried and measured against.
//! Must never import another crate of this workspace here: agreement with an independent peer is
//! evidence, agreement with our own parser is not.

pub mod engine;
pub mod error;
pub mod load;
pub mod wire;

pub use engine::cli::{EngineArgs, run_engine};
pub use error::Error;
pub use load::cli::{BenchArgs, run_bench};
