//! What is asked of a volume, for the simulator: the requests of its trace, with the trace's volumes one after the other.

use crate::recorded::recorded;
use forebay_sim::RecordedRequest;
use forebay_trace::{Request, VolumeIndex};
use forebay_units::Bytes;
use std::collections::BTreeMap;

/// A volume that is simulated reaches this far at most (ours: of the 1,024 that a scenario may have, the sum does not overflow).
const SIZE_MAX: Bytes = Bytes(1 << 50);

/// What is asked of a volume, with the trace's volumes one after the other.
pub(super) struct Recording {
    pub(super) requests: Vec<RecordedRequest>,
    /// How far they reach.
    pub(super) size: Bytes,
}

/// The requests of a volume as they were recorded, and which of the trace's volumes each was of.
#[derive(Default)]
pub(super) struct Kept {
    requests: Vec<RecordedRequest>,
    volumes: Vec<VolumeIndex>,
    /// How far each of the trace's volumes reaches.
    ends: BTreeMap<VolumeIndex, u64>,
}

impl Kept {
    /// One more.
    ///
    /// # Errors
    /// As [`recorded`].
    pub(super) fn add(&mut self, request: &Request) -> Result<(), String> {
        if let Some(kept) = recorded(request, self.requests.len())? {
            self.requests.push(kept);
            self.volumes.push(request.volume);
            let end = self.ends.entry(request.volume).or_default();
            *end = (*end).max(request.range().end());
        }
        Ok(())
    }

    /// Moves each of the trace's volumes behind those before it, in whole MiB.
    ///
    /// # Errors
    /// They reach further together than a volume of the simulator does.
    pub(super) fn finish(mut self) -> Result<Recording, String> {
        let mut size = 0u64;
        for reach in self.ends.values_mut() {
            let begin = size;
            size = size.saturating_add(reach.div_ceil(1 << 20).saturating_mul(1 << 20));
            *reach = begin;
        }
        let size = Bytes(size);
        if size > SIZE_MAX {
            return Err(format!(
                "its requests reach as far as {size}, expected at most {SIZE_MAX} where they are simulated"
            ));
        }
        for (request, volume) in self.requests.iter_mut().zip(&self.volumes) {
            request.offset += self.ends[volume];
        }
        Ok(Recording { requests: self.requests, size })
    }
}
