//! Objectives of a run over time: their windows, and what came of them.

use crate::outcome::{ObjectiveOutcome, WindowRow};
use crate::scenario::{ObjectiveTable, Promise, Scenario};
use forebay_control::conformance::{Verdict, WindowTotals, judge};
use forebay_control::{Objective, VolumeObservation};
use forebay_units::Nanos;

/// An objective over time.
#[derive(Debug)]
pub(crate) struct Track {
    pub(crate) table: ObjectiveTable,
    /// Of which of the scenario's reservations it is.
    reservation: Option<usize>,
    pub(crate) objective: Objective,
    totals: WindowTotals,
    windows: Vec<WindowRow>,
}

impl Track {
    /// Of a promise of a scenario that was checked.
    pub(crate) fn new(promise: &Promise) -> Track {
        Track {
            table: promise.table.clone(),
            reservation: promise.reservation,
            objective: promise.table.objective().expect("the scenario was checked"),
            totals: WindowTotals::default(),
            windows: Vec::new(),
        }
    }

    pub(crate) fn is_active(&self, now: Nanos) -> bool {
        self.table.from <= now && self.table.until.is_none_or(|until| now < until)
    }

    pub(crate) fn add(
        &mut self,
        observed: &VolumeObservation,
        interval: Nanos,
        now: Nanos,
        scenario: &Scenario,
    ) {
        self.totals.add(observed, interval);
        if self.totals.span.0 + interval.0 / 2 < self.objective.window.0 {
            return;
        }
        let judgement = judge(&self.objective, &self.totals, &scenario.control.conformance);
        self.windows.push(WindowRow {
            at_s: now.as_secs_f64(),
            value: judgement.value,
            verdict: judgement.verdict,
        });
        self.totals = WindowTotals::default();
    }

    pub(crate) fn outcome(self, measure_from: Nanos) -> ObjectiveOutcome {
        let from = measure_from.as_secs_f64();
        let count = |verdict| {
            self.windows.iter().filter(|row| row.at_s > from && row.verdict == verdict).count() as u64
        };
        let (conforming, nonconforming) = (count(Verdict::Conforming), count(Verdict::Nonconforming));
        let judged = conforming + nonconforming;
        let share = (judged > 0).then(|| conforming as f64 / judged as f64);
        let last = self.windows.iter().rfind(|row| row.verdict == Verdict::Nonconforming);
        ObjectiveOutcome {
            objective: self.objective.to_string(),
            reservation: self.reservation,
            bound: self.objective.bound(),
            unit: self.objective.unit(),
            conforming_share_wanted: self.objective.conforming_share,
            conforming,
            nonconforming,
            low_load: count(Verdict::LowLoad),
            conforming_share: share,
            met: share.map(|share| share >= self.objective.conforming_share - 1e-9),
            last_violation_s: last.map(|row| row.at_s),
            windows: self.windows,
        }
    }
}
