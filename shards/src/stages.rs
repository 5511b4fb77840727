//! How long stages take, one pass in some: a look at the clock costs as much as a short stage. Owns which passes are
//! timed and the histograms; must never look at a clock for others.

use warmpath_core::Nanos;
use warmpath_core::control::{RequestStage, StageTimes};

/// One pass of a stage in so many is timed.
const TIMED: u32 = 16;

/// One shard's.
#[derive(Debug, Default)]
pub(crate) struct Stages {
    times: [StageTimes; RequestStage::ALL.len()],
    /// Passes since the last that was timed. By stage: in common, stages that follow each other in step would be timed
    /// always or never.
    passed: [u32; RequestStage::ALL.len()],
}

impl Stages {
    /// A pass begins: when, if it is timed. The first of each stage is.
    #[inline]
    pub fn begin(&mut self, stage: RequestStage, clock: impl FnOnce() -> Nanos) -> Option<Nanos> {
        let passed = &mut self.passed[stage as usize];
        let is_timed = *passed == 0;
        *passed = (*passed + 1) % TIMED;
        is_timed.then(clock)
    }

    /// It ended.
    #[inline]
    pub fn end(&mut self, stage: RequestStage, begun: Option<Nanos>, clock: impl FnOnce() -> Nanos) {
        if let Some(begun) = begun {
            self.took(stage, clock().saturating_sub(begun));
        }
    }

    /// A pass whose times are known anyway.
    #[inline]
    pub fn took(&mut self, stage: RequestStage, nanos: Nanos) {
        self.times[stage as usize].note(nanos);
    }

    /// All histograms.
    pub fn times(&self) -> Vec<(RequestStage, StageTimes)> {
        RequestStage::ALL.map(|stage| (stage, self.times[stage as usize])).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pass_in_16_looks_at_the_clock_whatever_other_stages_do() {
        let mut stages = Stages::default();
        for pass in 0..33 {
            for stage in [RequestStage::Parse, RequestStage::Decide] {
                let begun = stages.begin(stage, || 5_000);
                assert_eq!(begun.is_some(), pass % 16 == 0, "{pass}");
                stages.end(stage, begun, || 12_000);
            }
        }
        let times = stages.times();
        let of = |stage: RequestStage| times[stage as usize].1;
        assert_eq!((of(RequestStage::Parse).buckets[3], of(RequestStage::Parse).sum), (3, 21_000));
        assert_eq!(of(RequestStage::Decide).sum, 21_000);
        assert_eq!(of(RequestStage::Render), StageTimes::default());
    }
}
