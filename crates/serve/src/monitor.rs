//! What the daemon remembers of each volume from interval to interval: totals, rates, verdicts, and what the controller is told.
//!
//! It works whether or not the controller does, so that metrics and verdicts go on without it.

use crate::observed::Recent;
use forebay_appliance::VolumeSnapshot;
use forebay_appliance::volume::Counters;
use forebay_control::conformance::{ConformanceRules, Judgement, Verdict, WindowTotals, judge};
use forebay_control::{CacheObservation, Objective, Target, VolumeId, VolumeObservation, ZoneHeat};
use forebay_locality::LocalitySnapshot;
use forebay_units::{BlockSize, Bytes, Nanos};
use forebay_workload::{LatencySnapshot, SizeHistogram};
use std::collections::VecDeque;
use std::sync::Arc;

/// Verdicts that are kept per objective.
const VERDICTS_MAX: usize = 64;
/// Intervals whose rate is kept for people.
const SERIES_MAX: usize = 120;
/// Hits of an interval whose mean says how long one takes (ours).
const HITS_MIN: u64 = 20;
/// Upper edges of latency buckets (ours: a hit to a hung disk, in steps of about two).
const EDGES_US: [u64; 20] = [
    20, 50, 100, 200, 500, 1_000, 2_000, 3_000, 5_000, 7_500, 10_000, 15_000, 20_000, 30_000, 50_000,
    100_000, 200_000, 500_000, 1_000_000, 10_000_000,
];

/// A histogram whose counts only rise.
#[derive(Clone, Debug)]
pub(crate) struct LatencyTotals {
    /// How many latencies were at most as long as each edge, as a judgement of percentiles has it.
    pub(crate) at_most: Vec<u64>,
    pub(crate) count: u64,
    pub(crate) sum_ns: u128,
}

impl LatencyTotals {
    fn new(edges: usize) -> LatencyTotals {
        LatencyTotals { at_most: vec![0; edges], count: 0, sum_ns: 0 }
    }

    pub(crate) fn add(&mut self, edges: &[Nanos], latencies: &LatencySnapshot) {
        for (total, edge) in self.at_most.iter_mut().zip(edges) {
            *total += latencies.count_at_most(*edge);
        }
        self.count += latencies.count();
        self.sum_ns += latencies.sum_ns();
    }
}

/// The latencies of a volume since it was added.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    pub(crate) reads: LatencyTotals,
    pub(crate) writes: LatencyTotals,
    pub(crate) flushes: LatencyTotals,
    pub(crate) origin: LatencyTotals,
}

/// One objective over time.
#[derive(Clone, Debug)]
pub(crate) struct Track {
    pub(crate) objective: Objective,
    /// The number of the reservation that it is of; absent for those of the configuration.
    pub(crate) reservation: Option<u64>,
    totals: WindowTotals,
    verdicts: VecDeque<Verdict>,
    pub(crate) last: Option<Judgement>,
    /// Windows that conformed, that did not, and that asked for too little.
    pub(crate) windows: [u64; 3],
}

impl Track {
    fn new(objective: Objective, reservation: Option<u64>) -> Track {
        Track {
            objective,
            reservation,
            totals: WindowTotals::default(),
            verdicts: VecDeque::new(),
            last: None,
            windows: [0; 3],
        }
    }

    fn add(&mut self, observed: &VolumeObservation, rules: &ConformanceRules) {
        self.totals.add(observed);
        // Half an interval of tolerance, as the controller has it: timers are late.
        if self.totals.span.0 + observed.span.0 / 2 < self.objective.window.0 {
            return;
        }
        let judgement = judge(&self.objective, &self.totals, rules);
        self.windows[match judgement.verdict {
            Verdict::Conforming => 0,
            Verdict::Nonconforming => 1,
            Verdict::LowLoad => 2,
        }] += 1;
        if self.verdicts.len() == VERDICTS_MAX {
            self.verdicts.pop_front();
        }
        self.verdicts.push_back(judgement.verdict);
        self.last = Some(judgement);
        self.totals = WindowTotals::default();
    }

    /// Share of the last windows with enough load that conform.
    pub(crate) fn conforming_share(&self) -> Option<f64> {
        let count = |wanted| self.verdicts.iter().filter(|verdict| **verdict == wanted).count() as f64;
        let (good, bad) = (count(Verdict::Conforming), count(Verdict::Nonconforming));
        (good + bad > 0.0).then(|| good / (good + bad))
    }
}

