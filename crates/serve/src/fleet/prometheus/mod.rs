//! A Prometheus server as a source: counters at instants, differences of which are intervals.
//!
//! It knows of no single requests and no locality: a volume that only it tells of can be judged, and no cache is sized for it.

mod asking;

pub(super) use asking::Server;

use super::tables::PrometheusTable;
use asking::{Inquiry, buckets, number, time_of};
use forebay_control::{VolumeId, VolumeObservation};
use forebay_units::{Bytes, Nanos};
use forebay_workload::{LatencyHistogram, LatencySnapshot};
use std::time::Duration;

/// What is asked for is so long ago: samples that are taken together do not come in together (ours).
const SETTLED_S: f64 = 0.2;
/// So many requests take some time together, by any clock that counts milliseconds (ours: a microsecond each is half of that).
const TIMELESS_MAX: f64 = 500.0;
/// Requests per second above which a counter is taken to have jumped (ours: no volume completes as many).
const RATE_MAX: f64 = 1e8;
/// Requests outstanding on average, by the time that was spent on them, above which a counter of seconds is taken to have jumped (ours: no volume has as many).
const OUTSTANDING_MAX: f64 = 1e5;
/// Bytes per second, likewise.
const BYTES_PER_S_MAX: f64 = 1e13;
/// Into so many parts of the same length, and of as many requests, a bucket is taken apart (ours): nobody knows where in it they are.
const BUCKET_PARTS: u64 = 16;
/// By how much the requests of all buckets may differ from those that are counted, besides a whole one (ours): who counts both may do so in turn.
const DISAGREEMENT_MAX: f64 = 0.01;

/// Counters at an instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counters {
    at_s: f64,
    reads: Side,
    writes: Side,
}

/// The counters of reads, or of writes; 0 and empty where nobody asks for them.
#[derive(Clone, Debug, Default, PartialEq)]
struct Side {
    requests: f64,
    seconds: f64,
    bytes: f64,
    /// (upper edge in seconds, requests that took at most as long), ascending.
    buckets: Vec<(f64, f64)>,
}

/// What happened to a side between two instants.
struct Happened {
    latencies: LatencySnapshot,
    requests: f64,
    seconds: f64,
    bytes: f64,
}

impl Counters {
    /// Asks for each as it is; they are as old as the sample of the reads is, at most `oldest_s`. An expression is taken to be of the moment.
    /// By the server's clock: that of this machine may be set, and what was true an hour ago would be taken for what is.
    pub(super) fn ask(table: &PrometheusTable, oldest_s: f64, within: Duration) -> Result<Counters, String> {
        let optional = [
            &table.read_bytes,
            &table.read_buckets,
            &table.writes,
            &table.write_seconds,
            &table.write_bytes,
            &table.write_buckets,
        ];
        // Besides these the time, the reads, when they were counted, and their seconds.
        let of =
            Inquiry::new(&table.url, within, 4 + optional.iter().filter(|query| query.is_some()).count());
        let now_s = time_of(&of)? - SETTLED_S;
        let query = |query: &str| number(&of, query, now_s);
        let optional = |of: &Option<String>| of.as_deref().map_or(Ok(0.0), query);
        let histogram = |query: &Option<String>| {
            let histogram = query.as_deref().map(|query| buckets(&of, query, now_s));
            histogram.unwrap_or(Ok(Vec::new()))
        };
        // First of all, so that what is wrong is told of the query as it was written.
        let requests = query(&table.reads)?;
        // What is told is as of when it is asked, and stays the same from sample to sample: only the server knows of when it is.
        let at_s = query(&format!("timestamp({})", table.reads))?;
        let age_s = now_s - at_s;
        if age_s > oldest_s {
            return Err(format!(
                "the newest sample of `{}` is {age_s:.0} s old, expected {oldest_s:.0} s at most",
                table.reads
            ));
        }
        let reads = Side {
            requests,
            seconds: query(&table.read_seconds)?,
            bytes: optional(&table.read_bytes)?,
            buckets: histogram(&table.read_buckets)?,
        };
        let writes = Side {
            requests: optional(&table.writes)?,
            seconds: optional(&table.write_seconds)?,
            bytes: optional(&table.write_bytes)?,
            buckets: histogram(&table.write_buckets)?,
        };
        Ok(Counters { at_s, reads, writes })
    }

