//! From requests to accesses: which blocks a request touches, how many bytes of each, and small numbers for blocks.

use super::{RequestsArg, UnitArg};
use crate::failure::Failure;
use forebay_cache::Access;
use forebay_locality::{BlockNumbers, Ranks, WorkingSetWindows, volume_block_key};
use forebay_trace::{Operation, Request};
use forebay_units::{BlockSize, Nanos};
use std::sync::Arc;

/// Accesses that are passed on together: long enough that passing costs nothing, short enough for the processor's caches (512 KiB).
const BATCH: usize = 64 << 10;

/// So many requests before its turn comes, what the number of a request's first block is read from is fetched; twice as many before, what leads there.
const AHEAD: usize = 12;

/// Splits requests and gives their blocks small numbers.
pub(super) struct Splitter {
    block_size: BlockSize,
    requests: RequestsArg,
    unit: UnitArg,
    numbers: BlockNumbers,
    windows: Vec<(Nanos, WorkingSetWindows)>,
    pending: Vec<Access>,
    counted: u64,
    without_bytes: u64,
}

impl Splitter {
    pub(super) fn new(
        block_size: BlockSize,
        requests: RequestsArg,
        unit: UnitArg,
        windows: &[Nanos],
    ) -> Splitter {
        let windows = windows.iter().map(|window| (*window, WorkingSetWindows::tumbling(*window))).collect();
        Splitter {
            block_size,
            requests,
            unit,
            numbers: BlockNumbers::new(),
            windows,
            pending: Vec::with_capacity(2 * BATCH),
            counted: 0,
            without_bytes: 0,
        }
    }

    /// Adds the accesses of `requests`, and passes on every batch that is full.
    pub(super) fn add_all(
        &mut self,
        requests: &[Request],
        mut pass_on: impl FnMut(Arc<[Access]>),
    ) -> Result<(), Failure> {
        for (at, request) in requests.iter().enumerate() {
            // The blocks of a request are mostly of one page.
            if let Some(later) = requests.get(at + 2 * AHEAD) {
                self.numbers.fetch_key(later.volume.0, later.offset >> self.block_size.shift());
            }
            if let Some(later) = requests.get(at + AHEAD) {
                self.numbers.fetch_page(later.volume.0, later.offset >> self.block_size.shift());
            }
            self.add(request)?;
            // A request of many blocks must not make a batch that is many times as long as others.
            while let Some(batch) = self.full_batch() {
                pass_on(batch);
            }
        }
        Ok(())
    }

    /// Adds the accesses of `request`.
    fn add(&mut self, request: &Request) -> Result<(), Failure> {
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
            for (_, windows) in &mut self.windows {
                windows.access(volume_block_key(request.volume.0, block.0), request.time);
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
            let block = self.number(request.volume.0, block.0)?;
            self.pending.push(Access { block, bytes });
            self.counted += u64::from(counts);
        }
        Ok(())
    }

    /// Counts those of `requests` that make no access for want of bytes.
    pub(super) fn count_without_bytes(&mut self, requests: &[Request]) {
        self.without_bytes += self.requests.without_bytes(requests);
    }

    fn number(&mut self, volume: u32, block: u64) -> Result<u32, Failure> {
        self.numbers.number(volume, block).ok_or_else(|| {
            Failure::new("the trace touches more blocks than can be numbered")
                .with_hint("simulate larger blocks with --block")
        })
    }

    /// The next batch, if there are accesses for a whole one.
    fn full_batch(&mut self) -> Option<Arc<[Access]>> {
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

    /// Requests so far that would count if they had bytes.
    pub(super) fn without_bytes(&self) -> u64 {
        self.without_bytes
    }

    /// Distinct blocks so far.
    pub(super) fn footprint_blocks(&self) -> u64 {
        self.numbers.distinct()
    }

    /// Dense numbers in place of those that accesses have.
    pub(super) fn ranks(&self) -> Ranks<'_> {
        self.numbers.ranks()
    }

    /// The mean working set so far, over windows that this was made with.
    pub(super) fn working_set(&self, window: Nanos) -> u64 {
        let found = self.windows.iter().find(|(known, _)| *known == window);
        found.map_or(0, |(_, windows)| windows.summary().mean_blocks.round() as u64)
    }
}
