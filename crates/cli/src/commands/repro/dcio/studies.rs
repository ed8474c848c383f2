//! The paper's two case studies on one trace: a cache of solid state before the disks, and blocks that are rearranged.

use super::validate::Requests;
use crate::failure::Failure;
use forebay_units::Nanos;
use forebay_workload::compare::{Device, DeviceLayout, LatencyTrial, Measured};
use forebay_workload::study::{Cache, Rearrangement, Sequentiality, Speedup};
use serde::Serialize;

/// The studies of a trace and of its synthetic counterpart; `None` where nothing reached the disks.
#[derive(Debug, Serialize)]
pub(super) struct Studies {
    /// Blocks of 4 KiB of the cache, which is the same for both.
    pub(super) cache_blocks: u64,
    pub(super) original: Option<Study>,
    pub(super) synthetic: Option<Study>,
}

/// What the two changes do to requests on the simulated disks.
#[derive(Debug, Serialize)]
pub(super) struct Study {
    pub(super) caching: Speedup,
    /// Share of the reads that the cache answers.
    pub(super) read_hit_ratio: f64,
    pub(super) defragmentation: Speedup,
    /// Shares of sequential requests, as recorded and rearranged.
    pub(super) sequential: [f64; 2],
}

impl Study {
    /// Plays `requests` with either change; `before` is their mean latency on the disks without.
    pub(super) fn of(
        requests: Requests<'_>,
        layout: &DeviceLayout,
        measured: &Measured,
        cache_blocks: u64,
        before: Nanos,
    ) -> Result<Study, Failure> {
        let trial = || LatencyTrial::new(Device::Disks, layout, measured);
        let (mut cache, mut disks, mut part) = (Cache::new(cache_blocks), trial()?, Vec::new());
        requests.play(|batch| {
            cache.requests(batch, &mut part);
            disks.requests(&part);
        })?;
        // A cache that answers everything leaves nothing to wait for.
        let cached = cache.mean_latency(disks.finish().unwrap_or(Nanos::ZERO));
        let (mut rearrangement, mut disks) = (Rearrangement::new(), trial()?);
        let mut sequential = [Sequentiality::new(), Sequentiality::new()];
        requests.play(|batch| {
            rearrangement.requests(batch, &mut part);
            disks.requests(&part);
            sequential[0].requests(batch);
            sequential[1].requests(&part);
        })?;
        let rearranged = disks.finish().unwrap_or(Nanos::ZERO);
        Ok(Study {
            caching: Speedup::of(before, cached),
            read_hit_ratio: cache.read_hit_ratio(),
            defragmentation: Speedup::of(before, rearranged),
            sequential: sequential.map(|counted| counted.share()),
        })
    }
}
