//! The last intervals of every volume, as data for a controller elsewhere: what `GET /api/v1/intervals` answers.
//!
//! Whoever asks more often than intervals are kept misses none: each has a number that rises by one. The numbers begin anew with each start
//! of the daemon, which `started_unix_ms` tells apart. Only the newest interval of a volume has a curve and zones.

use crate::daemon::Shared;
use crate::lease::LeaseStatus;
use forebay_control::{CacheObservation, VolumeId, VolumeObservation, ZoneHeat};
use forebay_locality::{CurvePoint, MissRatioCurve};
use forebay_units::{Bytes, Nanos};
use forebay_workload::{LatencySnapshot, SizeHistogram};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Intervals that are kept of each volume (ours).
pub(crate) const INTERVALS_KEPT: usize = 32;
/// Names the layout.
pub const SCHEMA: &str = "forebay.intervals/1";

/// What a daemon has seen lately.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intervals {
    /// Names the layout.
    pub schema: String,
    /// When the daemon started, milliseconds since 1970: numbers of intervals are of one start.
    pub started_unix_ms: i64,
    /// The leases of its volumes as they are now; none where an older daemon tells, or one without leases.
    #[serde(default)]
    pub leases: BTreeMap<String, LeaseStatus>,
    /// Its volumes.
    pub volumes: Vec<VolumeIntervals>,
}

/// A volume's last intervals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeIntervals {
    /// Its name.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// The unit of caching.
    pub block_bytes: u64,
    /// The share of time that its origin's disks were busy in the last interval, where they say so.
    pub utilisation: Option<f64>,
    /// Bytes with writes of unknown outcome.
    #[serde(default)]
    pub in_doubt_bytes: u64,
    /// Bytes of its cache for which the system has no memory.
    #[serde(default)]
    pub refused_bytes: u64,
    /// How its origin is; absent where an older daemon tells.
    #[serde(default)]
    pub origin: Option<ObservedOrigin>,
    /// Oldest first, of rising numbers.
    pub intervals: Vec<ObservedInterval>,
    /// What is known of its locality; absent where that is not observed.
    pub locality: Option<ObservedLocality>,
}

/// An origin as [`crate::status::OriginStatus`] has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ObservedOrigin {
    pub state: String,
    pub reason: Option<String>,
    pub oldest_in_flight_s: f64,
}

/// One interval: see `forebay_control::VolumeObservation`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ObservedInterval {
    pub number: u64,
    pub span_ns: u64,
    pub arrivals: u64,
    pub hits: LatencySnapshot,
    pub misses: LatencySnapshot,
    pub writes: LatencySnapshot,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Absent where an older appliance tells: then nothing is known of sizes but their mean.
    #[serde(default)]
    pub read_sizes: SizeHistogram,
    #[serde(default)]
    pub write_sizes: SizeHistogram,
    pub outstanding_max: u32,
    pub idle_ns: u64,
    /// Absent where an older appliance tells: then nothing is known to hang.
    #[serde(default)]
    pub reads_hung: u32,
    #[serde(default)]
    pub writes_hung: u32,
    /// Absent where an older appliance tells: those that failed are among the latencies then.
    #[serde(default)]
    pub reads_failed: u64,
    #[serde(default)]
    pub writes_failed: u64,
    pub sequential_share: f64,
    /// Absent where an older appliance tells: then every miss is taken for a read of its own.
    #[serde(default)]
    pub origin_reads: Option<u64>,
    pub quota_blocks: u64,
    pub used_blocks: u64,
    pub invalidated_blocks: u64,
    pub filled_blocks: u64,
    pub prewarmed_blocks: u64,
    pub prewarming: bool,
}

/// What is known of a volume's locality now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ObservedLocality {
    pub curve: Vec<CurvePoint>,
    pub curve_accesses: u64,
    pub working_set_blocks: u64,
    /// (zone, accesses).
    pub zones: Vec<(u64, u64)>,
    pub zone_accesses: u64,
    pub zone_blocks: u64,
}