/// The last complete interval of a volume.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interval {
    pub(crate) span: Nanos,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    pub(crate) read_sizes: SizeHistogram,
    pub(crate) write_sizes: SizeHistogram,
    pub(crate) errors: u64,
    /// Reads, hits and misses together.
    pub(crate) read_latency: LatencySnapshot,
    pub(crate) write_latency: LatencySnapshot,
    pub(crate) flush_latency: LatencySnapshot,
    /// Share of the reads that the cache alone answered; absent without reads.
    pub(crate) hit_ratio: Option<f64>,
}

impl Interval {
    pub(crate) fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.span.as_secs_f64().max(1e-9)
    }

    pub(crate) fn iops(&self) -> f64 {
        self.per_second(self.reads + self.writes)
    }
}

/// One volume.
#[derive(Debug)]
pub(crate) struct Monitor {
    pub(crate) id: VolumeId,
    /// Upper edges of the latency buckets, the objectives' bounds among them.
    pub(crate) edges: Vec<Nanos>,
    pub(crate) latencies: Latencies,
    pub(crate) tracks: Vec<Track>,
    pub(crate) interval: Interval,
    /// The least mean latency of hits in an interval that had [`HITS_MIN`] of them: no latency that is asked of a cache can be lower.
    pub(crate) hit_least: Option<Nanos>,
    /// Requests per second, oldest first.
    pub(crate) series: VecDeque<f64>,
    pub(crate) last: Option<VolumeSnapshot>,
    /// What was seen of the interval that runs when somebody looked last: counters that were told do not go back when the volume is gone.
    running: Option<VolumeSnapshot>,
    /// For controllers elsewhere.
    pub(crate) recent: Recent,
}

/// Blocks used in the last whole window of the working set, or so far where there was none.
fn working_set_blocks(locality: &LocalitySnapshot) -> u64 {
    let set = &locality.working_set;
    set.last_blocks.unwrap_or(set.current_blocks)
}

impl Monitor {
    /// The working set, of a volume of such blocks; `None` where locality is not observed. One that `is_gone` has none.
    pub(crate) fn working_set_bytes(&self, block_size: BlockSize, is_gone: bool) -> Option<u64> {
        let locality = self.last.as_ref()?.observation.locality.as_ref()?;
        Some(if is_gone { 0 } else { working_set_blocks(locality) * block_size.bytes() })
    }

    /// Of a volume that is looked at every `interval`, as configured.
    pub(crate) fn new(id: VolumeId, objectives: &[Objective], interval: Nanos) -> Monitor {
        let mut edges: Vec<Nanos> = EDGES_US.map(Nanos::micros).to_vec();
        edges.extend(objectives.iter().filter_map(|objective| match objective.target {
            Target::Latency { at_most, .. } => Some(at_most),
            _ => None,
        }));
        edges.sort_unstable();
        edges.dedup();
        let totals = LatencyTotals::new(edges.len());
        Monitor {
            id,
            edges,
            latencies: Latencies {
                reads: totals.clone(),
                writes: totals.clone(),
                flushes: totals.clone(),
                origin: totals,
            },
            tracks: (objectives.iter())
                .map(|objective| Track::new(objective.in_whole(interval), None))
                .collect(),
            interval: Interval::default(),
            hit_least: None,
            series: VecDeque::new(),
            last: None,
            running: None,
            recent: Recent::default(),
        }
    }

    /// Judges `reserved`, each with the number of its reservation, beside the objectives of the configuration from now on. What goes
    /// on keeps its windows.
    pub(crate) fn reserve(&mut self, reserved: &[(u64, Objective)]) {
        let wanted =
            |track: &Track| track.reservation.is_none_or(|id| reserved.contains(&(id, track.objective)));
        self.tracks.retain(wanted);
        for (id, objective) in reserved {
            let there = |track: &Track| track.reservation == Some(*id) && track.objective == *objective;
            if !self.tracks.iter().any(there) {
                self.tracks.push(Track::new(*objective, Some(*id)));
            }
        }
    }

    /// Everything that is promised now.
    pub(crate) fn objectives(&self) -> Vec<Objective> {
        self.tracks.iter().map(|track| track.objective).collect()
    }

    /// The totals with the interval that runs, as `snapshot` has it.
    pub(crate) fn latencies_with(&self, snapshot: &VolumeSnapshot) -> Latencies {
        let mut latencies = self.latencies.clone();
        add_latencies(&mut latencies, &self.edges, snapshot);
        latencies
    }

