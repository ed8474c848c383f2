//! What the controller is told every control interval. Owned plain data: nothing here refers to a data path.

use crate::inventory::{HostId, OriginId, VolumeId};
use forebay_locality::MissRatioCurve;
use forebay_units::{BlockRange, Bytes, Nanos};
use forebay_workload::{LatencySnapshot, SizeHistogram};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One control interval as seen by the whole installation.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// The end of the interval, since a start that stays the same for the life of the controller.
    pub at: Nanos,
    /// How long the interval was; above 0.
    pub interval: Nanos,
    /// How often intervals end where all goes well; 0: every `interval`. One that ends late is longer, and others are left out for it.
    pub every: Nanos,
    /// One entry per volume that was observed, in any order. A volume that is missing keeps its state, and its
    /// windows do not advance; its season does.
    pub volumes: Vec<VolumeObservation>,
    /// What origins say of themselves; may be empty.
    pub origins: Vec<OriginObservation>,
    /// What hosts have to offer now; may be empty, in which case what they were configured with counts.
    pub hosts: Vec<HostObservation>,
}

/// One control interval of one volume. Everything but quota, curve, working set and zones is of this interval alone.
#[derive(Clone, Debug)]
pub struct VolumeObservation {
    /// Which volume.
    pub volume: VolumeId,
    /// How long this was, above 0: not the interval of the installation where who tells of it has steps of its own, or tells late.
    pub span: Nanos,
    /// Requests that arrived, reads and writes, whether completed or not.
    pub arrivals: u64,
    /// Latencies, as the client saw them, of reads that were answered from the cache alone.
    pub hits: LatencySnapshot,
    /// Latencies, as the client saw them, of reads that needed the origin.
    pub misses: LatencySnapshot,
    /// Latencies of writes, as the client saw them.
    pub writes: LatencySnapshot,
    /// Reads that were sent to the origin: fewer than `misses` where these joined reads under way, more where blocks were
    /// loaded beforehand. `None`: not known, every miss is taken for one.
    pub origin_reads: Option<u64>,
    /// Bytes read by clients.
    pub bytes_read: Bytes,
    /// Bytes written by clients.
    pub bytes_written: Bytes,
    /// How long reads were; empty where nobody says so.
    pub read_sizes: SizeHistogram,
    /// How long writes were, likewise.
    pub write_sizes: SizeHistogram,
    /// Most requests outstanding at any instant.
    pub outstanding_max: u32,
    /// How long no request was outstanding.
    pub idle: Nanos,
    /// Reads that hung: they came before the interval, and were not answered when it ended. 0 also where nobody says so.
    pub reads_hung: u32,
    /// Writes that did.
    pub writes_hung: u32,
    /// Reads that were answered with an error, which are in none of the latencies: a storage that refuses at once is not fast. 0 also where nobody says so.
    pub reads_failed: u64,
    /// Writes that were.
    pub writes_failed: u64,
    /// Share of the reads that start where the last read or one of the last few ended; 0 to 1.
    pub sequential_share: f64,
    /// The state of its cache.
    pub cache: CacheObservation,
    /// Miss ratio of its reads against blocks of cache, from recent accesses. `None`: no news, the last one stands.
    pub curve: Option<Arc<MissRatioCurve>>,
    /// Reads behind the curve, before sampling: how far it may be trusted.
    pub curve_accesses: u64,
    /// Distinct blocks read in the recent window that the data path uses.
    pub working_set_blocks: u64,
    /// The zones that took most accesses since the heat was last aged, in any order. Empty where none are tracked.
    pub zones: Vec<ZoneHeat>,
    /// All accesses since the heat was last aged: what the zones' shares refer to.
    pub zone_accesses: u64,
    /// Blocks in one zone; 0 where none are tracked.
    pub zone_blocks: u64,
    /// What the cache holds, what is most worth being loaded again first ([`resident_ranges`](crate::prewarm::resident_ranges)); only where it was
    /// ordered to be listed, and once for each order.
    pub resident: Option<Arc<[BlockRange]>>,
}

