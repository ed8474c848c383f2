//! Feedback: corrects the size of a granted partition by the error that remains (Hybrid Store publishes that it does so; the law is ours).
//!
//! `y` is a percentile of the errors of the intervals since the last change. Above 0 the partition grows by a clamped
//! gain; below `-dead_band`, and with the mean also kept, it shrinks; in between it stays. After a change the error
//! is ignored until the increment had time to fill, and the history is cleared: deciding on a history from before
//! the change winds the integral up (measured: a sliding history overshoots to the whole working set).
//! The gain, the clamps and the guard are ours; the papers publish none.

use serde::{Deserialize, Serialize};

/// Which law corrects sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Law {
    /// The size that the model finds sufficient, with what the model gets wrong taken from what is observed.
    #[default]
    Model,
    /// The error alone, by a clamped gain: what a model is compared with.
    Plain,
}

/// The law's parameters. All are ours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FeedbackRules {
    /// Which law. Default `model`.
    pub law: Law,
    /// Which percentile of the interval errors is corrected. Default 75 (Hybrid Store: near the optimum); above 0,
    /// at most 100. An objective that must hold in a larger share of its windows raises it to that share.
    pub percentile: f64,
    /// Intervals that are needed before growing. Default 3; at least 1.
    pub grow_after: usize,
    /// Intervals that are needed before shrinking. Default 6; at least `grow_after`.
    pub shrink_after: usize,
    /// Growth per error, as a share of the size. Default 0.5; above 0.
    pub gain: f64,
    /// Largest growth in one step, as a share of the size. Default 0.5; above 0.
    pub growth_max: f64,
    /// Largest shrinkage in one step, as a share of the size. Default 0.25; above 0, below 1.
    pub shrink_max: f64,
    /// Slack below the objective that is left alone. Default 0.15; 0 to below 1.
    pub dead_band: f64,
    /// Longest guard after growing, in intervals. Default 15; at least 1.
    pub guard_max: usize,
    /// Law `model`: the first size, as a share of what the model finds sufficient: that is approached from below. Default
    /// 0.9; above 0, at most 1.
    pub model_first_share: f64,
    /// Law `model`: largest growth in one step, as a share of the size, where a flood or enough windows ask for it.
    /// Default 1; above 0.
    pub model_growth_max: f64,
    /// Law `model`: largest shrinkage in one step, as a share of the size. Default 0.3; above 0, below 1.
    pub model_shrink_max: f64,
    /// Law `model`: a size is left alone if the one wanted is smaller by less than this share. Default 0.01; 0 to below 1.
    pub model_dead_band: f64,
}

impl Default for FeedbackRules {
    fn default() -> FeedbackRules {
        FeedbackRules {
            law: Law::Model,
            percentile: 75.0,
            grow_after: 3,
            shrink_after: 6,
            gain: 0.5,
            growth_max: 0.5,
            shrink_max: 0.25,
            dead_band: 0.15,
            guard_max: 15,
            model_first_share: 0.9,
            model_growth_max: 1.0,
            model_shrink_max: 0.3,
            model_dead_band: 0.01,
        }
    }
}

/// What a correction is decided from.
#[derive(Clone, Copy, Debug)]
pub struct FeedbackInput<'a> {
    /// The size in force, in blocks.
    pub blocks: u64,
    /// Sizes are multiples of this.
    pub chunk_blocks: u64,
    /// Never less.
    pub blocks_min: u64,
    /// Never more.
    pub blocks_max: u64,
    /// The errors (excess of the worst objective that this partition serves) since the last change, oldest first.
    pub errors: &'a [f64],
    /// Conforming share of that objective: which percentile of the errors it takes at least.
    pub conforming_share: f64,
    /// Intervals since the last change.
    pub age: usize,
    /// Intervals that the last growth needs to fill.
    pub guard: usize,
    /// The smallest size that the model finds sufficient now, if it can say.
    pub model_blocks: Option<u64>,
    /// The largest size that was found insufficient in this phase; shrinking stays above it.
    pub insufficient_blocks: Option<u64>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Correction {
    /// Leave it, and why.
    Hold(HoldReason),
    /// Grow to so many blocks because of this error.
    Grow {
        /// The new size.
        blocks: u64,
        /// The percentile of the errors.
        error: f64,
    },
    /// Shrink to so many blocks because of this slack.
    Shrink {
        /// The new size.
        blocks: u64,
        /// The percentile of the errors, negative.
        error: f64,
    },
    /// It is as large as it may be and does not suffice.
    Exhausted {
        /// The percentile of the errors.
        error: f64,
    },
}

