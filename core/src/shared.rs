//! State that shards, admin thread and event core share: the one folder of this crate with atomics. Owns who
//! writes which value and who may read it; must never hold a lock but the one of a queue (gate.rs).

mod admission;
mod attest;
mod breaker;
mod endpoint;
mod exact;
mod gate;
mod load;
mod observation;
mod promise;
mod session;
mod source;
mod tenants;
mod timed;
mod trie;
mod trust;

pub use admission::{Admission, Decided};
pub use attest::AttestState;
pub use breaker::{BreakerState, Trial};
pub use endpoint::{CONNECT_FAILURES_MAX, EJECTION, EndpointState, IDLE_LIMIT_START};
pub use exact::ExactState;
pub use gate::{Gate, Place, Turn, Work};
pub use load::{LOAD_STALE, SharedLoad};
pub use observation::{KEYS_MAX, Observation, Observations, Shown};
pub use promise::{
    DEPTHS_MAX, Destination, PROMISE_AFTER_ANSWER, PROMISE_LIFE, Promised, Promises, depths, promised_keys,
};
pub use session::{Pin, SESSION_BYTES, Sessions};
pub use source::{Adapter, Fence, RANKS_MAX, Source, SourceSpec, Tier};
pub use tenants::{Seat, TENANTS_MAX, Tenants};
pub use trie::{Longest, PrefixTrie, TRIE_BYTES};
pub use trust::TrustState;