impl VolumeObservation {
    /// An interval of `volume` in which nothing happened and nothing is cached.
    pub fn idle(volume: VolumeId, interval: Nanos) -> VolumeObservation {
        VolumeObservation {
            volume,
            span: interval,
            arrivals: 0,
            hits: LatencySnapshot::default(),
            misses: LatencySnapshot::default(),
            writes: LatencySnapshot::default(),
            origin_reads: None,
            bytes_read: Bytes::ZERO,
            bytes_written: Bytes::ZERO,
            read_sizes: SizeHistogram::default(),
            write_sizes: SizeHistogram::default(),
            outstanding_max: 0,
            idle: interval,
            reads_hung: 0,
            writes_hung: 0,
            reads_failed: 0,
            writes_failed: 0,
            sequential_share: 0.0,
            cache: CacheObservation::default(),
            curve: None,
            curve_accesses: 0,
            working_set_blocks: 0,
            zones: Vec::new(),
            zone_accesses: 0,
            zone_blocks: 0,
            resident: None,
        }
    }

    /// Reads that were answered, those with an error apart.
    pub fn reads(&self) -> u64 {
        self.hits.count() + self.misses.count()
    }

    /// Requests that were answered, those with an error among them.
    pub fn completed(&self) -> u64 {
        self.reads() + self.writes.count() + self.reads_failed + self.writes_failed
    }

    /// Requests outstanding on average, by Little's law: the sum of all latencies over the length of the interval.
    pub fn outstanding_mean(&self) -> f64 {
        let sum_ns = self.hits.sum_ns() + self.misses.sum_ns() + self.writes.sum_ns();
        sum_ns as f64 / self.span.0.max(1) as f64
    }
}

/// The state of a volume's cache at the end of an interval, and what happened in it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CacheObservation {
    /// Blocks that it may hold; 0 for no cache. What is in force, not what was asked for.
    pub quota_blocks: u64,
    /// Blocks of these for which the system has no memory.
    pub refused_blocks: u64,
    /// Blocks that it holds.
    pub used_blocks: u64,
    /// Cached blocks that writes made invalid in this interval.
    pub invalidated_blocks: u64,
    /// Blocks that were filled in this interval, by misses and by prewarming.
    pub filled_blocks: u64,
    /// Blocks that were read from the origin for prewarming in this interval.
    pub prewarmed_blocks: u64,
    /// Whether a prewarm is under way.
    pub prewarming: bool,
}

/// How often a zone was accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneHeat {
    /// The zone: `zone_blocks` blocks from block `zone * zone_blocks`.
    pub zone: u64,
    /// Accesses counted for it.
    pub accesses: u64,
}

/// What an origin says of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OriginObservation {
    /// Which origin.
    pub origin: OriginId,
    /// How busy it was, 0 to 1. `None` where it does not say; it is then computed from the model.
    pub utilisation: Option<f64>,
}

/// What a host has to offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostObservation {
    /// Which host.
    pub host: HostId,
    /// What one more cache on it can have.
    pub free: Bytes,
    /// What each further cache takes beside that.
    pub beside: Bytes,
    /// Why it is left out for a while, in words that follow its name; nothing is free then.
    pub rests: Option<String>,
    /// It is to be free of caches: none is put there, and those that are there are moved away. Nothing is free then.
    pub drained: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_workload::LatencyHistogram;

    #[test]
    fn outstanding_follows_little() {
        // 200 reads of 5 ms each in 1 s: 200/s x 0.005 s = 1.
        let mut misses = LatencyHistogram::new();
        (0..200).for_each(|_| misses.record(Nanos::millis(5)));
        let mut volume = VolumeObservation::idle(VolumeId(0), Nanos::secs(1));
        volume.misses = misses.snapshot();
        assert!((volume.outstanding_mean() - 1.0).abs() < 1e-9);
        assert_eq!((volume.reads(), volume.completed()), (200, 200));
    }
}
