//! Removal: whether a partition is still needed (Dynamite, §5.3): sustained low load, an objective that would be kept
//! without it, or a cache that does not hit.

use serde::{Deserialize, Serialize};

/// When a partition is taken back. All numbers are ours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RemovalRules {
    /// Intervals for which a reason must hold without a break. Default 30; at least 1.
    pub sustained: usize,
    /// Load below this share of the load for which the cache was granted is low. Default 0.3; 0 to 1.
    pub low_load_share: f64,
    /// Excess that the model may predict without the cache for it to be superfluous. Default -0.3; below 0.
    pub excess_without_max: f64,
    /// Share of reads that a warm cache must answer. Default 0.03; 0 to 1.
    pub hit_ratio_min: f64,
}

impl Default for RemovalRules {
    fn default() -> RemovalRules {
        RemovalRules { sustained: 30, low_load_share: 0.3, excess_without_max: -0.3, hit_ratio_min: 0.03 }
    }
}

/// One interval of a partition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RemovalInput {
    /// Load of the origin that the partition relieves, hits included, in requests per second.
    pub rate: f64,
    /// The same when the partition was granted.
    pub rate_at_grant: f64,
    /// The worst excess that the model predicts for those it serves, without it. `None` where it was not asked or
    /// cannot say.
    pub excess_without: Option<f64>,
    /// Reads per second that came to its volume.
    pub reads: f64,
    /// Reads per second of those that it serves.
    pub reads_served: f64,
    /// Share of them that it answered.
    pub hit_ratio: f64,
    /// Whether it had time to fill.
    pub warm: bool,
}

/// Why a partition is superfluous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemovalReason {
    /// The load went away.
    #[error("the load has been low")]
    LowLoad,
    /// The origin alone suffices.
    #[error("the objective would be kept without it")]
    NotNeeded,
    /// It does not hit.
    #[error("it answers next to no reads")]
    Ineffective,
}

/// How long each reason has held, in intervals without a break.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovalCounters {
    low_load: usize,
    not_needed: usize,
    ineffective: usize,
}

impl RemovalCounters {
    /// The partition has grown: what the smaller one did not answer says nothing of it yet.
    pub fn grown(&mut self) {
        self.ineffective = 0;
    }

    /// Counts an interval; says whether the partition is to be taken back, and why.
    pub fn observe(&mut self, input: &RemovalInput, rules: &RemovalRules) -> Option<RemovalReason> {
        let count = |counter: &mut usize, holds: bool| *counter = if holds { *counter + 1 } else { 0 };
        let low = input.rate < rules.low_load_share * input.rate_at_grant;
        count(&mut self.low_load, low);
        if let Some(excess) = input.excess_without {
            count(&mut self.not_needed, excess <= rules.excess_without_max);
        } else if self.not_needed > 0 {
            self.not_needed += 1; // not asked this time: the last answer stands
        }
        // One whose volume reads next to nothing never fills, and has nothing to answer, however much is read by others that it serves.
        let is_unasked = input.reads <= rules.hit_ratio_min * input.reads_served;
        let answers_little = is_unasked || (input.warm && input.hit_ratio < rules.hit_ratio_min);
        count(&mut self.ineffective, !low && answers_little);
        let sustained = rules.sustained.max(1);
        [
            (self.low_load, RemovalReason::LowLoad),
            (self.not_needed, RemovalReason::NotNeeded),
            (self.ineffective, RemovalReason::Ineffective),
        ]
        .into_iter()
        .find(|(held, _)| *held >= sustained)
        .map(|(_, reason)| reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_must_hold_without_a_break() {
        let rules = RemovalRules { sustained: 3, ..RemovalRules::default() };
        let busy = RemovalInput {
            rate: 900.0,
            rate_at_grant: 1_000.0,
            excess_without: Some(0.2),
            reads: 600.0,
            reads_served: 900.0,
            hit_ratio: 0.5,
            warm: true,
        };
        let low = RemovalInput { rate: 299.0, ..busy };
        let mut counters = RemovalCounters::default();
        let seen: Vec<_> =
            [low, low, busy, low, low, low].iter().map(|input| counters.observe(input, &rules)).collect();
        assert_eq!(seen, [None, None, None, None, None, Some(RemovalReason::LowLoad)]);

        let mut counters = RemovalCounters::default();
        let unneeded = RemovalInput { excess_without: Some(-0.4), ..busy };
        let unasked = RemovalInput { excess_without: None, ..busy };
        let seen: Vec<_> = [unasked, unneeded, unasked, unneeded]
            .iter()
            .map(|input| counters.observe(input, &rules))
            .collect();
        assert_eq!(seen, [None, None, None, Some(RemovalReason::NotNeeded)]);

        let mut counters = RemovalCounters::default();
        let useless = RemovalInput { hit_ratio: 0.01, ..busy };
        let cold = RemovalInput { warm: false, ..useless };
        let seen: Vec<_> =
            [cold, useless, useless, useless].iter().map(|input| counters.observe(input, &rules)).collect();
        assert_eq!(seen, [None, None, None, Some(RemovalReason::Ineffective)]);

        // What a cold one is asked for fills it, but next to nothing fills nothing.
        let mut counters = RemovalCounters::default();
        let unasked = RemovalInput { reads: 26.0, ..cold };
        let asked = RemovalInput { reads: 28.0, ..cold };
        let seen: Vec<_> = [asked, asked, asked, unasked, unasked, unasked]
            .iter()
            .map(|input| counters.observe(input, &rules))
            .collect();
        assert_eq!(seen, [None, None, None, None, None, Some(RemovalReason::Ineffective)]);
        // Few reads among many writes are what it is for, if its own volume is all that it serves.
        let alone = RemovalInput { reads: 9.0, reads_served: 9.0, ..busy };
        let mut counters = RemovalCounters::default();
        assert_eq!([alone; 4].map(|input| counters.observe(&input, &rules)), [None; 4]);

        // One that has grown has had no time to answer anything.
        let mut counters = RemovalCounters::default();
        let young = [counters.observe(&useless, &rules), counters.observe(&useless, &rules)];
        assert_eq!(young, [None, None]);
        counters.grown();
        let seen: Vec<_> = [useless; 3].iter().map(|input| counters.observe(input, &rules)).collect();
        assert_eq!(seen, [None, None, Some(RemovalReason::Ineffective)]);
    }
}
