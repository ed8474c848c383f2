//! Whole numbers on the command line, whose errors say which ones are expected.

use std::ops::RangeInclusive;

/// Any number of 64 bits, as seeds are.
pub(crate) const ANY: RangeInclusive<u64> = 0..=u64::MAX;

/// Reads a number within `range`, for `value_parser`; clap's own does not say what was expected in place of what is no number.
pub(crate) fn whole<N>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static
where
    N: TryFrom<u64> + 'static,
{
    move |text| {
        let found = text.parse::<u64>().ok().filter(|number| range.contains(number));
        found.and_then(|number| N::try_from(number).ok()).ok_or_else(|| {
            let most = match u64::MAX - range.end() {
                below @ 0..=1 => format!("2^64 - {}", below + 1),
                _ => range.end().to_string(),
            };
            format!("expected a whole number from {} to {most}", range.start())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_expected_is_said_of_all_that_is_not() {
        let scale = whole::<u32>(1..=24);
        assert_eq!((scale("1"), scale("24")), (Ok(1), Ok(24)));
        for text in ["0", "25", "1.5", "-1", "", "four", "18446744073709551616"] {
            assert_eq!(scale(text), Err("expected a whole number from 1 to 24".into()), "{text}");
        }
        let seed = whole::<u64>(ANY);
        assert_eq!(seed("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(seed("18446744073709551616"), Err("expected a whole number from 0 to 2^64 - 1".into()));
        let next = whole::<u64>(0..=u64::MAX - 1);
        assert_eq!(next("18446744073709551615"), Err("expected a whole number from 0 to 2^64 - 2".into()));
    }
}
