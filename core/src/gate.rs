//! What the capacity gate reckons with: ceilings, and how they follow the engines. Values in, values out; the state
//! that shards share is in [`crate::shared::Gate`]. Must never read a clock or a counter.

mod adapt;
mod ceiling;

pub use adapt::{Adapting, Evidence, Finding};
pub use ceiling::{Ceiling, endpoint_most, tenant_most, warmth};
