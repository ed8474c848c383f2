//! The controller's parameters. Spans are counted in intervals or windows, so that the same numbers work at a control
//! interval of 100 ms and of 10 s.

use crate::cacheability::CacheabilityRules;
use crate::conformance::ConformanceRules;
use crate::feedback::FeedbackRules;
use crate::foresight::ForesightRules;
use crate::interference::InterferenceRules;
use crate::removal::RemovalRules;
use crate::violation::ViolationRules;
use crate::warmup::WarmupRules;
use serde::{Deserialize, Serialize};

/// All parameters, each with a default; unknown keys are refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ControlConfig {
    /// When a window says something.
    pub conformance: ConformanceRules,
    /// When non-conformance is sustained.
    pub violation: ViolationRules,
    /// When a neighbour interferes.
    pub interference: InterferenceRules,
    /// When a cache can help.
    pub cacheability: CacheabilityRules,
    /// How a size is corrected.
    pub feedback: FeedbackRules,
    /// What is loaded beforehand.
    pub warmup: WarmupRules,
    /// When a cache is taken back.
    pub removal: RemovalRules,
    /// What is granted before it is needed.
    pub foresight: ForesightRules,
    /// Sizes are chosen so that the prediction stays so far below the bound. Default 0.1 (ours); 0 to below 1.
    pub sizing_margin: f64,
    /// Caches are sized in multiples of this many bytes. Default 4 KiB (ours): small caches have some dozens of blocks; at least 4,096.
    #[serde(with = "crate::plain::size")]
    pub chunk_bytes: u64,
    /// Intervals that are kept of every volume. Default 64 (Hybrid Store: a few hundred suffice for sizing; the
    /// correlation needs tens); 8 to 1,024.
    pub history_intervals: usize,
    /// Intervals that the model is calibrated on. Default 5 (ours); 1 to `history_intervals`.
    pub recent_intervals: usize,
    /// Violations analysed in one step; the others wait for the next. Default 8 (ours); at least 1.
    pub analyses_max: usize,
    /// Neighbours considered for a cache in one analysis, the busiest first. Default 8 (ours); at least 1.
    pub neighbours_max: usize,
    /// Intervals after an attempt before the same violation is analysed again. Default 10 (ours); at least 1.
    pub retry_after: usize,
    /// Of the memory that no cache wants, the part that goes to volumes which are violated and which nothing is known to mend. Default 1 (ours); 0 to 1.
    pub spare_share: f64,
    /// Latency of a hit before one was measured, in nanoseconds. Default 150,000 (ours); above 0.
    pub hit_latency_ns: u64,
    /// Servers of an origin that are neither configured nor fitted. Default 8 (ours); at least 1.
    pub servers_assumed: f64,
}

impl Default for ControlConfig {
    fn default() -> ControlConfig {
        ControlConfig {
            conformance: ConformanceRules::default(),
            violation: ViolationRules::default(),
            interference: InterferenceRules::default(),
            cacheability: CacheabilityRules::default(),
            feedback: FeedbackRules::default(),
            warmup: WarmupRules::default(),
            removal: RemovalRules::default(),
            foresight: ForesightRules::default(),
            sizing_margin: 0.1,
            chunk_bytes: 4 << 10,
            history_intervals: 64,
            recent_intervals: 5,
            analyses_max: 8,
            neighbours_max: 8,
            retry_after: 10,
            spare_share: 1.0,
            hit_latency_ns: 150_000,
            servers_assumed: 8.0,
        }
    }
}

/// A parameter outside its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("`{key}` is {found}, expected {expected}")]
pub struct ConfigError {
    /// Which parameter, as in `violation.windows`.
    pub key: &'static str,
    /// What it is.
    pub found: f64,
    /// What it may be.
    pub expected: &'static str,
}

