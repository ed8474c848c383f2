//! The order that suits a pace: a thing that is loaded spares one miss at most, its first, and only if that has not come yet.
//!
//! With r visits per second and loading at time t, that spares e^{-rt} - e^{-rH} misses until the horizon H: what is visited very often is there by its own misses before
//! loading comes to it. At any time that is most at one rate, ln(H / t) / (H - t), which falls with time.

/// The things of (visits per second, thing), one every so many seconds: each time the one that spares most then, of equal ones the smaller number.
/// What would come after the horizon is in the order of rates. Greedy: what is put off may be lost. `O(n log n)`.
pub(crate) fn pace_order(mut rated: Vec<(f64, u64)>, seconds_each: f64, horizon_s: f64) -> Vec<u64> {
    rated.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    // Above the best rate the least, which came last, is the best of all that were passed by; below it the next one is.
    let mut passed: Vec<(f64, u64)> = Vec::new();
    let mut rest = rated.into_iter().peekable();
    let mut order = Vec::new();
    loop {
        let at = order.len() as f64 * seconds_each;
        let is_over = at >= horizon_s;
        let best =
            if at > 0.0 && !is_over { (horizon_s / at).ln() / (horizon_s - at) } else { f64::INFINITY };
        while let Some(rated) = rest.next_if(|(rate, _)| *rate > best) {
            passed.push(rated);
        }
        if is_over {
            order.extend(passed.into_iter().chain(rest).map(|(_, thing)| thing));
            return order;
        }
        let next = match (passed.last(), rest.peek()) {
            (Some((above, _)), Some((below, _)))
                if spares(*above, at, horizon_s) >= spares(*below, at, horizon_s) =>
            {
                passed.pop()
            }
            (_, Some(_)) => rest.next(),
            (_, None) => passed.pop(),
        };
        match next {
            Some((_, thing)) => order.push(thing),
            None => return order,
        }
    }
}

/// The misses until `horizon_s` that loading at second `at` spares, at so many visits per second.
fn spares(rate: f64, at: f64, horizon_s: f64) -> f64 {
    (-rate * at).exp() - (-rate * horizon_s).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_by_itself_is_left_for_last_where_loading_is_slow() {
        let rated = || vec![(2.0, 0), (0.5, 1), (0.02, 2), (0.01, 3), (0.0, 4)];
        // All within milliseconds: by rate.
        assert_eq!(pace_order(rated(), 0.001, 300.0), [0, 1, 2, 3, 4]);
        // Ten seconds each: after ten, e^-20 and e^-5 are left of the first two, and .82 and .90 less what the horizon has, .002 and .05.
        assert_eq!(pace_order(rated(), 10.0, 300.0), [0, 3, 2, 1, 4]);
        // What comes after the horizon is by rate.
        assert_eq!(pace_order(rated(), 300.0, 300.0), [0, 1, 2, 3, 4]);
    }

    /// Each step takes what spares most of all that is left.
    #[test]
    fn each_is_the_best_of_what_is_left() {
        let rated: Vec<(f64, u64)> =
            (0..200).map(|thing| ((thing as f64 * 0.37 % 1.0).powi(4), thing)).collect();
        let order = pace_order(rated.clone(), 1.0, 150.0);
        let mut left: std::collections::BTreeSet<u64> = (0..200).collect();
        for (place, thing) in order.iter().enumerate().take(149) {
            let worth = |thing: u64| spares(rated[thing as usize].0, place as f64, 150.0);
            let most = left.iter().map(|thing| worth(*thing)).fold(0.0, f64::max);
            assert!(worth(*thing) >= most - 1e-12, "{place}: {} of {most}", worth(*thing));
            left.remove(thing);
        }
        assert_eq!(order.len(), 200);
    }
}