impl ObservedInterval {
    pub(crate) fn of(number: u64, span: Nanos, seen: &VolumeObservation) -> ObservedInterval {
        ObservedInterval {
            number,
            span_ns: span.0,
            arrivals: seen.arrivals,
            hits: seen.hits.clone(),
            misses: seen.misses.clone(),
            writes: seen.writes.clone(),
            bytes_read: seen.bytes_read.get(),
            bytes_written: seen.bytes_written.get(),
            read_sizes: seen.read_sizes,
            write_sizes: seen.write_sizes,
            outstanding_max: seen.outstanding_max,
            idle_ns: seen.idle.0,
            reads_hung: seen.reads_hung,
            writes_hung: seen.writes_hung,
            reads_failed: seen.reads_failed,
            writes_failed: seen.writes_failed,
            sequential_share: seen.sequential_share,
            origin_reads: seen.origin_reads,
            quota_blocks: seen.cache.quota_blocks,
            used_blocks: seen.cache.used_blocks,
            invalidated_blocks: seen.cache.invalidated_blocks,
            filled_blocks: seen.cache.filled_blocks,
            prewarmed_blocks: seen.cache.prewarmed_blocks,
            prewarming: seen.cache.prewarming,
        }
    }

    /// What is not possible in it; `None` where all is well.
    fn oddity(&self) -> Option<&'static str> {
        let served = self.hits.count() + self.misses.count() + self.writes.count();
        let completed = served.saturating_add(self.reads_failed).saturating_add(self.writes_failed);
        if self.span_ns == 0 {
            Some("an interval has no length")
        } else if self.idle_ns > self.span_ns + self.span_ns / 10 {
            Some("more of an interval was idle than there is of it")
        } else if !(0.0..=1.0).contains(&self.sequential_share) {
            Some("a share is not from 0 to 1")
        } else if completed > self.arrivals.saturating_add(u64::from(self.outstanding_max)) {
            Some("more requests were completed than arrived or were outstanding")
        } else if self.reads_hung.saturating_add(self.writes_hung) > self.outstanding_max {
            Some("more requests hung than were outstanding")
        } else {
            None
        }
    }
}

impl ObservedLocality {
    pub(crate) fn of(seen: &VolumeObservation) -> Option<ObservedLocality> {
        let curve = seen.curve.as_ref()?;
        Some(ObservedLocality {
            curve: curve.points().to_vec(),
            curve_accesses: seen.curve_accesses,
            working_set_blocks: seen.working_set_blocks,
            zones: seen.zones.iter().map(|zone| (zone.zone, zone.accesses)).collect(),
            zone_accesses: seen.zone_accesses,
            zone_blocks: seen.zone_blocks,
        })
    }
}

