//! Solutions: which caches, in front of which workloads, mend a violation, and which of them costs least
//! (Dynamite, steps 4 and 5). The violated workload, a neighbour, or two of them together may be cached.

use crate::sizing::smallest;
use forebay_units::Bytes;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What is known of a workload on the origin when solutions are ranked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tenant {
    /// Whether a cache in front of it is a solution: cacheable and, for a neighbour, interfering.
    pub eligible: bool,
    /// The blocks that it has now; solutions never take from them.
    pub blocks: u64,
    /// The most it may have, useful blocks only.
    pub blocks_max: u64,
    /// Sizes are multiples of this.
    pub chunk_blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Its load is far above its usual one: what is cached for a peak is soon useless.
    pub peaking: bool,
    /// Its working set changes little.
    pub stable: bool,
    /// Sizes worth trying in pairs, ascending.
    pub candidates: Vec<u64>,
}

impl Tenant {
    /// Chunks that it may have beyond what it has; the last may be a part of one.
    fn chunks_max(&self) -> u64 {
        self.blocks_max.saturating_sub(self.blocks).div_ceil(self.chunk_blocks.max(1))
    }

    /// Its blocks with so many chunks more.
    fn with_chunks(&self, chunks: u64) -> u64 {
        self.blocks.saturating_add(chunks.saturating_mul(self.chunk_blocks.max(1))).min(self.blocks_max)
    }
}

/// One way to mend a violation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Solution {
    /// (tenant, blocks) of every tenant whose cache changes, one or two of them.
    pub sizes: Vec<(usize, u64)>,
    /// Bytes beyond those that are granted now.
    pub cost: Bytes,
    /// Predicted excess of the violated workload.
    pub excess: f64,
    /// Whether it reaches the goal.
    pub reached: bool,
    /// Tenants that would newly miss an objective, or miss it by more.
    pub harmed: Vec<usize>,
    /// Whether it caches a peaking workload.
    pub peaking: bool,
    /// Whether it caches a workload with a changing working set.
    pub unstable: bool,
}

impl Solution {
    /// What the ranking compares: cost in bytes, a quarter dearer for a peaking workload and a quarter dearer for a
    /// changing working set. The quarters are ours; the paper names the preference without a weight.
    pub(crate) fn weighed_cost(&self) -> f64 {
        let dearer =
            1.0 + 0.25 * f64::from(u8::from(self.peaking)) + 0.25 * f64::from(u8::from(self.unstable));
        self.cost.as_f64() * dearer
    }
}

/// What is predicted of other caches in front of tenants. Any function of the blocks of all is one.
pub(crate) trait Forecast {
    /// The worst excess of every tenant with `blocks` of cache for each; negative infinity for one without objectives.
    fn excess(&self, blocks: &[u64]) -> Vec<f64>;

    /// The same of one tenant alone, which is most of what is asked: to be overridden where that takes less.
    fn excess_of(&self, tenant: usize, blocks: &[u64]) -> f64 {
        self.excess(blocks)[tenant]
    }
}

impl<F: Fn(&[u64]) -> Vec<f64>> Forecast for F {
    fn excess(&self, blocks: &[u64]) -> Vec<f64> {
        self(blocks)
    }
}

/// Tenants as they are, and what is predicted of other caches in front of them.
struct Scene<'a, E> {
    victim: usize,
    tenants: &'a [Tenant],
    goal: f64,
    /// Blocks that they have, and the excess of each with these.
    now: Vec<u64>,
    before: Vec<f64>,
    forecast: E,
}

