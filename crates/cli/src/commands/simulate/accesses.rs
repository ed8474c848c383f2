//! From requests to accesses: which blocks a request touches, how many bytes of each, and small numbers for blocks.

use super::{RequestsArg, UnitArg};
use crate::failure::Failure;
use forebay_cache::Access;
use forebay_locality::{WorkingSetWindows, volume_block_key};
use forebay_policy::{SLOTS_MAX, SlotTable};
use forebay_trace::{Operation, Request};
use forebay_units::{BlockIndex, BlockSize, Nanos};
use std::sync::Arc;

/// Accesses that are passed on together: long enough that passing costs nothing, short enough for the processor's caches (512 KiB).
const BATCH: usize = 64 << 10;

/// Splits requests and numbers their blocks densely, in the order of first appearance.
pub(super) struct Splitter {
    block_size: BlockSize,
    requests: RequestsArg,
    unit: UnitArg,
    /// Which number each (volume, block) has: its slot. Never is one taken out.
    numbers: SlotTable,
    windows: Vec<(Nanos, WorkingSetWindows)>,
    pending: Vec<Access>,
    counted: u64,
}

impl Splitter {
    pub(super) fn new(
        block_size: BlockSize,
        requests: RequestsArg,
        unit: UnitArg,
        seed: u64,
        windows: &[Nanos],
    ) -> Splitter {
        let windows = windows.iter().map(|window| (*window, WorkingSetWindows::tumbling(*window))).collect();
        Splitter {
            block_size,
            requests,
            unit,
            numbers: SlotTable::new(seed),
            windows,
            pending: Vec::with_capacity(2 * BATCH),
            counted: 0,
        }
    }

    /// Adds the accesses of `request`.
    pub(super) fn add(&mut self, request: &Request) -> Result<(), Failure> {
        let counts = match (request.operation, self.requests) {
            (Operation::Read, _) | (Operation::Write, RequestsArg::All) => true,
            (Operation::Write, RequestsArg::ReadHits) => false,
            _ => return Ok(()),
        };
        let range = request.range();
        let mut blocks = range.blocks(self.block_size);
        if self.unit == UnitArg::Request {
            blocks.end = blocks.end.min(blocks.first + 1);
        }
        for block in blocks {
            let key = volume_block_key(request.volume.0, block.0);
            for (_, windows) in &mut self.windows {
                windows.access(key, request.time);
            }
            let bytes = match self.unit {
                UnitArg::Request => range.length,
                UnitArg::Block => {
                    let start = block.0 << self.block_size.shift();
                    let end = start.saturating_add(self.block_size.bytes());
                    end.min(range.offset.saturating_add(range.length)) - start.max(range.offset)
                }
            };
            // Requests of 4 GiB and more count as many bytes as fit: none is known in any trace.
            let bytes = if counts { u32::try_from(bytes).unwrap_or(u32::MAX) } else { 0 };
            let block = self.number(key)?;
            self.pending.push(Access { block, bytes });
            self.counted += u64::from(counts);
        }
        Ok(())
    }

    fn number(&mut self, key: u64) -> Result<u32, Failure> {
        // The slot table keeps blocks below 2^63; two keys of several volumes meet with a probability of 2^-63 either way.
        let key = BlockIndex(key & (u64::MAX >> 1));
        if let Some(slot) = self.numbers.find(key) {
            return Ok(slot.0);
        }
        if self.numbers.len() == SLOTS_MAX {
            return Err(Failure::new(format!("the trace touches more than {SLOTS_MAX} blocks"))
                .with_hint("simulate larger blocks with --block"));
        }
        let slot = self.numbers.grow()?;
        self.numbers.fill(slot, key);
        Ok(slot.0)
    }

    /// The next batch, if there are accesses for a whole one.
    pub(super) fn full_batch(&mut self) -> Option<Arc<[Access]>> {
        (self.pending.len() >= BATCH).then(|| self.pending.drain(..BATCH).collect())
    }

    /// What is left at the end.
    pub(super) fn rest(&mut self) -> Option<Arc<[Access]>> {
        (!self.pending.is_empty()).then(|| self.pending.drain(..).collect())
    }

    /// Accesses so far that count.
    pub(super) fn accesses(&self) -> u64 {
        self.counted
    }

    /// Distinct blocks so far.
    pub(super) fn footprint_blocks(&self) -> u64 {
        u64::from(self.numbers.len())
    }

    /// The mean working set so far, over windows that this was made with.
    pub(super) fn working_set(&self, window: Nanos) -> u64 {
        let found = self.windows.iter().find(|(known, _)| *known == window);
        found.map_or(0, |(_, windows)| windows.summary().mean_blocks.round() as u64)
    }
}