    /// Keeps what was seen of the interval that runs.
    pub(crate) fn look(&mut self, snapshot: VolumeSnapshot) {
        self.running = Some(snapshot);
    }

    /// What is told of a volume that does not answer any more: as it was seen last, but that one that `is_gone` has nothing.
    pub(crate) fn last_words(&self, is_gone: bool) -> Option<VolumeSnapshot> {
        // The latencies of an interval that ended are in the totals.
        let ended = || {
            let mut last = self.last.clone()?;
            last.observation.latencies = forebay_appliance::volume::Latencies::default();
            Some(last)
        };
        let mut last = self.running.clone().or_else(ended)?;
        let seen = &mut last.observation;
        if is_gone {
            last.connections = 0;
            (seen.quota_bytes, seen.resident_bytes, seen.held_bytes) = Default::default();
            (seen.requests_in_flight, seen.origin_in_flight, seen.writes_waiting) = Default::default();
            (seen.bookkeeping_bytes, seen.prewarm) = Default::default();
            (seen.cache.quota_blocks, seen.cache.limit_blocks) = Default::default();
            if let Some(flash) = &mut seen.flash {
                (flash.quota_bytes, flash.resident_bytes, flash.held_bytes) = Default::default();
                (flash.buffered_bytes, flash.bookkeeping_bytes, flash.in_flight) = Default::default();
                if let Some(placing) = &mut flash.placing {
                    (placing.capacity_chunks, placing.placed_chunks) = Default::default();
                    (placing.moving_chunks, placing.bytes_per_second) = Default::default();
                }
            }
            last.origin_statistics.oldest_in_flight = Nanos::ZERO;
        }
        Some(last)
    }

    /// Takes in the interval that `snapshot` ended, and says it in the controller's words.
    pub(crate) fn take(&mut self, snapshot: VolumeSnapshot, rules: &ConformanceRules) -> VolumeObservation {
        let seen = &snapshot.observation;
        let span = seen.at.saturating_since(seen.interval_started);
        let before = self.last.as_ref().map(|last| (last.observation.counters, last.observation.cache));
        let (old, old_cache) = before.unwrap_or_default();
        let new = seen.counters;
        let since = |of: fn(&Counters) -> u64| of(&new).saturating_sub(of(&old));
        add_latencies(&mut self.latencies, &self.edges, &snapshot);
        let mut read_latency = seen.latencies.hits.clone();
        read_latency.merge(&seen.latencies.misses);
        let (reads, changes) = (since(|c| c.reads), since(|c| c.writes + c.trims + c.write_zeroes));
        let reads_done = read_latency.count();
        self.interval = Interval {
            span,
            reads,
            writes: changes,
            bytes_read: since(|c| c.bytes_read),
            bytes_written: since(|c| c.bytes_written),
            read_sizes: new.read_sizes.since(&old.read_sizes),
            write_sizes: new.write_sizes.since(&old.write_sizes),
            errors: since(|c| c.errors),
            read_latency,
            write_latency: seen.latencies.writes.clone(),
            flush_latency: seen.latencies.flushes.clone(),
            hit_ratio: (reads_done > 0).then(|| seen.latencies.hits.count() as f64 / reads_done as f64),
        };
        let hit = Some(&seen.latencies.hits)
            .filter(|hits| hits.count() >= HITS_MIN)
            .and_then(LatencySnapshot::mean);
        self.hit_least = self.hit_least.into_iter().chain(hit).min();
        if self.series.len() == SERIES_MAX {
            self.series.pop_front();
        }
        self.series.push_back(self.interval.iops());
        let count = |hung: usize| u32::try_from(hung).unwrap_or(u32::MAX);
        let mut observed = VolumeObservation {
            arrivals: reads + changes,
            hits: seen.latencies.hits.clone(),
            misses: seen.latencies.misses.clone(),
            writes: seen.latencies.writes.clone(),
            origin_reads: Some(since(|c| c.origin_reads)),
            bytes_read: Bytes(self.interval.bytes_read),
            bytes_written: Bytes(self.interval.bytes_written),
            read_sizes: self.interval.read_sizes,
            write_sizes: self.interval.write_sizes,
            outstanding_max: seen.outstanding_max,
            idle: seen.idle,
            reads_hung: count(seen.reads_hung),
            writes_hung: count(seen.writes_hung),
            reads_failed: since(|c| c.reads_failed),
            writes_failed: since(|c| c.changes_failed),
            sequential_share: since(|c| c.reads_sequential) as f64 / reads.max(1) as f64,
            cache: CacheObservation {
                quota_blocks: seen.cache.quota_blocks.into(),
                refused_blocks: seen.cache.quota_blocks.saturating_sub(seen.cache.limit_blocks).into(),
                used_blocks: seen.cache.resident_blocks.into(),
                invalidated_blocks: seen.cache.invalidations.saturating_sub(old_cache.invalidations),
                filled_blocks: seen.cache.insertions.saturating_sub(old_cache.insertions),
                prewarmed_blocks: seen.cache.prewarmed.saturating_sub(old_cache.prewarmed),
                prewarming: seen.prewarm.is_some_and(|prewarm| prewarm.ended.is_none()),
            },
            ..VolumeObservation::idle(self.id, span)
        };
        if let Some(locality) = &seen.locality {
            observed.curve = Some(Arc::new(locality.curve.clone()));
            observed.curve_accesses = locality.accesses;
            observed.working_set_blocks = working_set_blocks(locality);
            // The window that runs says more of now once it has seen half as much as the last one.
            let (current, last) = (&locality.zones_current, &locality.zones_last);
            let window = if current.accesses >= last.accesses / 2 { current } else { last };
            observed.zones =
                window.zones.iter().map(|zone| ZoneHeat { zone: zone.zone, accesses: zone.count }).collect();
            observed.zone_accesses = window.accesses;
            observed.zone_blocks = 1 << locality.zone_shift;
        }
        for track in &mut self.tracks {
            track.add(&observed, rules);
        }
        self.recent.push(span, &observed);
        (self.last, self.running) = (Some(snapshot), None);
        observed
    }
}

