//! What a reservation promises each of the volumes that it was made for, as objectives that the controller knows.
//!
//! A reservation is a promise for a while to several volumes, as in "20,000 requests/s on these two for the next 40 minutes". The daemon and the
//! simulator keep the book of them, each by its own clock; *not* here: when one stands, and whether its numbers are within range.
//! Source: SANCache's goals by API; who gets how much of a rate that several volumes share is ours.

use crate::{Objective, Operations, Statistic, Target};
use forebay_units::Nanos;

/// The numbers of a reservation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reserved {
    /// Requests per second of all its volumes together; each is promised an equal part (ours).
    pub iops: Option<f64>,
    /// Mean latency of the requests of each.
    pub latency: Option<Nanos>,
    /// How much a violation weighs against that of other objectives of its priority.
    pub weight: f64,
    /// Objectives of a higher priority are served first.
    pub priority: u8,
}

impl Reserved {
    /// The weight unless one is set.
    pub const WEIGHT: f64 = 1.0;
    /// The priority unless one is set: above objectives that were not given any (ours).
    pub const PRIORITY: u8 = 1;

    /// What each of `volumes` volumes is promised, judged over `window`: one objective for the rate, one for the latency.
    pub fn objectives(self, volumes: usize, window: Nanos) -> impl Iterator<Item = Objective> {
        let operations = Operations::All;
        let part = volumes.max(1) as f64;
        let floor = self.iops.map(|iops| Target::IopsFloor { at_least: iops / part, operations });
        let bound =
            self.latency.map(|at_most| Target::Latency { statistic: Statistic::Mean, at_most, operations });
        let (weight, priority) = (self.weight, self.priority);
        let objective = move |target| Objective { weight, priority, ..Objective::new(target).over(window) };
        floor.into_iter().chain(bound).map(objective)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_shared_out_and_a_latency_is_everybodys() {
        let reserved =
            Reserved { iops: Some(20_000.0), latency: Some(Nanos::millis(5)), weight: 2.0, priority: 3 };
        let found: Vec<Objective> = reserved.objectives(2, Nanos::secs(20)).collect();
        let expected =
            [Objective::iops_floor(10_000.0), Objective::mean_latency(Nanos::millis(5), Operations::All)]
                .map(|objective| Objective { weight: 2.0, priority: 3, ..objective.over(Nanos::secs(20)) });
        assert_eq!(found, expected);
        let only = Reserved { latency: None, ..reserved };
        assert_eq!(only.objectives(1, Nanos::secs(20)).count(), 1);
    }
}
