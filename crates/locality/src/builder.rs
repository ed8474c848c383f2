//! The one place that knows how requests become counted accesses; the command line, planning and tests all feed it.

use crate::{ExactLru, FixedRate, FixedSize, MissRatioCurve, ReuseTimes};
use forebay_units::{BlockSize, ByteRange, Bytes, mix64};
use serde::{Deserialize, Serialize};

/// Which requests are accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Requests {
    /// Reads and writes.
    #[default]
    All,
    /// Reads; writes are ignored.
    Reads,
    /// Reads are counted; writes fill the cache but are not counted.
    ReadHits,
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// One access for each block that a request touches.
    #[default]
    Block,
    /// One access per request, to an object named by the request's first block, as object-cache simulators count.
    Request,
    /// One access for each block, weighted by the bytes that the request touches in it.
    Byte,
}

/// How the curve is found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// Exactly.
    Exact,
    /// SHARDS with this sampling rate.
    ShardsRate(f64),
    /// SHARDS in this much memory.
    ShardsSize(Bytes),
    /// AET, over the share of blocks given.
    Aet(f64),
    /// The derivative of the working set size.
    WorkingSet,
}

/// What a [`CurveBuilder`] does with requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurveOptions {
    /// How the curve is found.
    pub method: Method,
    /// Which requests are accesses.
    pub requests: Requests,
    /// What is counted.
    pub unit: Unit,
    /// The size of a block.
    pub block_size: BlockSize,
    /// Chooses the sample where there is one.
    pub seed: u64,
}

impl Default for CurveOptions {
    fn default() -> CurveOptions {
        CurveOptions {
            method: Method::Exact,
            requests: Requests::All,
            unit: Unit::Block,
            block_size: BlockSize::DEFAULT,
            seed: 0,
        }
    }
}

#[derive(Clone, Debug)]
enum Estimator {
    Exact(ExactLru),
    Rate(FixedRate),
    Size(FixedSize),
    Reuse(ReuseTimes),
}

/// Accesses that wait to be handed on together.
const PENDING: usize = 4_096;

/// Turns requests into accesses and these into a curve.
#[derive(Clone, Debug)]
pub struct CurveBuilder {
    options: CurveOptions,
    estimator: Estimator,
    pending: Vec<u64>,
}

/// A key for `block` of the volume numbered `volume`: one key space for all volumes of a trace.
///
/// Volume 0 keeps its block numbers, others are mixed: two blocks of different volumes share a key with the probability of a
/// 64-bit collision. The same function as the trace room's `block_key`, so that keys made there may be handed to
/// [`CurveBuilder::access`].
pub const fn volume_block_key(volume: u32, block: u64) -> u64 {
    if volume == 0 { block } else { mix64(block ^ mix64(volume as u64)) }
}

impl CurveBuilder {
    /// Nothing seen yet.
    ///
    /// # Panics
    /// If a sampling rate is not above 0.
    pub fn new(options: CurveOptions) -> CurveBuilder {
        let seed = options.seed;
        let estimator = match options.method {
            Method::Exact => Estimator::Exact(ExactLru::new()),
            Method::ShardsRate(rate) => Estimator::Rate(FixedRate::new(rate, seed)),
            Method::ShardsSize(bytes) => {
                Estimator::Size(FixedSize::with_bytes(usize::try_from(bytes.0).unwrap_or(usize::MAX), seed))
            }
            Method::Aet(rate) => Estimator::Reuse(ReuseTimes::sampled(rate, seed)),
            Method::WorkingSet => Estimator::Reuse(ReuseTimes::new()),
        };
        CurveBuilder { options, estimator, pending: Vec::with_capacity(PENDING) }
    }

    /// A request for the bytes `range` of a volume. An empty range is no access.
    pub fn request(&mut self, volume: u32, range: ByteRange, is_read: bool) {
        self.weighed_request(volume, range, is_read, 1);
    }

    /// A request ahead of those that are counted: it does to the order of blocks what [`CurveBuilder::request`] does, and what it
    /// touches is no first touch later. One by one, where requests that are counted are taken together.
    pub fn warm(&mut self, volume: u32, range: ByteRange, is_read: bool) {
        self.weighed_request(volume, range, is_read, 0);
    }

