//! One shard in a simulated network. Owns how it is set up, how time passes, and what must hold when all is quiet.

use crate::sim::Draw;
use std::sync::Arc;
use std::time::Duration;
use warmpath_core::SECOND;
use warmpath_core::environment::Environment;
use warmpath_core::rule::{Rule, body};
use warmpath_core::table::Service;
use warmpath_ring::sim::{Sim, Weather};
use warmpath_ring::{Ring, Sizes};
use warmpath_shards::budget::Budget;
use warmpath_shards::exact::Blocks;
use warmpath_shards::{Flow, Settings, Transport};

/// Where clients connect.
pub const VIP: ([u8; 4], u16) = ([10, 0, 0, 1], 8080);

/// What a run draws of its network.
#[derive(Clone, Copy)]
pub struct Sky {
    pub sizes: Sizes,
    pub weather: Weather,
    /// With what each side's bytes are disguised.
    pub client_key: u8,
    pub upstream_key: u8,
}

impl Sky {
    /// An ordinary day.
    pub fn clear() -> Sky {
        let weather = Weather { delay_max: 400_000, socket_bytes: 65_536, piece_max: 16_384 };
        Sky { sizes: Sizes::default(), weather, client_key: 0, upstream_key: 0 }
    }

    /// Any day whose pieces have at most one of these sizes.
    pub fn draw(draw: &mut Draw, pieces: &[usize]) -> Sky {
        let sizes = Sizes {
            buffers: draw.of(&[8, 16, 64]),
            buffer_bytes: draw.of(&[512, 4096, 16384]),
            ..Sizes::default()
        };
        let weather = Weather {
            delay_max: draw.of(&[1_000, 400_000, 5_000_000]),
            socket_bytes: draw.of(&[700, 8192, 65536]),
            piece_max: draw.of(pieces),
        };
        Sky { sizes, weather, client_key: draw.of(&[0, 0x5A]), upstream_key: draw.of(&[0, 0xC3]) }
    }

    /// A shard under it.
    pub fn shard(&self, seed: u64, settings: Settings, budget: &Arc<Budget>) -> Flow<Sim> {
        let transport = |key| if key == 0 { Transport::Plain } else { Transport::Xor(key) };
        let settings = Settings {
            client_transport: transport(self.client_key),
            upstream_transport: transport(self.upstream_key),
            ..settings
        };
        let sim = Sim::new(seed, self.sizes, self.weather);
        let exact = Blocks::none(1).and_then(|blocks| blocks.exact()).expect("an empty index");
        Flow::new(sim, self.sizes, settings, budget.clone(), exact, seed)
    }
}

/// A rule of these arguments and endpoints.
pub fn rule(mut arguments: serde_json::Value, endpoints: Vec<serde_json::Value>) -> Rule {
    arguments["externalIP"] = "10.0.0.1".into();
    arguments["port"] = VIP.1.into();
    let rule = serde_json::json!({"serviceArguments": arguments, "endpoints": endpoints});
    body::parse(&rule, &Environment::default(), || "id".into()).expect("a good rule")
}

/// Lets time pass.
pub fn pass_until(flow: &mut Flow<Sim>, until: u64) {
    while flow.ring.now() < until {
        let left = Duration::from_nanos(until - flow.ring.now()).min(Duration::from_millis(500));
        flow.turn(Some(left)).expect("the simulated ring never fails");
    }
}

/// Lets so much time pass that every lease, and every idle or lingering connection, ends; then nothing may be charged,
/// held or open.
pub fn assert_quiet(flow: &mut Flow<Sim>, sky: &Sky, service: &Service, budget: &Budget) {
    let until = flow.ring.now() + 400 * SECOND;
    pass_until(flow, until);
    let report = flow.report(0);
    for endpoint in &service.endpoints {
        assert_eq!(endpoint.reserved(), 0, "a charge was not settled");
    }
    let gate = &service.admission.gate;
    assert_eq!((gate.out(), gate.waiting()), (0, 0), "a permit or a place was not given back");
    assert_eq!(service.admission.tenants.active(), 0, "a tenant's seat was not given back");
    assert_eq!(budget.used(), 0, "memory was not given back");
    assert_eq!((report.clients, report.upstreams, report.active), (0, 0, 0), "connections stay");
    assert_eq!(flow.ring.sockets(), 0, "sockets stay");
    let free = flow.ring.counters().buffers_free;
    assert_eq!(free, u64::from(sky.sizes.buffers), "receive buffers leak");
}
