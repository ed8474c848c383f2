//! Allocation: the master that decides who gets how much cache when not everybody can have enough.
//!
//! Each bid says what every number of chunks would cost in weighted violation. The sum is minimised exactly by
//! dynamic programming, because real curves have cliffs over which a greedy step cannot see (the form is ours).
//! Invariant: the chunks handed out never exceed the capacity. Whose objectives are of several priorities asks level by
//! level ([`crate::priorities`]).
//!
//! It is *not* aware that a cache in front of one workload relieves its neighbours; [`coupled`] improves an
//! allocation by a cost of all bids together: by trying everything where that is little, else to a local optimum.

/// What one workload asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bid {
    /// Chunks that it gets in any case.
    pub minimum: usize,
    /// `cost[k]`: weighted violation with `k` chunks; at least one entry, finite, in general falling. The bid gets
    /// at most `cost.len() - 1` chunks, or its minimum if that is more.
    pub cost: Vec<f64>,
}

impl Bid {
    fn cost_at(&self, chunks: usize) -> f64 {
        self.cost[chunks.min(self.cost.len() - 1)]
    }
}

/// Minimises the sum of the bids' costs with at most `capacity` chunks in all.
///
/// Of the allocations that cost the same, one with the fewest chunks is taken, so that the rest stays free. Returns
/// the chunks of every bid. Cost is `O(bids * capacity * longest cost)` time and `O(bids * capacity)` memory.
///
/// # Panics
/// If a bid has no costs, a cost that is not finite, or the minimums exceed the capacity.
pub(crate) fn allocate(capacity: usize, bids: &[Bid]) -> Vec<usize> {
    let guaranteed: usize = bids.iter().map(|bid| bid.minimum).sum();
    assert!(guaranteed <= capacity, "minimums of {guaranteed} chunks exceed the capacity of {capacity}");
    for bid in bids {
        assert!(!bid.cost.is_empty() && bid.cost.iter().all(|cost| cost.is_finite()), "{bid:?}");
    }
    let extra = settle(capacity - guaranteed, bids);
    let given: Vec<usize> = bids.iter().zip(extra).map(|(bid, chunks)| bid.minimum + chunks).collect();
    debug_assert!(given.iter().sum::<usize>() <= capacity);
    given
}

/// The dynamic programme: chunks beyond the minimum for each bid, at most `free` in all.
fn settle(free: usize, bids: &[Bid]) -> Vec<usize> {
    // best[k]: least cost of the bids so far with exactly k chunks beyond their minimums, at most.
    let mut best = vec![0.0f64; free + 1];
    let mut choices: Vec<Vec<u32>> = Vec::with_capacity(bids.len());
    for bid in bids {
        let most = (bid.cost.len() - 1).saturating_sub(bid.minimum);
        let mut next = vec![0.0; free + 1];
        let mut choice = vec![0u32; free + 1];
        for used in 0..=free {
            let (mut cost, mut taken) = (best[used] + bid.cost_at(bid.minimum), 0);
            for chunks in 1..=most.min(used) {
                let with = best[used - chunks] + bid.cost_at(bid.minimum + chunks);
                // Strictly less: of equals the fewest chunks.
                if with < cost {
                    (cost, taken) = (with, chunks);
                }
            }
            next[used] = cost;
            choice[used] = taken as u32;
        }
        best = next;
        choices.push(choice);
    }
    // `best` never rises; the first place where it is least leaves most free.
    let least = best[free];
    let mut used = best.iter().position(|&cost| cost <= least).unwrap_or(free);
    let mut given = vec![0; bids.len()];
    for at in (0..bids.len()).rev() {
        given[at] = choices[at][used] as usize;
        used -= given[at];
    }
    given
}

