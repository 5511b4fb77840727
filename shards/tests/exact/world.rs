//! A shard with one exact rule, its engines and an index that the test writes. Owns the set-up and what must
//! hold when all is quiet.

use crate::actors::{Asked, Client, Engine, Served, Shared};
use serde_json::json;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use warmpath_core::SECOND;
use warmpath_core::block::BlockSize;
use warmpath_core::control::ShardReport;
use warmpath_core::decide::exact::{Miss, Outcome};
use warmpath_core::engine::{Algo, Contract, Engine as Kind, Extras, Scratch, Seed, Terms, Version};
use warmpath_core::environment::Environment;
use warmpath_core::profile::binding::{ApiMode, ProfileTerms};
use warmpath_core::receipt::Receipt;
use warmpath_core::rule::{ExplainHeader, KvExact, KvPorts, RankMode, Rule};
use warmpath_core::shared::{Observations, Promises, Source, Tier, TrustState};
use warmpath_core::table::Table;
use warmpath_kvindex::{Holder, Plan, Writer, index};
use warmpath_prompt::Checkpoints;
use warmpath_ring::sim::{Sim, Weather};
use warmpath_ring::{Ring, Sizes};
use warmpath_shards::budget::Budget;
use warmpath_shards::exact::Blocks;
use warmpath_shards::token_core::{TokenDesk, Worker};
use warmpath_shards::tokenize::Text;
use warmpath_shards::{Flow, Settings};

/// The pool that a world has.
pub struct Pool {
    engines: usize,
    ranks: u8,
    rank_mode: RankMode,
    warmup: u64,
    kind: Kind,
    algo: Algo,
    page: u64,
    refusing: Option<usize>,
    failing: Option<usize>,
    prefill: u64,
    script: Option<String>,
    explain: ExplainHeader,
    completions_only: bool,
    model: &'static str,
}

impl Pool {
    /// So many vLLM engines of one rank.
    pub fn of(engines: usize) -> Pool {
        Pool {
            engines,
            ranks: 1,
            rank_mode: RankMode::Pin,
            warmup: 0,
            kind: Kind::Vllm,
            algo: Algo::Sha256Cbor,
            page: 16,
            refusing: None,
            failing: None,
            prefill: 1_000_000,
            script: None,
            explain: ExplainHeader::Off,
            completions_only: false,
            model: "",
        }
    }

    /// Chats are not routed by blocks.
    pub fn completions_only(self) -> Pool {
        Pool { completions_only: true, ..self }
    }

    /// The rule names its model.
    pub fn model(self, model: &'static str) -> Pool {
        Pool { model, ..self }
    }

    pub fn ranks(self, ranks: u8) -> Pool {
        Pool { ranks, ..self }
    }

    pub fn rank_mode(self, rank_mode: RankMode) -> Pool {
        Pool { rank_mode, ..self }
    }

    pub fn warming(self) -> Pool {
        Pool { warmup: 600 * SECOND, ..self }
    }

    pub fn tokens(self) -> Pool {
        Pool { algo: Algo::Tokens, ..self }
    }

    /// SGLang with pages of this size.
    pub fn pages(self, page: u64) -> Pool {
        Pool { kind: Kind::Sglang, algo: Algo::Sha256Sglang, page, ..self }
    }

    pub fn refusing(self, engine: usize) -> Pool {
        Pool { refusing: Some(engine), ..self }
    }

    pub fn failing(self, engine: usize) -> Pool {
        Pool { failing: Some(engine), ..self }
    }

    /// Prefills outlast a burst.
    pub fn slow(self) -> Pool {
        Pool { prefill: 2 * SECOND, ..self }
    }

    /// All engines answer with these bytes.
    pub fn saying(self, script: String) -> Pool {
        Pool { script: Some(script), ..self }
    }

    pub fn explain(self, explain: ExplainHeader) -> Pool {
        Pool { explain, ..self }
    }

    fn terms(&self) -> KvExact {
        let block_size = BlockSize::new(self.page).unwrap();
        let terms = Terms { seed: Seed::Given("0"), secret: 9, ..Terms::plain(self.algo, block_size) };
        KvExact {
            contract: self.kind.contract(&terms).unwrap(),
            version: None,
            ports: KvPorts::default(),
            ranks: self.ranks,
            rank_mode: self.rank_mode,
            warmup: self.warmup,
            profile: ProfileTerms {
                declared: if self.completions_only { ApiMode::Completions } else { ApiMode::Open },
                ..ProfileTerms::default()
            },
        }
    }

