//! What is asked of a volume, for the simulator: the requests of its trace, with the trace's volumes one after the other.

use crate::recorded::recorded;
use forebay_sim::RecordedRequest;
use forebay_trace::{Request, VolumeIndex};
use forebay_units::{Bytes, Nanos};
use std::collections::BTreeMap;

/// A volume that is simulated reaches this far at most (ours: of the 1,024 that a scenario may have, the sum does not overflow).
const SIZE_MAX: Bytes = Bytes(1 << 50);

/// What is asked of a volume, with the trace's volumes one after the other.
pub(super) struct Recording {
    /// In the order of their times.
    pub(super) requests: Vec<RecordedRequest>,
    /// How far they reach.
    pub(super) size: Bytes,
}

/// The requests of a volume as they were recorded, and which of the trace's volumes each was of.
#[derive(Default)]
pub(super) struct Kept {
    requests: Vec<RecordedRequest>,
    volumes: Vec<VolumeIndex>,
    reaches: BTreeMap<VolumeIndex, Reach>,
    /// Records of the trace so far.
    records: u64,
}

/// How far one of the trace's volumes reaches, and when it is first asked for anything, by time and then by place in the trace.
struct Reach {
    first: (Nanos, usize),
    end: u64,
}

impl Kept {
    /// One more.
    ///
    /// # Errors
    /// As [`recorded`].
    pub(super) fn add(&mut self, request: &Request) -> Result<(), String> {
        self.records += 1;
        if let Some(kept) = recorded(request, self.requests.len(), self.records)? {
            self.requests.push(kept);
            self.volumes.push(request.volume);
            let first = (request.time, self.requests.len());
            let reach = self.reaches.entry(request.volume).or_insert(Reach { first, end: 0 });
            reach.first = reach.first.min(first);
            reach.end = reach.end.max(request.range().end());
        }
        Ok(())
    }

    /// Moves each of the trace's volumes behind those that are asked for anything before it, in whole MiB, and puts requests in the order of
    /// their times: the simulator would take one that steps back for as late as the latest ahead of it.
    ///
    /// # Errors
    /// They reach further together than a volume of the simulator does.
    pub(super) fn finish(mut self) -> Result<Recording, String> {
        let mut reaches: Vec<(VolumeIndex, Reach)> = self.reaches.into_iter().collect();
        reaches.sort_by_key(|(_, reach)| reach.first);
        let mut size = 0u64;
        let mut begins = BTreeMap::new();
        for (volume, reach) in reaches {
            begins.insert(volume, size);
            size = size.saturating_add(reach.end.div_ceil(1 << 20).saturating_mul(1 << 20));
        }
        let size = Bytes(size);
        if size > SIZE_MAX {
            return Err(format!(
                "its requests reach as far as {size}, expected at most {SIZE_MAX} where they are simulated"
            ));
        }
        for (request, volume) in self.requests.iter_mut().zip(&self.volumes) {
            request.offset += begins[volume];
        }
        drop(self.volumes);
        // Stable: those of one time stay as they were recorded. What that takes is less than their copy for the simulator.
        self.requests.sort_by_key(|request| request.at);
        Ok(Recording { requests: self.requests, size })
    }
}
