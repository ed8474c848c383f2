//! An objective as people state it: by the keys that configurations, scenarios and plans have, of which some go with each other and some do not.
//!
//! Who reads a file finds the keys and tells where they stand; what they mean together, and what they may be, is told here alone.

use super::{Objective, ObjectiveError, Operations, Statistic, StatisticError, Target};
use forebay_units::{Bytes, Nanos};

/// The longest latency that is promised (ours).
pub const LATENCY_MAX: Nanos = Nanos::secs(3_600);
/// The shortest window that is judged, and the longest (ours).
pub const WINDOW_MIN: Nanos = Nanos::millis(100);
/// See [`WINDOW_MIN`].
pub const WINDOW_MAX: Nanos = Nanos::secs(86_400);

/// What is expected of them together.
pub const TARGETS: &str = "exactly one of `latency`, `iops` and `bandwidth_per_second`";

/// The keys of an objective, as they were found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StatedObjective<'a> {
    /// The latency must not exceed this.
    pub latency: Option<Nanos>,
    /// As [`Statistic::from_str`](std::str::FromStr) reads it; `mean` unless set.
    pub statistic: Option<&'a str>,
    /// Requests per second that must be reached.
    pub iops: Option<f64>,
    /// Bytes per second that must be reached.
    pub bandwidth_per_second: Option<Bytes>,
    /// Which requests count; all unless set.
    pub operations: Option<Operations>,
    /// The span over which the number is taken; that of who reads it unless set.
    pub window: Option<Nanos>,
    /// Share of the windows that must conform; [`Objective::CONFORMING_SHARE`] unless set.
    pub conforming_share: Option<f64>,
    /// How much a violation weighs; 1 unless set.
    pub weight: Option<f64>,
    /// Higher ones are served first; 0 unless set.
    pub priority: Option<u8>,
}

/// What is wrong with the keys of an objective.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StatedError {
    /// None of the numbers that can be promised is there, or several are.
    #[error("{found}, expected {TARGETS}")]
    Targets {
        /// Which are there, for people.
        found: String,
    },
    /// One of the keys.
    #[error("`{key}` is {found}, expected {expected}")]
    Key {
        /// Which.
        key: &'static str,
        /// What it is.
        found: String,
        /// What it may be.
        expected: &'static str,
    },
}

impl From<ObjectiveError> for StatedError {
    fn from(error: ObjectiveError) -> StatedError {
        let ObjectiveError { field, found, expected } = error;
        // By the names of keys.
        let (key, found) = match field {
            "bandwidth" => ("bandwidth_per_second", found.to_string()),
            "percentile" => ("statistic", format!("p{found}")),
            "latency" | "window" => (field, Nanos::from_secs_f64(found).to_string()),
            _ => (field, found.to_string()),
        };
        StatedError::Key { key, found, expected }
    }
}

