//! Simple statistics on slices. Not numerics for ill-conditioned data: two-pass formulas, which are stable enough
//! for latencies and rates.

/// The arithmetic mean; `None` for an empty slice.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The variance of the values themselves (divided by n); `None` for an empty slice.
pub fn variance(values: &[f64]) -> Option<f64> {
    let centre = mean(values)?;
    mean(&values.iter().map(|value| (value - centre).powi(2)).collect::<Vec<_>>())
}

/// The smallest value that at least `percentile` per cent of the values do not exceed (nearest rank); `None` for an
/// empty slice. `percentile` is from 0 to 100. Cost is `O(n)` on a copy.
///
/// # Panics
/// If a value is no number.
pub fn percentile(values: &[f64], percentile: f64) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    assert!(values.iter().all(|value| !value.is_nan()), "percentiles need numbers");
    let rank = nearest_rank(percentile, values.len() as u64) as usize;
    let mut values = values.to_vec();
    Some(*values.select_nth_unstable_by(rank - 1, f64::total_cmp).1)
}

/// The smallest number of `count` ordered values, at least 1, that is `percentile` per cent of them or more. `percentile` is from 0 to 100 and
/// clamped to it.
pub fn nearest_rank(percentile: f64, count: u64) -> u64 {
    // Percentiles like 99.9 are no binary fractions: 99.9 % of 1,000 would come to a little more than 999, and that to 1,000.
    let part = percentile.clamp(0.0, 100.0) * count as f64 / 100.0 * (1.0 - 4.0 * f64::EPSILON);
    (part.ceil() as u64).max(1)
}

/// The straight line through `points` by least squares: its slope, and the share of the variance of y that it explains (R squared);
/// `None` where x or y is constant.
pub fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let (xs, ys): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let correlation = pearson(&xs, &ys)?;
    let slope = correlation * (variance(&ys)? / variance(&xs)?).sqrt();
    Some((slope, correlation * correlation))
}

/// Pearson's correlation of two series of equal length, from -1 to 1; `None` where one of them is constant or there
/// are fewer than two pairs: a constant says nothing, and 0 would be an answer.
///
/// # Panics
/// If the lengths differ.
pub fn pearson(xs: &[f64], ys: &[f64]) -> Option<f64> {
    assert_eq!(xs.len(), ys.len(), "correlation needs pairs");
    let (mean_x, mean_y) = (mean(xs)?, mean(ys)?);
    let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
    for (x, y) in xs.iter().zip(ys) {
        let (dx, dy) = (x - mean_x, y - mean_y);
        xy += dx * dy;
        xx += dx * dx;
        yy += dy * dy;
    }
    let negligible = |sum: f64, centre: f64| sum <= (centre.abs() * 1e-9).powi(2) * xs.len() as f64;
    if xs.len() < 2 || negligible(xx, mean_x) || negligible(yy, mean_y) {
        return None;
    }
    Some((xy / (xx * yy).sqrt()).clamp(-1.0, 1.0))
}

/// Spearman's rank correlation: Pearson's of the ranks, ties sharing their mean rank. `None` as for [`pearson`].
///
/// # Panics
/// If the lengths differ or a value is no number.
pub fn spearman(xs: &[f64], ys: &[f64]) -> Option<f64> {
    assert_eq!(xs.len(), ys.len(), "correlation needs pairs");
    pearson(&ranks(xs), &ranks(ys))
}

/// The rank of every value, from 1; ties share their mean rank.
///
/// # Panics
/// If a value is no number.
pub fn ranks(values: &[f64]) -> Vec<f64> {
    assert!(values.iter().all(|value| !value.is_nan()), "ranks need numbers");
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let mut end = start + 1;
        while end < order.len() && values[order[end]] == values[order[start]] {
            end += 1;
        }
        // Ranks start + 1 to end share their mean.
        let shared = (start + 1 + end) as f64 / 2.0;
        order[start..end].iter().for_each(|&at| ranks[at] = shared);
        start = end;
    }
    ranks
}

/// The differences between neighbours: one value fewer than given.
pub fn differences(values: &[f64]) -> Vec<f64> {
    values.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_percentiles_by_hand() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(mean(&values), Some(2.5));
        assert_eq!(variance(&values), Some(1.25)); // (2.25 + 2.25 + .25 + .25) / 4
        assert_eq!(percentile(&values, 50.0), Some(2.0));
        assert_eq!(percentile(&values, 51.0), Some(3.0));
        assert_eq!((percentile(&values, 0.0), percentile(&values, 100.0)), (Some(1.0), Some(4.0)));
        assert_eq!((mean(&[]), percentile(&[], 50.0)), (None, None));
        assert_eq!(differences(&values), [-3.0, 2.0, -1.0]);
    }

    #[test]
    fn ranks_of_percentiles_are_those_of_the_decimal_fraction() {
        // A tenth of a per cent of k x 1,000 values is k of them, and a value more needs one more.
        for thousands in 1..=2_000 {
            for tenths in [1u32, 333, 500, 750, 990, 995, 999, 1_000] {
                let percentile = f64::from(tenths) / 10.0;
                let rank = u64::from(tenths) * thousands;
                assert_eq!(nearest_rank(percentile, 1_000 * thousands), rank, "{percentile} {thousands}");
                assert_eq!(
                    nearest_rank(percentile, 1_000 * thousands + 1),
                    rank + 1,
                    "{percentile} {thousands}"
                );
            }
        }
        assert_eq!((nearest_rank(0.0, 9), nearest_rank(50.0, 0), nearest_rank(200.0, 9)), (1, 1, 9));
    }

    #[test]
    fn correlations_by_hand() {
        // x - 2 = (-1, 0, 1), y - 5 = (-4, -1, 5): xy = 9, xx = 2, yy = 42, r = 9 / sqrt(84).
        let (xs, ys) = ([1.0, 2.0, 3.0], [1.0, 4.0, 10.0]);
        assert!((pearson(&xs, &ys).unwrap() - 9.0 / 84f64.sqrt()).abs() < 1e-12);
        assert_eq!(spearman(&xs, &ys), Some(1.0));
        assert_eq!(ranks(&[5.0, 1.0, 5.0, 0.0]), [3.5, 2.0, 3.5, 1.0]);
    }

    #[test]
    fn constant_series_have_no_correlation() {
        assert_eq!(pearson(&[7.1; 10], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]), None);
        assert_eq!(spearman(&[1.0], &[1.0]), None);
        // Rounding noise on a large constant is still constant.
        let noisy: Vec<f64> = (0..10).map(|i| 1e6 + f64::from(i) * 1e-7).collect();
        assert_eq!(pearson(&noisy, &(0..10).map(f64::from).collect::<Vec<_>>()), None);
    }
}
