//! Latency histograms: one that is cheap to record into, and a sparse snapshot of it that is cheap to keep.
//!
//! This is not a time series and knows no intervals: who owns a histogram takes its content when an interval ends.
//! Invariant: count and sum are exact; a value is known to within 1 % (2 significant digits) between
//! [`LatencyHistogram::LOWEST`] and [`LatencyHistogram::HIGHEST`], outside of which it is recorded as that bound.

use crate::statistics::nearest_rank;
use forebay_units::Nanos;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// A histogram of latencies with a fixed layout: 2,688 counters, about 21 KiB.
///
/// Recording is `O(1)` without branches on the data (one leading-zero count, one addition); everything else is
/// linear in the counters and belongs to the end of an interval.
#[derive(Clone, Debug)]
pub struct LatencyHistogram {
    buckets: Histogram<u64>,
    /// Exact, because a mean from bucket middles would be off by up to 1 %.
    sum_ns: u128,
}

impl LatencyHistogram {
    /// What is shorter counts as one microsecond in percentiles.
    pub const LOWEST: Nanos = Nanos::micros(1);
    /// What is longer counts as a hundred seconds in percentiles.
    pub const HIGHEST: Nanos = Nanos::secs(100);

    /// An empty histogram.
    pub fn new() -> LatencyHistogram {
        let buckets = Histogram::new_with_bounds(Self::LOWEST.0, Self::HIGHEST.0, 2)
            .expect("the bounds are constants that the library accepts");
        LatencyHistogram { buckets, sum_ns: 0 }
    }

    /// Records one latency; values outside the bounds saturate in the buckets and stay exact in the mean.
    #[inline]
    pub fn record(&mut self, latency: Nanos) {
        // The last bucket of the library reaches beyond the bound, so the bound is applied here.
        self.buckets.saturating_record(latency.0.min(Self::HIGHEST.0));
        self.sum_ns += u128::from(latency.0);
    }

    /// Records `count` times the same latency, at the cost of one.
    #[inline]
    pub fn record_many(&mut self, latency: Nanos, count: u64) {
        self.buckets.saturating_record_n(latency.0.min(Self::HIGHEST.0), count);
        self.sum_ns += u128::from(latency.0) * u128::from(count);
    }

    /// Adds everything that `other` recorded.
    pub fn merge(&mut self, other: &LatencyHistogram) {
        self.buckets.add(&other.buckets).expect("all latency histograms have the same layout");
        self.sum_ns += other.sum_ns;
    }

    /// What is told of percentiles where all requests take `latency`: the end of its bucket.
    pub fn told(latency: Nanos) -> Nanos {
        let mut one = LatencyHistogram::new();
        one.record(latency);
        one.max().unwrap_or(latency)
    }

    /// How many latencies were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// The exact sum of all latencies, in nanoseconds.
    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// The exact mean; `None` where nothing was recorded.
    pub fn mean(&self) -> Option<Nanos> {
        mean_of(self.sum_ns, self.count())
    }

    /// The latency that `percentile` per cent of the records do not exceed, rounded up to the end of its bucket
    /// (at most 1 % above); `None` where nothing was recorded. `percentile` is from 0 to 100 and clamped to it.
    pub fn percentile(&self, percentile: f64) -> Option<Nanos> {
        // Half a record before its rank, so that no rounding leads to another one.
        let quantile = (nearest_rank(percentile, self.count()) as f64 - 0.5) / self.count() as f64;
        (!self.is_empty()).then(|| Nanos(self.buckets.value_at_quantile(quantile)))
    }

    /// The largest latency, rounded up to the end of its bucket; `None` where nothing was recorded.
    pub fn max(&self) -> Option<Nanos> {
        (!self.is_empty()).then(|| Nanos(self.buckets.max()))
    }

    /// Forgets everything; keeps the memory.
    pub fn clear(&mut self) {
        self.buckets.reset();
        self.sum_ns = 0;
    }

    /// Takes the content and leaves an empty histogram: how an interval ends.
    pub fn take(&mut self) -> LatencyHistogram {
        std::mem::take(self)
    }

    /// The content as the buckets that hold something: typically some tens of entries instead of 21 KiB.
    pub fn snapshot(&self) -> LatencySnapshot {
        let buckets = self
            .buckets
            .iter_recorded()
            .map(|bucket| (Nanos(bucket.value_iterated_to()), bucket.count_at_value()))
            .collect();
        LatencySnapshot { buckets, count: self.count(), sum_ns: self.sum_ns }
    }
}

