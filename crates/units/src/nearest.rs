//! Rounding to whole numbers where it is done often.

/// The nearest whole number to `value`, halves upwards: exactly `value.round() as u64`, so 0 for what is negative or no number and `u64::MAX` beyond it.
///
/// Without the call into the C library that `round` is on machines for which the compiler may not assume an instruction for it.
#[inline]
pub fn nearest(value: f64) -> u64 {
    let below = value as u64;
    // What is cut off is exact: below 2^53 the whole part is, and above it there is nothing to cut off.
    below.saturating_add(u64::from(value - below as f64 >= 0.5))
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn it_is_what_round_gives() {
        let edges = [
            0.0,
            0.25,
            0.5,
            0.75,
            1.0,
            2.5,
            9_007_199_254_740_992.0,
            1.8e19,
            1.9e19,
            f64::INFINITY,
            f64::MAX,
        ];
        // Every number of the neighbourhood of each edge and of halves of every magnitude, with both signs.
        let halves = (0..64).map(|power| (1u64 << power) as f64 + 0.5);
        for value in edges.into_iter().chain(halves) {
            for step in -3i64..=3 {
                let near = f64::from_bits((value.to_bits() as i64 + step).max(0) as u64);
                for found in [near, -near] {
                    assert_eq!(nearest(found), found.round() as u64, "{found:e}");
                }
            }
        }
        assert_eq!(nearest(0.499_999_999_999_999_94), 0);
        assert_eq!(nearest(f64::NAN), 0);
    }
}
