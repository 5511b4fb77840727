//! A gateway in this process with one rule, on a driver of choice. Owns its shards; it has no admin thread.

use serde_json::json;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use warmpath_core::control::{DataPlane, DrainPhase};
use warmpath_core::environment::Environment;
use warmpath_core::rule::body;
use warmpath_core::table::Table;
use warmpath_ring::{Ring, Sizes};
use warmpath_shards::Settings;
use warmpath_shards::budget::Budget;
use warmpath_shards::exact::Blocks;
use warmpath_shards::fleet::{Fleet, Plan, Threads};

/// Bytes for bodies.
const BODY_BYTES: u64 = 256 << 20;

/// A running gateway; stopped when dropped.
pub struct Gateway {
    /// Where it listens.
    pub address: SocketAddr,
    fleet: Fleet,
    threads: Threads,
}

impl Gateway {
    /// Two shards before one endpoint, on drivers made by `make`.
    pub fn start<R, F>(endpoint: SocketAddr, make: F) -> Result<Gateway, String>
    where
        R: Ring + 'static,
        F: Fn(Sizes) -> Result<R, String> + Clone + Send + 'static,
    {
        let address = free_address()?;
        let settings = Settings::default();
        let plan = Plan {
            shards: 2,
            cores: Vec::new(),
            sizes: Sizes::default(),
            settings,
            seed: 1,
            connections: None,
        };
        let started =
            Fleet::start(&plan, Arc::new(Budget::new(BODY_BYTES)), &Blocks::none(plan.shards)?, make);
        let (fleet, threads) = started.map_err(|fault| fault.to_string())?;
        let gateway = Gateway { address, fleet, threads };
        gateway.fleet.install(Arc::new(table(address, endpoint)?)).map_err(|fault| fault.message)?;
        Ok(gateway)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.fleet.drain(DrainPhase::Cutting);
        for thread in self.threads.drain(..) {
            // A shard that failed has cut its connections: the clients tell it.
            let _ = thread.join();
        }
    }
}

fn table(address: SocketAddr, endpoint: SocketAddr) -> Result<Table, String> {
    let rule = json!({
        "serviceArguments": {"externalIP": address.ip(), "port": address.port(), "protocol": "tcp", "mode": 4},
        "endpoints": [{"endpointIP": endpoint.ip(), "targetPort": endpoint.port(), "weight": 1}],
    });
    let rule = body::parse(&rule, &Environment::default(), || "qualify".into())
        .map_err(|fault| fault.to_string())?;
    Ok(Table::next(&Table::default(), vec![rule], &mut 0, 0))
}

/// An address that was free a moment ago.
fn free_address() -> Result<SocketAddr, String> {
    let address = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    address.map_err(|e| format!("no free port on loopback: {e}"))
}
