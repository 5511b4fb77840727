//! The simulated world that all tests of the flow live in: shards, clients, engines. Owns what they have in common; what
//! a client asks and how an engine answers are the tests'.

pub mod client;
pub mod engine;
pub mod http;
pub mod scene;
pub mod shard;

pub type Shared<T> = std::rc::Rc<std::cell::RefCell<T>>;

/// Numbers of a seed.
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n.max(1)
    }

    pub fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// Runs `run` with the seeds of `NAME_SEEDS` (their count, else `many`) from `NAME_FROM`, or with `NAME_SEED` alone.
/// Tells whether there were many.
pub fn over_seeds(name: &str, many: u64, what: &str, mut run: impl FnMut(u64)) -> bool {
    let number = |end: &str| std::env::var(format!("{name}_{end}")).ok().and_then(|v| v.parse().ok());
    let one: Option<u64> = number("SEED");
    let from = one.or(number("FROM")).unwrap_or(0);
    let count = one.map_or_else(|| number("SEEDS").unwrap_or(many), |_| 1);
    for seed in from..from + count {
        let run = std::panic::AssertUnwindSafe(|| run(seed));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("seed {seed} of {what} failed; run it alone with {name}_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
    one.is_none()
}