    fn rule(&self, vip: SocketAddr) -> Rule {
        let endpoints: Vec<_> = (0..self.engines)
            .map(|i| json!({"endpointIP": address(i).ip().to_string(), "targetPort": 8000, "weight": 1}))
            .collect();
        let mut body = json!({
            "serviceArguments": {"externalIP": vip.ip().to_string(), "port": vip.port()},
            "endpoints": endpoints,
        });
        if !self.model.is_empty() {
            body["serviceArguments"]["model_name"] = self.model.into();
        }
        let plain = warmpath_core::rule::body::parse(&body, &Environment::default(), || "id".into()).unwrap();
        Rule { exact: Some(self.terms()), explain: self.explain, ..plain }
    }
}

fn address(engine: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1 + engine as u8], 8000))
}

/// Everything.
pub struct World {
    pub flow: Flow<Sim>,
    /// A token core that works when it is let.
    pub desk: TokenDesk,
    pub worker: Worker,
    /// Whether it works beside all else.
    pub works: bool,
    pub checkpoints: Arc<Checkpoints>,
    table: Arc<Table>,
    writer: Writer,
    holders: HashMap<(usize, u8, Tier), Holder>,
    vip: SocketAddr,
    /// What answers proved.
    pub proofs: Arc<Observations>,
}

impl World {
    pub fn new(pool: Pool) -> World {
        let plan = Plan::for_blocks(100_000, 128, 1).unwrap();
        let (writer, readers) = index(plan, 7);
        let text = Text::new(Checkpoints::new(16 << 20, 3), || Duration::from_secs(1_790_000_000));
        let promises = Arc::new(Promises::new(1 << 16));
        let observations = Arc::new(Observations::default());
        let proofs = observations.clone();
        let blocks = Blocks { readers, promises, tuning: Arc::default(), text: text.clone(), observations };
        let sizes = Sizes::default();
        let weather = Weather { delay_max: 1_000, socket_bytes: 65_536, piece_max: 16_384 };
        let sim = Sim::new(1, sizes, weather);
        let budget = Arc::new(Budget::new(64 << 20));
        let exact = blocks.exact().unwrap();
        let mut flow = Flow::new(sim, sizes, Settings::default(), budget, exact, 1);
        let vip = SocketAddr::from(([10, 9, 9, 9], 80));
        for engine in 0..pool.engines {
            let actor = Engine {
                index: engine,
                refuses: pool.refusing == Some(engine),
                fails: pool.failing == Some(engine),
                prefill: pool.prefill,
                script: pool.script.clone(),
                buffers: HashMap::new(),
                due: Vec::new(),
            };
            let id = flow.ring.add(Rc::new(RefCell::new(actor)));
            flow.ring.serve(address(engine), id);
        }
        let table = Arc::new(Table::next(&Table::default(), vec![pool.rule(vip)], &mut 0, 0));
        let listener = flow.ring.listen_at(vip);
        flow.install(table.clone(), vec![(vip, listener)]);
        World {
            flow,
            desk: text.desk.clone(),
            worker: Worker::default(),
            works: true,
            checkpoints: text.checkpoints.clone(),
            table,
            writer,
            holders: HashMap::new(),
            vip,
            proofs,
        }
    }

    /// How far an endpoint is trusted.
    pub fn trust(&self, endpoint: usize) -> Arc<TrustState> {
        self.table.vips[0].services[0].exact.as_ref().unwrap().trust[endpoint].clone()
    }

    /// Keys of a plain prompt.
    pub fn keys_of(&self, tokens: &[u32]) -> Vec<u64> {
        self.keys(tokens, &Extras::default())
    }

    /// Where the blocks of an endpoint are known from.
    pub fn source(&self, endpoint: usize) -> &Source {
        &self.table.vips[0].services[0].exact.as_ref().unwrap().sources[endpoint]
    }

    fn keys(&self, tokens: &[u32], extras: &Extras<'_>) -> Vec<u64> {
        Self::keys_by(self.contract(), tokens, extras)
    }

    fn contract(&self) -> Contract {
        self.table.vips[0].services[0].rule.exact.as_ref().unwrap().contract
    }

    fn keys_by(contract: Contract, tokens: &[u32], extras: &Extras<'_>) -> Vec<u64> {
        let (mut scratch, mut keys) = (Scratch::default(), Vec::new());
        contract.chain(extras, &mut scratch).unwrap().feed(tokens, |key, _| keys.push(key.0));
        keys
    }

    fn holder(&mut self, endpoint: usize, rank: u8, tier: Tier) -> Holder {
        if let Some(holder) = self.holders.get(&(endpoint, rank, tier)) {
            return *holder;
        }
        let name = self.source(endpoint).holder_name(rank, tier);
        let holder = self.writer.register(name).unwrap();
        self.source(endpoint).set_bit(rank, tier, Some(holder.bit()));
        self.holders.insert((endpoint, rank, tier), holder);
        holder
    }

    /// The engine holds the blocks of these tokens.
    pub fn hold(&mut self, endpoint: usize, rank: u8, tier: Tier, tokens: &[u32]) {
        let keys = self.keys(tokens, &Extras::default());
        self.hold_keys(endpoint, rank, tier, &keys);
    }

