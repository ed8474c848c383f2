//! Lists of what caches hold, for the controller that asks for them: taken on a thread of its own, since of a large cache that takes seconds, and
//! told with the next observation of the volume.

use crate::daemon::Shared;
use forebay_control::prewarm::resident_ranges;
use forebay_units::{BlockRange, with_causes};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often it is looked whether one is asked for.
const LOOK_EVERY: Duration = Duration::from_millis(250);

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
        let ordered = std::mem::take(&mut shared.lists().ordered);
        for volume in ordered {
            let began = Instant::now();
            match shared.appliance.list_resident(&volume) {
                Ok(listed) => {
                    let blocks = listed.len();
                    let listed = listed.iter().map(|block| (block.block().0, block.used_again())).collect();
                    let ranges: Arc<[BlockRange]> = resident_ranges(listed).into();
                    tracing::debug!(volume, blocks, ranges = ranges.len(), took = ?began.elapsed(), "its cache is listed");
                    shared.lists().ready.insert(volume, ranges);
                }
                // It may have gone since. Whoever asked does without.
                Err(error) => tracing::warn!(volume, error = with_causes(&error), "its cache is not listed"),
            }
        }
    }
}
