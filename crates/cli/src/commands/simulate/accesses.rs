//! From requests to accesses: which blocks a request touches, how many bytes of each, and small numbers for blocks.

use super::{RequestsArg, UnitArg};
use crate::failure::Failure;
use forebay_cache::Access;
use forebay_locality::{BlockNumbers, PageHome, Ranks, WorkingSetWindows, volume_block_key};
use forebay_trace::{Operation, Request};
use forebay_units::{BlockSize, Nanos};
use std::sync::Arc;

/// Accesses that are passed on together: long enough that passing costs nothing, short enough for the processor's caches (512 KiB).
const BATCH: usize = 64 << 10;

/// So many requests before its turn comes, what leads to the number of a request's first block is fetched; half as many before, what that is read from.
const AHEAD: usize = 32;

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
    /// Accesses that counted with fewer bytes than they have.
    clipped: u64,
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
            clipped: 0,
        }
    }

    /// Adds the accesses of `requests`, and passes on every batch that is full.
    pub(super) fn add_all(
        &mut self,
        requests: &[Request],
        mut pass_on: impl FnMut(Arc<[Access]>),
    ) -> Result<(), Failure> {
        let mut homes = [PageHome::default(); AHEAD];
        for (home, request) in homes.iter_mut().zip(requests) {
            *home = self.fetch_key(request);
        }
        for (at, request) in requests.iter().enumerate() {
            let home = homes[at % AHEAD];
            if let Some(later) = requests.get(at + AHEAD) {
                homes[at % AHEAD] = self.fetch_key(later);
            }
            self.numbers.fetch_page(homes[(at + AHEAD / 2) % AHEAD]);
            self.add(request, home)?;
            // A request of many blocks must not make a batch that is many times as long as others.
            while let Some(batch) = self.full_batch() {
                pass_on(batch);
            }
        }
        Ok(())
    }

    /// The blocks of a request are mostly of one page: that of the first.
    #[inline]
    fn fetch_key(&self, request: &Request) -> PageHome {
        self.numbers.fetch_key(request.volume.0, request.offset >> self.block_size.shift())
    }

    /// Adds the accesses of `request`, the page of whose first block is looked for at `home` first.
    #[inline]
    fn add(&mut self, request: &Request, home: PageHome) -> Result<(), Failure> {
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
        if blocks.count() == 1 && self.windows.is_empty() {
            let block = self.numbers.number_near(home, request.volume.0, blocks.first);
            return self.push(block, range.length, counts);
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
            let block = self.numbers.number(request.volume.0, block.0);
            self.push(block, bytes, counts)?;
        }
        Ok(())
    }

    /// Adds the access to `bytes` of the block with the number `block`, if there was one left.
    #[inline]
    fn push(&mut self, block: Option<u32>, bytes: u64, counts: bool) -> Result<(), Failure> {
        let Some(block) = block else {
            return Err(Failure::new("the trace touches more blocks than can be numbered")
                .with_hint("simulate larger blocks with --block"));
        };
        let bytes = if counts { bytes } else { 0 };
        // None is known in any trace: rather than twice the memory for all, whoever has one is told.
        let bytes = u32::try_from(bytes).unwrap_or_else(|_| {
            self.clipped += 1;
            u32::MAX
        });
        self.pending.push(Access { block, bytes });
        self.counted += u64::from(counts);
        Ok(())
    }

    /// Counts those of `requests` that make no access for want of bytes.
    pub(super) fn count_without_bytes(&mut self, requests: &[Request]) {
        self.without_bytes += self.requests.without_bytes(requests);
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

    /// Accesses so far of 4 GiB or more, which count with a byte less than 4 GiB.
    pub(super) fn clipped(&self) -> u64 {
        self.clipped
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
