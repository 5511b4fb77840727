//! Block keys against what the engines themselves computed: every vector, every hash in a capture of a real
//! engine, and proof that the vectors tell a wrong contract from the right one.

#![allow(clippy::unwrap_used)] // a test may stop at the first fault

mod captures;
mod file;
mod mutations;
mod sglang;
mod trtllm;
mod vllm;
