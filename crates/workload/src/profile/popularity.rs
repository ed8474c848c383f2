//! How accesses are spread over blocks, and how soon a block is accessed again, from a sample of the blocks.
//!
//! Blocks are sampled by the hash of their name (as in SHARDS, FAST '15), so that every access of a sampled block is seen; as
//! long as there are at most [`SAMPLES_MAX`] distinct blocks, all are. The Zipf exponent is the slope of a straight line fitted by least squares to
//! log(accesses) over log(rank), at ranks spaced evenly in log(rank), so that the many cold blocks do not outweigh the hot ones (ours). A sample
//! sees the ranks of its blocks only: the hottest of a small share of blocks are told from a few.
//!
//! How many accesses there were is known, and a sample of the blocks has not its share of them, because of the few hot blocks that are in it
//! or not. Shares are of all accesses, and what the sample has too many or too few goes to its hottest blocks (as the first bucket takes it
//! in SHARDS-adj, section 3.3 of the paper).

use forebay_units::Nanos;
use hashbrown::HashMap;
use serde::Serialize;

/// Blocks that are sampled at most (ours): 2.5 MiB.
pub const SAMPLES_MAX: usize = 1 << 16;

/// Points of the fit (ours).
const FIT_POINTS: usize = 64;

/// A fit needs blocks of so many different ranks (ours).
const FIT_RANKS_MIN: usize = 16;

/// How accesses are spread over blocks.
#[derive(Clone, Debug, Serialize)]
pub struct Popularity {
    /// Share of the blocks that were sampled; 1 is all.
    pub sampling_rate: f64,
    /// Accesses per block: all accesses over the blocks, which are estimated where not all were sampled.
    pub accesses_per_block: f64,
    /// Share of the blocks that were accessed once.
    pub touched_once_share: f64,
    /// Share of the accesses that go to the hottest (share of the blocks): (0.01, 0.3) says that 1 % of the blocks take 30 %.
    pub hottest: Vec<(f64, f64)>,
    /// A Zipf distribution fitted to it; `None` where too few blocks differ.
    pub zipf: Option<ZipfFit>,
    /// (rank, accesses) of blocks, ascending by rank, at most 64: what the fit saw.
    pub ranks: Vec<(f64, f64)>,
}

/// Accesses in proportion to rank^-exponent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ZipfFit {
    /// The exponent; 0 is uniform.
    pub exponent: f64,
    /// How well it fits, from 0 to 1.
    pub r_squared: f64,
}

/// How soon blocks are accessed again.
#[derive(Clone, Debug, Serialize)]
pub struct Reuse {
    /// Share of the accesses of blocks that were accessed before: all but the first of each block, of which there are as many as blocks.
    pub share: f64,
    /// Seconds to the access before, by percentile (per cent, seconds), to a factor of 2, of the sampled blocks; empty where there are no times.
    pub percentiles_s: Vec<(f64, f64)>,
}

impl Reuse {
    pub(super) fn without_times(self) -> Reuse {
        Reuse { percentiles_s: Vec::new(), ..self }
    }
}

struct Sampled {
    accesses: u32,
    last: Nanos,
}

/// Counts accesses of sampled blocks.
pub struct PopularityCounter {
    threshold: u64,
    sampled: HashMap<u64, Sampled, foldhash::fast::FixedState>,
    /// Accesses of all blocks.
    accesses: u64,
    /// Those of sampled blocks that were accessed before, each for as many as it stands for.
    again: f64,
    /// By the logarithm to base 2 of the nanoseconds to the access before.
    reuse_times: [f64; 64],
}

impl Default for PopularityCounter {
    fn default() -> PopularityCounter {
        PopularityCounter::new()
    }
}

impl PopularityCounter {
    /// Without accesses.
    pub fn new() -> PopularityCounter {
        PopularityCounter {
            threshold: u64::MAX,
            sampled: HashMap::default(),
            accesses: 0,
            again: 0.0,
            reuse_times: [0.0; 64],
        }
    }

    fn rate(&self) -> f64 {
        (self.threshold as f64 + 1.0) / 2f64.powi(64)
    }

    /// Distinct blocks: exact while all are sampled, then to about half a per cent (one standard error).
    pub fn blocks(&self) -> u64 {
        (self.sampled.len() as f64 / self.rate()).round() as u64
    }

