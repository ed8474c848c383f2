//! Reads in flight: reads of the origin or of flash (fills), the client reads that wait for them, coalescing and merging.
//!
//! A fill is *joinable* or *marked*. Joinable: no write overlaps it, so every reader of its blocks may wait for it, and
//! its data is inserted. Marked: a write was in flight at some moment of its life, or its blocks were in doubt, or
//! nothing is to be cached; it answers the readers that it has, takes no more, and its data is dropped.
//!
//! Invariants: joinable fills are disjoint; no block of a joinable fill is cached in memory; a fill is marked once and for ever.

use super::prewarm::Destination;
use super::ranges::RangeMap;
use super::request::{Errno, Reply, RequestTag};
use crate::slab::{Slab, SlabKey};
use forebay_cache::flash::FlashAddress;
use forebay_policy::placement::Age;
use forebay_units::{BlockIndex, BlockRange, ByteRange, Nanos};

/// A read of the origin or of flash in flight.
#[derive(Debug)]
pub(crate) struct Fill {
    /// The blocks that its bytes fill; empty for a read that passes through.
    pub(crate) blocks: BlockRange,
    /// The bytes asked of the origin.
    pub(crate) bytes: ByteRange,
    /// Never to be inserted, never to be joined.
    pub(crate) marked: bool,
    /// Handed to the origin or the device, so that it can no longer be lengthened.
    pub(crate) submitted: bool,
    /// Where the blocks are on flash, one address each; empty: the origin is asked.
    pub(crate) flash: Vec<FlashAddress>,
    /// What it is loaded for, and where its blocks enter, if no client's read asked for it.
    pub(crate) load: Option<(SlabKey, Destination)>,
    /// How long ago clients had last missed what is asked of the origin, where that is observed.
    pub(crate) age: Option<Age>,
    /// The reads that wait.
    pub(crate) waiters: Vec<SlabKey>,
}

impl Fill {
    /// Whether the flash device is asked, not the origin.
    pub(crate) fn is_flash(&self) -> bool {
        !self.flash.is_empty()
    }
}

/// A client read in flight.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) tag: RequestTag,
    pub(crate) started: Nanos,
    pub(crate) range: ByteRange,
    /// The answer as far as it is known; empty until a part of it is.
    pub(crate) buffer: Vec<u8>,
    /// Something of it is asked of the origin.
    pub(crate) asks_origin: bool,
    /// Fills waited for.
    pub(crate) fills_pending: u32,
    pub(crate) error: Option<Errno>,
    /// How long ago its chunk was last missed, where that is observed.
    pub(crate) age: Option<Age>,
    /// Its client brings nothing onto flash.
    pub(crate) is_left_out: bool,
}

/// What is known of a read that is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivered {
    pub(crate) started: Nanos,
    pub(crate) asked_origin: bool,
}

/// The client reads in flight and where the joinable fills are.
#[derive(Debug)]
pub(crate) struct Reads {
    pub(crate) reads: Slab<Read>,
    pub(crate) joinable: RangeMap,
}

impl Reads {
    pub(crate) fn new() -> Reads {
        Reads { reads: Slab::new(), joinable: RangeMap::default() }
    }

    /// The joinable fill that holds `block`.
    pub(crate) fn joinable_at(&self, block: BlockIndex) -> Option<(BlockRange, SlabKey)> {
        // Mostly there is none: a burst of misses of different blocks must not pay for a search each.
        if self.joinable.is_empty() { None } else { self.joinable.holding(block) }
    }

    /// Gives `fill`, which ended, to the read `key`; the reply if that was all it waited for.
    ///
    /// `data` is taken whole where it is exactly what the read asked for and nobody else needs it.
    pub(crate) fn deliver(
        &mut self,
        key: SlabKey,
        bytes: ByteRange,
        data: &mut Result<Vec<u8>, Errno>,
        last_waiter: bool,
    ) -> Option<(Reply, Delivered)> {
        let read = self.reads.get_mut(key).expect("a fill's waiters are in flight until it ends");
        match data {
            Err(errno) => read.error = read.error.or(Some(*errno)),
            Ok(data) => {
                if last_waiter && bytes == read.range {
                    read.buffer = std::mem::take(data);
                } else {
                    read.copy_in(bytes.offset, data);
                }
            }
        }
        read.fills_pending -= 1;
        if read.fills_pending > 0 {
            return None;
        }
        let read = self.reads.remove(key).expect("it was there a line ago");
        let result = match read.error {
            Some(errno) => Err(errno),
            None => {
                debug_assert!(read.buffer.len() as u64 == read.range.length);
                Ok(read.buffer)
            }
        };
        let delivered = Delivered { started: read.started, asked_origin: read.asks_origin };
        Some((Reply::new(read.tag, result), delivered))
    }
}

impl Read {
    /// Copies the part of `data` (which starts at `offset` of the volume) that was asked for.
    pub(crate) fn copy_in(&mut self, offset: u64, data: &[u8]) {
        if self.buffer.is_empty() {
            self.buffer = vec![0; self.range.length as usize];
        }
        let low = offset.max(self.range.offset);
        let high = (offset + data.len() as u64).min(self.range.end());
        if low < high {
            let target = (low - self.range.offset) as usize..(high - self.range.offset) as usize;
            self.buffer[target].copy_from_slice(&data[(low - offset) as usize..(high - offset) as usize]);
        }
    }
}