impl<'a, E: Forecast> Scene<'a, E> {
    fn new(victim: usize, tenants: &'a [Tenant], goal: f64, forecast: E) -> Scene<'a, E> {
        assert!(victim < tenants.len(), "tenant {victim} of {}", tenants.len());
        let now: Vec<u64> = tenants.iter().map(|tenant| tenant.blocks).collect();
        let before = forecast.excess(&now);
        Scene { victim, tenants, goal, now, before, forecast }
    }

    /// Blocks of all, with `sizes` in place of what there is.
    fn blocks(&self, sizes: &[(usize, u64)]) -> Vec<u64> {
        let mut all = self.now.clone();
        sizes.iter().for_each(|&(tenant, blocks)| all[tenant] = blocks);
        all
    }

    /// The excess of the violated tenant with them.
    fn of_victim(&self, sizes: &[(usize, u64)]) -> f64 {
        self.forecast.excess_of(self.victim, &self.blocks(sizes))
    }

    fn describe(&self, sizes: Vec<(usize, u64)>) -> Solution {
        let (victim, tenants) = (self.victim, self.tenants);
        let after = self.forecast.excess(&self.blocks(&sizes));
        let added = |&(tenant, blocks): &(usize, u64)| {
            blocks.saturating_sub(self.now[tenant]).saturating_mul(tenants[tenant].block_bytes)
        };
        Solution {
            cost: Bytes(sizes.iter().map(added).sum()),
            excess: after[victim],
            reached: after[victim] <= self.goal,
            harmed: (0..tenants.len())
                .filter(|&at| at != victim && after[at] > 0.0 && after[at] > self.before[at] + 0.02)
                .collect(),
            peaking: sizes.iter().any(|&(tenant, _)| tenants[tenant].peaking),
            unstable: sizes.iter().any(|&(tenant, _)| !tenants[tenant].stable),
            sizes,
        }
    }
}

/// All solutions, best first: those that reach the goal before those that do not, without harm before with harm, what
/// fits into `free` before what does not, then by weighed cost; those that miss the goal by predicted excess.
///
/// `goal` is the excess that the violated tenant may have. Pairs are tried among the four
/// cheapest tenants, at their candidates, as far as hosts have room for both: `fits` says so of the sizes of two tenants, and is to be true of less
/// where it is true of more. What hosts have room for of one alone is its `blocks_max`. Cost: `O(tenants * log blocks)` predictions and about 400 for the pairs.
///
/// # Panics
/// If `victim` is no tenant.
pub(crate) fn rank(
    victim: usize,
    tenants: &[Tenant],
    goal: f64,
    free: Bytes,
    fits: impl Fn(&[(usize, u64)]) -> bool,
    forecast: impl Forecast,
) -> Vec<Solution> {
    let scene = Scene::new(victim, tenants, goal, forecast);
    let now = &scene.now;
    let with = |sizes: &[(usize, u64)]| scene.of_victim(sizes);
    let describe = |sizes: Vec<(usize, u64)>| scene.describe(sizes);
    let mut solutions: Vec<Solution> = Vec::new();
    let eligible: Vec<usize> =
        (0..tenants.len()).filter(|&at| tenants[at].eligible && tenants[at].blocks_max > now[at]).collect();
    for &at in &eligible {
        let tenant = &tenants[at];
        let beyond = tenant.blocks_max - now[at];
        let sizing = smallest(beyond, tenant.chunk_blocks, goal, |more| with(&[(at, now[at] + more)]));
        if sizing.blocks > 0 {
            solutions.push(describe(vec![(at, now[at] + sizing.blocks)]));
        }
    }
    let mut cheapest = eligible.clone();
    let potential = |at: usize| {
        solutions.iter().find(|solution| solution.sizes[0].0 == at).map_or(f64::INFINITY, |s| s.excess)
    };
    cheapest.sort_by(|&a, &b| potential(a).total_cmp(&potential(b)));
    cheapest.truncate(4);
    let mut pairs = Vec::new();
    for &first in &cheapest {
        for &second in cheapest.iter().filter(|&&second| second != first) {
            let (a, b) = (&tenants[first], &tenants[second]);
            let bound = |at: usize| {
                solutions
                    .iter()
                    .find(|s| s.sizes[0].0 == at && s.reached)
                    .map_or(tenants[at].blocks_max, |s| s.sizes[0].1)
            };
            let step = a.candidates.len().div_ceil(4).max(1);
            let tried = a
                .candidates
                .iter()
                .rev()
                .step_by(step)
                .copied()
                .filter(|&size| size > now[first] && size < bound(first));
            for size in tried.chain(std::iter::once(bound(first)).filter(|_| bound(first) == a.blocks_max)) {
                let most = largest(now[second], bound(second), b.chunk_blocks, |blocks| {
                    fits(&[(first, size), (second, blocks)])
                });
                let beyond = most.saturating_sub(now[second]);
                let sizing = smallest(beyond, b.chunk_blocks, goal, |more| {
                    with(&[(first, size), (second, now[second] + more)])
                });
                if sizing.blocks > 0 {
                    pairs.push(describe(vec![(first, size), (second, now[second] + sizing.blocks)]));
                }
            }
        }
    }
    // One pair of each two tenants is enough: the best.
    pairs.sort_by(|a, b| order(a, b, free));
    let mut seen: Vec<(usize, usize)> = Vec::new();
    for pair in pairs {
        let key = (pair.sizes[0].0.min(pair.sizes[1].0), pair.sizes[0].0.max(pair.sizes[1].0));
        if !seen.contains(&key) {
            seen.push(key);
            solutions.push(pair);
        }
    }
    solutions.sort_by(|a, b| order(a, b, free));
    solutions
}

/// Predictions after which [`with_least_pairs`] looks no further into a pair (ours).
const PAIR_PREDICTIONS: usize = 256;

/// `solutions` of [`rank`], best first again, with the least caches for each pair of tenants that reaches the goal, in whole chunks beyond what they have.
///
/// Cost: about [`PAIR_PREDICTIONS`] predictions for each pair; where these do not do, as with thousands of chunks, a pair is the least that was found.
pub(crate) fn with_least_pairs(
    victim: usize,
    tenants: &[Tenant],
    goal: f64,
    free: Bytes,
    forecast: impl Forecast,
    mut solutions: Vec<Solution>,
) -> Vec<Solution> {
    let scene = Scene::new(victim, tenants, goal, forecast);
    for solution in solutions.iter_mut().filter(|solution| solution.reached) {
        let [(first, _), (second, _)] = solution.sizes[..] else { continue };
        let (a, b) = (&tenants[first], &tenants[second]);
        let sizes =
            |chunks: Chunks| vec![(first, a.with_chunks(chunks.0)), (second, b.with_chunks(chunks.1))];
        let search = PairSearch {
            most: (a.chunks_max(), b.chunks_max()),
            bytes: |chunks: Chunks| {
                let of = |tenant: &Tenant, chunks| {
                    u128::from(tenant.with_chunks(chunks) - tenant.blocks) * u128::from(tenant.block_bytes)
                };
                of(a, chunks.0) + of(b, chunks.1)
            },
            reaches: |chunks: Chunks| scene.of_victim(&sizes(chunks)) <= goal,
            asked: 0,
            best: None,
            best_bytes: u128::from(solution.cost.get()),
        };
        // One that harms others more than what was found is not better.
        let found = search.run().map(|chunks| scene.describe(sizes(chunks)));
        if let Some(found) = found.filter(|found| order(found, solution, free).is_lt()) {
            *solution = found;
        }
    }
    solutions.sort_by(|a, b| order(a, b, free));
    solutions
}

/// Chunks of two tenants.
type Chunks = (u64, u64);

/// The search for the two caches that take the fewest bytes of those that `reaches`, one chunk each at least.
///
/// The more the first has, the fewer the other needs. So all pairs between two sizes of the first take at least what the smaller one and a chunk take, and what the
/// larger one leaves to the other: such stretches are halved, those that may hold the least first, as long as one may hold less than the best.
struct PairSearch<B, R> {
    most: Chunks,
    bytes: B,
    reaches: R,
    /// Predictions so far.
    asked: usize,
    best: Option<Chunks>,
    /// What the best takes, or what is known already.
    best_bytes: u128,
}

impl<B: Fn(Chunks) -> u128, R: Fn(Chunks) -> bool> PairSearch<B, R> {
    fn run(mut self) -> Option<Chunks> {
        let most = self.most;
        let from = self.least(1, most.0, |first| (first, most.1));
        let until = self.least(from, most.0, |first| (first, 1));
        let (low, high) = (self.beside(from, 1, most.1), self.beside(until, 1, most.1));
        let mut stretches = BinaryHeap::new();
        stretches.extend(self.stretch(low, high));
        while let Some(Reverse((bytes_min, low, high))) = stretches.pop() {
            if bytes_min >= self.best_bytes || self.asked > PAIR_PREDICTIONS {
                break;
            }
            let middle = self.beside(low.0 + (high.0 - low.0) / 2, high.1, low.1);
            stretches.extend(self.stretch(low, middle));
            stretches.extend(self.stretch(middle, high));
        }
        self.best
    }