/// Improves `start`, one allocation per bid in which that bid comes first, and the best of a grid of allocations, by
/// taking free chunks and moving chunks between bids, as long as `cost` of the whole allocation falls; the best result is
/// returned. For costs in which one bid's chunks change another's cost.
///
/// The grid is as fine as [`GRID_MAX`] allocations allow: where there are no more than that in all, the result is the
/// optimum. Else it is a local one.
///
/// `limits[i]` is (least, most) chunks of bid i. Steps are all sizes up to 16 chunks and powers of two above. Cost
/// is at most [`GRID_MAX`] evaluations for the grid, and `O(bids^2 * steps)` per improvement, of which there are at most
/// `rounds_max` from each of at most nine plus [`GRID_STARTS`] starts.
pub(crate) fn coupled(
    capacity: usize,
    start: Vec<usize>,
    limits: &[(usize, usize)],
    rounds_max: usize,
    mut cost: impl FnMut(&[usize]) -> f64,
) -> Vec<usize> {
    let mut starts = vec![start];
    for first in 0..limits.len().min(8) {
        let mut chunks: Vec<usize> = limits.iter().map(|limit| limit.0).collect();
        let free = capacity.saturating_sub(chunks.iter().sum());
        chunks[first] += free.min(limits[first].1.saturating_sub(limits[first].0));
        starts.push(chunks);
    }
    starts.extend(best_of_grid(capacity, limits, &mut cost));
    starts
        .into_iter()
        .map(|start| descend(capacity, start, limits, rounds_max, &mut cost))
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|best| best.1)
        .unwrap_or_default()
}

/// Allocations on the grid of [`coupled`] at most (ours).
pub(crate) const GRID_MAX: usize = 4_096;
/// How many of them are improved upon (ours).
pub(crate) const GRID_STARTS: usize = 3;

/// The cheapest allocations on a grid of at most [`GRID_MAX`]; none where two steps of it would be too many.
fn best_of_grid(
    capacity: usize,
    limits: &[(usize, usize)],
    cost: &mut impl FnMut(&[usize]) -> f64,
) -> Vec<Vec<usize>> {
    let least: Vec<usize> = limits.iter().map(|limit| limit.0).collect();
    let free = capacity.saturating_sub(least.iter().sum());
    // The ways to hand out at most n steps to k bids are C(n + k, k).
    let ways = |steps: usize| {
        (1..=limits.len()).try_fold(1usize, |ways, at| ways.checked_mul(steps + at).map(|ways| ways / at))
    };
    let is_little = |steps: &usize| ways(*steps).is_some_and(|ways| ways <= GRID_MAX);
    let Some(steps) = (2..=free).take_while(is_little).last().or((free == 1).then_some(1)) else {
        return Vec::new();
    };
    let mut found: Vec<(f64, Vec<usize>)> = Vec::new();
    let mut taken = vec![0usize; limits.len()];
    let mut left = steps;
    loop {
        let at = |step: usize| free * step / steps;
        let chunks: Vec<usize> =
            (taken.iter().zip(limits)).map(|(&step, limit)| (limit.0 + at(step)).min(limit.1)).collect();
        let value = cost(&chunks);
        if found.len() < GRID_STARTS || value < found[found.len() - 1].0 {
            let place = found.partition_point(|(known, _)| *known <= value);
            found.insert(place, (value, chunks));
            found.truncate(GRID_STARTS);
        }
        // The next one, as an odometer whose digits add up to at most `steps`.
        let mut digit = 0;
        while digit < taken.len() && (left == 0 || at(taken[digit]) + limits[digit].0 >= limits[digit].1) {
            left += std::mem::take(&mut taken[digit]);
            digit += 1;
        }
        let Some(step) = taken.get_mut(digit) else { break };
        *step += 1;
        left -= 1;
    }
    found.into_iter().map(|(_, chunks)| chunks).collect()
}

