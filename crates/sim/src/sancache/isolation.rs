//! Isolation: a flood of writes to another volume fills the shared cache of the array, and a tier for the victim's volume restores it.

use super::loads::{LUN1, LoadKind, requests};
use super::runs::{recorded, scenario, volume};
use crate::load::Traces;
use crate::scenario::{ArrivalKind, LoadTable, Popularity, TierTable, TierUse, TierWrites, VolumeTable};
use crate::simulation::{RunError, Simulation};
use forebay_units::{Bytes, Nanos};
use serde::Serialize;

/// The experiment: alone, then the flood, then the tier for LUN1, switched on while everything runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IsolationSetup {
    /// The victim's requests per second.
    pub rate: f64,
    /// The flood's writes per second.
    pub flood_rate: f64,
    /// The flood's outstanding writes at most: what its host queues.
    pub flood_outstanding: u32,
    /// The array's shared cache.
    pub cache: Bytes,
    /// The victim's tier.
    pub tier: Bytes,
    /// What becomes of writes to its chunks.
    pub writes: TierWrites,
    /// How long it is alone, and how long it is flooded without a tier; the tier has four times as long.
    pub part: Nanos,
    /// Chooses everything random.
    pub seed: u64,
}

/// An interval of the victim.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct VictimRow {
    /// Its end, in seconds.
    pub at_s: f64,
    /// Mean response time.
    pub mean_ms: Option<f64>,
    /// The share of reads that the tier answered.
    pub read_hits: f64,
    /// The share of writes that it took.
    pub write_hits: f64,
}

/// The victim's response times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Isolation {
    /// Mean of the second half of the part alone, in milliseconds.
    pub alone_ms: f64,
    /// Mean of the second half of the flood without a tier.
    pub flooded_ms: f64,
    /// Mean of the last part: flood and tier.
    pub restored_ms: f64,
    /// By interval.
    pub series: Vec<VictimRow>,
    /// The flood's writes per second while it runs.
    pub flood_iops: f64,
}

impl IsolationSetup {
    /// Runs it.
    ///
    /// # Errors
    /// [`RunError`] where the loads do not fit the devices.
    pub fn run(&self) -> Result<Isolation, RunError> {
        let end = Nanos(self.part.0 * 6);
        let flood = LoadTable {
            from: self.part,
            arrivals: ArrivalKind::Poisson,
            rate: Some(self.flood_rate),
            popularity: Popularity::Uniform,
            read_share: 0.0,
            outstanding_max: self.flood_outstanding,
            ..LoadTable::idle()
        };
        // Disks that are flooded answer late: many chunks have to be on their way at once.
        let tier =
            TierTable { writes: self.writes, moving_max: Some(64), ..TierTable::new("flash", self.tier) };
        let volumes = vec![
            VolumeTable {
                tier: Some(TierUse { from: Nanos(self.part.0 * 2), until: None }),
                ..volume("lun1", LUN1, vec![recorded(Nanos::ZERO)])
            },
            volume("flood", 64 << 30, vec![LoadTable::idle(), flood]),
        ];
        let run = (self.seed, end, Nanos::ZERO);
        let scenario = scenario("isolation", (12, self.cache), Some(tier), volumes, run);
        let victim = requests(LoadKind::Lun1, self.rate, end, self.seed);
        let outcome = Simulation::new(&scenario, &Traces::from([((0, 0), victim)]), None)?.run();
        let rows = &outcome.volumes[0].intervals;
        let mean = |from: f64, until: f64| {
            let part = self.part.as_secs_f64();
            let chosen = rows.iter().filter(|row| row.at_s > from * part && row.at_s <= until * part);
            let (sum, count) = chosen.fold((0.0, 0.0), |(sum, count), row| {
                let requests = row.latency.count as f64;
                (sum + row.latency.mean_ms.unwrap_or(0.0) * requests, count + requests)
            });
            sum / f64::max(count, 1.0)
        };
        let tiers = &outcome.tier.as_ref().expect("there is a tier").intervals;
        let flood = &outcome.volumes[1].intervals;
        Ok(Isolation {
            alone_ms: mean(0.5, 1.0),
            flooded_ms: mean(1.5, 2.0),
            restored_ms: mean(5.0, 6.0),
            series: rows
                .iter()
                .zip(tiers)
                .map(|(row, tier)| VictimRow {
                    at_s: row.at_s,
                    mean_ms: row.latency.mean_ms,
                    read_hits: tier.totals.read_hit_ratio(),
                    write_hits: tier.totals.write_hits as f64 / tier.totals.writes.max(1) as f64,
                })
                .collect(),
            flood_iops: flood.iter().skip(flood.len() / 6).map(|row| row.iops).sum::<f64>()
                / (flood.len() - flood.len() / 6).max(1) as f64,
        })
    }
}
