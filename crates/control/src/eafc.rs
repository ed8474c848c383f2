//! The error-aware feedback controller of the Hybrid Store paper, as far as it is published: one partition per workload,
//! grown and shrunk by the error of a percentile of its latencies. What Forebay's own law is compared with.
//!
//! Published are the axes: which percentile (99, 90, 80, 75), and when a partition shrinks (above a maximum threshold
//! only, or outside a range). Gain, clamps, the width of the range and the length of the history are published nowhere:
//! they are ours. It knows no curve, no phase and no neighbour, and decides on nothing but sizes. Deciding on a history that is
//! cleared by each decision is ours too: a sliding one winds up and overshoots to the whole working set.

use serde::{Deserialize, Serialize};

/// When a partition shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decrement {
    /// Whenever the latency is below the objective: the size hovers around the least that will do.
    MaxThreshold,
    /// Only when it is below the objective by more than a margin; in between the size is left alone.
    #[default]
    MinMaxRange,
}

/// The law's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EafcRules {
    /// Which percentile of the latencies of the history must meet the objective. Default 75; above 0, at most 100.
    pub percentile: f64,
    /// When a partition shrinks. Default `min-max-range`.
    pub decrement: Decrement,
    /// Slack below the objective that is left alone with `min-max-range`. Default 0.1 (ours); 0 to below 1.
    pub range: f64,
    /// Intervals of a history; a decision follows each. Default 10 (ours); 1 to 10,000.
    pub history: usize,
    /// Change per error, as a share of the size. Default 0.5 (ours); above 0.
    pub gain: f64,
    /// Largest growth in one decision, as a share of the size. Default 0.5 (ours); above 0.
    pub growth_max: f64,
    /// Largest shrinkage in one decision, as a share of the size. Default 0.25 (ours); above 0, below 1.
    pub shrink_max: f64,
}

impl Default for EafcRules {
    fn default() -> EafcRules {
        EafcRules {
            percentile: 75.0,
            decrement: Decrement::default(),
            range: 0.1,
            history: 10,
            gain: 0.5,
            growth_max: 0.5,
            shrink_max: 0.25,
        }
    }
}

impl EafcRules {
    /// The first parameter outside its range: its key, what it is, and what it may be.
    pub fn wrong(&self) -> Option<(&'static str, f64, &'static str)> {
        let share = |value: f64| (0.0..1.0).contains(&value);
        let positive = |value: f64| value > 0.0 && value.is_finite();
        [
            (
                "percentile",
                self.percentile,
                self.percentile > 0.0 && self.percentile <= 100.0,
                "above 0, at most 100",
            ),
            ("range", self.range, share(self.range), "a number from 0 to below 1"),
            ("history", self.history as f64, (1..=10_000).contains(&self.history), "from 1 to 10000"),
            ("gain", self.gain, positive(self.gain), "a number above 0"),
            ("growth_max", self.growth_max, positive(self.growth_max), "a number above 0"),
            (
                "shrink_max",
                self.shrink_max,
                share(self.shrink_max) && self.shrink_max > 0.0,
                "a number above 0 and below 1",
            ),
        ]
        .into_iter()
        .find(|(.., good, _)| !good)
        .map(|(key, found, _, expected)| (key, found, expected))
    }
}

/// The controller of one workload.
#[derive(Clone, Debug)]
pub struct Eafc {
    rules: EafcRules,
    /// Errors since the last decision: latency over objective, less 1.
    errors: Vec<f64>,
}

impl Eafc {
    /// A controller without a history.
    pub fn new(rules: EafcRules) -> Eafc {
        Eafc { rules, errors: Vec::new() }
    }