impl ControlConfig {
    /// Checks every range.
    ///
    /// # Errors
    /// [`ConfigError`], the first parameter outside its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.wrong().into_iter().next().map_or(Ok(()), Err)
    }

    /// Every parameter outside its range.
    pub fn wrong(&self) -> Vec<ConfigError> {
        use Range::{Count, Only, Part, Positive, Ratio, Share};
        let ControlConfig { conformance, violation, interference, cacheability, .. } = self;
        let ControlConfig { feedback, warmup, removal, foresight, .. } = self;
        const ONE: &str = "a whole number of at least 1";
        const COUNT: &str = "a whole number from 1 to 1048576";
        let grow_after = feedback.grow_after;
        let rules: &[(&'static str, f64, Range)] = &[
            (
                "conformance.requests_min",
                conformance.requests_min as f64,
                Only(conformance.requests_min >= 1, ONE),
            ),
            ("conformance.backlog_idle_share_max", conformance.backlog_idle_share_max, Ratio),
            ("conformance.backlog_depth_min", conformance.backlog_depth_min, Ratio),
            ("conformance.backlog_share_min", conformance.backlog_share_min, Ratio),
            (
                "violation.windows",
                violation.windows as f64,
                Only((1..=64).contains(&violation.windows), "a whole number from 1 to 64"),
            ),
            (
                "violation.nonconforming",
                violation.nonconforming as f64,
                Only(
                    (1..=violation.windows).contains(&violation.nonconforming),
                    "a whole number from 1 to `violation.windows`",
                ),
            ),
            (
                "interference.history_min",
                interference.history_min as f64,
                Count(4, "a whole number from 4 to 1048576"),
            ),
            (
                "interference.lag_max",
                interference.lag_max as f64,
                Only(interference.lag_max <= 8, "a whole number from 0 to 8"),
            ),
            ("interference.score_min", interference.score_min, Ratio),
            ("interference.significance_min", interference.significance_min, Positive),
            ("interference.significance_together", interference.significance_together, Positive),
            ("interference.significance_alone", interference.significance_alone, Positive),
            ("interference.variation_min", interference.variation_min, Ratio),
            ("cacheability.read_share_min", cacheability.read_share_min, Ratio),
            ("cacheability.floor_max", cacheability.floor_max, Ratio),
            ("cacheability.invalidation_share_max", cacheability.invalidation_share_max, Positive),
            ("cacheability.sequential_share_max", cacheability.sequential_share_max, Ratio),
            (
                "feedback.percentile",
                feedback.percentile,
                Only(
                    feedback.percentile > 0.0 && feedback.percentile <= 100.0,
                    "a number above 0 and at most 100",
                ),
            ),
            ("feedback.grow_after", feedback.grow_after as f64, Count(1, COUNT)),
            (
                "feedback.shrink_after",
                feedback.shrink_after as f64,
                Count(grow_after, "a whole number from `feedback.grow_after` to 1048576"),
            ),
            ("feedback.gain", feedback.gain, Positive),
            ("feedback.growth_max", feedback.growth_max, Positive),
            ("feedback.shrink_max", feedback.shrink_max, Part),
            ("feedback.dead_band", feedback.dead_band, Share),
            ("feedback.guard_max", feedback.guard_max as f64, Count(1, COUNT)),
            (
                "feedback.model_first_share",
                feedback.model_first_share,
                Only(
                    feedback.model_first_share > 0.0 && feedback.model_first_share <= 1.0,
                    "a number above 0 and at most 1",
                ),
            ),
            ("feedback.model_growth_max", feedback.model_growth_max, Positive),
            ("feedback.model_shrink_max", feedback.model_shrink_max, Part),
            ("feedback.model_dead_band", feedback.model_dead_band, Share),
            ("warmup.zone_share_min", warmup.zone_share_min, Ratio),
            ("warmup.overlap_min", warmup.overlap_min, Ratio),
            ("warmup.dense_min", warmup.dense_min, Ratio),
            (
                "warmup.bytes_per_second_max",
                warmup.bytes_per_second_max as f64,
                Only(warmup.bytes_per_second_max >= 1, ONE),
            ),
            ("warmup.idle_share", warmup.idle_share, Ratio),
            ("warmup.cache_share_max", warmup.cache_share_max, Ratio),
            ("warmup.hit_ratio_min", warmup.hit_ratio_min, Ratio),
            ("warmup.spared_min", warmup.spared_min, Ratio),
            ("removal.sustained", removal.sustained as f64, Count(1, COUNT)),
            ("removal.low_load_share", removal.low_load_share, Ratio),
            (
                "removal.excess_without_max",
                removal.excess_without_max,
                Only(removal.excess_without_max < 0.0, "a number below 0"),
            ),
            ("removal.hit_ratio_min", removal.hit_ratio_min, Ratio),
            (
                "foresight.bucket_intervals",
                foresight.bucket_intervals as f64,
                Only((1..=100_000).contains(&foresight.bucket_intervals), "a whole number from 1 to 100000"),
            ),
            (
                "foresight.buckets_max",
                foresight.buckets_max as f64,
                Only((16..=65_536).contains(&foresight.buckets_max), "a whole number from 16 to 65536"),
            ),
            (
                "foresight.lead_buckets",
                foresight.lead_buckets as f64,
                Only((1..=64).contains(&foresight.lead_buckets), "a whole number from 1 to 64"),
            ),
            ("foresight.confidence_min", foresight.confidence_min, Ratio),
            ("sizing_margin", self.sizing_margin, Share),
            (
                "chunk_bytes",
                self.chunk_bytes as f64,
                Only(self.chunk_bytes >= 4_096, "a whole number of at least 4096"),
            ),
            (
                "history_intervals",
                self.history_intervals as f64,
                Only((8..=1_024).contains(&self.history_intervals), "a whole number from 8 to 1024"),
            ),
            (
                "recent_intervals",
                self.recent_intervals as f64,
                Only(
                    (1..=self.history_intervals).contains(&self.recent_intervals),
                    "a whole number from 1 to `history_intervals`",
                ),
            ),
            ("analyses_max", self.analyses_max as f64, Count(1, COUNT)),
            ("neighbours_max", self.neighbours_max as f64, Count(1, COUNT)),
            ("retry_after", self.retry_after as f64, Count(1, COUNT)),
            ("spare_share", self.spare_share, Ratio),
            ("hit_latency_ns", self.hit_latency_ns as f64, Only(self.hit_latency_ns > 0, ONE)),
            (
                "servers_assumed",
                self.servers_assumed,
                Only(
                    self.servers_assumed >= 1.0 && self.servers_assumed.is_finite(),
                    "a number of at least 1",
                ),
            ),
        ];
        let wrong = rules.iter().filter(|(_, found, range)| !range.holds(*found));
        wrong.map(|&(key, found, range)| ConfigError { key, found, expected: range.expected() }).collect()
    }
}