    /// The least number from `low` on whose pair reaches the goal; `high`, where those below it do not.
    fn least(&mut self, mut low: u64, mut high: u64, pair: impl Fn(u64) -> Chunks) -> u64 {
        while low < high {
            let middle = low + (high - low) / 2;
            self.asked += 1;
            if (self.reaches)(pair(middle)) { high = middle } else { low = middle + 1 }
        }
        high
    }

    /// The least pair with `first`, whose other is from `low` to `high`.
    fn beside(&mut self, first: u64, low: u64, high: u64) -> Chunks {
        let pair = (first, self.least(low, high, |second| (first, second)));
        let bytes = (self.bytes)(pair);
        if bytes < self.best_bytes {
            (self.best, self.best_bytes) = (Some(pair), bytes);
        }
        pair
    }

    /// What lies between two pairs, and the fewest bytes that it may take.
    fn stretch(&self, low: Chunks, high: Chunks) -> Option<Reverse<(u128, Chunks, Chunks)>> {
        (low.0 + 1 < high.0).then(|| Reverse(((self.bytes)((low.0 + 1, high.1)), low, high)))
    }
}

/// The largest size from `least` to `most` that `fits`, in whole chunks beyond `least`; `least` where none does.
fn largest(least: u64, most: u64, chunk_blocks: u64, fits: impl Fn(u64) -> bool) -> u64 {
    if most <= least || fits(most) {
        return most;
    }
    let chunk = chunk_blocks.max(1);
    // What fits, and what does not.
    let (mut low, mut high) = (0, (most - least).div_ceil(chunk));
    while low + 1 < high {
        let middle = (low + high) / 2;
        if fits(least + middle * chunk) { low = middle } else { high = middle }
    }
    least + low * chunk
}

fn order(a: &Solution, b: &Solution, free: Bytes) -> std::cmp::Ordering {
    let class = |solution: &Solution| (!solution.reached, !solution.harmed.is_empty(), solution.cost > free);
    class(a).cmp(&class(b)).then_with(|| {
        if a.reached {
            a.weighed_cost().total_cmp(&b.weighed_cost())
        } else {
            a.excess.total_cmp(&b.excess).then(a.weighed_cost().total_cmp(&b.weighed_cost()))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(blocks_max: u64) -> Tenant {
        Tenant {
            eligible: true,
            blocks: 0,
            blocks_max,
            chunk_blocks: 1,
            block_bytes: 4_096,
            peaking: false,
            stable: true,
            candidates: vec![blocks_max / 4, blocks_max / 2, blocks_max],
        }
    }

    /// Load 60 and 40; each block of the first takes away 0.1, of the second 0.2; the victim (first) has an excess of
    /// (load - 50) / 50.
    fn load(sizes: &[u64]) -> Vec<f64> {
        let load = (60.0 - 0.1 * sizes[0] as f64) + (40.0 - 0.2 * sizes[1] as f64);
        vec![(load - 50.0) / 50.0, f64::NEG_INFINITY]
    }

    #[test]
    fn the_neighbour_is_cached_where_that_costs_less() {
        // The second needs 50 / 0.2 = 250 blocks; the first 500.
        let ranked = rank(0, &[tenant(600), tenant(300)], 0.0, Bytes::gib(1), |_| true, load);
        assert_eq!(ranked[0].sizes, [(1, 250)]);
        assert!(ranked[0].reached && ranked[0].excess <= 0.0);
        assert_eq!(ranked[0].cost, Bytes(250 * 4_096));
        assert!(ranked.iter().any(|solution| solution.sizes == [(0, 500)]));
        // A peaking neighbour is a quarter dearer, not more: it still wins; with twice the block size it does not.
        let peaking = Tenant { peaking: true, block_bytes: 8_192, ..tenant(300) };
        assert_eq!(rank(0, &[tenant(600), peaking], 0.0, Bytes::gib(1), |_| true, load)[0].sizes, [(0, 500)]);
    }

    #[test]
    fn pairs_mend_what_no_single_cache_can() {
        // The second takes at most 30 of the 50 with 150 blocks, the first the other 20 with 200.
        let ranked = rank(0, &[tenant(400), tenant(150)], 0.0, Bytes::gib(1), |_| true, load);
        assert!(ranked[0].reached, "{ranked:?}");
        assert_eq!(ranked[0].sizes.len(), 2);
        let mut sizes = ranked[0].sizes.clone();
        sizes.sort_unstable();
        assert_eq!(sizes, [(0, 200), (1, 150)]);
        // Singles are listed after it with what they reach: 100 - 40 = 60, 20 % beyond; 100 - 30 = 70, 40 % beyond.
        let singles: Vec<_> = ranked.iter().filter(|s| s.sizes.len() == 1).map(|s| s.reached).collect();
        assert_eq!(singles, [false, false]);
    }

    #[test]
    fn a_pair_takes_what_hosts_have_room_for() {
        // One host takes 260 blocks, another 200, and one cache each: the first needs 500, the second 250, so each alone is too large for both
        // but the second, which is given at most 240 here. Of pairs that take away 0.1 a + 0.2 b = 50 those fit with 260 and 200 at most, in either order.
        let fits = |sizes: &[(usize, u64)]| {
            let mut sizes: Vec<u64> = sizes.iter().map(|&(_, blocks)| blocks).collect();
            sizes.sort_unstable();
            sizes[0] <= 200 && sizes[1] <= 260
        };
        let ranked = rank(0, &[tenant(260), tenant(240)], 0.0, Bytes::gib(1), fits, load);
        assert!(ranked[0].reached && ranked[0].sizes.len() == 2, "{ranked:?}");
        assert!(ranked.iter().filter(|found| found.sizes.len() == 2).all(|found| fits(&found.sizes)));
        // The second at 240 leaves 2 of 50 to the first, which are 20 blocks.
        let mut sizes = ranked[0].sizes.clone();
        sizes.sort_unstable();
        assert_eq!(sizes, [(0, 20), (1, 240)]);
        // Where there is room for one only, there is no pair.
        let alone = |sizes: &[(usize, u64)]| sizes.iter().filter(|(_, blocks)| *blocks > 0).count() < 2;
        let ranked = rank(0, &[tenant(260), tenant(240)], 0.0, Bytes::gib(1), alone, load);
        assert!(!ranked.is_empty() && ranked.iter().all(|found| found.sizes.len() == 1), "{ranked:?}");
    }

    #[test]
    fn the_largest_that_fits_is_found() {
        // Chunks of 8 beyond 4: 4, 12, 20, 28; 25 is the limit.
        assert_eq!(largest(4, 30, 8, |blocks| blocks <= 25), 20);
        assert_eq!(largest(4, 30, 8, |blocks| blocks <= 30), 30);
        assert_eq!(largest(4, 30, 8, |_| false), 4);
        assert_eq!(largest(9, 5, 8, |_| false), 5);
    }

    #[test]
    fn harm_and_lack_of_room_rank_behind() {
        // Caching the first makes the second miss its objective.
        let harmful = |sizes: &[u64]| {
            let mut excess = load(sizes);
            excess[1] = if sizes[0] > 0 { 0.5 } else { -0.5 };
            excess
        };
        let dear = Tenant { block_bytes: 1 << 20, ..tenant(300) };
        let ranked = rank(0, &[tenant(600), dear.clone()], 0.0, Bytes::gib(1), |_| true, harmful);
        assert_eq!(ranked[0].sizes, [(1, 250)]);
        // Without harm the cheap one is first; what does not fit is behind what does.
        assert_eq!(rank(0, &[tenant(600), dear], 0.0, Bytes::mib(3), |_| true, load)[0].sizes, [(0, 500)]);
        // Nothing eligible: no solution.
        let none = Tenant { eligible: false, ..tenant(300) };
        assert!(rank(0, &[none.clone(), none], 0.0, Bytes::gib(1), |_| true, load).is_empty());
    }
}