    /// What happened since `before`, which was asked for `asked_s` ago; `None` while there is nothing new. Samples are at most `oldest_s` old.
    ///
    /// # Errors
    /// What cannot be so: counters that went back, or that jumped, buckets that are not those of what is counted, and samples of times that cannot have
    /// come.
    pub(super) fn since(
        &self,
        before: &Counters,
        asked_s: f64,
        oldest_s: f64,
        id: VolumeId,
    ) -> Result<Option<(VolumeObservation, Nanos)>, &'static str> {
        let span_s = self.at_s - before.at_s;
        if span_s < 0.0 || span_s > asked_s + oldest_s {
            return Err("the clock of its samples was set");
        }
        if span_s == 0.0 {
            return Ok(None);
        }
        let (reads, writes) = (self.reads.since(&before.reads)?, self.writes.since(&before.writes)?);
        let arrivals = reads.latencies.count().saturating_add(writes.latencies.count());
        let (seconds, bytes) = (reads.seconds + writes.seconds, reads.bytes + writes.bytes);
        let requests_per_s = (reads.requests + writes.requests) / span_s;
        // NaN is refused with the rest.
        let outstanding = seconds / span_s;
        if !(requests_per_s <= RATE_MAX
            && outstanding <= OUTSTANDING_MAX
            && bytes / span_s <= BYTES_PER_S_MAX)
        {
            return Err("its counters jumped");
        }
        if [&reads, &writes].iter().any(|side| side.requests >= TIMELESS_MAX && side.seconds == 0.0) {
            return Err("its requests are counted, and their seconds stand still");
        }
        let span = Nanos::from_secs_f64(span_s);
        let seen = VolumeObservation {
            arrivals,
            misses: reads.latencies,
            writes: writes.latencies,
            bytes_read: Bytes(reads.bytes.round() as u64),
            bytes_written: Bytes(writes.bytes.round() as u64),
            // By Little's law; how long nobody waited is not known.
            outstanding_max: outstanding.ceil() as u32,
            idle: Nanos((span.0 as f64 * (1.0 - outstanding).max(0.0)) as u64),
            ..VolumeObservation::idle(id, span)
        };
        Ok(Some((seen, span)))
    }
}

impl Side {
    fn since(&self, before: &Side) -> Result<Happened, &'static str> {
        let began_anew = Err("its counters began anew");
        let requests = self.requests - before.requests;
        let (seconds, bytes) = (self.seconds - before.seconds, self.bytes - before.bytes);
        if [requests, seconds, bytes].iter().any(|difference| *difference < 0.0) {
            return began_anew;
        }
        let mut latencies = Vec::new();
        if self.buckets.is_empty() {
            let mean = Nanos::from_secs_f64(if requests > 0.0 { seconds / requests } else { 0.0 });
            latencies.push((mean, requests.round() as u64));
        } else if self.buckets.len() != before.buckets.len() {
            return began_anew;
        }
        let (mut lower_s, mut below) = (0.0, 0.0);
        for (&(edge_s, now), &(edge_before_s, then)) in self.buckets.iter().zip(&before.buckets) {
            if edge_s != edge_before_s || now < then {
                return began_anew;
            }
            // Who counts them one after the other, or tells fractions, may be a little off.
            if now - then < below - off(below) {
                return Err("of its buckets, longer ones hold fewer requests than shorter ones");
            }
            let within = (now - then).max(below);
            // What takes no time at all is in a bucket of its own where somebody has an edge at 0.
            let (lower, edge) = (f64::max(lower_s, 0.0), f64::max(edge_s, 0.0));
            spread_evenly(&mut latencies, lower, edge, within.round() as u64 - below.round() as u64);
            (lower_s, below) = (edge_s, within);
        }
        if !self.buckets.is_empty() && (below - requests).abs() > off(requests) {
            return Err("its buckets hold other requests than its counter counts");
        }
        // As many as are counted, which may be fewer whole ones than there were parts of.
        let count = latencies.iter().map(|(_, count)| count).sum::<u64>();
        let sum_s = if requests > 0.0 && count > 0 { seconds / requests * count as f64 } else { 0.0 };
        let latencies = LatencySnapshot::of(latencies, Nanos::from_secs_f64(sum_s).0.into());
        Ok(Happened { latencies, requests, seconds, bytes })
    }
}

/// By how much counts of so many requests may differ.
fn off(requests: f64) -> f64 {
    1.0 + DISAGREEMENT_MAX * requests
}

