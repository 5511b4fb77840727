//! The handlers of the admin API, a file a subject. Own the JSON that people and scripts see; must never
//! change the rules but through [`crate::gateway::Gateway`].

pub mod attest;
pub mod explain;
pub mod gate;
pub mod hosts;
pub mod kv;
pub mod load_balancer;
pub mod models;
pub mod params;
pub mod patch;
pub mod profiles;
pub mod status;
