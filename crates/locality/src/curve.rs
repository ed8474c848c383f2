//! The miss ratio curve that every estimator yields.

use serde::{Deserialize, Serialize};

/// One point of a [`MissRatioCurve`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Cache size in blocks.
    pub size_blocks: u64,
    /// Misses per counted access, or per counted byte where the accesses were weighted by bytes; 0 to 1.
    pub miss_ratio: f64,
}

/// Miss ratio as a function of cache size, for LRU unless its maker says otherwise.
///
/// Points ascend in size, start at size 0 with ratio 1 and never rise in ratio. Between points the ratio is
/// *stepwise* for exact curves with every breakpoint and *linear* for the thinned and estimated ones; beyond the last
/// point it stays. First touches are misses at every size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MissRatioCurve {
    points: Vec<CurvePoint>,
}

impl MissRatioCurve {
    /// The curve through `points`, which are sorted, made non-increasing and given the point (0, 1) if it is missing.
    ///
    /// # Panics
    /// If a ratio is not from 0 to 1.
    pub fn new(mut points: Vec<CurvePoint>) -> MissRatioCurve {
        assert!(
            points.iter().all(|point| (0.0..=1.0).contains(&point.miss_ratio)),
            "miss ratios must be from 0 to 1: {points:?}"
        );
        points.sort_by(|a, b| a.size_blocks.cmp(&b.size_blocks).then(b.miss_ratio.total_cmp(&a.miss_ratio)));
        points.dedup_by_key(|point| point.size_blocks);
        if points.first().is_none_or(|point| point.size_blocks != 0) {
            points.insert(0, CurvePoint { size_blocks: 0, miss_ratio: 1.0 });
        }
        let mut lowest = 1.0f64;
        for point in &mut points {
            lowest = lowest.min(point.miss_ratio);
            point.miss_ratio = lowest;
        }
        MissRatioCurve { points }
    }

    /// The points, ascending in size.
    pub fn points(&self) -> &[CurvePoint] {
        &self.points
    }

    /// The miss ratio of a cache of `size_blocks`, interpolated linearly; `O(log points)`.
    pub fn miss_ratio_at(&self, size_blocks: u64) -> f64 {
        let after = self.points.partition_point(|point| point.size_blocks <= size_blocks);
        let low = self.points[after - 1];
        let Some(high) = self.points.get(after) else { return low.miss_ratio };
        let share = (size_blocks - low.size_blocks) as f64 / (high.size_blocks - low.size_blocks) as f64;
        low.miss_ratio + share * (high.miss_ratio - low.miss_ratio)
    }

    /// The smallest size in blocks whose miss ratio is at most `miss_ratio`; `None` where no size reaches it.
    pub fn size_for(&self, miss_ratio: f64) -> Option<u64> {
        let at = self.points.partition_point(|point| point.miss_ratio > miss_ratio);
        let high = *self.points.get(at)?;
        if at == 0 || high.miss_ratio == miss_ratio {
            return Some(high.size_blocks);
        }
        let low = self.points[at - 1];
        let share = (low.miss_ratio - miss_ratio) / (low.miss_ratio - high.miss_ratio);
        let size = low.size_blocks as f64 + share * (high.size_blocks - low.size_blocks) as f64;
        Some((size.ceil() as u64).min(high.size_blocks))
    }

    /// The lowest ratio that any size reaches.
    pub fn floor(&self) -> f64 {
        self.points.last().map_or(1.0, |point| point.miss_ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_ups_interpolate_both_ways() {
        let point = |size_blocks, miss_ratio| CurvePoint { size_blocks, miss_ratio };
        let curve = MissRatioCurve::new(vec![point(100, 0.5), point(300, 0.25), point(200, 0.6)]);
        // 0.6 at 200 would rise above 0.5 at 100, so it is lowered to 0.5.
        assert_eq!(curve.miss_ratio_at(0), 1.0);
        assert_eq!(curve.miss_ratio_at(50), 0.75);
        assert_eq!(curve.miss_ratio_at(200), 0.5);
        assert_eq!(curve.miss_ratio_at(1_000), 0.25);
        assert_eq!(curve.size_for(0.75), Some(50));
        assert_eq!(curve.size_for(1.0), Some(0));
        assert_eq!(curve.size_for(0.25), Some(300));
        assert_eq!(curve.size_for(0.1), None);
        assert_eq!(curve.floor(), 0.25);
    }
}
