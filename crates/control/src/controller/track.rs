//! Tracks: the windows of one objective, one after the other, and what they come to.

use super::sample::Sample;
use crate::config::ControlConfig;
use crate::conformance::{Judgement, Verdict, WindowTotals, judge};
use crate::objective::{Objective, Statistic, Target};
use crate::observation::VolumeObservation;
use crate::violation::{Assessment, Episode, assess, assess_share};
use forebay_units::Nanos;
use std::collections::VecDeque;

/// Windows whose verdicts are kept per objective.
const VERDICTS_MAX: usize = 64;

/// One objective of a volume over time.
#[derive(Clone, Debug, Default)]
pub(super) struct Track {
    totals: WindowTotals,
    verdicts: VecDeque<Verdict>,
    /// What would have been said of the windows before the objective was set, the newest last: it may have been missed for long.
    before: Vec<Verdict>,
    pub(super) last: Option<Judgement>,
    /// Whether the interval just observed closed a window.
    pub(super) closed: bool,
    /// So many of the last windows were without a cache's help, and belong to no violation that is over.
    pub(super) alone: usize,
    /// What is being missed, since its first window.
    pub(super) episode: Option<Episode>,
    /// Windows that conformed, that did not, and that asked for too little.
    pub(super) windows: [u64; 3],
}

impl Track {
    /// The track of an objective that is set on a volume with this `history` of intervals. Percentiles are not kept of the past.
    pub(super) fn of(
        objective: &Objective,
        history: &VecDeque<Sample>,
        interval: Nanos,
        config: &ControlConfig,
    ) -> Track {
        if matches!(objective.target, Target::Latency { statistic: Statistic::Percentile(_), .. }) {
            return Track::default();
        }
        // As many as `add` makes a window of.
        let intervals =
            objective.window.0.saturating_sub(interval.0 / 2).div_ceil(interval.0.max(1)).max(1) as usize;
        let past: Vec<Sample> = history.iter().copied().collect();
        let windows = past.rchunks_exact(intervals).take(config.violation.windows);
        let span = Nanos(interval.0.saturating_mul(intervals as u64));
        let verdict = |window: &[Sample]| {
            judge(objective, &Sample::mean(window.iter()).window(span), &config.conformance).verdict
        };
        let mut before: Vec<Verdict> = windows.map(verdict).collect();
        before.reverse();
        Track { before, ..Track::default() }
    }

    /// Takes an interval in; a window that ends with it is judged.
    pub(super) fn add(
        &mut self,
        objective: &Objective,
        observed: &VolumeObservation,
        at: Nanos,
        config: &ControlConfig,
    ) {
        self.totals.add(observed);
        // Half an interval of tolerance: timers are late. What is no whole number of intervals was rounded up (`Objective::in_whole`).
        self.closed = self.totals.span.0 + observed.span.0 / 2 >= objective.window.0;
        if !self.closed {
            return;
        }
        let judgement = judge(objective, &self.totals, &config.conformance);
        if self.verdicts.len() == VERDICTS_MAX {
            self.verdicts.pop_front();
        }
        self.verdicts.push_back(judgement.verdict);
        self.alone += 1;
        // As many of its own say enough; and bursts that come back are looked for over hours.
        if self.verdicts.len() >= config.violation.windows {
            self.before.clear();
        }
        self.windows[match judgement.verdict {
            Verdict::Conforming => 0,
            Verdict::Nonconforming => 1,
            Verdict::LowLoad => 2,
        }] += 1;
        match &mut self.episode {
            Some(episode) => episode.go_on(at, &judgement),
            None if judgement.verdict == Verdict::Nonconforming => {
                self.episode = Some(Episode::begin(at, self.totals.span, &judgement));
            }
            None => {}
        }
        self.last = Some(judgement);
        self.totals = WindowTotals::default();
    }

    /// What its last windows come to, of which `share` have to conform; nothing before the first one that it was judged for.
    pub(super) fn assess(&self, share: f64, config: &ControlConfig) -> Assessment {
        let soon = self.assess_soon(config);
        if !matches!(soon, Assessment::Suspected { .. }) {
            return soon;
        }
        let alone = self.verdicts.iter().rev().take(self.alone).copied();
        assess_share(alone, share, &config.violation).unwrap_or(soon)
    }

    /// The same of the last few alone.
    fn assess_soon(&self, config: &ControlConfig) -> Assessment {
        let before = if self.verdicts.is_empty() { &[] } else { &self.before[..] };
        assess(before.iter().chain(&self.verdicts).copied(), &config.violation)
    }

    /// Whether its last window missed.
    pub(super) fn has_missed(&self) -> bool {
        self.verdicts.back() == Some(&Verdict::Nonconforming)
    }

    /// Share of the judged windows that conform; `None` where none was judged.
    pub(super) fn conforming_share(&self) -> Option<f64> {
        let count = |wanted| self.verdicts.iter().filter(|&&verdict| verdict == wanted).count();
        let (good, bad) = (count(Verdict::Conforming), count(Verdict::Nonconforming));
        (good + bad > 0).then(|| good as f64 / (good + bad) as f64)
    }

    /// Whether the last `count` windows asked for too little to say anything.
    pub(super) fn asks_for_too_little(&self, count: usize) -> bool {
        self.verdicts.len() >= count
            && self.verdicts.iter().rev().take(count).all(|&verdict| verdict == Verdict::LowLoad)
    }

