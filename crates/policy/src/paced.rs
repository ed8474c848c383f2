//! The reads of what is loaded at a rate: how large one may be, and how long the next one waits behind it. Daemon and simulator have it from here.
//!
//! It does not say what the rate is (`control::prewarm::Pace`), nor how many reads are outstanding at once.

use forebay_units::{Bytes, Nanos};

/// A rate is spread over so many reads in a second at least, as far as blocks allow (ours).
const READS_PER_SECOND_MIN: u64 = 4;

/// The most bytes that one read may bring, of `most`: a part of what `bytes_per_second` allows in a second, so that the rate holds in each. Who asks has a block at
/// least.
pub fn read_bytes_max(bytes_per_second: Bytes, most: u64) -> u64 {
    most.min(bytes_per_second.get() / READS_PER_SECOND_MIN)
}

/// How long a rate spreads a read of so many `bytes`; of 0 bytes per second as of 1. Whether that is a rest, who asks must know.
pub fn pause(bytes_per_second: Bytes, bytes: u64) -> Nanos {
    let span = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second.get().max(1));
    Nanos(u64::try_from(span).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_spread_over_four_reads_a_second_at_least() {
        let of = |rate| read_bytes_max(Bytes(rate), 1 << 18);
        assert_eq!([1 << 30, 1 << 20, 1 << 18, 3, 0].map(of), [1 << 18, 1 << 18, 1 << 16, 0, 0]);
        // A quarter of a second each, and a read of a second's bytes a second.
        assert_eq!(pause(Bytes(1 << 18), 1 << 16), Nanos::millis(250));
        assert_eq!(pause(Bytes(0), u64::MAX), Nanos(u64::MAX));
    }
}
