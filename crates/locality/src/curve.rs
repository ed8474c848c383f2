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
        interpolated(&self.points, after, size_blocks)
    }

    /// [`miss_ratio_at`](Self::miss_ratio_at) for sizes that never fall from one to the next: `O(points)` for all of them together.
    pub fn walk(&self) -> CurveWalk<'_> {
        CurveWalk { points: &self.points, after: 1 }
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

    /// The miss ratios at `sizes` blocks, interpolated linearly, in the order given.
    pub fn miss_ratios_at(&self, sizes: &[u64]) -> Vec<f64> {
        sizes.iter().map(|&size| self.miss_ratio_at(size)).collect()
    }

    /// The mean over `sizes` of the absolute difference to `other`; 0 for no sizes.
    pub fn mean_absolute_error(&self, other: &MissRatioCurve, sizes: &[u64]) -> f64 {
        let sum: f64 =
            sizes.iter().map(|&size| (self.miss_ratio_at(size) - other.miss_ratio_at(size)).abs()).sum();
        sum / sizes.len().max(1) as f64
    }

    /// The lower convex hull: the largest convex function that is nowhere above the curve. It is what a cache can reach that is
    /// split between two sizes (Talus, HPCA '15), and what greedy allocation by marginal gain needs. `O(points)`.
    pub fn convex_hull(&self) -> MissRatioCurve {
        let mut hull: Vec<CurvePoint> = Vec::new();
        let slope = |a: &CurvePoint, b: &CurvePoint| {
            (b.miss_ratio - a.miss_ratio) / (b.size_blocks - a.size_blocks) as f64
        };
        for point in &self.points {
            while let [.., a, b] = hull.as_slice() {
                if slope(a, b) < slope(b, point) {
                    break;
                }
                hull.pop();
            }
            hull.push(*point);
        }
        MissRatioCurve { points: hull }
    }

    /// The curve through at most `points_max` (at least 2) of the points, and the largest error in miss ratio that this can have
    /// made anywhere, found within 0.01% by bisection. First and last point stay. `O(points)` per step of the bisection.
    pub fn thinned(&self, points_max: usize) -> (MissRatioCurve, f64) {
        let points_max = points_max.max(2);
        if self.points.len() <= points_max {
            return (self.clone(), 0.0);
        }
        let (mut low, mut high) = (0.0, 1.0);
        let mut best = self.thinned_within(high);
        while high - low > 1e-4 * high && high > 1e-9 {
            let middle = (low + high) / 2.0;
            let candidate = self.thinned_within(middle);
            if candidate.len() <= points_max {
                (high, best) = (middle, candidate);
            } else {
                low = middle;
            }
        }
        (MissRatioCurve { points: best }, high)
    }

    /// Points from which linear interpolation strays by at most `error`: each is the farthest from the one before to which a
    /// straight line passes all points in between (the swing filter; Elmeleegy et al., VLDB '09).
    fn thinned_within(&self, error: f64) -> Vec<CurvePoint> {
        let mut kept = vec![self.points[0]];
        let mut from = 0;
        while from + 1 < self.points.len() {
            let anchor = self.points[from];
            let (mut lowest, mut highest) = (f64::NEG_INFINITY, f64::INFINITY);
            let mut reach = from + 1;
            for (index, point) in self.points.iter().enumerate().skip(from + 1) {
                let run = (point.size_blocks - anchor.size_blocks) as f64;
                let slope = (point.miss_ratio - anchor.miss_ratio) / run;
                if (lowest..=highest).contains(&slope) {
                    reach = index;
                }
                lowest = lowest.max((point.miss_ratio - error - anchor.miss_ratio) / run);
                highest = highest.min((point.miss_ratio + error - anchor.miss_ratio) / run);
                if lowest > highest {
                    break;
                }
            }
            kept.push(self.points[reach]);
            from = reach;
        }
        kept
    }
}

/// The miss ratio at `size_blocks`, which lies below the point `after` and no lower than the one before it.
fn interpolated(points: &[CurvePoint], after: usize, size_blocks: u64) -> f64 {
    let low = points[after - 1];
    let Some(high) = points.get(after) else { return low.miss_ratio };
    let share = (size_blocks - low.size_blocks) as f64 / (high.size_blocks - low.size_blocks) as f64;
    low.miss_ratio + share * (high.miss_ratio - low.miss_ratio)
}

