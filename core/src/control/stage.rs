//! How long the stages of a request take on a shard. Owns their list and the histogram of one.

use crate::Nanos;

/// A stage that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestStage {
    /// A head is read.
    Parse,
    /// A prompt is read of its body, rendered, and looked up among what earlier turns left.
    Render,
    /// A text is encoded, and its blocks named.
    Tokenize,
    /// Blocks of token ids are named.
    Hash,
    /// It is looked up who holds the blocks.
    Lookup,
    /// An endpoint is chosen, the lookup included.
    Decide,
    /// A connection is opened; one that is used again takes nothing.
    Dial,
    /// From the whole request to the first byte of its answer.
    FirstByte,
}

impl RequestStage {
    /// All of them, in their order on the way.
    pub const ALL: [RequestStage; 8] = [
        RequestStage::Parse,
        RequestStage::Render,
        RequestStage::Tokenize,
        RequestStage::Hash,
        RequestStage::Lookup,
        RequestStage::Decide,
        RequestStage::Dial,
        RequestStage::FirstByte,
    ];

    /// As in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            RequestStage::Parse => "parse",
            RequestStage::Render => "render",
            RequestStage::Tokenize => "tokenize",
            RequestStage::Hash => "hash",
            RequestStage::Lookup => "lookup",
            RequestStage::Decide => "decide",
            RequestStage::Dial => "dial",
            RequestStage::FirstByte => "first_byte",
        }
    }
}

/// Upper bounds of a stage's histogram, microseconds.
pub const STAGE_BUCKETS_US: [u64; 18] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000, 200_000, 1_000_000, 5_000_000,
    60_000_000,
];

/// The histogram of one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTimes {
    /// Counts by bucket, bounds in [`STAGE_BUCKETS_US`], last is above all.
    pub buckets: [u64; STAGE_BUCKETS_US.len() + 1],
    /// Sum.
    pub sum: Nanos,
}

impl StageTimes {
    /// Takes one.
    #[inline]
    pub fn note(&mut self, nanos: Nanos) {
        let us = nanos.div_ceil(1_000);
        self.buckets[STAGE_BUCKETS_US.partition_point(|bound| *bound < us)] += 1;
        self.sum += nanos;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_falls_into_the_first_bucket_that_is_not_below_it() {
        for (nanos, bucket) in
            [(0, 0), (1_000, 0), (1_001, 1), (5_000, 2), (60_000_000_000, 17), (60_000_000_001, 18)]
        {
            let mut times = StageTimes::default();
            times.note(nanos);
            assert_eq!((times.buckets[bucket], times.sum), (1, nanos), "{nanos}");
        }
    }
}
