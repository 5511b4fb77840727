//! The handlers of the admin API, a file a subject. Own the JSON that people and scripts see; must never
//! change the rules but through [`crate::gateway::Gateway`].

pub mod attest;
pub mod capabilities;
pub mod diagnostics;
pub mod explain;
pub mod forms;
pub mod gate;
pub mod history;
pub mod hosts;
pub mod kv;
pub mod load_balancer;
pub mod maintenance;
pub mod models;
pub mod openapi;
pub mod overview;
pub mod params;
pub mod patch;
pub mod profiles;
pub mod snapshot;
pub mod status;
