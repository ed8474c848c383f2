//! Removal: whether a partition is still needed (Dynamite, §5.3): sustained low load, an objective that would be kept
//! without it, or that is gone, or a cache that does not hit.

use crate::inventory::VolumeId;
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
pub(crate) struct RemovalInput {
    /// Load of the origin that the partition relieves, hits included, in requests per second.
    pub rate: f64,
    /// The same when the partition was granted.
    pub rate_at_grant: f64,
    /// How those that it serves would fare without it. `None` where it was not asked, or nobody can say.
    pub without: Option<Without>,
    /// How many times the mean level of windows the level is that as many do not exceed as have to conform; at least 1 where
    /// windows deviate.
    pub strict: f64,
    /// Reads per second that came to its volume.
    pub reads: f64,
    /// Reads per second of those that it serves.
    pub reads_served: f64,
    /// Share of them that it answered.
    pub hit_ratio: f64,
    /// Whether it had time to fill.
    pub warm: bool,
    /// What came of taking it back before.
    pub regrets: Regrets,
    /// Requests of those that it serves hang at the origin: how few are answered says nothing of how many are wanted.
    pub hangs: bool,
    /// Nobody that it could serve was promised anything.
    pub is_unpromised: bool,
}

/// How loads would fare without a cache: the worst excess.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Without {
    /// What the model predicts.
    pub predicted: f64,
    /// What such loads were seen to have on average while there was none. `None` where that was not seen.
    pub seen: Option<f64>,
}

/// By how much longer it is waited where what was seen without a cache speaks against what the model says of it (ours): what made the difference may be gone.
const DOUBT: usize = 4;

/// How often a cache was missed soon after it had been taken back as not needed: what is predicted without it is not so.
///
/// Each time the next one has to be not needed for twice as long. One that was not missed for as long ends that. (Ours.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Regrets {
    count: u32,
    removed: Option<(u64, Removed)>,
    missed: Option<Removed>,
}

/// A cache that was taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Removed {
    /// The volume that it was in front of.
    pub volume: VolumeId,
    /// Its size.
    pub blocks: u64,
}

/// It is not kept for more than so many times as long.
const REGRETS_MAX: u32 = 6;

impl Regrets {
    /// For how many intervals in a row a cache must not be needed to be taken back.
    pub(crate) fn sustained(self, rules: &RemovalRules) -> usize {
        rules.sustained.max(1).saturating_mul(1 << self.count)
    }

    /// It is taken back in this step as not needed.
    pub(crate) fn removed(&mut self, step: u64, removed: Removed) {
        self.removed = Some((step, removed));
    }

    /// A violation was found in this step.
    pub(crate) fn violated(&mut self, step: u64, rules: &RemovalRules) {
        self.missed = None;
        let Some((at, removed)) = self.removed.take() else { return };
        let soon = step.saturating_sub(at) <= 2u64.saturating_mul(self.sustained(rules) as u64);
        self.count = if soon { (self.count + 1).min(REGRETS_MAX) } else { 0 };
        self.missed = soon.then_some(removed);
    }

    /// What was taken back as not needed shortly before the last violation: it is known to have sufficed.
    pub(crate) fn missed(self) -> Option<Removed> {
        self.missed
    }
}

/// Why a partition is superfluous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RemovalReason {
    /// The load went away.
    #[error("the load has been low")]
    LowLoad,
    /// The origin alone suffices.
    #[error("the objective would be kept without it")]
    NotNeeded,
    /// It does not hit.
    #[error("it answers next to no reads")]
    Ineffective,
    /// The objective that it was for is gone.
    #[error("nothing is promised any more to whom it could serve")]
    NotPromised,
}

/// How long each reason has held, in intervals without a break.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RemovalCounters {
    low_load: usize,
    not_needed: usize,
    ineffective: usize,
    unpromised: usize,
    /// What was last said of how it would be without it.
    without: Option<Without>,
}

impl RemovalCounters {
    /// The partition has grown: what the smaller one did not answer says nothing of it yet.
    pub(crate) fn grown(&mut self) {
        self.ineffective = 0;
    }

    /// What was last said of how it would be without it.
    pub(crate) fn without(&self) -> Option<Without> {
        self.without
    }

    /// For how many intervals in a row it must not be needed to be taken back.
    pub(crate) fn sustained_unneeded(&self, regrets: Regrets, rules: &RemovalRules) -> usize {
        let seen = self.without.and_then(|without| without.seen);
        let doubted = seen.is_some_and(|excess| excess > rules.excess_without_max);
        regrets.sustained(rules).saturating_mul(if doubted { DOUBT } else { 1 })
    }