fn add_latencies(latencies: &mut Latencies, edges: &[Nanos], snapshot: &VolumeSnapshot) {
    let seen = &snapshot.observation.latencies;
    latencies.reads.add(edges, &seen.hits);
    latencies.reads.add(edges, &seen.misses);
    latencies.writes.add(edges, &seen.writes);
    latencies.flushes.add(edges, &seen.flushes);
    latencies.origin.add(edges, &seen.origin);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Daemon;
    use crate::config::{Config, OriginConfig, VolumeConfig};
    use forebay_appliance::volume::{PrewarmEnd, PrewarmProgress};
    use forebay_control::Operations;
    use forebay_locality::{ZoneCount, ZoneWindow};
    use forebay_workload::LatencyHistogram;

    const RULES: ConformanceRules = ConformanceRules {
        requests_min: 10,
        backlog_idle_share_max: 0.05,
        backlog_depth_min: 0.5,
        backlog_share_min: 0.05,
    };

    /// A volume that nobody has used.
    pub(crate) fn unused() -> VolumeSnapshot {
        let mut config =
            Config::new(vec![VolumeConfig::new("a", OriginConfig::Memory { size: Bytes::mib(1) })]);
        config.control.enabled = false;
        let daemon = Daemon::start(config).unwrap();
        let unused = daemon.appliance().observe("a", false).unwrap();
        daemon.shutdown();
        unused
    }

    fn monitor(objectives: &[Objective]) -> Monitor {
        Monitor::new(VolumeId(1), objectives, Nanos::secs(1))
    }

    fn of_latency(latency: Nanos, count: u64) -> LatencySnapshot {
        let mut latencies = LatencyHistogram::new();
        latencies.record_many(latency, count);
        latencies.snapshot()
    }

    #[test]
    fn what_is_told_of_an_interval_happened_in_it() {
        let mut monitor = monitor(&[]);
        let mut seen = unused();
        let mut take = |times: u64| {
            let counters = &mut seen.observation.counters;
            (counters.reads, counters.reads_sequential, counters.reads_failed) =
                (10 * times, 5 * times, 7 * times);
            (counters.writes, counters.trims, counters.write_zeroes) = (3 * times, 2 * times, times);
            (counters.changes_failed, counters.errors, counters.flushes) =
                (4 * times, 11 * times, 50 * times);
            (counters.bytes_read, counters.bytes_written) = (4_000 * times, 700 * times);
            counters.origin_reads = 8 * times;
            let cache = &mut seen.observation.cache;
            (cache.insertions, cache.invalidations, cache.prewarmed) = (20 * times, 30 * times, 6 * times);
            monitor.take(seen.clone(), &RULES)
        };
        take(1);
        let told = take(3);
        // Twice of each in the second one; of changes 3 + 2 + 1.
        assert_eq!((told.arrivals, told.reads_failed, told.writes_failed), (20 + 12, 14, 8));
        assert_eq!((told.sequential_share, told.origin_reads), (0.5, Some(16)));
        let cache = told.cache;
        assert_eq!((cache.filled_blocks, cache.invalidated_blocks, cache.prewarmed_blocks), (40, 60, 12));
        let Interval { reads, writes, errors, bytes_read, bytes_written, .. } = monitor.interval;
        assert_eq!((reads, writes, errors, bytes_read, bytes_written), (20, 12, 22, 8_000, 1_400));
    }

    #[test]
    fn locality_is_that_of_the_window_that_says_most_of_now() {
        let mut monitor = monitor(&[]);
        let mut seen = unused();
        let window = |zone, accesses| {
            let zones = vec![ZoneCount { zone, count: accesses }];
            ZoneWindow { zones, accesses, error_bound: 0 }
        };
        let mut told = |current, last_blocks| {
            let locality = seen.observation.locality.as_mut().expect("it is observed");
            locality.zone_shift = 4;
            (locality.zones_current, locality.zones_last) = (window(1, current), window(2, 10));
            (locality.working_set.current_blocks, locality.working_set.last_blocks) = (3, last_blocks);
            let told = monitor.take(seen.clone(), &RULES);
            assert_eq!((told.zone_blocks, told.zones.len()), (16, 1));
            let set = monitor.working_set_bytes(BlockSize::DEFAULT, false);
            (told.zones[0].zone, told.zone_accesses, told.working_set_blocks, set)
        };
        // The one that runs, from half as many accesses on; the working set of a whole one, where there was one.
        assert_eq!(told(4, Some(9)), (2, 10, 9, Some(9 * 4096)));
        assert_eq!(told(5, None), (1, 5, 3, Some(3 * 4096)));
    }

    #[test]
    fn a_warm_up_that_has_ended_is_not_told_to_go_on() {
        let mut monitor = monitor(&[]);
        let mut seen = unused();
        for (ended, goes_on) in [(None, true), (Some(PrewarmEnd::Done), false)] {
            seen.observation.prewarm = Some(PrewarmProgress {
                total_bytes: Bytes(8),
                remaining_bytes: Bytes(0),
                loaded_bytes: Bytes(8),
                skipped_bytes: Bytes(0),
                failed_bytes: Bytes(0),
                bytes_per_second: None,
                ended,
            });
            assert_eq!(monitor.take(seen.clone(), &RULES).cache.prewarming, goes_on);
        }
    }

    #[test]
    fn how_fast_hits_are_is_known_from_the_interval_in_which_many_were_fastest() {
        let mut monitor = monitor(&[]);
        let mut seen = unused();
        let mut least = |latency, count| {
            seen.observation.latencies.hits = of_latency(latency, count);
            monitor.take(seen.clone(), &RULES);
            monitor.hit_least
        };
        assert_eq!(least(Nanos::micros(1), 19), None, "so few say nothing");
        let [five, nine] = [5, 9].map(|micros| least(Nanos::micros(micros), 20));
        assert_eq!(five, Some(Nanos::micros(5)));
        assert_eq!(nine, five);
    }

    #[test]
    fn every_window_is_judged_by_itself_and_those_that_ask_for_little_by_nobody() {
        let bound = Objective::mean_latency(Nanos::millis(4), Operations::All).over(Nanos::secs(1));
        let mut monitor = monitor(&[bound]);
        let track = &mut monitor.tracks[0];
        let mut window = |millis, count| {
            let writes = of_latency(Nanos::millis(millis), count);
            let observed =
                VolumeObservation { writes, ..VolumeObservation::idle(VolumeId(1), Nanos::secs(1)) };
            track.add(&observed, &RULES);
            (track.last.map(|last| last.verdict), track.conforming_share())
        };
        assert_eq!(window(1, 1), (Some(Verdict::LowLoad), None));
        assert_eq!(window(1, 100), (Some(Verdict::Conforming), Some(1.0)));
        // 3 ms together with those before.
        assert_eq!(window(5, 100), (Some(Verdict::Nonconforming), Some(0.5)));
        assert_eq!(window(1, 1), (Some(Verdict::LowLoad), Some(0.5)));
        // What was long ago is forgotten.
        let shares: Vec<Option<f64>> = (0..VERDICTS_MAX).map(|_| window(1, 100).1).collect();
        assert_eq!(shares.last(), Some(&Some(1.0)));
        assert_eq!(monitor.tracks[0].windows, [1 + VERDICTS_MAX as u64, 1, 2]);
    }

    #[test]
    fn the_bucket_of_a_bound_counts_what_its_verdict_does() {
        let bound = Nanos::millis(100);
        let promise = Objective::percentile_latency(95.0, bound, Operations::Reads).over(Nanos::secs(1));
        // 100.1 ms are told as longer than 100 ms, and so are 99.9 ms, which lie in the same bucket; 99 ms do not.
        for (micros, verdict, kept) in [
            (100_100, Verdict::Nonconforming, 0),
            (99_900, Verdict::Nonconforming, 0),
            (99_000, Verdict::Conforming, 100),
        ] {
            let mut monitor = monitor(&[promise]);
            let mut seen = unused();
            seen.observation.at = seen.observation.interval_started.saturating_add(Nanos::secs(1));
            seen.observation.counters.reads = 100;
            seen.observation.latencies.misses = of_latency(Nanos::micros(micros), 100);
            monitor.take(seen, &RULES);
            let at = monitor.edges.binary_search(&bound).expect("a bound has an edge");
            let judged = monitor.tracks[0].last.map(|last| last.verdict);
            assert_eq!((judged, monitor.latencies.reads.at_most[at]), (Some(verdict), kept), "{micros} us");
        }
    }

    #[test]
    fn a_promise_that_goes_on_keeps_its_windows_beside_one_that_comes() {
        let promise = |millis| Objective::mean_latency(Nanos::millis(millis), Operations::All);
        let mut monitor = monitor(&[promise(9).over(Nanos::secs(1))]);
        let (first, second) = ((1, promise(1).over(Nanos::secs(1))), (2, promise(2).over(Nanos::secs(1))));
        monitor.reserve(&[first]);
        for track in &mut monitor.tracks {
            track.windows = [3, 0, 0];
        }
        monitor.reserve(&[first, second]);
        let told = |monitor: &Monitor| {
            monitor.tracks.iter().map(|track| (track.reservation, track.windows[0])).collect::<Vec<_>>()
        };
        assert_eq!(told(&monitor), [(None, 3), (Some(1), 3), (Some(2), 0)]);
        monitor.reserve(&[second]);
        assert_eq!(told(&monitor), [(None, 3), (Some(2), 0)]);
    }

    #[test]
    fn what_is_gone_has_neither_clients_nor_latencies_of_an_interval_that_was_counted() {
        let mut monitor = monitor(&[]);
        let mut seen = unused();
        seen.connections = 3;
        seen.observation.quota_bytes = Bytes::kib(8);
        seen.observation.latencies.writes = of_latency(Nanos::millis(1), 5);
        monitor.look(seen.clone());
        monitor.take(seen, &RULES);
        let [there, gone] = [false, true].map(|is_gone| monitor.last_words(is_gone).unwrap());
        assert_eq!((there.connections, there.observation.quota_bytes), (3, Bytes::kib(8)));
        assert_eq!((gone.connections, gone.observation.quota_bytes), (0, Bytes::ZERO));
        assert_eq!(monitor.latencies_with(&gone).writes.count, 5);
    }

    #[test]
    fn windows_are_rounded_up_to_whole_intervals_and_turns_may_be_late() {
        let (id, interval) = (VolumeId(1), Nanos::secs(10));
        for (window, turns) in [(9, 1), (10, 1), (11, 2), (14, 2), (15, 2), (25, 3)] {
            let objective =
                Objective::mean_latency(Nanos::millis(2), Operations::All).over(Nanos::secs(window));
            for late_ms in [9_900, 10_000, 10_100] {
                let mut monitor = Monitor::new(id, &[objective], interval);
                let track = &mut monitor.tracks[0];
                let span = Nanos::millis(late_ms);
                let taken = (1..=6).find(|_| {
                    track.add(&VolumeObservation::idle(id, span), &ConformanceRules::default());
                    track.last.is_some()
                });
                assert_eq!(taken, Some(turns), "{window} s, turns of {span}");
            }
        }
    }
}