/// What a parameter may be.
#[derive(Clone, Copy)]
enum Range {
    Ratio,
    Share,
    /// A share that is not 0.
    Part,
    Positive,
    /// At least so many, and at most 2^20.
    Count(usize, &'static str),
    /// Whether it is what it may be, which is the text.
    Only(bool, &'static str),
}

impl Range {
    fn holds(self, value: f64) -> bool {
        match self {
            Range::Ratio => (0.0..=1.0).contains(&value),
            Range::Share => (0.0..1.0).contains(&value),
            Range::Part => value > 0.0 && value < 1.0,
            Range::Positive => value > 0.0 && value.is_finite(),
            Range::Count(least, _) => (least as f64..=f64::from(1 << 20)).contains(&value),
            Range::Only(holds, _) => holds,
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Range::Ratio => "a number from 0 to 1",
            Range::Share => "a number from 0 to below 1",
            Range::Part => "a number above 0 and below 1",
            Range::Positive => "a number above 0",
            Range::Count(_, expected) | Range::Only(_, expected) => expected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_in_range_and_what_is_not_is_named() {
        let good = ControlConfig::default();
        assert_eq!(good.check(), Ok(()));
        let mut bad = good.clone();
        bad.violation.nonconforming = 6;
        assert_eq!(
            bad.check().unwrap_err().to_string(),
            "`violation.nonconforming` is 6, expected a whole number from 1 to `violation.windows`"
        );
        let mut bad = good.clone();
        bad.feedback.gain = f64::NAN;
        assert_eq!(bad.check().unwrap_err().key, "feedback.gain");
        // All of them are told, the first one alone by `check`.
        bad.servers_assumed = 0.5;
        bad.warmup.cache_share_max = 2.0;
        let wrong: Vec<&str> = bad.wrong().iter().map(|error| error.key).collect();
        assert_eq!(wrong, ["feedback.gain", "warmup.cache_share_max", "servers_assumed"]);
        assert_eq!((bad.check().unwrap_err().key, good.wrong()), ("feedback.gain", Vec::new()));
    }
}