    /// Counts an interval; says whether the partition is to be taken back, and why.
    pub(crate) fn observe(&mut self, input: &RemovalInput, rules: &RemovalRules) -> Option<RemovalReason> {
        let count = |counter: &mut usize, holds: bool| *counter = if holds { *counter + 1 } else { 0 };
        count(&mut self.unpromised, input.is_unpromised);
        if self.unpromised >= rules.sustained.max(1) {
            return Some(RemovalReason::NotPromised);
        }
        if input.hangs {
            self.low_load = 0;
            return None;
        }
        let low = input.rate < rules.low_load_share * input.rate_at_grant;
        count(&mut self.low_load, low);
        if let Some(without) = input.without {
            self.without = Some(without);
            let excess = without.predicted;
            // The mean says little of a promise of nearly all windows where those are of two kinds.
            let keeps_share = (1.0 + excess) * input.strict <= 1.0;
            count(&mut self.not_needed, excess <= rules.excess_without_max && keeps_share);
        } else if self.not_needed > 0 {
            self.not_needed += 1; // not asked this time: the last answer stands
        }
        // One whose volume reads next to nothing never fills, and has nothing to answer, however much is read by others that it serves.
        let is_unasked = input.reads <= rules.hit_ratio_min * input.reads_served;
        let answers_little = is_unasked || (input.warm && input.hit_ratio < rules.hit_ratio_min);
        count(&mut self.ineffective, !low && answers_little);
        let sustained = rules.sustained.max(1);
        [
            (self.low_load, sustained, RemovalReason::LowLoad),
            (self.not_needed, self.sustained_unneeded(input.regrets, rules), RemovalReason::NotNeeded),
            (self.ineffective, sustained, RemovalReason::Ineffective),
        ]
        .into_iter()
        .find(|(held, needed, _)| held >= needed)
        .map(|(.., reason)| reason)
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
            without: Some(Without { predicted: 0.2, seen: None }),
            strict: 1.4,
            reads: 600.0,
            reads_served: 900.0,
            hit_ratio: 0.5,
            warm: true,
            regrets: Regrets::default(),
            hangs: false,
            is_unpromised: false,
        };
        let low = RemovalInput { rate: 299.0, ..busy };
        let mut counters = RemovalCounters::default();
        let seen: Vec<_> =
            [low, low, busy, low, low, low].iter().map(|input| counters.observe(input, &rules)).collect();
        assert_eq!(seen, [None, None, None, None, None, Some(RemovalReason::LowLoad)]);
        let mut counters = RemovalCounters::default();
        let hung = RemovalInput { rate: 0.0, hangs: true, without: None, ..busy };
        let seen: Vec<_> =
            [low, low, hung, hung, hung, low].iter().map(|input| counters.observe(input, &rules)).collect();
        assert_eq!(seen, [None; 6], "who waits for the origin wants what is cached");

        let mut counters = RemovalCounters::default();
        let unneeded = RemovalInput { without: Some(Without { predicted: -0.4, seen: None }), ..busy };
        let unasked = RemovalInput { without: None, ..busy };
        let seen: Vec<_> = [unasked, unneeded, unasked, unneeded]
            .iter()
            .map(|input| counters.observe(input, &rules))
            .collect();
        assert_eq!(seen, [None, None, None, Some(RemovalReason::NotNeeded)]);
        // Nothing is known before it was asked for the first time.
        let mut counters = RemovalCounters::default();
        assert!([unasked, unneeded, unneeded].iter().all(|input| counters.observe(input, &rules).is_none()));

        // The bound is kept without it, but not by the margin: slack of 0.3 it is, and 0.29 is not.
        let mut counters = RemovalCounters::default();
        let slack = |predicted| RemovalInput {
            without: Some(Without { predicted, seen: None }),
            strict: 1.0,
            ..busy
        };
        assert!((0..9).all(|_| counters.observe(&slack(-0.29), &rules).is_none()));
        let seen: Vec<_> = [slack(-0.3); 3].iter().map(|input| counters.observe(input, &rules)).collect();
        assert_eq!(seen, [None, None, Some(RemovalReason::NotNeeded)]);