/// Why a size is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldReason {
    /// The last increment is still filling.
    Filling,
    /// The origin works off what waited for it before, and will soon be done.
    Draining,
    /// Too few intervals since the last change.
    TooYoung,
    /// The error is within the dead band.
    WithinBand,
    /// Shrinking would go to a size that did not suffice, or below the least.
    AtFloor,
}

/// Applies the law. `O(errors)`.
pub fn correct(input: &FeedbackInput<'_>, rules: &FeedbackRules) -> Correction {
    if input.age < input.guard.min(rules.guard_max) {
        return Correction::Hold(HoldReason::Filling);
    }
    if input.errors.len() < rules.grow_after.max(1) {
        return Correction::Hold(HoldReason::TooYoung);
    }
    let percentile = rules.percentile.max(input.conforming_share * 100.0);
    // Only what is recent decides growth, so that an old error does not count twice.
    let recent = &input.errors[input.errors.len().saturating_sub(rules.shrink_after.max(rules.grow_after))..];
    let capped: Vec<f64> = recent.iter().map(|error| error.clamp(-1.0, 1e6)).collect();
    // With few intervals a high percentile is the largest one, and a single spike would decide; growing looks at
    // the law's percentile, shrinking at the objective's.
    let error = forebay_workload::statistics::percentile(&capped, rules.percentile).unwrap_or(0.0);
    let mean = forebay_workload::statistics::mean(&capped).unwrap_or(0.0);
    let strict = forebay_workload::statistics::percentile(&capped, percentile).unwrap_or(0.0);
    let chunk = input.chunk_blocks.max(1);
    if error > 0.0 || mean > 0.0 {
        let error = error.max(mean);
        if input.blocks >= input.blocks_max {
            return Correction::Exhausted { error };
        }
        let share = (rules.gain * error).min(rules.growth_max);
        let step = ((input.blocks as f64 * share).ceil() as u64).max(chunk);
        let ceiling = (input.blocks as f64 * (1.0 + rules.growth_max)).ceil() as u64 + chunk;
        let wanted = (input.blocks + step).max(input.model_blocks.unwrap_or(0).min(ceiling));
        let blocks = round_up(wanted, chunk).clamp(input.blocks_min, input.blocks_max);
        return Correction::Grow { blocks, error };
    }
    if strict >= -rules.dead_band {
        return Correction::Hold(HoldReason::WithinBand);
    }
    if input.errors.len() < rules.shrink_after {
        return Correction::Hold(HoldReason::TooYoung);
    }
    let slowest = (input.blocks as f64 * (1.0 - rules.shrink_max)).floor() as u64;
    // Without a model the slack itself bounds the step: half of what a proportional law would take (ours).
    let proportional = (input.blocks as f64 * (1.0 + (strict + rules.dead_band) / 2.0)).floor() as u64;
    // The model bounds large steps only: where it is too cautious the slack that is seen counts, a fifth at a time.
    let cautious = (input.blocks as f64 * (1.0 - rules.shrink_max / 5.0)).floor() as u64;
    let floor = input
        .blocks_min
        .max(input.insufficient_blocks.map_or(0, |blocks| blocks + chunk))
        .max(input.model_blocks.map_or(0, |blocks| blocks.min(cautious)));
    let mut blocks = round_up(slowest.max(proportional).max(floor), chunk);
    // A few chunks are fewer than any of these shares leaves: then one chunk goes, if nothing that is known forbids it.
    let smaller = (input.blocks.saturating_sub(1) / chunk) * chunk;
    let known = input
        .blocks_min
        .max(input.insufficient_blocks.map_or(0, |blocks| blocks + chunk))
        .max(input.model_blocks.unwrap_or(0));
    if blocks >= input.blocks && smaller >= known.max(chunk) {
        blocks = smaller;
    }
    if blocks >= input.blocks {
        return Correction::Hold(HoldReason::AtFloor);
    }
    Correction::Shrink { blocks, error: strict }
}

