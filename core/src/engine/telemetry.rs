//! What an engine tells of its load, and where. Owns the one form that the gateway keeps of it, and the pages that each
//! engine's file names; pure: fetching a page is the caller's. Must never take a page of something else for a load of
//! zero: without the engine's own names there is no answer.

mod prometheus;

pub(super) use prometheus::samples;
use serde::Deserialize;

/// A moment of one engine, all ranks together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests in execution.
    pub running: u32,
    /// Requests that wait in the engine's own queue.
    pub waiting: u32,
    /// Use of the KV cache in thousandths, the mean of the ranks; `None` if not told.
    pub kv_use_permille: Option<u16>,
    /// Blocks that the KV cache has; `None` if not told.
    pub capacity_blocks: Option<u32>,
}

/// Where an engine tells its load, and how that is read.
pub struct Telemetry {
    /// What to `GET` where requests go.
    pub path: &'static str,
    pub(super) read: fn(&[u8]) -> Option<Load>,
    /// Its counters of prompt tokens looked up in the prefix cache and found there, in Prometheus text.
    pub(super) lookups: Option<[&'static str; 2]>,
}

impl Telemetry {
    /// The load that a whole answer of status 200 tells; `None` if it is no page of this engine. Reads the page once,
    /// in time by its length.
    pub fn read(&self, page: &[u8]) -> Option<Load> {
        (self.read)(page)
    }

    /// Whether its pages tell what [`Telemetry::lookups`] reads.
    pub fn tells_lookups(&self) -> bool {
        self.lookups.is_some()
    }

    /// Prompt tokens looked up in the prefix cache and found there since the engine's start, all ranks together; `None`
    /// if the page does not tell both, or one is no whole number.
    pub fn lookups(&self, page: &[u8]) -> Option<[u64; 2]> {
        let [queries, hits] = self.lookups?.map(|name| total(page, name));
        Some([queries?, hits?])
    }
}

impl std::fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Telemetry").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Names of gauges on a page of Prometheus text. Of several samples of one name (ranks, models) counts add up.
pub(super) struct Gauges {
    pub running: &'static str,
    pub waiting: &'static str,
    /// From 0 to 1.
    pub kv_use: &'static str,
    pub capacity: Capacity,
}

/// How a page tells how many blocks there are.
pub(super) enum Capacity {
    /// Not at all.
    Untold,
    /// By the label of an info metric.
    Label { metric: &'static str, label: &'static str },
    /// In tokens, beside the tokens of a block.
    Tokens { tokens: &'static str, block: &'static str },
}

impl Gauges {
    pub(super) fn read(&self, page: &[u8]) -> Option<Load> {
        let (mut running, mut waiting, mut uses) = (Sum::default(), Sum::default(), Sum::default());
        let (mut blocks, mut tokens, mut block) = (Sum::default(), Sum::default(), Sum::default());
        for sample in samples(page) {
            match sample.name {
                name if name == self.running => running.add(sample.value),
                name if name == self.waiting => waiting.add(sample.value),
                name if !name.is_empty() && name == self.kv_use => uses.add(sample.value),
                name => match self.capacity {
                    Capacity::Label { metric, label } if name == metric => {
                        sample
                            .label(label)
                            .and_then(|value| value.parse().ok())
                            .into_iter()
                            .for_each(|n| blocks.add(n));
                    }
                    Capacity::Tokens { tokens: of, .. } if name == of => tokens.add(sample.value),
                    Capacity::Tokens { block: of, .. } if name == of => block.add(sample.value),
                    _ => {}
                },
            }
        }
        let in_tokens = tokens.total().zip(block.mean().filter(|block| *block > 0.0));
        Some(Load {
            running: whole(running.total()?),
            waiting: whole(waiting.total()?),
            kv_use_permille: uses.mean().map(|part| whole(part.min(1.0) * 1000.0) as u16),
            capacity_blocks: blocks.total().or(in_tokens.map(|(tokens, block)| tokens / block)).map(whole),
        })
    }
}

/// All samples of a counter, which are whole numbers.
fn total(page: &[u8], name: &str) -> Option<u64> {
    let own = samples(page).filter(|sample| sample.name == name).map(|sample| {
        let is_whole = sample.value.fract() == 0.0 && sample.value >= 0.0;
        is_whole.then_some(sample.value as u64)
    });
    own.reduce(|sum, value| sum?.checked_add(value?)).flatten()
}

/// Samples of one name. What is no number, or below zero, is no sample.
#[derive(Default)]
struct Sum {
    sum: f64,
    count: u32,
}

impl Sum {
    fn add(&mut self, value: f64) {
        if value.is_finite() && value >= 0.0 {
            self.sum += value;
            self.count += 1;
        }
    }

    fn total(&self) -> Option<f64> {
        (self.count > 0).then_some(self.sum)
    }

    fn mean(&self) -> Option<f64> {
        self.total().map(|total| total / f64::from(self.count))
    }
}

/// A cast holds at the ends of the range.
fn whole(value: f64) -> u32 {
    value.round() as u32
}

/// What TensorRT-LLM tells of an iteration.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Iteration {
    num_active_requests: u32,
    num_queued_requests: u32,
    kv_cache_stats: Option<KvCacheStats>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KvCacheStats {
    max_num_blocks: u32,
    used_num_blocks: u32,
}

/// The last of a list of iterations. The engine hands each out once, and without requests it makes none: an empty list
/// is an idle engine.
pub(super) fn iterations(page: &[u8]) -> Option<Load> {
    let all: Vec<Iteration> = serde_json::from_slice(page).ok()?;
    let Some(last) = all.last() else { return Some(Load::default()) };
    let cache = last.kv_cache_stats.as_ref();
    let part = |cache: &KvCacheStats| {
        let (used, most) = (u64::from(cache.used_num_blocks), u64::from(cache.max_num_blocks));
        (used * 1000).checked_div(most).map(|permille| permille.min(1000) as u16)
    };
    Some(Load {
        running: last.num_active_requests,
        waiting: last.num_queued_requests,
        kv_use_permille: cache.and_then(part),
        capacity_blocks: cache.map(|cache| cache.max_num_blocks),
    })
}

#[cfg(test)]
mod tests;
