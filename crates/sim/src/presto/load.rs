//! Look-ups of PRESTO's experiments: which extent, when. From its generator, or from a recorded trace.

use super::objects::{EXTENT_BYTES, Objects};
use crate::load::RecordedRequest;
use forebay_units::Nanos;
use forebay_workload::presto::{Request, Requests, SECTOR_BYTES, SynVolume};
use std::collections::BTreeSet;

/// A request, or the part of it that lies within one extent: it needs both objects of the extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// When, in milliseconds since the start.
    pub at_millis: u32,
    /// Which extent.
    pub extent: u32,
    /// Of which volume.
    pub volume: u16,
    /// In which 256th of the extent it begins.
    pub part: u8,
}

/// All look-ups of an experiment, in order.
#[derive(Clone, Debug)]
pub struct Load {
    /// What is looked up.
    pub objects: Objects,
    /// By time; at one time in the order of the volumes.
    pub accesses: Vec<Access>,
}

impl Load {
    /// The requests of generated `volumes` before `end`; volume number i draws from `seed` and i.
    pub fn generate(volumes: &[SynVolume], seed: u64, end: Nanos) -> Load {
        let specs: Vec<_> = volumes.iter().map(SynVolume::spec).collect();
        let objects = Objects::of(&specs.iter().map(|spec| spec.bytes).collect::<Vec<_>>());
        let mut streams: Vec<_> = specs
            .into_iter()
            .enumerate()
            .map(|(volume, spec)| {
                let seed = forebay_units::mix64(seed ^ forebay_units::mix64(volume as u64 + 1));
                Requests::new(spec, seed).take_while(move |request| request.at < end).peekable()
            })
            .collect();
        let mut accesses = Vec::new();
        loop {
            let next = streams
                .iter_mut()
                .enumerate()
                .filter_map(|(volume, stream)| stream.peek().map(|request| (request.at, volume)))
                .min();
            let Some((_, volume)) = next else { break };
            let Some(request) = streams[volume].next() else { break };
            push_parts(&objects, volume, request, &mut accesses);
        }
        Load { objects, accesses }
    }

    /// The requests of a recorded volume; extents that it never touches are left out. Times count from the first request.
    ///
    /// # Panics
    /// If 2^31 extents or more are touched.
    pub fn recorded(requests: &[RecordedRequest]) -> Load {
        let first = requests.first().map_or(Nanos::ZERO, |request| request.at);
        let last_byte = |request: &RecordedRequest| request.offset + u64::from(request.length).max(1) - 1;
        let touched: BTreeSet<u64> = requests
            .iter()
            .flat_map(|request| request.offset / EXTENT_BYTES..=last_byte(request) / EXTENT_BYTES)
            .collect();
        let touched: Vec<u64> = touched.into_iter().collect();
        let objects = Objects::of(&[touched.len() as u64 * EXTENT_BYTES]);
        let mut accesses = Vec::new();
        for request in requests {
            let at_millis = (request.at.saturating_since(first).0 / 1_000_000) as u32;
            for extent in request.offset / EXTENT_BYTES..=last_byte(request) / EXTENT_BYTES {
                let rank = touched.binary_search(&extent).expect("it is touched");
                let within = request.offset.max(extent * EXTENT_BYTES) % EXTENT_BYTES;
                let part = (within * 256 / EXTENT_BYTES) as u8;
                accesses.push(Access { at_millis, extent: rank as u32, volume: 0, part });
            }
        }
        accesses.sort_by_key(|access| access.at_millis);
        Load { objects, accesses }
    }

    /// The first access at or after `at`.
    pub fn position(&self, at: Nanos) -> usize {
        self.accesses.partition_point(|access| u64::from(access.at_millis) * 1_000_000 < at.0)
    }
}

/// Splits a request where extents end.
fn push_parts(objects: &Objects, volume: usize, request: Request, accesses: &mut Vec<Access>) {
    let offset = request.sector * SECTOR_BYTES;
    let end = offset + u64::from(request.bytes);
    let at_millis = (request.at.0 / 1_000_000) as u32;
    let mut at = offset;
    while at < end {
        let part = (at % EXTENT_BYTES * 256 / EXTENT_BYTES) as u8;
        accesses.push(Access { at_millis, extent: objects.extent(volume, at), volume: volume as u16, part });
        at = (at / EXTENT_BYTES + 1) * EXTENT_BYTES;
    }
}
