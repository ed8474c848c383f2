//! Objectives: what a workload was promised.
//!
//! An objective is data; whether it is kept is decided in `conformance` and `violation`.

mod stated;

pub use stated::{LATENCY_MAX, StatedError, StatedObjective, TARGETS, WINDOW_MAX, WINDOW_MIN};

use crate::plain;
use forebay_units::Nanos;
use forebay_workload::LatencyHistogram;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The highest floor, and the highest weight (ours): sums of what volumes miss, each by its weight, stay numbers.
pub const IOPS_MAX: f64 = 1e9;
/// See [`IOPS_MAX`].
pub const WEIGHT_MAX: f64 = 1e6;

/// Which requests an objective is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operations {
    /// Reads only.
    Reads,
    /// Writes only.
    Writes,
    /// Reads and writes.
    #[default]
    All,
}

/// Which number of a window's latencies is compared with the objective.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// The arithmetic mean.
    Mean,
    /// The latency that so many per cent of the requests do not exceed; above 0, at most 100.
    Percentile(f64),
}

/// A text that is no [`Statistic`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a statistic: expected `mean` or a percentile as in `p95`")]
pub struct StatisticError(pub String);

impl FromStr for Statistic {
    type Err = StatisticError;

    /// As configurations and scenarios have it: `mean`, or `p` and a number above 0, at most 100.
    fn from_str(text: &str) -> Result<Statistic, StatisticError> {
        let percentile = || text.strip_prefix('p')?.parse::<f64>().ok();
        match percentile() {
            _ if text == "mean" => Ok(Statistic::Mean),
            Some(percentile) if percentile > 0.0 && percentile <= 100.0 => {
                Ok(Statistic::Percentile(percentile))
            }
            _ => Err(StatisticError(text.to_owned())),
        }
    }
}

impl fmt::Display for Statistic {
    /// As [`Statistic::from_str`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statistic::Mean => f.write_str("mean"),
            Statistic::Percentile(percentile) => write!(f, "p{percentile}"),
        }
    }
}

/// The number that was promised.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A latency that must not be exceeded.
    Latency {
        /// Mean or percentile.
        statistic: Statistic,
        /// The bound; above 0.
        #[serde(rename = "at_most_ns", with = "plain::nanos")]
        at_most: Nanos,
        /// Of which requests.
        operations: Operations,
    },
    /// Requests per second that must be reached whenever the workload asks for them.
    IopsFloor {
        /// Requests per second; above 0.
        at_least: f64,
        /// Which requests count.
        operations: Operations,
    },
    /// Bytes per second that must be reached whenever the workload asks for them.
    BandwidthFloor {
        /// Bytes per second; above 0.
        at_least: f64,
        /// Which bytes count.
        operations: Operations,
    },
}

/// A promise to a workload, judged window by window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// The number.
    pub target: Target,
    /// The span over which the number is taken: whole control intervals, once [`Objective::in_whole`] had it.
    #[serde(rename = "window_ns", with = "plain::nanos")]
    pub window: Nanos,
    /// Which share of the windows must conform, above 0 and at most 1.
    pub conforming_share: f64,
    /// How much a violation of it weighs against that of another when not all can be kept; above 0, 1 unless set.
    pub weight: f64,
    /// Objectives of a higher priority are served before all those of lower ones; 0 unless set.
    pub priority: u8,
}

impl Objective {
    /// The window unless one is set: 10 s, as long as the default control interval.
    pub const WINDOW: Nanos = Nanos::secs(10);
    /// The share of conforming windows unless one is set (ours).
    pub const CONFORMING_SHARE: f64 = 0.95;

    /// The objective `target` with the default window and share, weight 1 and priority 0.
    pub fn new(target: Target) -> Objective {
        Objective {
            target,
            window: Objective::WINDOW,
            conforming_share: Objective::CONFORMING_SHARE,
            weight: 1.0,
            priority: 0,
        }
    }

    /// A bound on the mean latency of `operations`.
    pub fn mean_latency(at_most: Nanos, operations: Operations) -> Objective {
        Objective::new(Target::Latency { statistic: Statistic::Mean, at_most, operations })
    }

    /// A bound on a percentile of the latency of `operations`.
    pub fn percentile_latency(percentile: f64, at_most: Nanos, operations: Operations) -> Objective {
        Objective::new(Target::Latency { statistic: Statistic::Percentile(percentile), at_most, operations })
    }

    /// A floor under the rate of all requests.
    pub fn iops_floor(at_least: f64) -> Objective {
        Objective::new(Target::IopsFloor { at_least, operations: Operations::All })
    }

    /// A floor under the rate of all bytes, in bytes per second.
    pub fn bandwidth_floor(at_least: f64) -> Objective {
        Objective::new(Target::BandwidthFloor { at_least, operations: Operations::All })
    }

    /// The same objective, judged over `window`.
    pub fn over(self, window: Nanos) -> Objective {
        Objective { window, ..self }
    }