/// Steepest descent from one start: (cost, chunks).
fn descend(
    capacity: usize,
    start: Vec<usize>,
    limits: &[(usize, usize)],
    rounds_max: usize,
    cost: &mut impl FnMut(&[usize]) -> f64,
) -> (f64, Vec<usize>) {
    let mut current = start;
    let mut lowest = cost(&current);
    let steps: Vec<usize> =
        (1..=16).chain((5..).map(|power| 1 << power)).take_while(|&step| step <= capacity).collect();
    for _ in 0..rounds_max {
        let free = capacity - current.iter().sum::<usize>().min(capacity);
        let mut best: Option<(f64, Vec<usize>)> = None;
        for &step in &steps {
            for to in 0..current.len() {
                if current[to] + step > limits[to].1 {
                    continue;
                }
                // `None` takes from what is free.
                for from in
                    std::iter::once(None).chain((0..current.len()).filter(|&from| from != to).map(Some))
                {
                    let enough = match from {
                        None => step <= free,
                        Some(from) => current[from] >= limits[from].0 + step,
                    };
                    if !enough {
                        continue;
                    }
                    let mut candidate = current.clone();
                    candidate[to] += step;
                    if let Some(from) = from {
                        candidate[from] -= step;
                    }
                    let value = cost(&candidate);
                    if value < best.as_ref().map_or(lowest - 1e-12, |best| best.0) {
                        best = Some((value, candidate));
                    }
                }
            }
        }
        let Some(found) = best else { break };
        (lowest, current) = found;
    }
    (lowest, current)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bid(minimum: usize, cost: &[f64]) -> Bid {
        Bid { minimum, cost: cost.to_vec() }
    }

    #[test]
    fn a_cliff_is_seen_over() {
        // Greedy takes b's first chunks (-1 each); the cliff of a at 3 chunks is worth 9.
        let a = bid(0, &[9.0, 9.0, 9.0, 0.0]);
        let b = bid(0, &[4.0, 3.0, 2.0, 1.0]);
        assert_eq!(allocate(3, &[a.clone(), b.clone()]), [3, 0]);
        assert_eq!(allocate(4, &[a.clone(), b.clone()]), [3, 1]);
        assert_eq!(allocate(2, &[a.clone(), b]), [0, 2]);
        // More than enough: the rest stays free.
        assert_eq!(allocate(50, &[a]), [3]);
    }

    #[test]
    fn minimums_come_first() {
        let light = bid(0, &[1.0, 0.5, 0.0]);
        let heavy = bid(1, &[100.0, 50.0, 0.0]);
        let urgent = bid(0, &[1e3, 500.0, 0.0]);
        // Of two chunks the heavy bid is guaranteed one, and gains most by the other; of the same beside one that outweighs it one is left.
        assert_eq!(allocate(2, &[light, heavy.clone()]), [0, 2]);
        assert_eq!(allocate(3, &[urgent.clone(), heavy.clone()]), [2, 1]);
        assert_eq!(allocate(4, &[urgent, heavy]), [2, 2]);
    }

    #[test]
    fn what_is_too_much_to_try_is_improved_to_the_optimum_where_costs_have_no_cliffs() {
        // Millions of ways, of which the grid tries a few thousand. Costs are convex, so that no local optimum is another one.
        let (capacity, limits) = (600, [(5, 120), (0, 600), (20, 300)]);
        let cost_of =
            |at: usize, chunks: usize| [900.0, 400.0, 2_500.0][at] / (chunks as f64 + [1.0, 7.0, 30.0][at]);
        let bids: Vec<Bid> = (0..3)
            .map(|at| Bid {
                minimum: limits[at].0,
                cost: (0..=limits[at].1).map(|chunks| cost_of(at, chunks)).collect(),
            })
            .collect();
        let value = |chunks: &[usize]| {
            chunks.iter().enumerate().map(|(at, &chunks)| cost_of(at, chunks)).sum::<f64>()
        };
        let best = value(&allocate(capacity, &bids));
        let found = coupled(capacity, vec![5, 0, 20], &limits, 1_000, |chunks| {
            assert!(chunks.iter().sum::<usize>() <= capacity, "{chunks:?}");
            assert!(
                chunks.iter().zip(&limits).all(|(chunks, (least, most))| (least..=most).contains(&chunks)),
                "{chunks:?}"
            );
            value(chunks)
        });
        assert!((value(&found) - best).abs() < 1e-9, "{found:?}: {} {best}", value(&found));
        // The grid alone, and each start once: given, each of three first, and the best of the grid.
        let mut tried = 0;
        coupled(capacity, vec![5, 0, 20], &limits, 0, |chunks| {
            tried += 1;
            value(chunks)
        });
        assert!((1_000..=GRID_MAX + 1 + 3 + GRID_STARTS).contains(&tried), "{tried}");
    }

    /// Every allocation within the limits, in turn.
    fn each(capacity: usize, limits: &[(usize, usize)], visit: &mut impl FnMut(&[usize])) {
        fn descend(
            left: usize,
            limits: &[(usize, usize)],
            so_far: &mut Vec<usize>,
            visit: &mut impl FnMut(&[usize]),
        ) {
            let Some(&(least, most)) = limits.get(so_far.len()) else { return visit(so_far) };
            for chunks in least..=most.min(left) {
                so_far.push(chunks);
                descend(left - chunks, limits, so_far, visit);
                so_far.pop();
            }
        }
        descend(capacity, limits, &mut Vec::new(), visit);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn it_is_as_good_as_trying_everything(
            capacity in 0usize..10,
            costs in prop::collection::vec(prop::collection::vec(0.0f64..10.0, 1..8), 1..5),
            minimum in 0usize..3,
        ) {
            let mut bids: Vec<Bid> = costs.iter().map(|cost| bid(0, cost)).collect();
            bids[0].minimum = minimum.min(capacity);
            let value = |chunks: &[usize]| bids.iter().zip(chunks).map(|(bid, &k)| bid.cost_at(k)).sum::<f64>();
            let given = allocate(capacity, &bids);
            prop_assert!(given.iter().sum::<usize>() <= capacity);
            prop_assert!(given[0] >= bids[0].minimum);
            let limits: Vec<(usize, usize)> =
                bids.iter().map(|bid| (bid.minimum, (bid.cost.len() - 1).max(bid.minimum))).collect();
            let mut best = f64::INFINITY;
            each(capacity, &limits, &mut |chunks| best = best.min(value(chunks)));
            prop_assert!((value(&given) - best).abs() < 1e-9, "{} {}", value(&given), best);
        }
    }

    #[test]
    fn coupled_costs_are_improved_to_near_the_best() {
        // Three workloads on one queue: each one's hits relieve all. 40 seeds of falling miss ratios.
        let (mut worst, mut sum) = (1.0f64, 0.0);
        for seed in 0..40u64 {
            let mut random = forebay_workload::random(seed);
            let curves: Vec<Vec<f64>> = (0..3)
                .map(|_| {
                    let steps: Vec<f64> =
                        (0..8).map(|_| forebay_workload::exponential(1.0, &mut random).powi(2)).collect();
                    let total: f64 = steps.iter().sum::<f64>() * 1.2;
                    let mut left = 1.0;
                    std::iter::once(1.0)
                        .chain(steps.iter().map(|step| {
                            left -= step / total;
                            left
                        }))
                        .collect()
                })
                .collect();
            let cost = |chunks: &[usize]| {
                let busy: f64 = chunks.iter().zip(&curves).map(|(&k, curve)| 0.4 * curve[k]).sum();
                let latency = 10.0 / (1.0 - busy.min(0.95));
                chunks
                    .iter()
                    .zip(&curves)
                    .map(|(&k, curve)| (curve[k] * latency / 4.0 - 1.0).max(0.0))
                    .sum::<f64>()
            };
            let bids: Vec<Bid> = (0..3)
                .map(|at| {
                    let cost = (0..9)
                        .map(|k| {
                            let mut chunks = [3; 3];
                            chunks[at] = k;
                            cost(&chunks)
                        })
                        .collect();
                    Bid { minimum: 0, cost }
                })
                .collect();
            let limits = [(0, 8); 3];
            let given = coupled(9, allocate(9, &bids), &limits, 64, cost);
            assert!(given.iter().sum::<usize>() <= 9);
            let mut best = f64::INFINITY;
            each(9, &limits, &mut |chunks| best = best.min(cost(chunks)));
            let ratio = if best < 1e-9 { 1.0 + cost(&given) } else { cost(&given) / best };
            worst = worst.max(ratio);
            sum += ratio;
        }
        assert!(worst <= 1.0 + 1e-9, "worst ratio {worst}");
        println!("coupled allocation against exhaustive: mean {:.4}, worst {worst:.4}", sum / 40.0);
    }
}
