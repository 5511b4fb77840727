//! Idle upstream connections by endpoint. Owns which may be reused: the last used first, none older than
//! the endpoint allows; must never close one itself.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use warmpath_core::shared::EndpointState;
use warmpath_ring::Sock;

/// A pool's number within its shard.
pub type PoolId = usize;

/// The idle connections to one endpoint.
pub struct Pool {
    /// The endpoint.
    pub endpoint: Arc<EndpointState>,
    /// Idle connections, last used last.
    pub idle: Vec<Sock>,
}

/// All pools of a shard. A pool is never removed: its number stays valid for connections still out.
#[derive(Default)]
pub struct Pools {
    pools: Vec<Pool>,
    by_address: HashMap<SocketAddr, PoolId>,
}

impl Pools {
    /// The pool of an endpoint, made when new.
    pub fn of(&mut self, endpoint: &Arc<EndpointState>) -> PoolId {
        let pools = &mut self.pools;
        let id = *self.by_address.entry(endpoint.address()).or_insert_with(|| {
            pools.push(Pool { endpoint: endpoint.clone(), idle: Vec::new() });
            pools.len() - 1
        });
        pools[id].endpoint = endpoint.clone();
        id
    }

    /// One pool.
    pub fn get(&mut self, id: PoolId) -> &mut Pool {
        &mut self.pools[id]
    }

    /// Takes a connection that its pool lost (closed, retired) out of it.
    pub fn forget(&mut self, id: PoolId, sock: Sock) {
        let idle = &mut self.pools[id].idle;
        if let Some(place) = idle.iter().rposition(|s| *s == sock) {
            idle.remove(place);
        }
    }

    /// Idle connections to endpoints that `wanted` refuses, taken out of their pools.
    pub fn strays(&mut self, wanted: impl Fn(SocketAddr) -> bool) -> Vec<Sock> {
        let unwanted = self.pools.iter_mut().filter(|p| !wanted(p.endpoint.address()));
        unwanted.flat_map(|p| std::mem::take(&mut p.idle)).collect()
    }
}