    /// The same objective with its window rounded up to whole control intervals, as they are configured.
    ///
    /// Whoever judges windows has half an interval of tolerance, since timers are late: a window that is no whole number of intervals
    /// would end at the nearest one, and be judged over less than was promised.
    pub fn in_whole(self, interval: Nanos) -> Objective {
        let interval = interval.0.max(1);
        let window = Nanos(self.window.0.div_ceil(interval).saturating_mul(interval));
        Objective { window, ..self }
    }

    /// Checks that the objective can be judged.
    ///
    /// # Errors
    /// [`ObjectiveError`] names the field, what was found and what was expected.
    pub fn check(&self) -> Result<(), ObjectiveError> {
        let bad = |field, found, expected| Err(ObjectiveError { field, found, expected });
        let positive = |value: f64| value.is_finite() && value > 0.0;
        match self.target {
            Target::Latency { at_most, statistic, .. } => {
                if at_most == Nanos::ZERO {
                    return bad("latency", 0.0, "a span above 0");
                }
                if let Statistic::Percentile(percentile) = statistic
                    && !(percentile > 0.0 && percentile <= 100.0)
                {
                    return bad("percentile", percentile, "a number above 0 and at most 100");
                }
                if matches!(statistic, Statistic::Percentile(_)) && at_most >= LatencyHistogram::HIGHEST {
                    let expected =
                        "less than 100 s of a percentile, since longer latencies are not told apart";
                    return bad("latency", at_most.as_secs_f64(), expected);
                }
            }
            Target::IopsFloor { at_least, .. } if !(positive(at_least) && at_least <= IOPS_MAX) => {
                return bad("iops", at_least, "a number above 0, at most 1e9");
            }
            Target::BandwidthFloor { at_least, .. } if !positive(at_least) => {
                return bad("bandwidth", at_least, "a number above 0");
            }
            Target::IopsFloor { .. } | Target::BandwidthFloor { .. } => {}
        }
        if self.window == Nanos::ZERO {
            return bad("window", 0.0, "a span above 0");
        }
        if !(self.conforming_share > 0.0 && self.conforming_share <= 1.0) {
            return bad("conforming_share", self.conforming_share, "a number above 0 and at most 1");
        }
        if !(positive(self.weight) && self.weight <= WEIGHT_MAX) {
            return bad("weight", self.weight, "a number above 0, at most 1e6");
        }
        Ok(())
    }

    /// How far `value` is beyond the target, relative to it: 0.5 is 50 % too slow, negative is slack.
    ///
    /// `value` is in the target's unit: seconds, requests per second or bytes per second. Latencies give
    /// `value / bound - 1`, floors `floor / value - 1`, so that both are `L / SLO - 1` for a closed loop
    /// (the master minimises their weighted sum); a floor with nothing served gives infinity.
    pub fn excess(&self, value: f64) -> f64 {
        match self.target {
            Target::Latency { at_most, .. } => value / at_most.as_secs_f64() - 1.0,
            Target::IopsFloor { at_least, .. } | Target::BandwidthFloor { at_least, .. } => {
                if value > 0.0 {
                    at_least / value - 1.0
                } else {
                    f64::INFINITY
                }
            }
        }
    }

    /// The promised number in the unit of [`Objective::excess`].
    pub fn bound(&self) -> f64 {
        match self.target {
            Target::Latency { at_most, .. } => at_most.as_secs_f64(),
            Target::IopsFloor { at_least, .. } | Target::BandwidthFloor { at_least, .. } => at_least,
        }
    }

    /// The same objective with a bound that is `margin` (0 to below 1) tighter: latencies so far below it, floors so far above.
    #[must_use]
    pub fn tightened(mut self, margin: f64) -> Objective {
        match &mut self.target {
            Target::Latency { at_most, .. } => {
                *at_most = Nanos::from_secs_f64(at_most.as_secs_f64() * (1.0 - margin));
            }
            Target::IopsFloor { at_least, .. } | Target::BandwidthFloor { at_least, .. } => {
                *at_least /= 1.0 - margin;
            }
        }
        self
    }

    /// The unit of [`Objective::bound`].
    pub fn unit(&self) -> &'static str {
        match self.target {
            Target::Latency { .. } => "s",
            Target::IopsFloor { .. } => "requests/s",
            Target::BandwidthFloor { .. } => "bytes/s",
        }
    }

    /// Which requests count.
    pub fn operations(&self) -> Operations {
        match self.target {
            Target::Latency { operations, .. }
            | Target::IopsFloor { operations, .. }
            | Target::BandwidthFloor { operations, .. } => operations,
        }
    }
}

impl fmt::Display for Objective {
    /// As in "p95 latency of reads at most 5ms" or "at least 1800 requests/s".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = match self.operations() {
            Operations::Reads => " of reads",
            Operations::Writes => " of writes",
            Operations::All => "",
        };
        match self.target {
            Target::Latency { statistic, at_most, .. } => {
                write!(f, "{statistic} latency{of} at most {at_most}")
            }
            Target::IopsFloor { at_least, .. } => {
                write!(f, "at least {} requests/s{of}", rate_in_words(at_least))
            }
            Target::BandwidthFloor { at_least, .. } => {
                let (unit, name) = match at_least {
                    _ if at_least >= 1e6 => (1e6, "MB"),
                    _ if at_least >= 1e3 => (1e3, "kB"),
                    _ => (1.0, "B"),
                };
                write!(f, "at least {:.1} {name}/s{of}", at_least / unit)
            }
        }
    }
}

