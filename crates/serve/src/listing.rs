//! Lists of what caches hold, for the controller that asks for them: taken on a thread of its own, since of a large cache that takes seconds, and
//! told with the next observation of the volume. A controller elsewhere asks by HTTP ([`Resident`]).

use crate::daemon::Shared;
use crate::orders::RANGES_MAX;
use forebay_appliance::CommandError;
use forebay_control::prewarm::resident_ranges;
use forebay_units::{BlockRange, with_causes};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often it is looked whether one is asked for.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What `GET /api/v1/volumes/{volume}/resident` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Resident {
    schema: &'static str,
    volume: String,
    block_bytes: u64,
    /// (first block, how many), what is most worth being loaded again first; no more than one order to load takes.
    ranges: Vec<(u64, u64)>,
}

/// What a volume's cache holds; `None` for an unknown volume. Takes some 100 ns per block.
pub(crate) fn resident(shared: &Shared, volume: &str) -> Option<Resident> {
    let config = shared.config.volumes.iter().find(|config| config.name == volume)?;
    let ranges = list(shared, volume).ok()?;
    Some(Resident {
        schema: "forebay.resident/1",
        volume: volume.to_owned(),
        block_bytes: config.block_size.bytes(),
        ranges: ranges.iter().take(RANGES_MAX).map(|range| (range.first, range.count())).collect(),
    })
}

fn list(shared: &Shared, volume: &str) -> Result<Vec<BlockRange>, CommandError> {
    let listed = shared.appliance.list_resident(volume)?;
    Ok(resident_ranges(listed.iter().map(|block| (block.block().0, block.used_again())).collect()))
}

/// What is to be listed, and what was: by volume.
#[derive(Debug, Default)]
pub(crate) struct ListBook {
    ordered: BTreeSet<String>,
    ready: BTreeMap<String, Arc<[BlockRange]>>,
}

impl ListBook {
    /// The volume's cache is to be listed.
    pub(crate) fn order(&mut self, volume: &str) {
        self.ordered.insert(volume.to_owned());
    }

    /// What was listed of it and not told yet.
    pub(crate) fn take(&mut self, volume: &str) -> Option<Arc<[BlockRange]>> {
        self.ready.remove(volume)
    }
}

/// Runs until the daemon stops.
pub(crate) fn run(shared: &Shared) {
    while shared.sleep_until(Instant::now() + LOOK_EVERY) {
        let ordered = std::mem::take(&mut shared.books.lists().ordered);
        for volume in ordered {
            let began = Instant::now();
            match list(shared, &volume) {
                Ok(ranges) => {
                    tracing::debug!(volume, ranges = ranges.len(), took = ?began.elapsed(), "its cache is listed");
                    shared.books.lists().ready.insert(volume, ranges.into());
                }
                // It may have gone since. Whoever asked does without.
                Err(error) => tracing::warn!(volume, error = with_causes(&error), "its cache is not listed"),
            }
        }
    }
}