    /// Whether none of the windows that count missed.
    pub(super) fn is_kept(&self, config: &ControlConfig) -> bool {
        self.assess_soon(config) == Assessment::Kept
    }

    /// Whether the last `count` windows conform or ask for too little.
    pub(super) fn has_recovered(&self, count: usize) -> bool {
        self.verdicts.len() >= count
            && self.verdicts.iter().rev().take(count).all(|&verdict| verdict != Verdict::Nonconforming)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objective::Operations;

    fn before(objective: &Objective, latencies: &[f64]) -> Vec<Verdict> {
        let sample = |&miss_latency| Sample {
            miss_rate: 100.0,
            arrival_rate: 100.0,
            miss_latency,
            ..Sample::default()
        };
        let history = latencies.iter().map(sample).collect();
        Track::of(objective, &history, Nanos::secs(1), &ControlConfig::default()).before
    }

    #[test]
    fn what_was_before_is_judged_in_windows_of_the_same_length() {
        use Verdict::{Conforming as C, Nonconforming as N};
        let objective = Objective::mean_latency(Nanos::millis(10), Operations::All);
        let over = |objective: Objective, millis| objective.over(Nanos::millis(millis));
        let slow = [0.001, 0.02, 0.02, 0.001, 0.02, 0.001, 0.001];
        assert_eq!(before(&over(objective, 1_000), &slow), [N, C, N, C, C]); // the last five
        // 2.4 s are closed by the second interval, as half of one is tolerated; three seconds by the third. The oldest are left over.
        assert_eq!(before(&over(objective, 2_400), &slow), [N, N, C]);
        assert_eq!(before(&over(objective, 3_000), &slow), [N, C]);
        assert_eq!(before(&over(objective, 9_000), &slow), []);
        // A floor is missed by who asks for it: here nobody waits.
        assert_eq!(before(&over(Objective::iops_floor(500.0), 1_000), &slow), [Verdict::LowLoad; 5]);
        let percentile = Objective::percentile_latency(95.0, Nanos::millis(10), Operations::All);
        assert_eq!(before(&over(percentile, 1_000), &slow), []);
    }

    #[test]
    fn windows_are_rounded_up_to_whole_intervals_and_turns_may_be_late() {
        let (config, interval) = (ControlConfig::default(), Nanos::secs(10));
        let history: VecDeque<Sample> = (0..12).map(|_| Sample::default()).collect();
        for (window, turns) in [(9, 1), (10, 1), (11, 2), (14, 2), (15, 2), (25, 3)] {
            let objective = Objective::mean_latency(Nanos::millis(2), Operations::All)
                .over(Nanos::secs(window))
                .in_whole(interval);
            for late_ms in [9_900, 10_000, 10_100] {
                let span = Nanos::millis(late_ms);
                let mut track = Track::of(&objective, &history, span, &config);
                // The same of the past.
                assert_eq!(track.before.len(), (12 / turns).min(config.violation.windows), "{window} s");
                let idle = VolumeObservation::idle(crate::inventory::VolumeId(1), span);
                let taken = (1..=6).find(|_| {
                    track.add(&objective, &idle, Nanos::secs(0), &config);
                    track.closed
                });
                assert_eq!(taken, Some(turns), "{window} s, turns of {span}");
            }
        }
    }

    #[test]
    fn what_was_before_counts_with_the_first_window_of_its_own() {
        let objective = Objective::mean_latency(Nanos::millis(10), Operations::All);
        let track = Track { before: before(&objective.over(Nanos::secs(1)), &[0.02; 5]), ..Track::default() };
        let with = |verdict| Track { verdicts: VecDeque::from([verdict]), ..track.clone() };
        let config = ControlConfig::default();
        assert_eq!(track.assess(0.95, &config), Assessment::Kept);
        let violated = with(Verdict::Nonconforming);
        assert_eq!(violated.assess(0.95, &config), Assessment::Violated { nonconforming: 5, windows: 5 });
        assert_eq!(violated.conforming_share(), Some(0.0));
        assert!(!matches!(with(Verdict::Conforming).assess(0.95, &config), Assessment::Violated { .. }));
    }

    #[test]
    fn what_was_before_makes_no_violation_of_a_spike_hours_later() {
        let objective = Objective::mean_latency(Nanos::millis(10), Operations::All).over(Nanos::secs(1));
        let (config, second) = (ControlConfig::default(), Nanos::secs(1));
        let mut track = Track { before: before(&objective, &[0.02; 5]), ..Track::default() };
        let idle = VolumeObservation::idle(crate::inventory::VolumeId(1), second);
        for at in 0..config.violation.windows as u64 {
            track.add(&objective, &idle, Nanos::secs(at), &config);
        }
        // Five of before and this one would be the six of ten that bursts are told by.
        let slow = crate::conformance::tests::latencies(100, Nanos::millis(20));
        let spike = VolumeObservation { arrivals: 100, misses: slow, ..idle };
        track.add(&objective, &spike, Nanos::secs(100), &config);
        assert!(track.has_missed());
        assert_eq!(track.assess(0.95, &config), Assessment::Suspected { nonconforming: 1 });
    }
}