    /// An access of the block whose name has this hash, so long after the start.
    #[inline]
    pub fn access(&mut self, hash: u64, since_start: Nanos) {
        self.accesses += 1;
        if hash <= self.threshold {
            self.access_sampled(hash, since_start);
        }
    }

    fn access_sampled(&mut self, hash: u64, since_start: Nanos) {
        let weight = 1.0 / self.rate();
        if let Some(block) = self.sampled.get_mut(&hash) {
            let time = since_start.saturating_since(block.last).0.max(1);
            self.again += weight;
            self.reuse_times[time.ilog2() as usize] += weight;
            block.accesses = block.accesses.saturating_add(1);
            block.last = since_start;
            return;
        }
        if self.sampled.len() == SAMPLES_MAX {
            self.threshold /= 2;
            let threshold = self.threshold;
            self.sampled.retain(|hash, _| *hash <= threshold);
            if hash > threshold {
                return;
            }
        }
        self.sampled.insert(hash, Sampled { accesses: 1, last: since_start });
    }

    /// What was counted; `None` where nothing was accessed.
    pub fn finish(self) -> (Option<Popularity>, Option<Reuse>) {
        let rate = self.rate();
        let mut counts: Vec<u64> = self.sampled.values().map(|block| u64::from(block.accesses)).collect();
        if counts.is_empty() {
            return (None, None);
        }
        counts.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
        let blocks = counts.len();
        let per_block = self.accesses as f64 * rate / blocks as f64;
        let hottest = |share: f64| {
            let taken = ((share * blocks as f64).ceil() as usize).min(blocks);
            let others = counts[taken..].iter().sum::<u64>() as f64;
            (share, (1.0 - others / (self.accesses as f64 * rate)).max(0.0))
        };
        let ranks = ranks(&counts, rate);
        let popularity = Popularity {
            sampling_rate: rate,
            accesses_per_block: per_block,
            touched_once_share: counts.iter().filter(|count| **count == 1).count() as f64 / blocks as f64,
            hottest: [0.001, 0.01, 0.1, 0.2, 0.5].map(hottest).to_vec(),
            zipf: fit(&ranks),
            ranks,
        };
        let reuse = Reuse {
            share: (1.0 - 1.0 / per_block).max(0.0),
            percentiles_s: [10.0, 25.0, 50.0, 75.0, 90.0, 99.0]
                .into_iter()
                .filter_map(|percentile| Some((percentile, self.reuse_time(percentile)?)))
                .collect(),
        };
        (Some(popularity), Some(reuse))
    }

    /// The upper end of the bucket that holds the percentile, in seconds.
    fn reuse_time(&self, percentile: f64) -> Option<f64> {
        let mut left = percentile / 100.0 * self.again;
        let bucket = self.reuse_times.iter().position(|weight| {
            left -= weight;
            left <= 0.0 && *weight > 0.0
        })?;
        Some(2f64.powi(bucket as i32 + 1) / 1e9)
    }
}

/// (rank, accesses) at ranks spaced evenly in their logarithm.
fn ranks(counts: &[u64], rate: f64) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut last = usize::MAX;
    for index in 0..FIT_POINTS {
        let at = ((counts.len() as f64).powf(index as f64 / (FIT_POINTS - 1) as f64) - 1.0).round() as usize;
        if at != last && at < counts.len() {
            points.push(((at as f64 + 1.0) / rate, counts[at] as f64));
            last = at;
        }
    }
    points
}

/// The straight line through the logarithms. Ranks beyond the first of the blocks that were accessed once are left out: that
/// nothing can be accessed less often flattens the end of every trace (ours).
fn fit(ranks: &[(f64, f64)]) -> Option<ZipfFit> {
    let until = ranks.iter().position(|(_, accesses)| *accesses <= 1.0).map_or(ranks.len(), |at| at + 1);
    let points: Vec<(f64, f64)> =
        ranks[..until].iter().map(|(rank, accesses)| (rank.ln(), accesses.ln())).collect();
    if points.len() < FIT_RANKS_MIN {
        return None;
    }
    let (slope, r_squared) = crate::statistics::line(&points)?;
    Some(ZipfFit { exponent: (-slope).max(0.0), r_squared })
}
