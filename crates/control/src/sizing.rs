//! Sizing: the smallest cache with which a prediction meets its goal.
//!
//! The prediction is a function that the caller gives: the live controller asks the performance model, the planner
//! asks it for every window of a trace. Sizes are in blocks throughout.

use forebay_locality::{CurvePoint, MissRatioCurve};

/// What sizing came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sizing {
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
pub(crate) fn smallest(
    blocks_max: u64,
    chunk_blocks: u64,
    goal: f64,
    mut excess: impl FnMut(u64) -> f64,
) -> Sizing {
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

/// Sizes that reach `goal` together, from `(blocks, chunk_blocks)` that do: each in turn is made the smallest beside what is left of those before it and all of
/// those behind. So the first goes as far as the others allow, to 0 if they do without it.
pub(crate) fn smallest_of_each(
    sizes: &[(u64, u64)],
    goal: f64,
    mut excess: impl FnMut(&[u64]) -> f64,
) -> Vec<u64> {
    let mut all: Vec<u64> = sizes.iter().map(|&(blocks, _)| blocks).collect();
    for (at, &(blocks, chunk_blocks)) in sizes.iter().enumerate() {
        let sizing = smallest(blocks, chunk_blocks, goal, |blocks| {
            all[at] = blocks;
            excess(&all)
        });
        all[at] = sizing.blocks;
    }
    all
}

/// Sizes worth trying on a curve, ascending, at most `blocks_max`, without 0: the corners of its lower convex hull
/// (where the next block is worth least) and the feet of its cliffs, which the hull may pass over.
pub(crate) fn candidates(curve: &MissRatioCurve, blocks_max: u64) -> Vec<u64> {
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

/// What a cache in front of a load is expected to miss, and up to which size that is known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExpectedCurve {
    /// Miss ratio by size in blocks.
    pub curve: MissRatioCurve,
    /// Beyond so many blocks too little was seen: there the curve is that of the least recently used order, if lower.
    pub known_blocks: u64,
}

/// The curve that a longer look would show, from one of `accesses` accesses, up to where that can be told (ours).
///
/// An access that is the first to its block was no miss of every cache: how long ago its block had been used lies before
/// the look began, and it is known only that it is more distinct blocks ago than had been seen by then. The n-th first
/// access is *censored* at n - 1 blocks, so the share of accesses whose distance is longer than that is found as survival
/// is from patients that leave (Kaplan and Meier, JASA 53, 1958). It ends where hardly an access was seen by so many
/// blocks. Without that a young curve is too flat, and says of no size that it suffices. `O(points)`.
pub(crate) fn without_first_accesses(curve: &MissRatioCurve, accesses: u64) -> MissRatioCurve {
    let firsts = curve.floor();
    let mut points = vec![CurvePoint { size_blocks: 0, miss_ratio: 1.0 }];
    let mut longer = 1.0f64;
    for pair in curve.points().windows(2) {
        let middle = (pair[0].size_blocks + pair[1].size_blocks) as f64 / 2.0;
        // Of the accesses, those that might still turn out to be this far apart.
        let seen = pair[0].miss_ratio - (middle / accesses.max(1) as f64).min(firsts);
        if seen < SEEN_MIN {
            break;
        }
        longer *= 1.0 - ((pair[0].miss_ratio - pair[1].miss_ratio) / seen).clamp(0.0, 1.0);
        points.push(CurvePoint { size_blocks: pair[1].size_blocks, miss_ratio: longer });
    }
    MissRatioCurve::new(points)
}

/// The share of the accesses that a point of [`without_first_accesses`] rests on at least (ours).
const SEEN_MIN: f64 = 0.05;

/// The curve of a cache that keeps what is used twice, as far as it follows from that of the least recently used order
/// (ours): with frequent blocks told from others it needs several times fewer of them.
///
/// In a span of `T` references a cache that forgets by recency sees `s(T)` blocks, and `s' = mr(s)` (the footprint's
/// derivative). Where blocks are drawn independently, those that are drawn twice in the span are `s - T s'`, and answer
/// `1 - s' + T s''` of the references. Never above `curve`. `O(points)`.
pub(crate) fn kept_if_used_twice(curve: &MissRatioCurve) -> ExpectedCurve {
    let last = curve.points().last().map_or(0, |point| point.size_blocks);
    let mut points = Vec::with_capacity(TWICE_POINTS);
    let (mut size, mut span, mut least) = (0.0f64, 0.0f64, 1.0f64);
    let mut at = 1.0f64;
    let mut walk = curve.walk();
    let mut before = walk.miss_ratio_at(1);
    while at * TWICE_STEP.max(1.0 + 1.0 / at) <= last as f64 {
        let next = (at * TWICE_STEP).max(at + 1.0);
        let after = walk.miss_ratio_at(next as u64);
        let missed = (before + after) / 2.0;
        if missed <= 0.0 {
            break;
        }
        let slope = (after - before) / ((next as u64 - at as u64) as f64);
        span += (at - size) / missed.max(before);
        size = at;
        let middle = span + (next - at) / 2.0 / missed;
        let kept = (at + next) / 2.0 - middle * missed;
        let misses = missed - middle * missed * slope;
        least = least.min(misses.clamp(0.0, 1.0)).min(1.0);
        if kept >= 1.0 {
            points.push(CurvePoint { size_blocks: kept as u64, miss_ratio: least });
        }
        (at, before) = (next, after);
    }
    let twice = MissRatioCurve::new(points);
    let known_blocks = twice.points().last().map_or(0, |point| point.size_blocks);
    let lower = |of: &MissRatioCurve| {
        let (mut by_recency, mut by_use) = (curve.walk(), twice.walk());
        let sizes = of.points().iter().map(|point| point.size_blocks);
        let point = |size_blocks| CurvePoint {
            size_blocks,
            miss_ratio: by_recency.miss_ratio_at(size_blocks).min(by_use.miss_ratio_at(size_blocks)),
        };
        sizes.map(point).collect::<Vec<_>>()
    };
    let best = [lower(curve), lower(&twice)].concat();
    ExpectedCurve { curve: MissRatioCurve::new(best), known_blocks }
}

/// Points of [`kept_if_used_twice`] at most, and how far each lies beyond the one before.
const TWICE_POINTS: usize = 128;
const TWICE_STEP: f64 = 1.2;

/// The largest size that still buys something: where the curve reaches its floor, at most `blocks_max`.
pub(crate) fn useful_max(curve: &MissRatioCurve, blocks_max: u64) -> u64 {
    curve.size_for(curve.floor()).unwrap_or(blocks_max).min(blocks_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn curve(points: &[(u64, f64)]) -> MissRatioCurve {
        MissRatioCurve::new(
            points.iter().map(|&(size_blocks, miss_ratio)| CurvePoint { size_blocks, miss_ratio }).collect(),
        )
    }

    #[test]
    fn sizes_that_reach_a_goal_together_still_do_when_each_is_the_smallest() {
        // Ten blocks reach it, whoever has them.
        let reach = |sizes: &[(u64, u64)]| {
            smallest_of_each(sizes, 0.0, |blocks| 10.0 - blocks.iter().sum::<u64>() as f64)
        };
        assert_eq!(reach(&[(5, 1), (7, 1)]), [3, 7]);
        assert_eq!(reach(&[(7, 1), (5, 1)]), [5, 5]);
        assert_eq!(reach(&[(5, 1), (12, 1)]), [0, 10]);
        assert_eq!(reach(&[(8, 4), (7, 1)]), [4, 6]);
        // What does not reach it comes as near as it can.
        assert_eq!(reach(&[(2, 1), (3, 1)]), [2, 3]);
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

    #[test]
    fn frequent_blocks_need_less_room_where_they_are_kept() {
        // All blocks alike: s(T) = n (1 - e^-x) with x = T/n; twice: n (1 - e^-x - x e^-x), and as much of the references.
        // So it is the same curve: mr(c) = 1 - c / n.
        let alike = curve(&[(10_000, 0.0)]);
        let twice = kept_if_used_twice(&alike).curve;
        for size in [500, 3_000, 5_000] {
            assert!((twice.miss_ratio_at(size) - alike.miss_ratio_at(size)).abs() < 0.03, "{size}");
        }
        // A tenth of the blocks gets nine tenths of the references: by Che's approximation, s(T) and mr(T) of two groups.
        let point = |span: f64| {
            let (hot, cold) = ((-0.9 / 1_000.0 * span).exp(), (-0.1 / 9_000.0 * span).exp());
            let size = 1_000.0 * (1.0 - hot) + 9_000.0 * (1.0 - cold);
            (size as u64, 0.9 * hot + 0.1 * cold)
        };
        let recent = curve(&(1..400).map(|at| point(f64::from(at) * 50.0)).collect::<Vec<_>>());
        let twice = kept_if_used_twice(&recent).curve;
        let (wanted, wanted_twice) = (recent.size_for(0.12), twice.size_for(0.12));
        // 0.9 e^-x = 0.12 - 0.1 of cold: by recency about 1,340 blocks, nearly none of the cold ones if used twice.
        assert!(wanted_twice.unwrap() < wanted.unwrap() * 9 / 10, "{wanted_twice:?} of {wanted:?}");
        assert!((0..100).all(|at| twice.miss_ratio_at(at * 100) <= recent.miss_ratio_at(at * 100)));
        assert_eq!(kept_if_used_twice(&curve(&[])).curve.floor(), 1.0);
    }

    #[test]
    fn first_accesses_are_no_misses_for_good() {
        // Ten accesses, a b b c a d b c a d: distances 1 (b), 3 (a), 4 (b, c, a and d), and four firsts.
        let raw = curve(&[(1, 0.9), (2, 0.9), (3, 0.8), (4, 0.4)]);
        let whole = without_first_accesses(&raw, 10);
        // Half a first access has left by half a block: .1 of .95 end there. Two and a half have by 2.5 blocks: .1 of .9 - .25.
        // Three and a half by 3.5: .4 of .8 - .35.
        let first = 1.0 - 0.1 / 0.95;
        assert!((whole.miss_ratio_at(1) - first).abs() < 1e-9);
        assert!((whole.miss_ratio_at(3) - first * (1.0 - 0.1 / 0.65)).abs() < 1e-9);
        assert!((whole.miss_ratio_at(4) - first * (1.0 - 0.1 / 0.65) * (1.0 - 0.4 / 0.45)).abs() < 1e-9);
        // After very many accesses to the same blocks nothing is left to correct; of nothing nothing is known.
        let old = without_first_accesses(&curve(&[(50, 0.5), (100, 0.1)]), 1_000_000_000);
        assert!((old.miss_ratio_at(50) - 0.5).abs() < 1e-6 && (old.miss_ratio_at(100) - 0.1).abs() < 1e-6);
        assert_eq!(without_first_accesses(&curve(&[]), 0).floor(), 1.0);
    }

    #[test]
    fn a_short_look_says_what_a_long_one_does() {
        // Four thousand blocks alike: a cache of s misses 1 - s / 4,000. After as many accesses 63 in 100 blocks are seen. The raw
        // curve hits at 2,000 blocks min(.5, 1 - e^-u) over u from 0 to 1: .193 + .5 x .307 = .346.
        let mut random = forebay_workload::random(7);
        let mut short = forebay_locality::ExactLru::new();
        for _ in 0..4_000 {
            short.access((forebay_workload::generator::unit(&mut random) * 4_000.0) as u64, 1);
        }
        let raw = short.curve();
        let whole = without_first_accesses(&raw, 4_000);
        for size in [800, 1_600, 2_000] {
            let truth = 1.0 - size as f64 / 4_000.0;
            assert!(
                (whole.miss_ratio_at(size) - truth).abs() < 0.06,
                "{size}: {}",
                whole.miss_ratio_at(size)
            );
        }
        assert!((raw.miss_ratio_at(2_000) - 0.654).abs() < 0.03, "{}", raw.miss_ratio_at(2_000));
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
