//! Sizing: the smallest cache with which a prediction meets its goal.
//!
//! The prediction is a function that the caller gives: the live controller asks the performance model, the planner
//! asks it for every window of a trace. Sizes are in blocks throughout.

use forebay_locality::MissRatioCurve;

/// What sizing came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizing {
    /// The smallest size that reaches the goal; where none does, the smallest that comes as near as any.
    pub blocks: u64,
    /// The predicted excess at that size.
    pub excess: f64,
    /// Whether the goal is reached.
    pub reached: bool,
}

/// The smallest multiple of `chunk_blocks`, at most `blocks_max`, at which `excess` is at most `goal`.
///
/// `excess` must not rise with the size, up to noise; it is asked `O(log(blocks_max / chunk_blocks))` times. The
/// largest size is `blocks_max` itself, even where that is no whole number of chunks.
pub fn smallest(blocks_max: u64, chunk_blocks: u64, goal: f64, mut excess: impl FnMut(u64) -> f64) -> Sizing {
    let chunk = chunk_blocks.max(1);
    let chunks = blocks_max.div_ceil(chunk);
    let blocks = |chunks: u64| (chunks * chunk).min(blocks_max);
    let best = excess(blocks_max);
    let reached = best <= goal;
    // Where the goal is out of reach, come within 2 % of what the largest size gives (ours).
    let threshold = if reached { goal } else { best + best.abs() * 0.02 };
    let (mut low, mut high) = (0, chunks);
    let mut found = best;
    while low < high {
        let middle = (low + high) / 2;
        let value = excess(blocks(middle));
        if value <= threshold {
            high = middle;
            found = value;
        } else {
            low = middle + 1;
        }
    }
    Sizing { blocks: blocks(high), excess: found, reached }
}

/// Sizes worth trying on a curve, ascending, at most `blocks_max`, without 0: the corners of its lower convex hull
/// (where the next block is worth least) and the feet of its cliffs, which the hull may pass over.
pub fn candidates(curve: &MissRatioCurve, blocks_max: u64) -> Vec<u64> {
    let points = curve.points();
    let mut hull: Vec<usize> = Vec::new();
    for (at, point) in points.iter().enumerate() {
        while let [.., a, b] = hull[..] {
            let (a, b) = (points[a], points[b]);
            let slope = |from: forebay_locality::CurvePoint, to: forebay_locality::CurvePoint| {
                (to.miss_ratio - from.miss_ratio) / (to.size_blocks - from.size_blocks) as f64
            };
            if slope(a, b) >= slope(a, *point) {
                hull.pop();
            } else {
                break;
            }
        }
        hull.push(at);
    }
    let mut sizes: Vec<u64> = hull.into_iter().map(|at| points[at].size_blocks).collect();
    let cliff = 0.05; // ours: a fall of five hundredths between neighbouring points
    sizes.extend(
        points
            .windows(2)
            .filter(|pair| pair[0].miss_ratio - pair[1].miss_ratio >= cliff)
            .map(|pair| pair[1].size_blocks),
    );
    sizes.iter_mut().for_each(|size| *size = (*size).min(blocks_max));
    sizes.sort_unstable();
    sizes.dedup();
    sizes.retain(|&size| size > 0);
    sizes
}

/// The largest size that still buys something: where the curve reaches its floor, at most `blocks_max`.
pub fn useful_max(curve: &MissRatioCurve, blocks_max: u64) -> u64 {
    curve.size_for(curve.floor()).unwrap_or(blocks_max).min(blocks_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_locality::CurvePoint;
    use proptest::prelude::*;

    fn curve(points: &[(u64, f64)]) -> MissRatioCurve {
        MissRatioCurve::new(
            points.iter().map(|&(size_blocks, miss_ratio)| CurvePoint { size_blocks, miss_ratio }).collect(),
        )
    }

    #[test]
    fn the_smallest_size_by_hand() {
        // Latency 10 ms x miss ratio against 4 ms: the curve falls to 0.4 at 600 of 1,000 blocks.
        let curve = curve(&[(1_000, 0.0)]);
        let excess = |blocks| 10.0 * curve.miss_ratio_at(blocks) / 4.0 - 1.0;
        assert_eq!(smallest(1_000, 1, 0.0, excess).blocks, 600);
        assert_eq!(smallest(1_000, 64, 0.0, excess).blocks, 640); // ten chunks
        assert_eq!(smallest(1_000, 64, 2.0, excess).blocks, 0); // 1.5 beyond is good enough
        let unreachable = smallest(500, 64, 0.0, excess);
        assert_eq!((unreachable.blocks, unreachable.reached), (500, false));
        assert!((unreachable.excess - 0.25).abs() < 1e-9); // 10 x 0.5 / 4 - 1
    }

    #[test]
    fn an_unreachable_goal_does_not_buy_blocks_that_bring_nothing() {
        let flat = curve(&[(100, 0.5), (10_000, 0.5)]);
        let sizing = smallest(10_000, 1, -0.9, |blocks| flat.miss_ratio_at(blocks) - 0.1);
        assert!(!sizing.reached && sizing.blocks <= 100, "{sizing:?}");
    }

    #[test]
    fn candidates_are_hull_corners_and_cliff_feet() {
        // A plateau from 100 to 800 and a cliff down to 1,000: the hull goes 0, 100, 1000; 800 and 500 are passed over.
        let cliff = curve(&[(100, 0.6), (500, 0.59), (800, 0.58), (1_000, 0.1), (2_000, 0.09)]);
        assert_eq!(candidates(&cliff, u64::MAX), [100, 1_000, 2_000]);
        assert_eq!(candidates(&cliff, 1_500), [100, 1_000, 1_500]);
        assert_eq!(useful_max(&curve(&[(100, 0.5), (900, 0.5)]), 1_000), 100);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// Against trying every size; and a stricter goal never needs less.
        #[test]
        fn it_is_the_smallest_and_monotone_in_the_goal(
            points in prop::collection::vec((1u64..500, 0.0f64..1.0), 1..12),
            chunk in 1u64..40,
            goal in 0.0f64..1.0,
        ) {
            let curve = curve(&points);
            let sizing = smallest(500, chunk, goal, |blocks| curve.miss_ratio_at(blocks));
            let exhaustive = (0..=500u64.div_ceil(chunk))
                .map(|chunks| (chunks * chunk).min(500))
                .find(|&blocks| curve.miss_ratio_at(blocks) <= goal);
            prop_assert_eq!(sizing.reached.then_some(sizing.blocks), exhaustive);
            let stricter = smallest(500, chunk, goal * 0.8, |blocks| curve.miss_ratio_at(blocks));
            if stricter.reached {
                prop_assert!(stricter.blocks >= sizing.blocks);
            }
        }
    }
}
