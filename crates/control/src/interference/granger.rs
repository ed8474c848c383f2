//! Granger's test: whether a load's past says more of a latency than the latency's own past does (Econometrica 37(3), 1969).
//!
//! A second opinion beside correlation: it has a direction in time. It is *not* needed to call a neighbour one: at intervals of seconds most of
//! the effect of a load is in the same interval, of which it says nothing.

use super::series::Projected;
use forebay_workload::statistics::differences;

/// How far beyond chance the last `lags` changes of `load` predict the change of the logarithm of `latency`, given that latency's own last
/// changes: the F statistic as deviations of a standard normal variable (Paulson's approximation), so that 1.64 is exceeded by chance one time in 20.
/// `None` where there are fewer than `4 lags + 4` intervals, or nothing varies. Cost is `O(n lags^2)`.
///
/// # Panics
/// If the lengths differ, or `lags` is 0.
pub fn granger(load: &[f64], latency: &[f64], lags: usize) -> Option<f64> {
    assert_eq!(load.len(), latency.len(), "load and latency are of the same intervals");
    assert!(lags > 0, "a past has at least one interval");
    if load.len() < 4 * lags + 4 {
        return None;
    }
    let logs: Vec<f64> = latency.iter().map(|latency| latency.max(1e-9).ln()).collect();
    let (loads, latencies) = (differences(load), differences(&logs));
    let count = latencies.len() - lags;
    let past = |series: &[f64], lag: usize| Projected::of(&series[lags - lag..][..count]);
    let mut left = Projected::of(&latencies[lags..]);
    let mut basis: Vec<Projected> = Vec::with_capacity(2 * lags);
    let explain = |left: &mut Projected, series: &[f64], basis: &mut Vec<Projected>| {
        for lag in 1..=lags {
            let mut term = past(series, lag);
            basis.iter().for_each(|earlier| term.lose(earlier));
            left.lose(&term);
            basis.push(term);
        }
    };
    explain(&mut left, &latencies, &mut basis);
    let own = left.square()?;
    explain(&mut left, &loads, &mut basis);
    let both = left.square().unwrap_or(0.0);
    let (d1, d2) = (lags as f64, count.saturating_sub(2 * lags + 1).max(1) as f64);
    let f = ((own - both).max(0.0) / d1) / (both / d2).max(f64::MIN_POSITIVE);
    let (a, b) = (2.0 / (9.0 * d1), 2.0 / (9.0 * d2));
    let root = f.min(1e12).cbrt();
    Some(((1.0 - b) * root - (1.0 - a)) / (b * root * root + a).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_workload::{exponential, random};

    #[test]
    fn the_past_of_a_load_tells_only_where_it_is_followed() {
        let (mut by_chance, mut found) = (0, 0);
        for seed in 0..100 {
            let mut random = random(seed);
            let load: Vec<f64> = (0..120).map(|_| exponential(100.0, &mut random)).collect();
            let noise: Vec<f64> = (0..120).map(|_| exponential(1.0, &mut random)).collect();
            let late = |t: usize| if t == 0 { 100.0 } else { load[t - 1] };
            let follows: Vec<f64> = (0..120).map(|t| (late(t) * 0.002 + noise[t] * 0.1).exp()).collect();
            let alone: Vec<f64> = noise.iter().map(|noise| noise.exp()).collect();
            by_chance += usize::from(granger(&load, &alone, 2).unwrap() > 1.64);
            found += usize::from(granger(&load, &follows, 2).unwrap() > 1.64);
            // Who is followed is not preceded.
            assert!(granger(&follows, &load, 2).unwrap() < 5.0, "seed {seed}");
        }
        println!("by chance {by_chance} of 100, found {found} of 100");
        assert!(by_chance <= 12, "{by_chance}"); // 5 expected; more than 12 one time in a thousand
        assert!(found >= 95, "{found}");
        assert_eq!(granger(&[1.0; 11], &[1.0; 11], 2), None);
        assert_eq!(granger(&[1.0; 40], &[1.0; 40], 2), None);
    }
}