impl StatedObjective<'_> {
    /// The objective, with `window` where none is stated.
    ///
    /// # Errors
    /// [`StatedError`] for the first of what is wrong.
    pub fn objective(&self, window: Nanos) -> Result<Objective, StatedError> {
        let wrong = |key, found, expected| Err(StatedError::Key { key, found, expected });
        let operations = self.operations.unwrap_or_default();
        let target = match (self.latency, self.iops, self.bandwidth_per_second) {
            (Some(at_most), None, None) => {
                let statistic = self.statistic.map_or(Ok(Statistic::Mean), str::parse);
                let statistic = statistic.map_err(|StatisticError(found)| StatedError::Key {
                    key: "statistic",
                    found: format!("`{found}`"),
                    expected: "`mean`, or a percentile as in `p95`",
                })?;
                if at_most > LATENCY_MAX {
                    return wrong("latency", at_most.to_string(), "at most 1h");
                }
                Target::Latency { statistic, at_most, operations }
            }
            (None, Some(at_least), None) => Target::IopsFloor { at_least, operations },
            (None, None, Some(bytes)) => Target::BandwidthFloor { at_least: bytes.as_f64(), operations },
            _ => return Err(StatedError::Targets { found: self.targets() }),
        };
        if let (Some(statistic), None) = (self.statistic, self.latency) {
            return wrong("statistic", format!("`{statistic}`"), "it only beside `latency`");
        }
        if let Some(found) = self.window.filter(|found| !(WINDOW_MIN..=WINDOW_MAX).contains(found)) {
            return wrong("window", found.to_string(), "100ms to 1d");
        }
        let objective = Objective {
            target,
            window: self.window.unwrap_or(window),
            conforming_share: self.conforming_share.unwrap_or(Objective::CONFORMING_SHARE),
            weight: self.weight.unwrap_or(1.0),
            priority: self.priority.unwrap_or(0),
        };
        objective.check()?;
        Ok(objective)
    }

    /// Which of the numbers are there, for people.
    fn targets(&self) -> String {
        let there = [
            self.latency.map(|_| "`latency`"),
            self.iops.map(|_| "`iops`"),
            self.bandwidth_per_second.map(|_| "`bandwidth_per_second`"),
        ];
        let there: Vec<&str> = there.into_iter().flatten().collect();
        if there.is_empty() {
            "none of them is there".to_owned()
        } else {
            format!("{} are there", there.join(" and "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Nanos = Nanos::secs(10);

    fn latency(at_most: Nanos) -> StatedObjective<'static> {
        StatedObjective { latency: Some(at_most), ..StatedObjective::default() }
    }

    fn iops(at_least: f64) -> StatedObjective<'static> {
        StatedObjective { iops: Some(at_least), ..StatedObjective::default() }
    }

    #[test]
    fn what_is_stated_is_the_objective_and_the_rest_is_as_it_is_unless_set() {
        let ms = Nanos::millis(5);
        assert_eq!(latency(ms).objective(WINDOW), Ok(Objective::mean_latency(ms, Operations::All)));
        let stated = StatedObjective {
            statistic: Some("p99.9"),
            operations: Some(Operations::Reads),
            window: Some(Nanos::secs(3)),
            conforming_share: Some(0.5),
            weight: Some(2.0),
            priority: Some(7),
            ..latency(ms)
        };
        let expected = Objective {
            window: Nanos::secs(3),
            conforming_share: 0.5,
            weight: 2.0,
            priority: 7,
            ..Objective::percentile_latency(99.9, ms, Operations::Reads)
        };
        assert_eq!(stated.objective(WINDOW), Ok(expected));
        let bandwidth =
            StatedObjective { bandwidth_per_second: Some(Bytes::mib(1)), ..StatedObjective::default() };
        let expected = Objective::bandwidth_floor(1_048_576.0).over(Nanos::secs(1));
        assert_eq!(bandwidth.objective(Nanos::secs(1)), Ok(expected));
    }

    #[test]
    fn what_is_wrong_is_told_by_its_key() {
        let said = |stated: StatedObjective<'_>| stated.objective(WINDOW).unwrap_err().to_string();
        let one = "expected exactly one of `latency`, `iops` and `bandwidth_per_second`";
        assert_eq!(said(StatedObjective::default()), format!("none of them is there, {one}"));
        let two = StatedObjective { latency: Some(WINDOW), ..iops(1.0) };
        assert_eq!(said(two), format!("`latency` and `iops` are there, {one}"));
        let (ms, day) = (Nanos::millis(5), Nanos::secs(86_401));
        for (stated, told) in [
            (latency(Nanos::secs(3_601)), "`latency` is 3601s, expected at most 1h"),
            (latency(Nanos::ZERO), "`latency` is 0s, expected a span above 0"),
            (
                StatedObjective { statistic: Some("p95"), ..latency(Nanos::secs(200)) },
                "`latency` is 200s, expected less than 100 s of a percentile, since longer latencies are not told apart",
            ),
            (
                StatedObjective { statistic: Some("p0"), ..latency(ms) },
                "`statistic` is `p0`, expected `mean`, or a percentile as in `p95`",
            ),
            (
                StatedObjective { statistic: Some("mean"), ..iops(1.0) },
                "`statistic` is `mean`, expected it only beside `latency`",
            ),
            (
                StatedObjective { window: Some(Nanos::ZERO), ..iops(1.0) },
                "`window` is 0s, expected 100ms to 1d",
            ),
            (StatedObjective { window: Some(day), ..iops(1.0) }, "`window` is 86401s, expected 100ms to 1d"),
            (iops(f64::NAN), "`iops` is NaN, expected a number above 0, at most 1e9"),
            (
                StatedObjective { bandwidth_per_second: Some(Bytes::ZERO), ..StatedObjective::default() },
                "`bandwidth_per_second` is 0, expected a number above 0",
            ),
            (
                StatedObjective { conforming_share: Some(1.5), ..iops(1.0) },
                "`conforming_share` is 1.5, expected a number above 0 and at most 1",
            ),
            (
                StatedObjective { weight: Some(-1.0), ..iops(1.0) },
                "`weight` is -1, expected a number above 0, at most 1e6",
            ),
        ] {
            assert_eq!(said(stated), told);
        }
    }
}
