//! What the gateway is tried and measured by: simulated engines, the load generator, [`qualify`], and [`replay`].
//! Engines and load must never import another crate of this workspace: agreement with an independent peer
//! is evidence, agreement with our own parser is not.

pub mod engine;
pub mod error;
pub mod load;
pub mod qualify;
pub mod replay;
pub mod wire;

pub use engine::cli::{EngineArgs, run_engine};
pub use error::Error;
pub use load::cli::{BenchArgs, run_bench};
pub use qualify::cli::{QualifyArgs, run_qualify};
pub use replay::cli::{ReplayArgs, run_replay};