fn round_up(blocks: u64, chunk: u64) -> u64 {
    blocks.div_ceil(chunk) * chunk
}

/// How many intervals an increment needs to fill: its bytes over what fills it in an interval; at least 1.
pub fn fill_intervals(increment_blocks: u64, filled_blocks_per_interval: f64) -> usize {
    if increment_blocks == 0 {
        return 0;
    }
    (increment_blocks as f64 / filled_blocks_per_interval.max(1.0)).ceil().clamp(1.0, 1e6) as usize
}

/// A phase of a workload: how much it asks for, how much of that is read, and of how many blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    rate: f64,
    reads: f64,
    working_set: f64,
}

impl Phase {
    /// The phase with this rate per second, share of reads and working set in blocks.
    pub fn of(rate: f64, read_share: f64, working_set_blocks: u64) -> Phase {
        Phase { rate: rate.max(1.0), reads: read_share, working_set: working_set_blocks.max(1) as f64 }
    }

    /// How far two phases lie apart; below 1 they are one phase (ours): rates within 15 %, reads within 0.15 of all
    /// requests, working sets within 50 %, since these are estimates of a window that ends late.
    pub fn distance(&self, other: &Phase) -> f64 {
        self.load_distance(other).max((self.working_set / other.working_set).ln().abs() / 1.5f64.ln())
    }

    /// The same of rates and reads alone: a load that has just come has not shown yet of how many blocks it asks.
    pub fn load_distance(&self, other: &Phase) -> f64 {
        let rates = (self.rate / other.rate).ln().abs() / 1.15f64.ln();
        rates.max((self.reads - other.reads).abs() / 0.15)
    }
}

/// The sizes that kept an objective, phase by phase; forgets the least recently used beyond [`PhaseMemory::CAPACITY`].
#[derive(Clone, Debug, Default)]
pub struct PhaseMemory {
    /// The most recently used last.
    sizes: Vec<(Phase, u64)>,
}

impl PhaseMemory {
    /// How many phases are remembered.
    pub const CAPACITY: usize = 16;

    /// Remembers that `blocks` kept the objective in `phase`; replaces what was known.
    pub fn remember(&mut self, phase: Phase, blocks: u64) {
        self.sizes.retain(|(known, _)| known.distance(&phase) >= 1.0);
        if self.sizes.len() == PhaseMemory::CAPACITY {
            self.sizes.remove(0);
        }
        self.sizes.push((phase, blocks));
    }

    /// The size that kept the objective in the phase nearest to this one, if it was seen.
    pub fn recall(&self, phase: Phase) -> Option<u64> {
        self.nearest(|known| known.distance(&phase))
    }

    /// The same by what is asked for alone, of a load that has just come.
    pub fn recall_load(&self, phase: Phase) -> Option<u64> {
        self.nearest(|known| known.load_distance(&phase))
    }

