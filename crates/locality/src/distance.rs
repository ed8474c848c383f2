//! Counted weight per reuse distance: what an exact curve is made of.

use crate::{CurvePoint, MissRatioCurve};

const CHUNK: usize = 1 << 12;

/// The counted weight at every stack distance, exactly.
///
/// The stack distance of an access is the number of distinct blocks used since the block's last use, itself included: an LRU
/// cache of `size` blocks hits exactly the accesses of distance at most `size` (Mattson et al., IBM Systems Journal 1970). First
/// touches have no distance and are kept apart. 8 bytes per distance up to the largest seen, in chunks, so that growing never
/// holds two copies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DistanceHistogram {
    /// `chunks[i / CHUNK][i % CHUNK]` is the weight at distance `i + 1`.
    chunks: Vec<Box<[u64]>>,
    first_touches: u64,
    total: u64,
}

impl DistanceHistogram {
    /// An empty one.
    pub fn new() -> DistanceHistogram {
        DistanceHistogram::default()
    }

    /// Adds `weight` at the stack distance `distance`, at least 1.
    #[inline]
    pub fn add(&mut self, distance: u64, weight: u64) {
        let index = (distance - 1) as usize;
        if index / CHUNK >= self.chunks.len() {
            self.extend(index / CHUNK);
        }
        self.chunks[index / CHUNK][index % CHUNK] += weight;
        self.total += weight;
    }

    /// Adds a weight of 1 at each of `distances`, where 0 stands for a first touch.
    pub(crate) fn add_each(&mut self, distances: &[u64]) {
        let mut first_touches = 0;
        for &distance in distances {
            if distance == 0 {
                first_touches += 1;
                continue;
            }
            let index = (distance - 1) as usize;
            if index / CHUNK >= self.chunks.len() {
                self.extend(index / CHUNK);
            }
            self.chunks[index / CHUNK][index % CHUNK] += 1;
        }
        self.first_touches += first_touches;
        self.total += distances.len() as u64;
    }

    #[cold]
    fn extend(&mut self, chunk: usize) {
        self.chunks.resize_with(chunk + 1, || vec![0; CHUNK].into_boxed_slice());
    }

    /// Adds `weight` of first touches.
    #[inline]
    pub fn add_first_touch(&mut self, weight: u64) {
        self.first_touches += weight;
        self.total += weight;
    }

    /// All counted weight.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The counted weight of first touches: misses at every size.
    pub fn first_touches(&self) -> u64 {
        self.first_touches
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<u64>() + self.chunks.capacity() * size_of::<Box<[u64]>>()
    }

    /// The distances that occur, ascending, with their weight.
    pub fn weights(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let distances = self.chunks.iter().flat_map(|chunk| chunk.iter().copied());
        (1..).zip(distances).filter(|(_, weight)| *weight > 0)
    }

    /// The exact miss ratio of LRU caches of `sizes` blocks, in the order given; 1 where nothing was counted.
    /// `O(distances + sizes log sizes)`.
    pub fn miss_ratios_at(&self, sizes: &[u64]) -> Vec<f64> {
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|&index| sizes[index]);
        let mut ratios = vec![1.0; sizes.len()];
        if self.total == 0 {
            return ratios;
        }
        let mut hits = 0;
        let mut weights = self.weights().peekable();
        for index in order {
            while let Some((_, weight)) = weights.next_if(|(distance, _)| *distance <= sizes[index]) {
                hits += weight;
            }
            ratios[index] = (self.total - hits) as f64 / self.total as f64;
        }
        ratios
    }

    /// The exact curve with every breakpoint: exact at every whole size although look-ups interpolate, as a breakpoint
    /// is given from both of its sides. Up to two points of 16 bytes per distance: thin it before keeping it.
    pub fn curve(&self) -> MissRatioCurve {
        let mut points = vec![CurvePoint { size_blocks: 0, miss_ratio: 1.0 }];
        let mut misses = self.total;
        let mut last = 0;
        for (distance, weight) in self.weights() {
            let ratio = |misses: u64| misses as f64 / self.total as f64;
            if distance - 1 > last {
                points.push(CurvePoint { size_blocks: distance - 1, miss_ratio: ratio(misses) });
            }
            misses -= weight;
            points.push(CurvePoint { size_blocks: distance, miss_ratio: ratio(misses) });
            last = distance;
        }
        MissRatioCurve::new(points)
    }
}