    /// An interval ends in which requests took `latency` on average against an objective of `at_most`, in the same unit,
    /// with a partition of `blocks`; `None` where nothing completed, which says nothing. The size from now on: a multiple
    /// of `chunk_blocks` up to `blocks_max`, or `blocks` itself. `O(history log history)` per decision.
    pub fn step(
        &mut self,
        latency: Option<f64>,
        at_most: f64,
        blocks: u64,
        chunk_blocks: u64,
        blocks_max: u64,
    ) -> u64 {
        let Some(latency) = latency else { return blocks };
        self.errors.push(latency / at_most - 1.0);
        if self.errors.len() < self.rules.history {
            return blocks;
        }
        let error =
            forebay_workload::statistics::percentile(&self.errors, self.rules.percentile).unwrap_or(0.0);
        self.errors.clear();
        let chunk = chunk_blocks.max(1);
        let wanted = (self.rules.gain * error).clamp(-self.rules.shrink_max, self.rules.growth_max);
        let left_alone = match self.rules.decrement {
            Decrement::MaxThreshold => error == 0.0,
            Decrement::MinMaxRange => (-self.rules.range..=0.0).contains(&error),
        };
        if left_alone {
            return blocks;
        }
        let changed = blocks as f64 * (1.0 + wanted);
        // Growth of a small partition is a chunk at least, and shrinkage never below one.
        let changed = if wanted > 0.0 { changed.max((blocks + chunk) as f64) } else { changed };
        let rounded = (changed / chunk as f64).round() as u64 * chunk;
        rounded.max(chunk).min(blocks_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(rules: EafcRules, latencies: &[f64]) -> u64 {
        let mut eafc = Eafc::new(EafcRules { history: latencies.len(), ..rules });
        latencies.iter().fold(1_000, |blocks, &latency| eafc.step(Some(latency), 10.0, blocks, 10, 5_000))
    }

    #[test]
    fn it_grows_by_the_percentile_of_the_errors() {
        // Errors 0, 0.1, 0.2, 0.4: the third of four is p75, half of 0.2 of 1,000 is 100. p99 takes the last: 200.
        let rules = EafcRules::default();
        assert_eq!(decide(rules, &[10.0, 11.0, 12.0, 14.0]), 1_100);
        assert_eq!(decide(EafcRules { percentile: 99.0, ..rules }, &[10.0, 11.0, 12.0, 14.0]), 1_200);
        assert_eq!(decide(rules, &[1_000.0; 4]), 1_500);
    }

    #[test]
    fn the_two_ways_to_shrink() {
        let range = EafcRules::default();
        let threshold = EafcRules { decrement: Decrement::MaxThreshold, ..range };
        // 5 % of slack: within the range, but below the threshold; half of it goes: 1,000 * 0.975, in tens.
        assert_eq!((decide(range, &[9.5; 4]), decide(threshold, &[9.5; 4])), (1_000, 980));
        // 60 % of slack: a quarter at most.
        assert_eq!((decide(range, &[4.0; 4]), decide(threshold, &[4.0; 4])), (750, 750));
    }

    #[test]
    fn it_waits_for_a_history_and_starts_it_anew() {
        let mut eafc = Eafc::new(EafcRules { history: 2, ..EafcRules::default() });
        let mut step = |latency| eafc.step(latency, 10.0, 1_000, 10, 1_200);
        let sizes = [step(Some(20.0)), step(None), step(Some(20.0)), step(Some(20.0)), step(Some(5.0))];
        // 1,500 wanted, 1,200 is the most; the third history is (20, 5), whose p75 is 20.
        assert_eq!(sizes, [1_000, 1_000, 1_200, 1_000, 1_200]);
        assert_eq!(
            Eafc::new(EafcRules { history: 1, ..EafcRules::default() }).step(Some(9e9), 1.0, 0, 10, 100),
            10
        );
    }

    #[test]
    fn nonsense_is_named() {
        assert_eq!(EafcRules::default().wrong(), None);
        let wrong = EafcRules { history: 0, ..EafcRules::default() }.wrong().unwrap();
        assert_eq!(wrong, ("history", 0.0, "from 1 to 10000"));
        assert_eq!(EafcRules { range: f64::NAN, ..EafcRules::default() }.wrong().unwrap().0, "range");
    }
}
