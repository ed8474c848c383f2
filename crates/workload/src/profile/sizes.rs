//! Sizes of requests.

use hashbrown::HashMap;
use serde::Serialize;

/// Distinct sizes that are counted apart (ours); recorded workloads have tens.
const DISTINCT_MAX: usize = 4096;
/// The most frequent sizes that are told.
const TOLD: usize = 8;

/// How large requests are.
#[derive(Clone, Debug, Serialize)]
pub struct Sizes {
    /// The mean in bytes; `None` without a request.
    pub mean_bytes: Option<f64>,
    /// The smallest size that half of the requests do not exceed; `None` without a request.
    pub median_bytes: Option<u64>,
    /// The most frequent sizes, most frequent first.
    pub common: Vec<SizeShare>,
    /// Share of the requests that had none of the first 4,096 different sizes, and are in the mean alone.
    pub uncounted_share: f64,
}

/// A size and how frequent it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SizeShare {
    /// The size.
    pub bytes: u64,
    /// Share of the requests.
    pub share: f64,
}

#[derive(Default)]
pub(super) struct SizeCounter {
    counts: HashMap<u64, u64, foldhash::fast::FixedState>,
    requests: u64,
    bytes: u128,
}

impl SizeCounter {
    pub(super) fn add(&mut self, length: u64) {
        self.requests += 1;
        self.bytes += u128::from(length);
        if let Some(count) = self.counts.get_mut(&length) {
            *count += 1;
        } else if self.counts.len() < DISTINCT_MAX {
            self.counts.insert(length, 1);
        }
    }

    pub(super) fn finish(self) -> Sizes {
        let requests = self.requests as f64;
        let mut sizes: Vec<(u64, u64)> = self.counts.into_iter().collect();
        sizes.sort_unstable();
        let counted: u64 = sizes.iter().map(|(_, count)| count).sum();
        let mut below = 0;
        let median = sizes.iter().find(|(_, count)| {
            below += count;
            2 * below >= counted
        });
        let median_bytes = median.map(|(size, _)| *size);
        sizes.sort_by_key(|(size, count)| (std::cmp::Reverse(*count), *size));
        let share =
            |(bytes, count): &(u64, u64)| SizeShare { bytes: *bytes, share: *count as f64 / requests };
        Sizes {
            mean_bytes: (self.requests > 0).then(|| self.bytes as f64 / requests),
            median_bytes,
            common: sizes.iter().take(TOLD).map(share).collect(),
            uncounted_share: if self.requests > 0 {
                (self.requests - counted) as f64 / requests
            } else {
                0.0
            },
        }
    }
}
