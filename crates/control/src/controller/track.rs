//! Tracks: the windows of one objective, one after the other, and what they come to.

use crate::config::ControlConfig;
use crate::conformance::{Judgement, Verdict, WindowTotals, judge};
use crate::objective::Objective;
use crate::observation::VolumeObservation;
use crate::violation::{Assessment, Episode, assess};
use forebay_units::Nanos;
use std::collections::VecDeque;

/// Windows whose verdicts are kept per objective.
const VERDICTS_MAX: usize = 64;

/// One objective of a volume over time.
#[derive(Clone, Debug, Default)]
pub(super) struct Track {
    totals: WindowTotals,
    verdicts: VecDeque<Verdict>,
    pub(super) last: Option<Judgement>,
    /// Whether the interval just observed closed a window.
    pub(super) closed: bool,
    /// What is being missed, since its first window.
    pub(super) episode: Option<Episode>,
    /// Windows that conformed, that did not, and that asked for too little.
    pub(super) windows: [u64; 3],
}

impl Track {
    /// Takes an interval in; a window that ends with it is judged.
    pub(super) fn add(
        &mut self,
        objective: &Objective,
        observed: &VolumeObservation,
        (at, interval): (Nanos, Nanos),
        config: &ControlConfig,
    ) {
        self.totals.add(observed, interval);
        // Half an interval of tolerance: timers are late.
        self.closed = self.totals.span.0 + interval.0 / 2 >= objective.window.0;
        if !self.closed {
            return;
        }
        let judgement = judge(objective, &self.totals, &config.conformance);
        if self.verdicts.len() == VERDICTS_MAX {
            self.verdicts.pop_front();
        }
        self.verdicts.push_back(judgement.verdict);
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

    /// What its last windows come to.
    pub(super) fn assess(&self, config: &ControlConfig) -> Assessment {
        assess(self.verdicts.iter().copied(), &config.violation)
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

    /// Whether none of the windows that count missed.
    pub(super) fn is_kept(&self, config: &ControlConfig) -> bool {
        self.assess(config) == Assessment::Kept
    }

    /// Whether the last `count` windows conform or ask for too little, the newest of them conforming.
    pub(super) fn has_recovered(&self, count: usize) -> bool {
        self.verdicts.len() >= count
            && self.verdicts.iter().rev().take(count).all(|&verdict| verdict != Verdict::Nonconforming)
    }
}
