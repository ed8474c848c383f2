//! The rules of responses: for how long what is waited for and how often it is tried, and which values they may have.

use crate::config::ConfigError;
use crate::host::ApplianceCost;
use serde::{Deserialize, Serialize};

/// Longer than anything is waited for (ours).
const DAY_MS: u64 = 86_400_000;
/// More than any host has.
const BYTES_MAX: u64 = 1 << 50;

/// Times, in milliseconds, and counts. All are ours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResponseRules {
    /// For an appliance to start, and then as long for it to answer. Default 30,000.
    pub start_within_ms: u64,
    /// For a probe or a look, and for a change of a size or the beginning of a warm-up. Default 2,000.
    pub probe_within_ms: u64,
    /// For a fence. Default 10,000.
    pub fence_within_ms: u64,
    /// For a switch of the route. Default 5,000.
    pub switch_within_ms: u64,
    /// For an appliance to stop. Default 20,000.
    pub stop_within_ms: u64,
    /// An order without a report so long after its deadline has an unknown outcome. Default 2,000.
    pub report_grace_ms: u64,
    /// So long after that the start of an appliance may still have its effect. Default 60,000.
    pub late_max_ms: u64,
    /// From probe to probe. Default 1,000.
    pub probe_every_ms: u64,
    /// Probes in a row without an answer after which an appliance is given up. Default 3; at least 1.
    pub probe_failures: u32,
    /// How often a step of the way there is tried. Default 3; at least 1.
    pub tries_max: u32,
    /// Pause after the first failure; it doubles with each. Default 1,000.
    pub retry_first_ms: u64,
    /// The longest pause. Default 60,000.
    pub retry_max_ms: u64,
    /// For how long a host on which an appliance failed is left out at first; it doubles with each failure. Default 60,000.
    pub rest_first_ms: u64,
    /// The longest that a host is left out. Default 1,800,000.
    pub rest_max_ms: u64,
    /// Appliances that start at once. Default 4; at least 1.
    pub starting_max: usize,
    /// Room that is claimed beyond the first size, as a share of that, since what runs cannot be given more; less where there is less. Default 1.
    pub headroom: f64,
    /// The least of that, in bytes: a first size is approached from below, and may be a small part of what is needed. Default 64 MiB.
    #[serde(with = "crate::plain::size")]
    pub headroom_bytes: u64,
    /// What an appliance takes beside what it caches.
    pub cost: ApplianceCost,
}

impl Default for ResponseRules {
    fn default() -> ResponseRules {
        ResponseRules {
            start_within_ms: 30_000,
            probe_within_ms: 2_000,
            fence_within_ms: 10_000,
            switch_within_ms: 5_000,
            stop_within_ms: 20_000,
            report_grace_ms: 2_000,
            late_max_ms: 60_000,
            probe_every_ms: 1_000,
            probe_failures: 3,
            tries_max: 3,
            retry_first_ms: 1_000,
            retry_max_ms: 60_000,
            rest_first_ms: 60_000,
            rest_max_ms: 1_800_000,
            starting_max: 4,
            headroom: 1.0,
            headroom_bytes: 64 << 20,
            cost: ApplianceCost::default(),
        }
    }
}

impl ResponseRules {
    /// Everything outside its range, with keys as in `cost.memory_share`.
    pub fn wrong(&self) -> Vec<ConfigError> {
        let mut wrong = Vec::new();
        let mut check = |key, found: f64, is_good: bool, expected| {
            if !is_good {
                wrong.push(ConfigError { key, found, expected });
            }
        };
        for (key, found) in [
            ("start_within_ms", self.start_within_ms),
            ("probe_within_ms", self.probe_within_ms),
            ("fence_within_ms", self.fence_within_ms),
            ("switch_within_ms", self.switch_within_ms),
            ("stop_within_ms", self.stop_within_ms),
        ] {
            check(key, found as f64, (1..=DAY_MS).contains(&found), "1 to 86400000 (a day)");
        }
        // More often than that, probes are all that is done.
        let every = self.probe_every_ms;
        check("probe_every_ms", every as f64, (10..=DAY_MS).contains(&every), "10 to 86400000 (a day)");
        for (key, found) in [
            ("report_grace_ms", self.report_grace_ms),
            ("late_max_ms", self.late_max_ms),
            ("retry_first_ms", self.retry_first_ms),
            ("retry_max_ms", self.retry_max_ms),
            ("rest_first_ms", self.rest_first_ms),
            ("rest_max_ms", self.rest_max_ms),
        ] {
            check(key, found as f64, found <= DAY_MS, "at most 86400000 (a day)");
        }
        for (key, first, most) in [
            ("retry_first_ms", self.retry_first_ms, self.retry_max_ms),
            ("rest_first_ms", self.rest_first_ms, self.rest_max_ms),
        ] {
            check(key, first as f64, first <= most, "at most the longest, the key that ends with `max_ms`");
        }
        for (key, found) in [
            ("probe_failures", u64::from(self.probe_failures)),
            ("tries_max", u64::from(self.tries_max)),
            ("starting_max", self.starting_max as u64),
        ] {
            check(key, found as f64, found >= 1, "at least 1");
        }
        check("headroom", self.headroom, (0.0..=1e3).contains(&self.headroom), "0 to 1000");
        let bytes = [("headroom_bytes", self.headroom_bytes), ("cost.memory_bytes", self.cost.memory_bytes)];
        for (key, found) in bytes {
            check(key, found as f64, found <= BYTES_MAX, "at most 2^50");
        }
        let share = self.cost.memory_share;
        check("cost.memory_share", share, (0.0..=10.0).contains(&share), "0 to 10");
        let requests = self.cost.requests_per_cpu;
        let is_rate = requests > 0.0 && requests.is_finite();
        check("cost.requests_per_cpu", requests, is_rate, "a number above 0");
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_never_work_is_out_of_range() {
        let good = ResponseRules::default();
        assert_eq!(good.wrong(), []);
        let keys = |rules: ResponseRules| rules.wrong().iter().map(|error| error.key).collect::<Vec<_>>();
        assert_eq!(keys(ResponseRules { starting_max: 0, ..good }), ["starting_max"]);
        assert_eq!(keys(ResponseRules { start_within_ms: 0, ..good }), ["start_within_ms"]);
        assert_eq!(
            keys(ResponseRules { probe_every_ms: 0, late_max_ms: u64::MAX, ..good }),
            ["probe_every_ms", "late_max_ms"]
        );
        assert_eq!(keys(ResponseRules { retry_first_ms: 9, retry_max_ms: 8, ..good }), ["retry_first_ms"]);
        for headroom in [f64::NAN, -1.0, f64::INFINITY] {
            assert_eq!(keys(ResponseRules { headroom, ..good }), ["headroom"]);
        }
        let mut costly = good;
        (costly.cost.memory_share, costly.cost.requests_per_cpu) = (-5.0, 0.0);
        assert_eq!(keys(costly), ["cost.memory_share", "cost.requests_per_cpu"]);
    }
}