    /// The same, with what else names them.
    pub fn hold_with(&mut self, endpoint: usize, tokens: &[u32], extras: &Extras<'_>) {
        let keys = self.keys(tokens, extras);
        self.hold_keys(endpoint, 0, Tier::Gpu, &keys);
    }

    /// The same of a prompt with a salt, by its names in one version.
    pub fn hold_salted(&mut self, endpoint: usize, tokens: &[u32], salt: &str, version: Version) {
        let extras = Extras { salt: Some(salt), ..Extras::default() };
        let keys = Self::keys_by(self.contract().told(version), tokens, &extras);
        self.hold_keys(endpoint, 0, Tier::Gpu, &keys);
    }

    fn hold_keys(&mut self, endpoint: usize, rank: u8, tier: Tier, keys: &[u64]) {
        let holder = self.holder(endpoint, rank, tier);
        self.writer.store(holder, keys, 0);
        let held = self.source(endpoint).blocks(rank) + keys.len() as u32;
        self.source(endpoint).set_blocks(rank, held, true);
    }

    /// The engine gave up the block at `place` of these tokens.
    pub fn drop_block(&mut self, endpoint: usize, rank: u8, tier: Tier, tokens: &[u32], place: usize) {
        let key = self.keys(tokens, &Extras::default())[place];
        let holder = self.holder(endpoint, rank, tier);
        self.writer.remove(holder, &[key]);
    }

    /// The engine gave up everything.
    pub fn clear(&mut self, endpoint: usize, rank: u8, tier: Tier) {
        let holder = self.holder(endpoint, rank, tier);
        self.writer.clear(holder);
        self.source(endpoint).set_blocks(rank, 0, true);
    }

    /// Makes one request, and waits for what comes of it.
    pub fn ask(&mut self, asked: Asked) -> Served {
        self.ask_all(vec![asked]).remove(0)
    }

    /// Makes requests at once, on a connection each.
    pub fn ask_all(&mut self, asked: Vec<Asked>) -> Vec<Served> {
        let answers = self.begin(asked);
        self.wait(&answers)
    }

    /// Makes requests, and waits for nothing.
    pub fn begin(&mut self, asked: Vec<Asked>) -> Vec<Shared<Option<Served>>> {
        let answers: Vec<Shared<Option<Served>>> = asked.iter().map(|_| Shared::default()).collect();
        for (asked, answer) in asked.into_iter().zip(&answers) {
            let client =
                Client { vip: self.vip, asked, answer: answer.clone(), buffer: Vec::new(), conn: None };
            self.flow.ring.add(Rc::new(RefCell::new(client)));
        }
        answers
    }

    /// Waits for what comes of them.
    pub fn wait(&mut self, answers: &[Shared<Option<Served>>]) -> Vec<Served> {
        for _ in 0..100_000 {
            if answers.iter().all(|answer| answer.borrow().is_some()) {
                break;
            }
            self.flow.turn(Some(Duration::from_millis(10))).unwrap();
            if self.works {
                self.desk.work_once(&mut self.worker);
            }
        }
        answers.iter().map(|answer| answer.borrow().clone().unwrap_or_default()).collect()
    }

    /// So much time, in which nobody asks.
    pub fn pass(&mut self, nanos: u64) {
        let until = self.flow.ring.now() + nanos;
        while self.flow.ring.now() < until {
            self.flow.turn(Some(Duration::from_millis(100))).unwrap();
        }
    }

    /// So many turns, without a token core.
    pub fn turns(&mut self, many: usize) {
        (0..many).for_each(|_| self.flow.turn(Some(Duration::from_millis(1))).unwrap());
    }

    /// What the shard says of itself.
    pub fn report(&mut self) -> ShardReport {
        // The connection's end follows the answer.
        self.flow.turn(Some(Duration::from_millis(10))).unwrap();
        self.flow.report(0)
    }

    /// What it wrote down of each request.
    pub fn receipts(&mut self) -> Vec<Receipt> {
        self.report().receipts
    }

    /// Why requests were left to the selector.
    pub fn misses(&mut self) -> Vec<Miss> {
        let outcomes = self.receipts().into_iter().filter_map(|r| Some(r.exact?.explanation.outcome));
        outcomes.filter_map(|o| if let Outcome::Missed(miss) = o { Some(miss) } else { None }).collect()
    }

    /// Nothing is charged or reserved any more.
    pub fn assert_settled(&mut self) {
        self.report();
        let service = &self.table.vips[0].services[0];
        for (endpoint, source) in service.endpoints.iter().zip(&service.exact.as_ref().unwrap().sources) {
            assert_eq!(endpoint.reserved(), 0);
            assert!((0..8).all(|rank| source.reserved(rank) == 0));
        }
    }
}