/// A walk along a curve; see [`MissRatioCurve::walk`].
#[derive(Clone, Debug)]
pub struct CurveWalk<'a> {
    points: &'a [CurvePoint],
    /// The first point that may lie beyond the next size; the one before it does not.
    after: usize,
}

impl CurveWalk<'_> {
    /// The miss ratio of a cache of `size_blocks`, interpolated linearly.
    ///
    /// # Panics
    /// If `size_blocks` lies before the point of the curve that the size before it had reached.
    pub fn miss_ratio_at(&mut self, size_blocks: u64) -> f64 {
        while self.points.get(self.after).is_some_and(|point| point.size_blocks <= size_blocks) {
            self.after += 1;
        }
        assert!(
            self.points[self.after - 1].size_blocks <= size_blocks,
            "sizes must not fall on a walk along a curve: {size_blocks} blocks lies before {:?}",
            self.points[self.after - 1]
        );
        interpolated(self.points, self.after, size_blocks)
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

    #[test]
    fn a_walk_says_what_look_ups_say() {
        let point = |size_blocks, miss_ratio| CurvePoint { size_blocks, miss_ratio };
        let curve = MissRatioCurve::new(vec![point(3, 0.7), point(4, 0.65), point(9, 0.3), point(30, 0.2)]);
        // With every size, with sizes that pass several points at once, and with one size again and again.
        for step in [1, 2, 7, 40] {
            let mut walk = curve.walk();
            for size in (0..80).map(|at| at / step * step) {
                assert_eq!(walk.miss_ratio_at(size), curve.miss_ratio_at(size), "{size} blocks");
            }
        }
        assert_eq!(MissRatioCurve::new(Vec::new()).walk().miss_ratio_at(5), 1.0);
    }

    #[test]
    #[should_panic(expected = "sizes must not fall")]
    fn a_walk_does_not_go_back() {
        let curve = MissRatioCurve::new(vec![CurvePoint { size_blocks: 10, miss_ratio: 0.5 }]);
        let mut walk = curve.walk();
        walk.miss_ratio_at(12);
        walk.miss_ratio_at(9);
    }

    #[test]
    fn the_hull_cuts_the_plateau_before_a_cliff() {
        let point = |size_blocks, miss_ratio| CurvePoint { size_blocks, miss_ratio };
        // Flat at 0.8 from 100 to 300, then down to 0 at 400: slope 0 to 100 is -0.002, 100 to 400 -0.8/300 is steeper, so
        // only the line from (0, 1) to (400, 0) stays.
        let cliff = MissRatioCurve::new(vec![point(100, 0.8), point(300, 0.8), point(400, 0.0)]);
        assert_eq!(cliff.convex_hull().points(), [point(0, 1.0), point(400, 0.0)]);
        let convex = MissRatioCurve::new(vec![point(100, 0.5), point(300, 0.25), point(900, 0.2)]);
        assert_eq!(convex.convex_hull(), convex);
    }

    #[test]
    fn thinning_keeps_its_word() {
        let points = (1..5_000u64)
            .map(|size| CurvePoint { size_blocks: size * 3, miss_ratio: 1.0 / (1.0 + (size as f64).sqrt()) })
            .collect();
        let curve = MissRatioCurve::new(points);
        for limit in [2, 3, 10, 50] {
            let (thin, error) = curve.thinned(limit);
            assert!(thin.points().len() <= limit);
            let worst = (0..15_000)
                .map(|size| (thin.miss_ratio_at(size) - curve.miss_ratio_at(size)).abs())
                .fold(0.0, f64::max);
            assert!(worst <= error + 1e-12, "{worst} with {limit} points, {error} was promised");
        }
        assert!(curve.thinned(50).1 < 0.01);
        assert_eq!(curve.thinned(10_000), (curve.clone(), 0.0));
        assert_eq!(curve.mean_absolute_error(&curve, &[1, 2]), 0.0);
    }
}