    fn nearest(&self, distance: impl Fn(&Phase) -> f64) -> Option<u64> {
        self.sizes
            .iter()
            .map(|(known, blocks)| (distance(known), *blocks))
            .filter(|(distance, _)| *distance < 1.0)
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, blocks)| blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(errors: &[f64]) -> FeedbackInput<'_> {
        FeedbackInput {
            blocks: 1_000,
            chunk_blocks: 10,
            blocks_min: 0,
            blocks_max: 5_000,
            errors,
            conforming_share: 0.5,
            age: 10,
            guard: 4,
            model_blocks: None,
            insufficient_blocks: None,
        }
    }

    #[test]
    fn it_grows_by_a_clamped_gain() {
        let rules = FeedbackRules::default();
        // p75 of (0.0, 0.1, 0.2, 0.3) is the third of four: 0.2; half of it of 1,000 is 100.
        assert_eq!(
            correct(&input(&[0.0, 0.1, 0.2, 0.3]), &rules),
            Correction::Grow { blocks: 1_100, error: 0.2 }
        );
        // An error of 9 is clamped to half the size.
        assert_eq!(correct(&input(&[9.0; 4]), &rules), Correction::Grow { blocks: 1_500, error: 9.0 });
        // The model knows better, within the clamp.
        let modelled = FeedbackInput { model_blocks: Some(1_300), ..input(&[0.1; 4]) };
        assert_eq!(correct(&modelled, &rules), Correction::Grow { blocks: 1_300, error: 0.1 });
        let beyond = FeedbackInput { model_blocks: Some(9_000), ..input(&[0.1; 4]) };
        assert_eq!(correct(&beyond, &rules), Correction::Grow { blocks: 1_510, error: 0.1 });
        // Three of four miss by a tenth, whatever the slack of the fourth; and there is never more than there may be.
        let calm = input(&[-1.0, 0.1, 0.1, 0.1]);
        assert_eq!(correct(&calm, &rules), Correction::Grow { blocks: 1_050, error: 0.1 });
        let nearly = FeedbackInput { blocks: 4_900, ..input(&[9.0; 4]) };
        assert_eq!(correct(&nearly, &rules), Correction::Grow { blocks: 5_000, error: 9.0 });
        let full = FeedbackInput { blocks: 5_000, ..input(&[0.1; 4]) };
        assert!(matches!(correct(&full, &rules), Correction::Exhausted { .. }));
    }

    #[test]
    fn a_heavy_tail_above_the_percentile_counts_by_its_mean() {
        // p75 is -0.1, but the mean is (3 x -0.1 + 2) / 4 = 0.425.
        let correction = correct(&input(&[-0.1, -0.1, -0.1, 2.0]), &FeedbackRules::default());
        assert!(
            matches!(correction, Correction::Grow { error, .. } if (error - 0.425).abs() < 1e-9),
            "{correction:?}"
        );
    }

    #[test]
    fn it_waits_while_the_increment_fills_and_within_the_band() {
        let rules = FeedbackRules::default();
        assert_eq!(
            correct(&FeedbackInput { age: 3, ..input(&[0.5; 3]) }, &rules),
            Correction::Hold(HoldReason::Filling)
        );
        assert_eq!(correct(&input(&[0.5; 2]), &rules), Correction::Hold(HoldReason::TooYoung));
        assert_eq!(correct(&input(&[-0.1; 9]), &rules), Correction::Hold(HoldReason::WithinBand));
        assert_eq!(correct(&input(&[-0.5; 5]), &rules), Correction::Hold(HoldReason::TooYoung));
        assert_eq!(fill_intervals(1_000, 300.0), 4);
        assert_eq!((fill_intervals(0, 300.0), fill_intervals(5, 0.0)), (0, 5));
    }

    #[test]
    fn it_shrinks_slowly_and_never_to_a_size_that_failed() {
        let rules = FeedbackRules::default();
        // Slack 0.7, beyond the band 0.55, half of it 27.5 %: clamped to 25 %.
        assert_eq!(correct(&input(&[-0.7; 8]), &rules), Correction::Shrink { blocks: 750, error: -0.7 });
        // Slack 0.25: beyond the band 0.1, half of it 5 %.
        assert_eq!(correct(&input(&[-0.25; 8]), &rules), Correction::Shrink { blocks: 950, error: -0.25 });
        // One of eight has hardly any slack: enough for three of four, too little for who was promised all but one in a hundred.
        let errors = [-0.5, -0.5, -0.5, -0.05, -0.5, -0.5, -0.5, -0.5];
        assert!(matches!(correct(&input(&errors), &rules), Correction::Shrink { error: -0.5, .. }));
        let strict = FeedbackInput { conforming_share: 0.99, ..input(&errors) };
        assert_eq!(correct(&strict, &rules), Correction::Hold(HoldReason::WithinBand));
        let failed = FeedbackInput { insufficient_blocks: Some(900), ..input(&[-0.5; 8]) };
        assert_eq!(correct(&failed, &rules), Correction::Shrink { blocks: 910, error: -0.5 });
        // The model asks for all of it: a fifth of the largest step.
        let modelled = FeedbackInput { model_blocks: Some(1_000), ..input(&[-0.5; 8]) };
        assert_eq!(correct(&modelled, &rules), Correction::Shrink { blocks: 950, error: -0.5 });
        let floored = FeedbackInput { insufficient_blocks: Some(995), ..input(&[-0.5; 8]) };
        assert_eq!(correct(&floored, &rules), Correction::Hold(HoldReason::AtFloor));
    }

    #[test]
    fn a_few_chunks_shrink_by_one_until_something_is_known_to_fail() {
        let rules = FeedbackRules::default();
        // Three chunks of 256: a quarter less is 576, which rounds up to 768 again; so one chunk goes.
        let three = FeedbackInput { blocks: 768, chunk_blocks: 256, ..input(&[-0.6; 8]) };
        assert_eq!(correct(&three, &rules), Correction::Shrink { blocks: 512, error: -0.6 });
        // 512 failed before, or the model wants more, or it is the last chunk: it stays.
        for kept in [
            FeedbackInput { insufficient_blocks: Some(512), ..three },
            FeedbackInput { model_blocks: Some(600), ..three },
            FeedbackInput { blocks: 256, ..three },
        ] {
            assert_eq!(correct(&kept, &rules), Correction::Hold(HoldReason::AtFloor), "{kept:?}");
        }
    }

    #[test]
    fn a_phase_is_known_by_its_rate_its_reads_and_its_blocks() {
        let phase = |rate, reads, blocks| Phase::of(rate, reads, blocks);
        let known = phase(1_000.0, 0.5, 10_000);
        // Within 15 %, 0.15 and 50 %, to both sides; and beyond.
        for (other, is_same) in [
            (phase(1_140.0, 0.5, 10_000), true),
            (phase(1_160.0, 0.5, 10_000), false),
            (phase(860.0, 0.5, 10_000), false),
            (phase(1_000.0, 0.64, 10_000), true),
            (phase(1_000.0, 0.66, 10_000), false),
            (phase(1_000.0, 0.34, 10_000), false),
            (phase(1_000.0, 0.5, 14_900), true),
            (phase(1_000.0, 0.5, 15_100), false),
            (phase(1_000.0, 0.5, 6_600), false),
        ] {
            assert_eq!(
                (known.distance(&other) < 1.0, other.distance(&known) < 1.0),
                (is_same, is_same),
                "{other:?}"
            );
        }
        // What has just come is known by what it asks for alone.
        let young = phase(1_000.0, 0.5, 10);
        assert!(known.load_distance(&young) < 1.0 && known.load_distance(&phase(1_000.0, 0.7, 10)) >= 1.0);
        let mut memory = PhaseMemory::default();
        memory.remember(known, 500);
        memory.remember(phase(1_200.0, 0.5, 10_000), 700);
        let recalled = |rate, blocks| {
            let asked = phase(rate, 0.5, blocks);
            (memory.recall(asked), memory.recall_load(asked))
        };
        // Of two that are near the nearer one.
        assert_eq!(recalled(1_050.0, 10_000), (Some(500), Some(500)));
        assert_eq!(recalled(1_150.0, 10_000), (Some(700), Some(700)));
        assert_eq!(recalled(1_150.0, 10), (None, Some(700)));
    }

    #[test]
    fn phases_are_remembered_up_to_the_capacity() {
        let mut memory = PhaseMemory::default();
        let phase = Phase::of(1_000.0, 0.9, 10_000);
        let (near, far) = (Phase::of(1_050.0, 0.93, 10_500), Phase::of(2_000.0, 0.9, 10_000));
        assert!(phase.distance(&near) < 1.0 && phase.distance(&far) >= 1.0);
        memory.remember(phase, 500);
        memory.remember(near, 600);
        assert_eq!((memory.recall(phase), memory.recall(far)), (Some(600), None));
        (0..PhaseMemory::CAPACITY as u32)
            .for_each(|n| memory.remember(Phase::of(f64::from(2u32 << n), 0.1, 1), 1));
        assert_eq!(memory.recall(phase), None);
    }
}
