//! Reuse: how far down an LRU stack of blocks the blocks of random requests lie, and how many are new.
//!
//! Distances are those of the whole workload, all volumes in one stack, so that the generated trace has the original's hit ratio
//! curve and not only one per state. Blocks are sampled by hash (SHARDS, FAST '15) where following all of them would cost
//! too much time or memory; distances are scaled by the share that is followed.

use forebay_locality::ExactLru;
use forebay_units::mix64;
use serde::{Deserialize, Serialize};

/// The most blocks that are followed: about 16 MB.
const FOLLOWED_MAX: u64 = 1 << 18;
/// Followed uses before their average counts.
const FOLLOWED_MIN: u64 = 1 << 16;

/// A range of stack distances in blocks, the block itself included; on paper an array `[from, to, blocks]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "(u64, u64, u64)", into = "(u64, u64, u64)")]
pub struct DepthBucket {
    /// The smallest distance, at least 1.
    pub from: u64,
    /// The largest.
    pub to: u64,
    /// How many of the sampled blocks lay there.
    pub blocks: u64,
}

impl From<(u64, u64, u64)> for DepthBucket {
    fn from((from, to, blocks): (u64, u64, u64)) -> DepthBucket {
        DepthBucket { from, to, blocks }
    }
}

impl From<DepthBucket> for (u64, u64, u64) {
    fn from(bucket: DepthBucket) -> (u64, u64, u64) {
        (bucket.from, bucket.to, bucket.blocks)
    }
}

/// Reuse by the random requests of one kind in one state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reuse {
    /// The phase; absent: all phases that have no entry of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<u32>,
    /// Index into the states.
    pub state: u32,
    /// Index into the kinds.
    pub kind: u32,
    /// Sampled blocks that were used for the first time.
    pub new: u64,
    /// The others, by their distance.
    pub depths: Vec<DepthBucket>,
}

/// Buckets of distances: exact up to 16, then eight per doubling.
pub(crate) const DEPTH_BUCKETS: u32 = 16 + 8 * 44;
/// The bucket of what is new.
pub(crate) const NEW: u32 = DEPTH_BUCKETS;

/// The bucket of a distance of at least 1.
#[inline]
pub(crate) fn depth_bucket(distance: u64) -> u32 {
    if distance <= 16 {
        return distance as u32 - 1;
    }
    let octave = (distance - 1).ilog2();
    let step = ((distance - 1) >> (octave - 3)) & 7;
    (16 + (octave - 4) * 8 + step as u32).min(DEPTH_BUCKETS - 1)
}

/// The smallest and the largest distance of a bucket.
pub(crate) fn depth_range(bucket: u32) -> (u64, u64) {
    let start = |bucket: u32| match bucket {
        0..16 => u64::from(bucket) + 1,
        _ => {
            let (octave, step) = ((bucket - 16) / 8 + 4, u64::from((bucket - 16) % 8));
            ((8 + step) << (octave - 3)) + 1
        }
    };
    (start(bucket), start(bucket + 1) - 1)
}

/// Stack distances of the blocks that are followed.
#[derive(Clone, Debug)]
pub(crate) struct Distances {
    lru: ExactLru,
    /// A block is followed if its hash is at most this.
    threshold: u64,
    /// 1 / share of blocks that are followed.
    scale: u64,
    uses: u64,
    requests: u64,
    /// Followed uses per request on average, above which fewer are followed.
    per_request: f64,
    /// First uses, each counting the scale of its time.
    new: u64,
}

impl Distances {
    /// Nothing seen yet; `per_request` uses are followed per request on average, which bounds the time.
    pub(crate) fn new(per_request: f64) -> Distances {
        let lru = ExactLru::new();
        Distances { lru, threshold: u64::MAX, scale: 1, uses: 0, requests: 0, per_request, new: 0 }
    }

    /// 1 / the share of blocks that are followed.
    pub(crate) fn scale(&self) -> u64 {
        self.scale
    }

    /// The share of blocks that are followed.
    pub(crate) fn share(&self) -> f64 {
        1.0 / self.scale as f64
    }

    /// Distinct blocks, estimated where only some are followed.
    pub(crate) fn footprint(&self) -> u64 {
        self.new
    }

    /// A request for the blocks with these keys; `found` gets the bucket of each that is followed.
    pub(crate) fn request(&mut self, keys: impl Iterator<Item = u64>, mut found: impl FnMut(u32)) {
        self.requests += 1;
        for key in keys {
            // One round more than the tables' own hash: what is followed must not share home slots.
            let hash = mix64(key ^ 0x9e37_79b9_7f4a_7c15);
            if hash > self.threshold {
                continue;
            }
            self.uses += 1;
            match self.lru.access(key, 0) {
                None => {
                    self.new += self.scale;
                    found(NEW);
                }
                Some(1) => found(0),
                // The middle of what the distance among the followed ones stands for.
                Some(distance) => found(depth_bucket(distance * self.scale - self.scale / 2)),
            }
        }
        let dear = self.uses > FOLLOWED_MIN && self.uses as f64 > self.requests as f64 * self.per_request;
        if self.lru.footprint_blocks() > FOLLOWED_MAX || dear {
            self.halve();
        }
    }

    #[cold]
    fn halve(&mut self) {
        self.threshold /= 2;
        self.scale *= 2;
        let threshold = self.threshold;
        self.lru.retain(|key| mix64(key ^ 0x9e37_79b9_7f4a_7c15) <= threshold);
        // The average begins anew: half of the cost so far is forgiven.
        self.uses /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_tile_the_distances() {
        let mut next = 1;
        for bucket in 0..DEPTH_BUCKETS {
            let (from, to) = depth_range(bucket);
            assert_eq!(from, next);
            assert_eq!((depth_bucket(from), depth_bucket(to)), (bucket, bucket), "{from} to {to}");
            next = to + 1;
        }
        assert_eq!(depth_bucket(1 << 60), DEPTH_BUCKETS - 1);
    }

    /// A loop over a million blocks: far more than are followed. Every reuse lies a million blocks deep.
    #[test]
    fn a_sample_is_taken_where_there_are_too_many_blocks() {
        let mut distances = Distances::new(4.0);
        let (mut new, mut near, mut others) = (0, 0, 0);
        for round in 0..3 {
            for block in 0..1_000_000u64 {
                distances.request(std::iter::once(block), |bucket| match bucket {
                    NEW => new += u64::from(round == 0),
                    _ if (900_000..1_100_000).contains(&depth_range(bucket).0) => near += 1,
                    _ => others += 1,
                });
            }
        }
        assert!(distances.share() < 0.5, "{}", distances.share());
        assert!((distances.footprint() as f64 / 1e6 - 1.0).abs() < 0.03, "{}", distances.footprint());
        assert!(new > 200_000 && near > 200_000 && others == 0, "{new} {near} {others}");
    }

    #[test]
    fn large_requests_are_sampled_for_time() {
        let mut distances = Distances::new(4.0);
        for request in 0..20_000u64 {
            distances.request(request % 10 * 256..request % 10 * 256 + 256, |_| ());
        }
        assert!(distances.uses <= 20_000 * 5, "{}", distances.uses);
        assert!((distances.footprint() as f64 / 2_560.0 - 1.0).abs() < 0.01, "{}", distances.footprint());
    }
}
