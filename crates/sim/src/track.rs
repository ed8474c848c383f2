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
    /// Of a promise of a scenario that was checked, judged every `interval`.
    pub(crate) fn new(promise: &Promise, interval: Nanos) -> Track {
        Track {
            table: promise.table.clone(),
            reservation: promise.reservation,
            objective: promise.table.objective().expect("the scenario was checked").in_whole(interval),
            totals: WindowTotals::default(),
            windows: Vec::new(),
        }
    }

    pub(crate) fn is_active(&self, now: Nanos) -> bool {
        self.table.from <= now && self.table.until.is_none_or(|until| now < until)
    }

    pub(crate) fn add(&mut self, observed: &VolumeObservation, now: Nanos, scenario: &Scenario) {
        self.totals.add(observed);
        // Half an interval of tolerance, as the daemon has it.
        if self.totals.span.0 + observed.span.0 / 2 < self.objective.window.0 {
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
        // Whole windows, as sums are of whole intervals.
        let from = measure_from.as_secs_f64() + self.objective.window.as_secs_f64() - 1e-6;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_rounded_up_to_whole_intervals() {
        for (window, ends) in [(9, 10), (10, 10), (11, 20), (14, 20), (15, 20), (25, 30)] {
            let scenario: Scenario = toml::from_str(&format!(
                r#"
                name = "windows"
                duration = "60s"
                origin = [{{ name = "o", type = "servers", service = "1ms" }}]
                volume = [{{ name = "v", size = "1GiB", load = [{{ arrivals = "idle" }}] }}]
                objective = [{{ volume = "v", latency = "2ms", window = "{window}s" }}]
                "#
            ))
            .unwrap();
            let interval = scenario.cache.interval;
            assert_eq!(interval, Nanos::secs(10));
            let mut track = Track::new(&scenario.promises()[0], interval);
            let idle = VolumeObservation::idle(forebay_control::VolumeId(1), interval);
            for at in 1..=6 {
                track.add(&idle, Nanos::secs(10 * at), &scenario);
            }
            let first = track.windows.first().map(|row| row.at_s);
            assert_eq!(first, Some(f64::from(ends)), "{window} s");
        }
    }
}
