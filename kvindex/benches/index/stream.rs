//! The stream of runs that all rows use: prompts of 4,096 blocks, each cached by one of the holders.

use warmpath_kvindex::{Holder, Plan, Readers, Writer, index};

/// Blocks of a prompt.
pub const PROMPT: usize = 4_096;

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.word()) * end as u128) >> 64) as usize
    }
}

/// A table and what its blocks are.
pub struct Filled {
    pub writer: Writer,
    pub readers: Readers,
    pub holders: Vec<Holder>,
    pub keys: Vec<u64>,
    /// The state of the source that new keys come from.
    pub next: u64,
    /// CPU seconds that the fill took.
    pub seconds: f64,
}

impl Filled {
    /// So many distinct blocks, each prompt stored by one of `holders` holders.
    pub fn new(blocks: usize, holders: usize) -> Filled {
        let plan = Plan::for_blocks(blocks + 4_000, holders, 4).unwrap();
        let (mut writer, readers) = index(plan, 0x5eed);
        let leased: Vec<Holder> = (0..holders).map(|name| writer.register(name as u64).unwrap()).collect();
        let mut random = Random(1);
        let keys: Vec<u64> = (0..blocks).map(|_| random.word()).collect();
        let start = cpu_seconds();
        let refused: usize = keys
            .chunks(PROMPT)
            .enumerate()
            .map(|(at, prompt)| writer.store(leased[at % holders], prompt, 0).refused)
            .sum();
        let seconds = cpu_seconds() - start;
        assert_eq!(refused, 0, "the plan takes all blocks");
        Filled { writer, readers, holders: leased, keys, next: random.0, seconds }
    }

    /// A random run of `length` blocks within a prompt.
    pub fn run(&self, random: &mut Random, length: usize) -> std::ops::Range<usize> {
        let prompt = random.below(self.keys.len() / PROMPT) * PROMPT;
        let from = prompt + random.below(PROMPT / length) * length;
        from..from + length
    }
}

/// CPU seconds of this thread, so that a shared machine's other work is left out.
pub fn cpu_seconds() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    told.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// The middle value.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The value that a share `at` of all does not pass.
pub fn quantile(values: &mut [f64], at: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * at) as usize]
}