/// A rate as it was stated; the share of one, which may have as many digits as there are, to the thousandth.
fn rate_in_words(rate: f64) -> String {
    const STATED_DIGITS_MAX: usize = 14;
    let exact = rate.to_string();
    if exact.len() > STATED_DIGITS_MAX && rate >= 0.01 { format!("{rate:.3}") } else { exact }
}

/// An objective that cannot be judged.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("`{field}` is {found}, expected {expected}")]
pub struct ObjectiveError {
    /// Which field.
    pub field: &'static str,
    /// What it held.
    pub found: f64,
    /// What it may hold.
    pub expected: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_floors_are_told_in_small_units() {
        for (floor, said) in
            [(450e3, "450.0 kB/s"), (40e3, "40.0 kB/s"), (999.0, "999.0 B/s"), (2.5e6, "2.5 MB/s")]
        {
            assert_eq!(Objective::bandwidth_floor(floor).to_string(), format!("at least {said}"));
        }
    }

    #[test]
    fn excess_is_relative_and_has_the_same_sign_for_bounds_and_floors() {
        let latency = Objective::mean_latency(Nanos::millis(4), Operations::All);
        assert!((latency.excess(0.006) - 0.5).abs() < 1e-12); // 6 / 4 - 1
        let floor = Objective::iops_floor(1_800.0);
        assert!((floor.excess(1_200.0) - 0.5).abs() < 1e-12); // 1800 / 1200 - 1
        assert!(floor.excess(3_600.0) < 0.0);
        assert_eq!(floor.excess(0.0), f64::INFINITY);
        assert_eq!(floor.to_string(), "at least 1800 requests/s");
        let said = |floor: f64| Objective::iops_floor(floor).to_string();
        assert_eq!([said(39.5), said(0.4)], ["at least 39.5 requests/s", "at least 0.4 requests/s"]);
        assert_eq!(
            [said(IOPS_MAX), said(1e-9)].map(|said| said.len()),
            ["at least 1000000000 requests/s".len(), "at least 0.000000001 requests/s".len()]
        );
        // A third of a reservation.
        assert_eq!(said(100.0 / 3.0), "at least 33.333 requests/s");
        assert_eq!(
            Objective::percentile_latency(95.0, Nanos::millis(5), Operations::Reads).to_string(),
            "p95 latency of reads at most 5ms"
        );
    }

    #[test]
    fn a_tighter_bound_is_below_a_latency_and_above_a_floor() {
        let bound = |objective: Objective| objective.tightened(0.2).bound();
        assert!((bound(Objective::mean_latency(Nanos::millis(5), Operations::All)) - 0.004).abs() < 1e-12);
        assert!((bound(Objective::iops_floor(400.0)) - 500.0).abs() < 1e-9);
        assert!((bound(Objective::bandwidth_floor(4e6)) - 5e6).abs() < 1e-6);
        // What has a margin of a fifth is at most a fifth below its bound, as `excess` has it.
        assert!((Objective::iops_floor(400.0).excess(500.0) + 0.2).abs() < 1e-12);
    }

    #[test]
    fn a_statistic_is_read_as_it_is_written() {
        for statistic in [Statistic::Mean, Statistic::Percentile(99.0), Statistic::Percentile(99.95)] {
            assert_eq!(statistic.to_string().parse(), Ok(statistic));
        }
    }

    #[test]
    fn objectives_that_cannot_be_judged_are_refused() {
        let good = Objective::iops_floor(10.0);
        assert_eq!(good.check(), Ok(()));
        // A mean is known however long it is.
        assert_eq!(Objective::mean_latency(Nanos::secs(3_600), Operations::All).check(), Ok(()));
        assert_eq!(Objective::percentile_latency(50.0, Nanos::secs(99), Operations::All).check(), Ok(()));
        for (bad, field) in [
            (Objective::iops_floor(0.0), "iops"),
            (Objective::iops_floor(f64::NAN), "iops"),
            (Objective::bandwidth_floor(-1.0), "bandwidth"),
            (Objective::mean_latency(Nanos::ZERO, Operations::All), "latency"),
            (Objective::percentile_latency(101.0, Nanos(1), Operations::All), "percentile"),
            (Objective::percentile_latency(50.0, Nanos::secs(100), Operations::All), "latency"),
            (good.over(Nanos::ZERO), "window"),
            (Objective { conforming_share: 0.0, ..good }, "conforming_share"),
            (Objective { weight: f64::INFINITY, ..good }, "weight"),
            (Objective { weight: 1e308, ..good }, "weight"),
            (Objective::iops_floor(1e308), "iops"),
        ] {
            assert_eq!(bad.check().unwrap_err().field, field, "{bad:?}");
        }
    }
}