impl Default for LatencyHistogram {
    fn default() -> LatencyHistogram {
        LatencyHistogram::new()
    }
}

/// What a [`LatencyHistogram`] held at an instant, without its empty buckets.
///
/// This is what observations carry and histories keep. Percentiles cost one pass over the entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct LatencySnapshot {
    /// (longest latency of the bucket, records in it), ascending, none of them empty.
    buckets: Vec<(Nanos, u64)>,
    count: u64,
    sum_ns: u128,
}

/// A snapshot as it is written: buckets as (nanoseconds, records), and the sum of all latencies.
#[derive(Serialize, Deserialize)]
struct Written {
    buckets_ns: Vec<(u64, u64)>,
    sum_ns: u64,
}

impl From<LatencySnapshot> for Written {
    fn from(snapshot: LatencySnapshot) -> Written {
        Written {
            buckets_ns: snapshot.buckets.into_iter().map(|(edge, count)| (edge.0, count)).collect(),
            sum_ns: u64::try_from(snapshot.sum_ns).unwrap_or(u64::MAX),
        }
    }
}

impl From<Written> for LatencySnapshot {
    fn from(written: Written) -> LatencySnapshot {
        let buckets = written.buckets_ns.into_iter().map(|(edge, count)| (Nanos(edge), count)).collect();
        LatencySnapshot::of(buckets, written.sum_ns.into())
    }
}

impl LatencySnapshot {
    /// So many records of each latency, as somebody else counted them, whose sum is so many nanoseconds. They are told as they are, and not rounded up to the end
    /// of a bucket of ours; whatever their order, and however often a latency is told of.
    pub fn of(mut buckets: Vec<(Nanos, u64)>, sum_ns: u128) -> LatencySnapshot {
        buckets.retain(|(_, count)| *count > 0);
        buckets.sort_unstable();
        buckets.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            kept.1 = kept.1.saturating_add(if same { later.1 } else { 0 });
            same
        });
        let count = buckets.iter().fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
        LatencySnapshot { buckets, count, sum_ns }
    }

    /// The same with the sum of all latencies that somebody else counted, in nanoseconds, for the mean.
    #[must_use]
    pub fn with_sum_ns(self, sum_ns: u128) -> LatencySnapshot {
        LatencySnapshot { sum_ns, ..self }
    }

    /// How many latencies were recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The exact sum of all latencies, in nanoseconds.
    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// The exact mean; `None` where nothing was recorded.
    pub fn mean(&self) -> Option<Nanos> {
        mean_of(self.sum_ns, self.count)
    }

    /// The latency that `percentile` per cent of the records do not exceed, as [`LatencyHistogram::percentile`].
    pub fn percentile(&self, percentile: f64) -> Option<Nanos> {
        self.percentile_beside(0, percentile)
    }

    /// [`LatencySnapshot::percentile`] of these and of so many `longer` ones that were not recorded; `None` also where it is one of those.
    pub fn percentile_beside(&self, longer: u64, percentile: f64) -> Option<Nanos> {
        let wanted = nearest_rank(percentile, self.count + longer);
        let mut below = 0;
        for &(latency, count) in &self.buckets {
            below += count;
            if below >= wanted {
                return Some(latency);
            }
        }
        None
    }

    /// How many records are told as at most `threshold`: as [`LatencySnapshot::percentile`] tells them, so that a percentile is at most a
    /// threshold if and only if as many records are counted here. Those that are less than 1 % shorter may be told as longer, and are not.
    pub fn count_at_most(&self, threshold: Nanos) -> u64 {
        self.buckets.iter().take_while(|(latency, _)| *latency <= threshold).map(|(_, count)| count).sum()
    }

    /// Adds everything that `other` holds.
    pub fn merge(&mut self, other: &LatencySnapshot) {
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        if other.buckets.is_empty() {
            return;
        }
        if self.buckets.is_empty() {
            self.buckets.clone_from(&other.buckets);
            return;
        }
        let mut merged = Vec::with_capacity(self.buckets.len() + other.buckets.len());
        let (mut left, mut right) = (self.buckets.iter().peekable(), other.buckets.iter().peekable());
        loop {
            match (left.peek(), right.peek()) {
                (Some(&&(a, n)), Some(&&(b, m))) if a == b => {
                    merged.push((a, n + m));
                    left.next();
                    right.next();
                }
                (Some(&&(a, n)), right_next) if right_next.is_none_or(|&&(b, _)| a < b) => {
                    merged.push((a, n));
                    left.next();
                }
                (_, Some(&&entry)) => {
                    merged.push(entry);
                    right.next();
                }
                (Some(_), None) => unreachable!("covered by the arm for the smaller left entry"),
                (None, None) => break,
            }
        }
        self.buckets = merged;
    }
}