impl VolumeIntervals {
    /// Puts the intervals after number `after` together, as what the controller is told of volume `id`, with the number of the last one and the
    /// time that they cover. `None` where there are none.
    ///
    /// # Errors
    /// What cannot be so.
    pub fn since(
        &self,
        after: u64,
        id: VolumeId,
    ) -> Result<Option<(VolumeObservation, u64, Nanos)>, &'static str> {
        self.between(after, u64::MAX, id)
    }

    /// Likewise of those to number `until`.
    pub(crate) fn between(
        &self,
        after: u64,
        until: u64,
        id: VolumeId,
    ) -> Result<Option<(VolumeObservation, u64, Nanos)>, &'static str> {
        let is_new = |interval: &&ObservedInterval| interval.number > after && interval.number <= until;
        let new: Vec<&ObservedInterval> = self.intervals.iter().filter(is_new).collect();
        let Some(last) = new.last() else { return Ok(None) };
        if let Some(oddity) = new.iter().find_map(|interval| interval.oddity()) {
            return Err(oddity);
        }
        let span = Nanos(new.iter().fold(0, |sum, interval| sum.saturating_add(interval.span_ns)));
        let sum =
            |of: fn(&ObservedInterval) -> u64| new.iter().fold(0u64, |sum, one| sum.saturating_add(of(one)));
        let latencies = |of: fn(&ObservedInterval) -> &LatencySnapshot| {
            let mut all = LatencySnapshot::default();
            new.iter().for_each(|interval| all.merge(of(interval)));
            all
        };
        let sizes = |of: fn(&ObservedInterval) -> &SizeHistogram| {
            let mut all = SizeHistogram::default();
            new.iter().for_each(|interval| all.merge(of(interval)));
            all
        };
        let mut seen = VolumeObservation {
            arrivals: sum(|one| one.arrivals),
            hits: latencies(|one| &one.hits),
            misses: latencies(|one| &one.misses),
            writes: latencies(|one| &one.writes),
            bytes_read: Bytes(sum(|one| one.bytes_read)),
            bytes_written: Bytes(sum(|one| one.bytes_written)),
            read_sizes: sizes(|one| &one.read_sizes),
            write_sizes: sizes(|one| &one.write_sizes),
            outstanding_max: new.iter().map(|one| one.outstanding_max).max().unwrap_or(0),
            idle: Nanos(sum(|one| one.idle_ns)),
            // So many at least hung in all of it.
            reads_hung: new.iter().map(|one| one.reads_hung).min().unwrap_or(0),
            writes_hung: new.iter().map(|one| one.writes_hung).min().unwrap_or(0),
            reads_failed: sum(|one| one.reads_failed),
            writes_failed: sum(|one| one.writes_failed),
            origin_reads: new.iter().map(|one| one.origin_reads).sum(),
            sequential_share: new.iter().map(|one| one.sequential_share).sum::<f64>() / new.len() as f64,
            cache: CacheObservation {
                quota_blocks: last.quota_blocks,
                refused_blocks: self.refused_bytes.checked_div(self.block_bytes).unwrap_or(0),
                used_blocks: last.used_blocks,
                invalidated_blocks: sum(|one| one.invalidated_blocks),
                filled_blocks: sum(|one| one.filled_blocks),
                prewarmed_blocks: sum(|one| one.prewarmed_blocks),
                prewarming: last.prewarming,
            },
            ..VolumeObservation::idle(id, span)
        };
        if let Some(locality) = &self.locality {
            if locality.curve.iter().any(|point| !(0.0..=1.0).contains(&point.miss_ratio)) {
                return Err("a miss ratio is not from 0 to 1");
            }
            seen.curve = Some(Arc::new(MissRatioCurve::new(locality.curve.clone())));
            seen.curve_accesses = locality.curve_accesses;
            seen.working_set_blocks = locality.working_set_blocks;
            let heat = |&(zone, accesses): &(u64, u64)| ZoneHeat { zone, accesses };
            seen.zones = locality.zones.iter().map(heat).collect();
            seen.zone_accesses = locality.zone_accesses;
            seen.zone_blocks = locality.zone_blocks;
        }
        Ok(Some((seen, last.number, span)))
    }
}

/// What is kept of one volume for [`intervals`].
#[derive(Debug, Default)]
pub(crate) struct Recent {
    number: u64,
    kept: VecDeque<ObservedInterval>,
    locality: Option<ObservedLocality>,
}

impl Recent {
    pub(crate) fn push(&mut self, span: Nanos, seen: &VolumeObservation) {
        self.number += 1;
        if self.kept.len() == INTERVALS_KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(ObservedInterval::of(self.number, span, seen));
        self.locality = ObservedLocality::of(seen);
    }
}