    fn weighed_request(&mut self, volume: u32, range: ByteRange, is_read: bool, counted: u64) {
        let weight = match (self.options.requests, is_read) {
            (Requests::All, _) | (_, true) => counted,
            (Requests::ReadHits, false) => 0,
            (Requests::Reads, false) => return,
        };
        let block_size = self.options.block_size;
        let mut blocks = range.blocks(block_size);
        match self.options.unit {
            Unit::Block => {
                for block in blocks {
                    self.access(volume_block_key(volume, block.0), weight);
                }
            }
            Unit::Request => {
                if let Some(first) = blocks.next() {
                    self.access(volume_block_key(volume, first.0), weight);
                }
            }
            Unit::Byte => {
                for block in blocks {
                    let bytes = range.bytes_in(block, block_size);
                    self.access(volume_block_key(volume, block.0), weight * bytes);
                }
            }
        }
    }

    /// An access to the block or object `key`, already split and weighed.
    #[inline]
    pub fn access(&mut self, key: u64, weight: u64) {
        if weight == 1 {
            self.pending.push(key);
            if self.pending.len() == PENDING {
                self.flush();
            }
            return;
        }
        self.flush();
        match &mut self.estimator {
            Estimator::Exact(exact) => {
                exact.access(key, weight);
            }
            Estimator::Rate(shards) => shards.access(key, weight),
            Estimator::Size(shards) => shards.access(key, weight),
            Estimator::Reuse(times) => times.access(key, weight),
        }
    }

    /// Accesses of weight 1, already split.
    pub fn access_batch(&mut self, keys: &[u64]) {
        self.flush();
        match &mut self.estimator {
            Estimator::Exact(exact) => exact.access_batch(keys),
            Estimator::Rate(shards) => shards.access_batch(keys),
            Estimator::Size(shards) => shards.access_batch(keys),
            Estimator::Reuse(times) => keys.iter().for_each(|&key| times.access(key, 1)),
        }
    }

    fn flush(&mut self) {
        if !self.pending.is_empty() {
            let mut pending = std::mem::take(&mut self.pending);
            self.access_batch(&pending);
            pending.clear();
            self.pending = pending;
        }
    }

    /// The result.
    pub fn finish(mut self) -> CurveResult {
        self.flush();
        CurveResult { method: self.options.method, estimator: self.estimator }
    }
}

/// What a [`CurveBuilder`] found.
#[derive(Clone, Debug)]
pub struct CurveResult {
    method: Method,
    estimator: Estimator,
}

impl CurveResult {
    /// Counted accesses, or counted bytes for [`Unit::Byte`].
    pub fn accesses(&self) -> u64 {
        match &self.estimator {
            Estimator::Exact(exact) => exact.distances().total(),
            Estimator::Rate(shards) => shards.counted(),
            Estimator::Size(shards) => shards.counted(),
            Estimator::Reuse(times) => times.counted(),
        }
    }

    /// Distinct blocks that were accessed, filled ones included; estimated where the method samples.
    pub fn footprint_blocks(&self) -> u64 {
        match &self.estimator {
            Estimator::Exact(exact) => exact.footprint_blocks(),
            Estimator::Rate(shards) => shards.footprint_blocks(),
            Estimator::Size(shards) => shards.footprint_blocks(),
            Estimator::Reuse(times) => times.footprint_blocks(),
        }
    }

    /// The whole curve; for [`Method::Exact`] with every breakpoint, so thin it before printing.
    pub fn curve(&self) -> MissRatioCurve {
        match &self.estimator {
            Estimator::Exact(exact) => exact.curve(),
            Estimator::Rate(shards) => shards.curve(),
            Estimator::Size(shards) => shards.curve(),
            Estimator::Reuse(times) if self.method == Method::WorkingSet => times.working_set_curve(),
            Estimator::Reuse(times) => times.aet_curve(),
        }
    }