/// `count` latencies of above `lower_s` to `edge_s`, spread evenly, as Prometheus' own `histogram_quantile` takes them; of what is beyond the last edge it is
/// only known that it is longer. They are exact: rounded up to the end of a bucket of ours, those at the edge would miss a bound which they keep.
fn spread_evenly(latencies: &mut Vec<(Nanos, u64)>, lower_s: f64, edge_s: f64, count: u64) {
    let of_first = |parts: u64| (u128::from(count) * u128::from(parts) / u128::from(BUCKET_PARTS)) as u64;
    for part in 1..=BUCKET_PARTS {
        let latency = match edge_s.is_finite() {
            true => Nanos::from_secs_f64(lower_s + (edge_s - lower_s) * (part as f64 / BUCKET_PARTS as f64)),
            false => LatencyHistogram::HIGHEST.max(Nanos::from_secs_f64(lower_s)),
        };
        latencies.push((latency, of_first(part) - of_first(part - 1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(at_s: f64, requests: f64, seconds: f64) -> Counters {
        let reads = Side { requests, seconds, ..Side::default() };
        Counters { at_s, reads, ..Counters::default() }
    }

    #[test]
    fn differences_are_intervals_and_what_cannot_be_is_said() {
        let before = counters(100.0, 1_000.0, 4.0);
        let since = |after: Counters| after.since(&before, 2.0, 60.0, VolumeId(3));
        // 500 reads in 2 s that took 1 s together: 250/s of 2 ms, half an outstanding request.
        let (seen, span) = since(counters(102.0, 1_500.0, 5.0)).unwrap().unwrap();
        assert_eq!((span, seen.arrivals, seen.misses.mean()), (Nanos::secs(2), 500, Some(Nanos::millis(2))));
        assert_eq!((seen.outstanding_max, seen.idle), (1, Nanos::secs(1)));
        assert_eq!(since(before.clone()).map(|seen| seen.is_none()), Ok(true));
        assert_eq!(since(counters(102.0, 3.0, 0.1)).unwrap_err(), "its counters began anew");
        assert_eq!(since(counters(102.0, 1e12, 5.0)).unwrap_err(), "its counters jumped");
        assert_eq!(since(counters(102.0, f64::NAN, 5.0)).unwrap_err(), "its counters jumped");
        assert_eq!(since(counters(102.0, 1e3, 1e6)).unwrap_err(), "its counters jumped");
        // A few that took less than a millisecond together may be told to have taken nothing.
        assert_eq!(since(counters(102.0, 1_499.0, 4.0)).unwrap().unwrap().0.arrivals, 499);
        let still = "its requests are counted, and their seconds stand still";
        assert_eq!(since(counters(102.0, 1_500.0, 4.0)).unwrap_err(), still);
        // A sample of before may have been a minute old; an hour may not have passed in two seconds, nor a second back.
        assert!(since(counters(161.0, 1_500.0, 5.0)).is_ok_and(|seen| seen.is_some()));
        assert_eq!(since(counters(3_702.0, 1_500.0, 5.0)).unwrap_err(), "the clock of its samples was set");
        assert_eq!(since(counters(99.0, 1_500.0, 5.0)).unwrap_err(), "the clock of its samples was set");
    }

    #[test]
    fn parts_of_requests_have_the_mean_of_whole_ones() {
        let since = |requests, seconds| {
            let (seen, _) = counters(102.0, requests, seconds)
                .since(&counters(100.0, 0.0, 0.0), 2.0, 60.0, VolumeId(0))
                .unwrap()
                .unwrap();
            (seen.misses.count(), seen.misses.mean(), seen.misses.sum_ns())
        };
        assert_eq!(since(1.4, 0.0014), (1, Some(Nanos::millis(1)), 1_000_000));
        // Less than half a request is none, and took no time.
        assert_eq!(since(0.4, 0.0004), (0, None, 0));
    }

    #[test]
    fn an_edge_at_0_is_one_as_any_other() {
        let with = |at_zero: f64, all: f64| {
            let mut counters = counters(100.0 + all, all, all * 0.001);
            counters.reads.buckets = vec![(0.0, at_zero), (0.002, all), (f64::INFINITY, all)];
            counters
        };
        let (seen, _) = with(10.0, 100.0).since(&with(0.0, 0.0), 100.0, 60.0, VolumeId(0)).unwrap().unwrap();
        assert_eq!((seen.arrivals, seen.misses.mean()), (100, Some(Nanos::millis(1))));
        assert!(seen.misses.percentile(10.0).unwrap() <= Nanos::micros(2));
    }

    #[test]
    fn bytes_are_told_and_those_that_nobody_moves_are_a_jump() {
        let with = |read: f64, written: f64| {
            let mut counters = counters(100.0, 1_000.0, 4.0);
            (counters.reads.bytes, counters.writes.bytes) = (read, written);
            counters
        };
        let since = |after: Counters| {
            Counters { at_s: 102.0, ..after }.since(&with(4_096.0, 512.0), 2.0, 60.0, VolumeId(0))
        };
        let (seen, _) = since(with(12_288.0, 1_024.0)).unwrap().unwrap();
        assert_eq!((seen.bytes_read, seen.bytes_written), (Bytes(8_192), Bytes(512)));
        assert_eq!(since(with(4_095.0, 1_024.0)).unwrap_err(), "its counters began anew");
        assert_eq!(since(with(1e15, 1_024.0)).unwrap_err(), "its counters jumped");
    }

    #[test]
    fn nothing_is_told_beyond_the_edges_of_the_bucket_that_it_is_in() {
        let edges = [0.002, 0.005, 0.05, 0.5, 1.0, 2.5, 120.0, f64::INFINITY];
        for at in 1..edges.len() {
            // All requests are in the bucket that ends there.
            let with = |requests: f64| {
                let mut counters = counters(100.0 + requests, requests, requests * edges[at - 1]);
                let held = |edge: f64| if edge < edges[at] { 0.0 } else { requests };
                counters.reads.buckets = edges.iter().map(|&edge| (edge, held(edge))).collect();
                counters
            };
            let (seen, _) = with(320.0).since(&with(0.0), 400.0, 60.0, VolumeId(0)).unwrap().unwrap();
            let (lower, edge) = (edges[at - 1], edges[at]);
            let mut last = Nanos::from_secs_f64(lower);
            for percentile in [1.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 100.0] {
                let found = seen.misses.percentile(percentile).unwrap();
                let most = if edge.is_finite() { edge } else { lower };
                assert!(
                    last <= found && found <= Nanos::from_secs_f64(most),
                    "{edge}: p{percentile}: {found}"
                );
                last = found;
            }
            if edge.is_finite() {
                assert_eq!(last, Nanos::from_secs_f64(edge));
                // Half of them in its lower half.
                let half = Nanos::from_secs_f64((lower + edge) / 2.0);
                assert_eq!(seen.misses.percentile(50.0), Some(half), "{edge}");
            }
        }
    }

    #[test]
    fn buckets_are_latencies_spread_evenly_and_those_of_others_are_said() {
        let with = |requests: f64, buckets: &[(f64, f64)]| {
            let mut counters = counters(100.0, requests, requests * 0.003);
            counters.reads.buckets = buckets.to_vec();
            counters
        };
        let before = with(100.0, &[(0.001, 50.0), (0.004, 90.0), (f64::INFINITY, 100.0)]);
        let since =
            |after: Counters| Counters { at_s: 102.0, ..after }.since(&before, 2.0, 60.0, VolumeId(0));
        // Of 1,600 more, 800 took at most 1 ms, 784 between 1 and 4 ms, and 16 longer.
        let (seen, _) = since(with(1_700.0, &[(0.001, 850.0), (0.004, 1_674.0), (f64::INFINITY, 1_700.0)]))
            .unwrap()
            .unwrap();
        assert_eq!((seen.arrivals, seen.misses.mean()), (1_600, Some(Nanos::millis(3))));
        // 25 % are half of the first bucket, and 74.5 % are 50 % and half of the 49 % between 1 and 4 ms.
        for (percentile, us) in
            [(25.0, 500.0), (50.0, 1_000.0), (74.5, 2_500.0), (99.0, 4_000.0), (99.1, 1e8)]
        {
            let found = seen.misses.percentile(percentile).unwrap().as_secs_f64() * 1e6;
            assert!((found - us).abs() < 0.001, "p{percentile}: {found} us, expected {us}");
        }
        let refused = |requests, buckets: &[(f64, f64)]| since(with(requests, buckets)).unwrap_err();
        let anew = "its counters began anew";
        assert_eq!(refused(200.0, &[(0.001, 49.0), (0.004, 190.0), (f64::INFINITY, 200.0)]), anew);
        assert_eq!(refused(200.0, &[(0.001, 50.0), (0.005, 190.0), (f64::INFINITY, 200.0)]), anew);
        assert_eq!(refused(200.0, &[(0.001, 50.0), (f64::INFINITY, 200.0)]), anew);
        let fewer = refused(200.0, &[(0.001, 200.0), (0.004, 180.0), (f64::INFINITY, 210.0)]);
        assert_eq!(fewer, "of its buckets, longer ones hold fewer requests than shorter ones");
        let others = refused(300.0, &[(0.001, 150.0), (0.004, 190.0), (f64::INFINITY, 200.0)]);
        assert_eq!(others, "its buckets hold other requests than its counter counts");
        // Counted one after the other: one apart. An edge at 0 is one as any other.
        assert!(since(with(200.0, &[(0.001, 141.0), (0.004, 180.5), (f64::INFINITY, 200.0)])).is_ok());
        assert!(since(with(201.0, &[(0.001, 150.0), (0.004, 190.0), (f64::INFINITY, 200.0)])).is_ok());
    }
}