/// Those of all volumes.
pub(crate) fn intervals(shared: &Shared) -> Intervals {
    let leases = shared.books.leases().map(|book| book.served(&shared.config.volumes)).unwrap_or_default();
    let state = shared.state();
    let of = |(name, monitor): (&String, &crate::monitor::Monitor)| {
        let last = monitor.last.as_ref()?;
        let volume = shared.config.volumes.iter().find(|volume| volume.name == *name)?;
        let origin = crate::report::origin(&state, volume, Some(last));
        Some(VolumeIntervals {
            name: name.clone(),
            size_bytes: last.size.get(),
            block_bytes: volume.block_size.bytes(),
            utilisation: state.utilisation.get(name).copied(),
            in_doubt_bytes: origin.in_doubt_bytes,
            refused_bytes: crate::report::refused_bytes(&last.observation, volume.block_size),
            origin: Some(ObservedOrigin {
                state: origin.state,
                reason: origin.reason,
                oldest_in_flight_s: origin.oldest_in_flight_s,
            }),
            intervals: monitor.recent.kept.iter().cloned().collect(),
            locality: monitor.recent.locality.clone(),
        })
    };
    Intervals {
        schema: SCHEMA.to_owned(),
        started_unix_ms: shared.started_unix_ms,
        leases,
        volumes: state.monitors.iter().filter_map(of).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_workload::LatencyHistogram;

    fn seen(reads: u64) -> VolumeObservation {
        let mut misses = LatencyHistogram::new();
        misses.record_many(Nanos::millis(4), reads);
        VolumeObservation {
            arrivals: reads,
            misses: misses.snapshot(),
            bytes_read: Bytes(4_096 * reads),
            read_sizes: SizeHistogram::from(vec![(4_096, reads)]),
            outstanding_max: 2,
            curve: Some(Arc::new(MissRatioCurve::new(vec![CurvePoint { size_blocks: 8, miss_ratio: 0.5 }]))),
            ..VolumeObservation::idle(VolumeId(0), Nanos::millis(900))
        }
    }

    #[test]
    fn what_hung_in_all_intervals_is_told_and_an_older_daemon_tells_of_nothing() {
        let mut recent = Recent::default();
        for (reads_hung, writes_hung) in [(2, 0), (1, 1)] {
            recent.push(Nanos::secs(1), &VolumeObservation { reads_hung, writes_hung, ..seen(1) });
        }
        let told = volume(&recent).since(0, VolumeId(7)).unwrap().unwrap().0;
        assert_eq!((told.reads_hung, told.writes_hung), (1, 0));
        let mut odd = volume(&recent);
        odd.intervals[1].writes_hung = 2;
        assert_eq!(odd.since(0, VolumeId(7)).unwrap_err(), "more requests hung than were outstanding");
        let mut older = serde_json::to_value(volume(&recent)).unwrap();
        for interval in older["intervals"].as_array_mut().unwrap() {
            for field in
                ["reads_hung", "writes_hung", "reads_failed", "writes_failed", "read_sizes", "write_sizes"]
            {
                interval.as_object_mut().unwrap().remove(field).unwrap();
            }
        }
        let older: VolumeIntervals = serde_json::from_value(older).unwrap();
        assert_eq!(older.since(0, VolumeId(7)).unwrap().unwrap().0.reads_hung, 0);
    }

    fn volume(recent: &Recent) -> VolumeIntervals {
        VolumeIntervals {
            name: "db".to_owned(),
            size_bytes: 1 << 30,
            block_bytes: 4_096,
            utilisation: None,
            in_doubt_bytes: 0,
            refused_bytes: 0,
            origin: None,
            intervals: recent.kept.iter().cloned().collect(),
            locality: recent.locality.clone(),
        }
    }

    #[test]
    fn intervals_are_summed_since_the_last_one_and_survive_being_written() {
        let mut recent = Recent::default();
        (1..=3).for_each(|reads| recent.push(Nanos::secs(1), &seen(reads * 100)));
        let text = serde_json::to_string(&volume(&recent)).unwrap();
        let told: VolumeIntervals = serde_json::from_str(&text).unwrap();
        assert_eq!(told, volume(&recent));
        let (all, last, span) = told.since(1, VolumeId(7)).unwrap().unwrap();
        // 200 and 300 reads in two seconds.
        assert_eq!((all.volume, all.reads(), last, span), (VolumeId(7), 500, 3, Nanos::secs(2)));
        assert_eq!(all.misses.mean(), Some(Nanos::millis(4)));
        assert_eq!(all.read_sizes.octaves().collect::<Vec<_>>(), [(4_096, 500)]);
        assert_eq!(all.curve, seen(1).curve);
        assert!(told.since(3, VolumeId(7)).unwrap().is_none());
        (0..100).for_each(|_| recent.push(Nanos::secs(1), &seen(1)));
        assert_eq!(recent.kept.len(), INTERVALS_KEPT);
    }

    #[test]
    fn of_several_intervals_the_last_ones_state_and_the_sums_of_all_are_told() {
        let mut recent = Recent::default();
        let cache = |quota_blocks, filled_blocks| CacheObservation {
            quota_blocks,
            used_blocks: quota_blocks,
            filled_blocks,
            ..CacheObservation::default()
        };
        let first = VolumeObservation {
            outstanding_max: 9,
            bytes_written: Bytes(300),
            writes_failed: 2,
            sequential_share: 0.25,
            origin_reads: Some(5),
            cache: cache(64, 7),
            ..seen(10)
        };
        let second = VolumeObservation {
            bytes_written: Bytes(40),
            writes_failed: 1,
            sequential_share: 0.75,
            origin_reads: Some(6),
            cache: cache(16, 8),
            ..seen(10)
        };
        recent.push(Nanos::secs(1), &first);
        recent.push(Nanos::secs(1), &second);
        let told = |volume: VolumeIntervals| volume.since(0, VolumeId(7)).unwrap().unwrap().0;
        let both = told(volume(&recent));
        assert_eq!((both.outstanding_max, both.bytes_written, both.writes_failed), (9, Bytes(340), 3));
        assert_eq!((both.sequential_share, both.origin_reads), (0.5, Some(11)));
        assert_eq!(both.cache, cache(16, 15));
        // Of one of them it is not known, so it is of none.
        let mut older = volume(&recent);
        older.intervals[0].origin_reads = None;
        assert_eq!(told(older).origin_reads, None);
    }

    #[test]
    fn what_may_be_is_believed_to_the_last_request() {
        let mut recent = Recent::default();
        recent.push(Nanos::secs(1), &seen(10));
        let believed = |change: fn(&mut ObservedInterval)| {
            let mut changed = volume(&recent);
            change(&mut changed.intervals[0]);
            changed.since(0, VolumeId(0)).is_ok()
        };
        // Ten arrived, and two were outstanding: as many may end, well or not.
        assert!(believed(|one| (one.reads_failed, one.writes_failed) = (1, 1)));
        assert!(!believed(|one| (one.reads_failed, one.writes_failed) = (2, 1)));
        // Clocks of two machines differ a little.
        assert!(believed(|one| one.idle_ns = one.span_ns + one.span_ns / 10));
        assert!(!believed(|one| one.idle_ns = one.span_ns + one.span_ns / 10 + 1));
    }

    #[test]
    fn what_cannot_be_is_said() {
        let mut recent = Recent::default();
        recent.push(Nanos::secs(1), &seen(10));
        let good = volume(&recent);
        let odd = |change: fn(&mut VolumeIntervals)| {
            let mut odd = good.clone();
            change(&mut odd);
            odd.since(0, VolumeId(0)).unwrap_err()
        };
        assert!(odd(|one| one.intervals[0].span_ns = 0).contains("length"));
        assert!(odd(|one| one.intervals[0].arrivals = 3).contains("completed"));
        assert!(odd(|one| one.intervals[0].idle_ns = 3_000_000_000).contains("idle"));
        assert!(odd(|one| one.intervals[0].sequential_share = f64::NAN).contains("share"));
        assert!(odd(|one| one.locality.as_mut().unwrap().curve[0].miss_ratio = 1.5).contains("miss ratio"));
    }
}