    /// The miss ratios at `sizes` blocks, in the order given; exact for [`Method::Exact`].
    pub fn miss_ratios_at(&self, sizes: &[u64]) -> Vec<f64> {
        match &self.estimator {
            Estimator::Exact(exact) => exact.miss_ratios_at(sizes),
            _ => self.curve().miss_ratios_at(sizes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A write of blocks 0 and 1, a read of blocks 1 and 2 (its last 100 bytes in 2), a read of block 1.
    fn result(requests: Requests, unit: Unit) -> CurveResult {
        let mut builder = CurveBuilder::new(CurveOptions { requests, unit, ..CurveOptions::default() });
        builder.request(0, ByteRange::new(0, 8_192), false);
        builder.request(0, ByteRange::new(4_096, 4_196), true);
        builder.request(0, ByteRange::new(4_096, 512), true);
        builder.request(0, ByteRange::new(4_096, 0), true);
        builder.finish()
    }

    #[test]
    fn modes_and_units_by_hand() {
        let at = |requests, unit, size| {
            let result = result(requests, unit);
            (result.accesses(), result.footprint_blocks(), result.miss_ratios_at(&[size])[0])
        };
        // Accesses 0 1 | 1 2 | 1: with 2 blocks, the second and the third 1 hit: 3 of 5 missed.
        assert_eq!(at(Requests::All, Unit::Block, 2), (5, 3, 0.6));
        assert_eq!(at(Requests::All, Unit::Block, 1), (5, 3, 0.8));
        // 1 2 | 1: the last hits.
        assert_eq!(at(Requests::Reads, Unit::Block, 2), (3, 2, 2.0 / 3.0));
        // The write filled 1, so both reads of it hit.
        assert_eq!(at(Requests::ReadHits, Unit::Block, 2), (3, 3, 1.0 / 3.0));
        // Objects 0, 1, 1.
        assert_eq!(at(Requests::All, Unit::Request, 1), (3, 2, 2.0 / 3.0));
        // Bytes 4,096 + 4,096 | 4,096 + 100 | 512 = 12,900, of which 4,096 + 512 hit.
        assert_eq!(at(Requests::All, Unit::Byte, 2), (12_900, 3, (12_900.0 - 4_608.0) / 12_900.0));
        // Reads after fills: 4,096 + 100 + 512 counted, only the 100 miss.
        assert_eq!(at(Requests::ReadHits, Unit::Byte, 2), (4_708, 3, 100.0 / 4_708.0));
    }

    /// Blocks 0 and 1 before the measurement, then 0 1 2 0: the first two hit with two blocks, the last with three.
    #[test]
    fn what_warms_is_no_first_touch_later() {
        for method in [Method::Exact, Method::ShardsRate(1.0), Method::ShardsSize(Bytes::kib(64))] {
            let mut builder = CurveBuilder::new(CurveOptions { method, ..CurveOptions::default() });
            (0..2).for_each(|block| builder.warm(0, ByteRange::new(block * 4_096, 4_096), true));
            for block in [0, 1, 2, 0] {
                builder.request(0, ByteRange::new(block * 4_096, 4_096), true);
            }
            let result = builder.finish();
            assert_eq!((result.accesses(), result.footprint_blocks()), (4, 3), "{method:?}");
            assert_eq!(result.miss_ratios_at(&[1, 2, 3]), [1.0, 0.5, 0.25], "{method:?}");
        }
    }

    #[test]
    fn volumes_are_kept_apart() {
        let mut builder = CurveBuilder::new(CurveOptions::default());
        for volume in [0, 1, 1 << 24, u32::MAX] {
            builder.request(volume, ByteRange::new(0, 4_096), true);
            builder.request(volume, ByteRange::new(1 << 60, 4_096), true);
        }
        assert_eq!(builder.finish().footprint_blocks(), 8);
    }

    #[test]
    fn every_method_answers() {
        for method in [
            Method::Exact,
            Method::ShardsRate(1.0),
            Method::ShardsSize(Bytes::kib(64)),
            Method::Aet(1.0),
            Method::WorkingSet,
        ] {
            let mut builder = CurveBuilder::new(CurveOptions { method, ..CurveOptions::default() });
            assert_eq!(builder.clone().finish().curve().floor(), 1.0, "{method:?} of nothing");
            (0..10_000u64).for_each(|step| builder.access(mix64(step) % 100, 1));
            let result = builder.finish();
            assert_eq!((result.accesses(), result.footprint_blocks()), (10_000, 100));
            // Independent uniform references: a cache of 50 of 100 blocks misses half.
            assert!((result.miss_ratios_at(&[50])[0] - 0.5).abs() < 0.02, "{method:?}");
        }
    }
}