fn mean_of(sum_ns: u128, count: u64) -> Option<Nanos> {
    (count > 0).then(|| Nanos(u64::try_from(sum_ns / u128::from(count)).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(latencies: &[Nanos]) -> LatencyHistogram {
        let mut histogram = LatencyHistogram::new();
        latencies.iter().for_each(|&latency| histogram.record(latency));
        histogram
    }

    /// `found` is `exact` rounded up by at most 1 %, or to the first bucket's end.
    fn close(found: Nanos, exact: Nanos) -> bool {
        found.0 + 1_000 >= exact.0 && found.0 as f64 <= exact.0 as f64 * 1.01 + 1_024.0
    }

    #[test]
    fn percentiles_and_mean_of_a_known_set() {
        // 1..=100 ms: mean 50.5 ms exactly, p99 = 99 ms, 25 of them at most 25 ms.
        let histogram = of(&(1..=100).map(Nanos::millis).collect::<Vec<_>>());
        assert_eq!(histogram.mean(), Some(Nanos::micros(50_500)));
        assert!(close(histogram.percentile(99.0).unwrap(), Nanos::millis(99)));
        assert!(close(histogram.percentile(50.0).unwrap(), Nanos::millis(50)));
        // 25 ms is told as 25.034751 ms: buckets are 2^17 ns long there, and 25,000,000 / 2^17 is a little less than 191.
        let at_most = |latency| histogram.snapshot().count_at_most(latency);
        assert_eq!([25_000_000, 25_034_750, 25_034_751].map(Nanos).map(at_most), [24, 24, 25]);
        assert_eq!([Nanos::micros(10), Nanos::MAX].map(at_most), [0, 100]);
    }

    #[test]
    fn many_at_once_are_as_many_one_by_one() {
        let mut many = LatencyHistogram::new();
        let times = [(Nanos::millis(3), 5), (Nanos::secs(1_000), 2), (Nanos::millis(3), 1)];
        times.iter().for_each(|&(each, count)| many.record_many(each, count));
        let one_by_one: Vec<_> = times.iter().flat_map(|&(each, count)| vec![each; count as usize]).collect();
        assert_eq!(many.snapshot(), of(&one_by_one).snapshot());
        assert!(!many.snapshot().is_empty() && LatencyHistogram::new().snapshot().is_empty());
    }

    #[test]
    fn one_in_a_thousand_may_be_slower_than_the_99_9th_percentile() {
        for thousands in [1, 10] {
            let mut histogram = LatencyHistogram::new();
            (0..999 * thousands).for_each(|_| histogram.record(Nanos::millis(1)));
            (0..thousands).for_each(|_| histogram.record(Nanos::secs(1)));
            let both =
                |percentile| [histogram.percentile(percentile), histogram.snapshot().percentile(percentile)];
            assert!(both(99.9).iter().all(|found| close(found.unwrap(), Nanos::millis(1))), "{thousands}");
            assert!(both(99.91).iter().all(|found| close(found.unwrap(), Nanos::secs(1))), "{thousands}");
        }
        // What was not recorded is longer than all that was: of 999 and one more, of 998 and two.
        let snapshot = of(&[Nanos::millis(1); 999]).snapshot();
        assert!(close(snapshot.percentile_beside(1, 99.9).unwrap(), Nanos::millis(1)));
        assert_eq!((snapshot.percentile_beside(2, 99.9), snapshot.percentile_beside(1, 100.0)), (None, None));
        assert_eq!(LatencySnapshot::default().percentile_beside(5, 1.0), None);
    }

    #[test]
    fn bounds_saturate_and_the_mean_stays_exact() {
        let histogram = of(&[Nanos(1), Nanos::secs(1_000)]);
        assert_eq!(histogram.count(), 2);
        assert!(histogram.percentile(1.0).unwrap() <= Nanos::micros(2));
        assert!(close(histogram.max().unwrap(), LatencyHistogram::HIGHEST));
        assert_eq!(histogram.mean(), Some(Nanos(500_000_000_000)));
        assert_eq!(histogram.snapshot().count_at_most(Nanos::MAX), 2);
    }

    #[test]
    fn a_snapshot_survives_being_written_and_sums_what_is_told_twice() {
        let snapshot = of(&[Nanos::micros(90), Nanos::millis(4), Nanos::millis(4)]).snapshot();
        let text = serde_json::to_string(&snapshot).unwrap();
        assert_eq!(serde_json::from_str::<LatencySnapshot>(&text).unwrap(), snapshot);
        let odd = r#"{"buckets_ns":[[5000,1],[1000,0],[2000,3],[5000,2]],"sum_ns":21000}"#;
        let odd: LatencySnapshot = serde_json::from_str(odd).unwrap();
        assert_eq!((odd.count(), odd.mean(), odd.count_at_most(Nanos(2_000))), (6, Some(Nanos(3_500)), 3));
    }

    #[test]
    fn empty_histograms_have_no_mean_and_no_percentile() {
        let mut histogram = of(&[Nanos::millis(1)]);
        let taken = histogram.take();
        assert_eq!((taken.count(), histogram.count()), (1, 0));
        assert_eq!((histogram.mean(), histogram.percentile(50.0), histogram.max()), (None, None, None));
        // Whichever side of a merge is empty, the sum that somebody else counted stays.
        let (one, none) = (taken.snapshot().with_sum_ns(7), LatencySnapshot::default().with_sum_ns(5));
        for (mut left, right) in [(one.clone(), none.clone()), (none, one.clone())] {
            left.merge(&right);
            assert_eq!(left, one.clone().with_sum_ns(12));
        }
        let mut cleared = taken;
        cleared.clear();
        assert_eq!(cleared.snapshot(), LatencySnapshot::default());
        assert_eq!(cleared.snapshot().percentile(99.0), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Percentiles against a sorted list, merge against concatenation, snapshot against histogram.
        #[test]
        fn it_agrees_with_a_sorted_list(
            left in prop::collection::vec(0u64..200_000_000_000, 1..200),
            right in prop::collection::vec(0u64..50_000_000, 1..200),
            percentile in 0.0f64..100.0,
        ) {
            let nanos = |values: &[u64]| values.iter().map(|&v| Nanos(v)).collect::<Vec<_>>();
            let mut merged = of(&nanos(&left));
            let mut snapshot = merged.snapshot();
            merged.merge(&of(&nanos(&right)));
            snapshot.merge(&of(&nanos(&right)).snapshot());
            prop_assert_eq!(&merged.snapshot(), &snapshot);

            let mut all = [left, right].concat();
            let sum: u128 = all.iter().map(|&v| u128::from(v)).sum();
            prop_assert_eq!(merged.mean().unwrap().0, (sum / all.len() as u128) as u64);
            all.sort_unstable();
            let rank = ((percentile / 100.0 * all.len() as f64).ceil() as usize).max(1);
            let exact = Nanos(all[rank - 1]).min(LatencyHistogram::HIGHEST);
            prop_assert!(close(merged.percentile(percentile).unwrap(), exact));
            prop_assert!(close(snapshot.percentile(percentile).unwrap(), exact));
            // A threshold between 1 % of the neighbours may count either way; far from them it must be exact.
            let threshold = Nanos(exact.0 + exact.0 / 20 + 2_048);
            let low = all.iter().filter(|&&v| v <= threshold.0 - threshold.0 / 50).count() as u64;
            let high = all.iter().filter(|&&v| v.min(LatencyHistogram::HIGHEST.0) <= threshold.0 + threshold.0 / 50).count() as u64;
            prop_assert!((low..=high).contains(&snapshot.count_at_most(threshold)));
        }

        /// Whoever counts what is at most a bound, and whoever looks at a percentile, are of one mind on whether that is kept. Edges are
        /// also those that latencies lie at, and that they are told as.
        #[test]
        fn a_share_is_at_most_an_edge_where_its_percentile_is(
            latencies in prop::collection::vec((0u64..200_000_000, 1u64..50), 1..60),
            edge in 0u64..200_000_000,
            near in -3i64..=3,
            percentile in prop_oneof![Just(50.0), Just(95.0), Just(99.9), Just(100.0), 0.1f64..100.0],
        ) {
            let mut histogram = LatencyHistogram::new();
            latencies.iter().for_each(|&(latency, count)| histogram.record_many(Nanos(latency), count));
            let snapshot = histogram.snapshot();
            let latency = latencies[0].0;
            let told = LatencyHistogram::told(Nanos(latency)).0;
            for edge in [edge, latency.saturating_add_signed(near), told.saturating_add_signed(near)].map(Nanos) {
                let is_kept = histogram.percentile(percentile).unwrap() <= edge;
                let count = snapshot.count_at_most(edge);
                prop_assert_eq!(count >= nearest_rank(percentile, histogram.count()), is_kept, "{} {}", count, edge);
            }
        }
    }
}
