//! Steering: what is generated is measured, and random requests are drawn so that its reuse becomes that of the original.
//!
//! Streams run on along whatever lies there, extents overlap, and an extent of exactly the wanted depth is not always there; so the
//! distances that come out differ from those that were drawn. A sample of the blocks (SHARDS) says what came out; octaves of distance that
//! fall behind are drawn more often, those that are ahead less.

use super::Model;
use super::reuse::{Distances, NEW, depth_range};
use crate::generator::Random;
use forebay_trace::{VolumeIndex, block_key};
use forebay_units::BlockIndex;
use rand::Rng;

/// Octaves of distances; 0 is for what is new.
pub(crate) const OCTAVES: usize = 48;
/// Requests between two corrections.
const INTERVAL: u32 = 256;
/// Followed blocks per request on average.
const FOLLOWED_PER_REQUEST: f64 = 1.0;
/// How strongly a relative deviation of the sums so far changes the odds.
const GAIN: f64 = 6.0;
/// The share of all blocks below which an octave's deviation is not taken at its full weight.
const SMALL: f64 = 0.01;

/// The octave of a distance.
#[inline]
pub(crate) fn octave_of(distance: u64) -> usize {
    (65 - (distance.max(1) - 1).leading_zeros() as usize).min(OCTAVES - 1)
}

/// Compares what came out with what is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Steering {
    /// By phase: shares of the blocks.
    shares: Vec<[f64; OCTAVES]>,
    wanted: [f64; OCTAVES],
    found: [f64; OCTAVES],
    /// The probability with which a draw of each octave is accepted.
    pub(crate) accept: [f64; OCTAVES],
    distances: Distances,
    /// Makes the sums of what was found and of what was wanted equal.
    adjust: f64,
    requests: u32,
}

impl Steering {
    pub(crate) fn new(model: &Model) -> Steering {
        let shares = model
            .phases
            .iter()
            .map(|phase| {
                let mut blocks = [0.0; OCTAVES];
                blocks[0] = phase.new as f64;
                phase.depths.iter().for_each(|bucket| blocks[octave_of(bucket.from)] += bucket.blocks as f64);
                let total: f64 = blocks.iter().sum();
                blocks.map(|blocks| blocks / total.max(1.0))
            })
            .collect();
        Steering {
            shares,
            wanted: [0.0; OCTAVES],
            found: [0.0; OCTAVES],
            accept: [1.0; OCTAVES],
            distances: Distances::new(FOLLOWED_PER_REQUEST),
            adjust: 1.0,
            requests: 0,
        }
    }

    /// A request for `blocks` blocks from `first` on was generated.
    #[inline]
    pub(crate) fn observe(&mut self, volume: u32, first: u64, blocks: u32, phase: usize) {
        let scale = self.distances.scale() as f64;
        let found = &mut self.found;
        let keys =
            (first..first + u64::from(blocks)).map(|block| block_key(VolumeIndex(volume), BlockIndex(block)));
        self.distances.request(keys, |bucket| {
            let octave = if bucket == NEW { 0 } else { octave_of(depth_range(bucket).0) };
            found[octave] += scale;
        });
        for (sum, share) in self.wanted.iter_mut().zip(&self.shares[phase]) {
            *sum += share * f64::from(blocks);
        }
        self.requests += 1;
        if self.requests == INTERVAL {
            self.requests = 0;
            self.steer();
        }
    }

    /// Distinct blocks so far, estimated.
    pub(crate) fn footprint(&self) -> u64 {
        self.distances.footprint()
    }

    /// A depth of at most `total` from the octave that is furthest behind, or `None` where that is what is new.
    pub(crate) fn most_wanted(&self, total: u64, random: &mut Random) -> Option<u64> {
        let behind = |octave: &usize| self.wanted[*octave] - self.found[*octave] * self.adjust;
        let reachable = 1 + octave_of(total);
        let octave = (0..reachable.min(OCTAVES)).max_by(|a, b| behind(a).total_cmp(&behind(b)))?;
        if octave == 0 || behind(&octave) <= 0.0 {
            return None;
        }
        let end = 1u64 << (octave - 1);
        Some(random.random_range(end / 2 + 1..=end.max(1)).min(total))
    }

    fn steer(&mut self) {
        let total: f64 = self.wanted.iter().sum();
        // What is followed need not be used as often as other blocks are.
        let found_all: f64 = self.found.iter().sum();
        self.adjust = total / found_all.max(1.0);
        let adjust = self.adjust;
        let mut most = 1e-9f64;
        for ((accept, wanted), found) in self.accept.iter_mut().zip(&self.wanted).zip(&self.found) {
            let deviation = (wanted - found * adjust) / (wanted + SMALL * total);
            *accept = (GAIN * deviation).clamp(-4.0, 4.0).exp();
            if *wanted > 0.0 {
                most = most.max(*accept);
            }
        }
        self.accept.iter_mut().for_each(|accept| *accept = (*accept / most).min(1.0));
    }
}
