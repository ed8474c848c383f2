//! Intensity over time: segments of consecutive requests with their count, span and bursts.
//!
//! Segments start with some tens of requests. When there are twice as many as wanted, neighbours are merged, those first whose merging
//! loses the least likelihood of a Poisson process with their rates; so that quiet hours take one segment and bursts keep
//! theirs. Memory is bounded whatever the trace's length.

use super::arrivals::OCTAVES;
use serde::{Deserialize, Serialize};

/// A stretch of the schedule; on paper an array `[phase, requests, seconds, bursts]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "(u32, u64, f64, u64)", into = "(u32, u64, f64, u64)")]
pub struct Segment {
    /// Index into the phases.
    pub phase: u32,
    /// Requests, at least 1.
    pub requests: u64,
    /// From the last request before it to its own last one.
    pub seconds: f64,
    /// How many of its inter-arrival times are of the long kind.
    pub bursts: u64,
}

impl From<(u32, u64, f64, u64)> for Segment {
    fn from((phase, requests, seconds, bursts): (u32, u64, f64, u64)) -> Segment {
        Segment { phase, requests, seconds, bursts }
    }
}

impl From<Segment> for (u32, u64, f64, u64) {
    fn from(segment: Segment) -> (u32, u64, f64, u64) {
        (segment.phase, segment.requests, segment.seconds, segment.bursts)
    }
}

/// A segment while it is being fitted: which gaps are long is not known before the end.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) phase: u32,
    pub(crate) requests: u64,
    pub(crate) ns: u64,
    /// Inter-arrival times by their octave in nanoseconds.
    pub(crate) octaves: [u32; OCTAVES],
}

impl Observed {
    pub(crate) fn new() -> Observed {
        Observed { phase: 0, requests: 0, ns: 0, octaves: [0; OCTAVES] }
    }

    /// What merging with `next` loses: log-likelihood of Poisson arrivals, and much where the phases differ.
    fn loss(&self, next: &Observed) -> f64 {
        let likelihood = |requests: u64, ns: u64| {
            let n = requests as f64;
            n * (n / (ns as f64 + 1.0)).ln()
        };
        let apart = likelihood(self.requests, self.ns) + likelihood(next.requests, next.ns);
        let together = likelihood(self.requests + next.requests, self.ns + next.ns);
        let strangers = if self.phase == next.phase { 0.0 } else { self.requests.min(next.requests) as f64 };
        apart - together + strangers
    }

    fn merge(&mut self, next: &Observed) {
        if next.requests > self.requests {
            self.phase = next.phase;
        }
        self.requests += next.requests;
        self.ns += next.ns;
        self.octaves.iter_mut().zip(next.octaves).for_each(|(sum, count)| *sum = sum.saturating_add(count));
    }
}

/// Merges neighbours until at most `segments_max` are left.
pub(crate) fn thin(segments: &mut Vec<Observed>, segments_max: usize) {
    while segments.len() > segments_max.max(1) {
        let mut losses: Vec<(f64, usize)> =
            segments.windows(2).enumerate().map(|(at, pair)| (pair[0].loss(&pair[1]), at)).collect();
        losses.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        // At most half of what is too much in one go, so that a segment merged once is judged again.
        let wanted = (segments.len() - segments_max).div_ceil(2);
        let mut taken = vec![false; segments.len()];
        let mut merged = 0;
        for &(_, at) in &losses {
            if merged < wanted && !taken[at] && !taken[at + 1] {
                (taken[at], taken[at + 1]) = (true, true);
                merged += 1;
                let next = segments[at + 1].clone();
                segments[at].merge(&next);
                segments[at + 1].requests = 0;
            }
        }
        segments.retain(|segment| segment.requests > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(phase: u32, requests: u64, ns: u64) -> Observed {
        Observed { phase, requests, ns, ..Observed::new() }
    }

    #[test]
    fn what_is_alike_is_merged_first_and_nothing_is_lost() {
        let mut segments = vec![
            segment(0, 32, 1_000),
            segment(0, 32, 1_010),
            segment(0, 32, 900_000),
            segment(0, 32, 910_000),
            segment(1, 32, 905_000),
        ];
        thin(&mut segments, 3);
        let shown: Vec<_> = segments.iter().map(|s| (s.phase, s.requests, s.ns)).collect();
        assert_eq!(shown, [(0, 64, 2_010), (0, 64, 1_810_000), (1, 32, 905_000)]);
        thin(&mut segments, 1);
        assert_eq!((segments[0].requests, segments[0].ns), (160, 2_717_010));
    }
}
