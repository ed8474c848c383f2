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
        let ratio = |value: f64| (0.0..=1.0).contains(&value);
        let share = |value: f64| (0.0..1.0).contains(&value);
        let positive = |value: f64| value > 0.0 && value.is_finite();
        let count = |value: usize, least: usize| (least..=1 << 20).contains(&value);
        const RATIO: &str = "a number from 0 to 1";
        const SHARE: &str = "a number from 0 to below 1";
        const POSITIVE: &str = "a number above 0";
        const ONE: &str = "a whole number of at least 1";
        let rules: &[(&'static str, f64, bool, &'static str)] = &[
            (
                "conformance.requests_min",
                self.conformance.requests_min as f64,
                self.conformance.requests_min >= 1,
                ONE,
            ),
            (
                "conformance.backlog_idle_share_max",
                self.conformance.backlog_idle_share_max,
                ratio(self.conformance.backlog_idle_share_max),
                RATIO,
            ),
            (
                "conformance.backlog_depth_min",
                self.conformance.backlog_depth_min,
                ratio(self.conformance.backlog_depth_min),
                RATIO,
            ),
            (
                "conformance.backlog_share_min",
                self.conformance.backlog_share_min,
                ratio(self.conformance.backlog_share_min),
                RATIO,
            ),
            (
                "violation.windows",
                self.violation.windows as f64,
                (1..=64).contains(&self.violation.windows),
                "a whole number from 1 to 64",
            ),
            (
                "violation.nonconforming",
                self.violation.nonconforming as f64,
                (1..=self.violation.windows).contains(&self.violation.nonconforming),
                "a whole number from 1 to `violation.windows`",
            ),
            (
                "interference.history_min",
                self.interference.history_min as f64,
                count(self.interference.history_min, 4),
                "a whole number of at least 4",
            ),
            (
                "interference.lag_max",
                self.interference.lag_max as f64,
                self.interference.lag_max <= 8,
                "a whole number from 0 to 8",
            ),
            (
                "interference.score_min",
                self.interference.score_min,
                ratio(self.interference.score_min),
                RATIO,
            ),
            (
                "interference.significance_min",
                self.interference.significance_min,
                positive(self.interference.significance_min),
                POSITIVE,
            ),
            (
                "interference.significance_together",
                self.interference.significance_together,
                positive(self.interference.significance_together),
                POSITIVE,
            ),
            (
                "interference.significance_alone",
                self.interference.significance_alone,
                positive(self.interference.significance_alone),
                POSITIVE,
            ),
            (
                "interference.variation_min",
                self.interference.variation_min,
                ratio(self.interference.variation_min),
                RATIO,
            ),
            (
                "cacheability.read_share_min",
                self.cacheability.read_share_min,
                ratio(self.cacheability.read_share_min),
                RATIO,
            ),
            (
                "cacheability.floor_max",
                self.cacheability.floor_max,
                ratio(self.cacheability.floor_max),
                RATIO,
            ),
            (
                "cacheability.invalidation_share_max",
                self.cacheability.invalidation_share_max,
                positive(self.cacheability.invalidation_share_max),
                POSITIVE,
            ),
            (
                "cacheability.sequential_share_max",
                self.cacheability.sequential_share_max,
                ratio(self.cacheability.sequential_share_max),
                RATIO,
            ),
            (
                "feedback.percentile",
                self.feedback.percentile,
                self.feedback.percentile > 0.0 && self.feedback.percentile <= 100.0,
                "a number above 0 and at most 100",
            ),
            ("feedback.grow_after", self.feedback.grow_after as f64, count(self.feedback.grow_after, 1), ONE),
            (
                "feedback.shrink_after",
                self.feedback.shrink_after as f64,
                count(self.feedback.shrink_after, self.feedback.grow_after),
                "a whole number of at least `feedback.grow_after`",
            ),
            ("feedback.gain", self.feedback.gain, positive(self.feedback.gain), POSITIVE),
            ("feedback.growth_max", self.feedback.growth_max, positive(self.feedback.growth_max), POSITIVE),
            (
                "feedback.shrink_max",
                self.feedback.shrink_max,
                positive(self.feedback.shrink_max) && share(self.feedback.shrink_max),
                "a number above 0 and below 1",
            ),
            ("feedback.dead_band", self.feedback.dead_band, share(self.feedback.dead_band), SHARE),
            ("feedback.guard_max", self.feedback.guard_max as f64, count(self.feedback.guard_max, 1), ONE),
            (
                "feedback.model_first_share",
                self.feedback.model_first_share,
                self.feedback.model_first_share > 0.0 && self.feedback.model_first_share <= 1.0,
                "a number above 0 and at most 1",
            ),
            (
                "feedback.model_growth_max",
                self.feedback.model_growth_max,
                positive(self.feedback.model_growth_max),
                POSITIVE,
            ),
            (
                "feedback.model_shrink_max",
                self.feedback.model_shrink_max,
                positive(self.feedback.model_shrink_max) && share(self.feedback.model_shrink_max),
                "a number above 0 and below 1",
            ),
            (
                "feedback.model_dead_band",
                self.feedback.model_dead_band,
                share(self.feedback.model_dead_band),
                SHARE,
            ),
            ("warmup.zone_share_min", self.warmup.zone_share_min, ratio(self.warmup.zone_share_min), RATIO),
            ("warmup.overlap_min", self.warmup.overlap_min, ratio(self.warmup.overlap_min), RATIO),
            ("warmup.dense_min", self.warmup.dense_min, ratio(self.warmup.dense_min), RATIO),
            (
                "warmup.bytes_per_second_max",
                self.warmup.bytes_per_second_max as f64,
                self.warmup.bytes_per_second_max >= 1,
                ONE,
            ),
            ("warmup.idle_share", self.warmup.idle_share, ratio(self.warmup.idle_share), RATIO),
            (
                "warmup.cache_share_max",
                self.warmup.cache_share_max,
                ratio(self.warmup.cache_share_max),
                RATIO,
            ),
            ("warmup.hit_ratio_min", self.warmup.hit_ratio_min, ratio(self.warmup.hit_ratio_min), RATIO),
            ("warmup.spared_min", self.warmup.spared_min, ratio(self.warmup.spared_min), RATIO),
            ("removal.sustained", self.removal.sustained as f64, count(self.removal.sustained, 1), ONE),
            (
                "removal.low_load_share",
                self.removal.low_load_share,
                ratio(self.removal.low_load_share),
                RATIO,
            ),
            (
                "removal.excess_without_max",
                self.removal.excess_without_max,
                self.removal.excess_without_max < 0.0,
                "a number below 0",
            ),
            ("removal.hit_ratio_min", self.removal.hit_ratio_min, ratio(self.removal.hit_ratio_min), RATIO),
            (
                "foresight.bucket_intervals",
                self.foresight.bucket_intervals as f64,
                (1..=100_000).contains(&self.foresight.bucket_intervals),
                "a whole number from 1 to 100000",
            ),
            (
                "foresight.buckets_max",
                self.foresight.buckets_max as f64,
                (16..=65_536).contains(&self.foresight.buckets_max),
                "a whole number from 16 to 65536",
            ),
            (
                "foresight.lead_buckets",
                self.foresight.lead_buckets as f64,
                (1..=64).contains(&self.foresight.lead_buckets),
                "a whole number from 1 to 64",
            ),
            (
                "foresight.confidence_min",
                self.foresight.confidence_min,
                ratio(self.foresight.confidence_min),
                RATIO,
            ),
            ("sizing_margin", self.sizing_margin, share(self.sizing_margin), SHARE),
            (
                "chunk_bytes",
                self.chunk_bytes as f64,
                self.chunk_bytes >= 4_096,
                "a whole number of at least 4096",
            ),
            (
                "history_intervals",
                self.history_intervals as f64,
                (8..=1_024).contains(&self.history_intervals),
                "a whole number from 8 to 1024",
            ),
            (
                "recent_intervals",
                self.recent_intervals as f64,
                (1..=self.history_intervals).contains(&self.recent_intervals),
                "a whole number from 1 to `history_intervals`",
            ),
            ("analyses_max", self.analyses_max as f64, count(self.analyses_max, 1), ONE),
            ("neighbours_max", self.neighbours_max as f64, count(self.neighbours_max, 1), ONE),
            ("retry_after", self.retry_after as f64, count(self.retry_after, 1), ONE),
            ("spare_share", self.spare_share, ratio(self.spare_share), RATIO),
            ("hit_latency_ns", self.hit_latency_ns as f64, self.hit_latency_ns > 0, ONE),
            (
                "servers_assumed",
                self.servers_assumed,
                self.servers_assumed >= 1.0 && self.servers_assumed.is_finite(),
                "a number of at least 1",
            ),
        ];
        let wrong = rules.iter().filter(|(_, _, good, _)| !good);
        wrong.map(|&(key, found, _, expected)| ConfigError { key, found, expected }).collect()
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