        // A mean of .6 of the bound is not enough where one window in a hundred has 1.7 times the mean.
        let mut counters = RemovalCounters::default();
        let uneven = RemovalInput { strict: 1.7, ..unneeded };
        assert!((0..9).all(|_| counters.observe(&uneven, &rules).is_none()));

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
        // Nothing at all is next to nothing, where what it serves only writes, too.
        let mut counters = RemovalCounters::default();
        let writes = RemovalInput { reads: 0.0, reads_served: 0.0, hit_ratio: 0.0, ..cold };
        let seen: Vec<_> = [writes; 3].iter().map(|input| counters.observe(input, &rules)).collect();
        assert_eq!(seen, [None, None, Some(RemovalReason::Ineffective)]);
        // While hardly anything is asked for it says nothing that little is answered.
        let mut counters = RemovalCounters::default();
        let quiet = RemovalInput { rate: 299.0, ..useless };
        let seen: Vec<_> = [useless, useless, quiet, useless, useless, useless]
            .iter()
            .map(|input| counters.observe(input, &rules))
            .collect();
        assert_eq!(seen, [None, None, None, None, None, Some(RemovalReason::Ineffective)]);
        // Few reads among many writes are what it is for, if its own volume is all that it serves.
        let alone = RemovalInput { reads: 9.0, reads_served: 9.0, ..busy };
        let mut counters = RemovalCounters::default();
        assert_eq!([alone; 4].map(|input| counters.observe(&input, &rules)), [None; 4]);

        // What nobody was promised anything of is needed by nobody, however busy it is.
        let unpromised = RemovalInput { is_unpromised: true, hangs: true, ..busy };
        let mut counters = RemovalCounters::default();
        let seen: Vec<_> = [unpromised, unpromised, busy, unpromised, unpromised, unpromised]
            .iter()
            .map(|input| counters.observe(input, &rules))
            .collect();
        assert_eq!(seen, [None, None, None, None, None, Some(RemovalReason::NotPromised)]);

        // One that has grown has had no time to answer anything.
        let mut counters = RemovalCounters::default();
        let young = [counters.observe(&useless, &rules), counters.observe(&useless, &rules)];
        assert_eq!(young, [None, None]);
        counters.grown();
        let seen: Vec<_> = [useless; 3].iter().map(|input| counters.observe(input, &rules)).collect();
        assert_eq!(seen, [None, None, Some(RemovalReason::Ineffective)]);
    }

    #[test]
    fn what_was_missed_soon_is_kept_for_longer() {
        let rules = RemovalRules { sustained: 3, ..RemovalRules::default() };
        let mut regrets = Regrets::default();
        let removed = Removed { volume: VolumeId(7), blocks: 64 };
        let mut after = |at: u64, violated: u64| {
            regrets.removed(at, removed);
            regrets.violated(violated, &rules);
            (regrets.sustained(&rules), regrets.missed())
        };
        assert_eq!(after(10, 16), (6, Some(removed)));
        assert_eq!(after(100, 112), (12, Some(removed)));
        assert_eq!(after(200, 225), (3, None)); // not soon
        (0..20).for_each(|_| assert!(after(1_000, 1_001).0 <= 3 << REGRETS_MAX));
        // The next violation is not its doing: one removal is regretted once.
        let mut regrets = Regrets::default();
        regrets.removed(10, removed);
        (11..13).for_each(|step| regrets.violated(step, &rules));
        assert_eq!((regrets.sustained(&rules), regrets.missed()), (6, None));
        // A violation that no removal was before is none of its doing.
        let mut regrets = Regrets::default();
        regrets.violated(5, &rules);
        assert_eq!(regrets, Regrets::default());
        // Only for what is not needed: what answers nothing, or has no load, is as superfluous as before.
        regrets.removed(0, removed);
        regrets.violated(1, &rules);
        let unneeded = RemovalInput {
            rate: 900.0,
            rate_at_grant: 1_000.0,
            without: Some(Without { predicted: -0.9, seen: None }),
            strict: 1.0,
            reads: 600.0,
            reads_served: 900.0,
            hit_ratio: 0.5,
            warm: true,
            regrets,
            hangs: false,
            is_unpromised: false,
        };
        let after = |input: RemovalInput| {
            let mut counters = RemovalCounters::default();
            (1..).find(|_| counters.observe(&input, &rules).is_some()).expect("some time")
        };
        assert_eq!(after(unneeded), 6);
        // Nor where such a load was seen to miss without a cache, or nearly so.
        let without = |seen| Some(Without { predicted: -0.9, seen: Some(seen) });
        let seen = |excess| RemovalInput { without: without(excess), ..unneeded };
        assert_eq!([0.4, -0.2, -0.3, -0.9].map(|excess| after(seen(excess))), [24, 24, 6, 6]);
        assert_eq!(after(RemovalInput { rate: 1.0, ..unneeded }), 3);
        assert_eq!(after(RemovalInput { hit_ratio: 0.0, ..unneeded }), 3);
    }
}
