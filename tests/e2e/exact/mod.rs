//! Exact routing end to end: simulated engines that tell of their caches, the gateway that follows them, clients
//! that see where they went. Owns the list of themes; must never look into the gateway but by what it serves.

mod pool;

mod attest;
mod bodies;
mod changes;
mod drained;
mod inventory;
mod learning;
mod load;
mod lost;
mod modes;
mod naming;
mod pairs;
mod ranks;
mod sglang;
mod stages;
mod trust;
mod trust_text;
mod trust_untold;
mod winners;
