//! Which chunks of a volume are worth a place on its flash. `policy::placement` decides; here it is told what it must know, and what it says is done.
//!
//! It sees what memory does not answer: reads that missed, and writes. A chunk that it promotes is loaded as a warm-up is, into flash; from then on what
//! memory evicts of it is let in. A chunk that lost its place, to another or because its writes cost more than its reads save, keeps its blocks until their segment is reclaimed, and none enters any more. So it decides who
//! is written to flash, and *not* what leaves it: that is the log's order. Rules of what may be cached are those of every fill, whatever it says.

use super::super::client::ClientAddress;
use super::super::observation::PlacingObservation;
use super::super::prewarm::{Prewarm, PrewarmEnd, PrewarmPlan, Purpose};
use super::super::reads::Fill;
use super::VolumeMachine;
use forebay_cache::Insertion;
use forebay_cache::flash::Appended;
use forebay_policy::placement::{Age, Chunk, Placement, PlacementStatistics, Placing, Request, Shape, Where};
use forebay_units::{BlockIndex, BlockRange, ByteRange, Bytes, Nanos};
use std::collections::BTreeSet;
use std::iter;

/// Who is let onto a volume's flash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlashPlacing {
    /// By what, and how fast.
    pub placing: Placing,
    /// The unit in which accesses are counted and chunks are moved: a power of two from 4 KiB to 16 MiB; a block if that is larger.
    pub chunk: Bytes,
}

impl Default for FlashPlacing {
    /// By a threshold that adapts, in chunks of 64 KiB.
    fn default() -> FlashPlacing {
        FlashPlacing { placing: Placing::default(), chunk: Bytes::kib(64) }
    }
}

/// Counts of chunks besides those that may be placed, for each of those (ours: 37 bytes for each keep the index of a block of 4 KiB below 32 bytes).
const TRACKED_BESIDES: f64 = 1.5;

/// The smallest chunk there is.
const CHUNK_BYTES_MIN: u64 = 4_096;

/// A volume has one number: each has a placement of its own.
const VOLUME: u32 = 0;
/// Who brings chunks onto flash, and who does not: clients are known by where they come from, and all that placement has to know is which of the two they are.
const COUNTED: u32 = 0;
const LEFT_OUT: u32 = 1;

/// The placement of a volume's flash.
#[derive(Debug)]
pub(super) struct Placed {
    how: FlashPlacing,
    /// `None`: there is no quota.
    placement: Option<Placement>,
    /// Which placement it is: one that is gone hears nothing of its migrations.
    number: u64,
    /// Blocks of a chunk, as a power of two.
    blocks_shift: u32,
}

impl Placed {
    /// Whether what memory evicts of `block`'s chunk may enter.
    pub(super) fn admits(&self, block: BlockIndex) -> bool {
        let chunk = Chunk { volume: VOLUME, index: block.0 >> self.blocks_shift };
        self.placement.as_ref().is_some_and(|placement| placement.find(chunk) != Where::Origin)
    }

    /// Memory, in bytes.
    pub(super) fn footprint_bytes(&self) -> u64 {
        self.placement.as_ref().map_or(0, Placement::footprint_bytes)
    }

    /// `before` is what the placements before it did.
    pub(super) fn observe(
        &self,
        clients_left_out: usize,
        before: PlacementStatistics,
    ) -> Option<PlacingObservation> {
        let placement = self.placement.as_ref()?;
        let mut in_all = before;
        in_all += placement.statistics();
        let (placed_chunks, moving_chunks) = placement.held();
        Some(PlacingObservation {
            admission: placement.placing().admission,
            threshold: placement.threshold(),
            chunk_bytes: Bytes(placement.shape().chunk_bytes),
            capacity_chunks: placement.shape().capacity_chunks,
            placed_chunks,
            moving_chunks,
            bytes_per_second: placement.pace() as u64,
            clients_left_out,
            statistics: placement.statistics(),
            in_all,
        })
    }
}

impl VolumeMachine {
    /// Lets onto flash what `how` says from now on; `None`: whatever memory evicts. What is there stays. Without effect on a volume that has no flash.
    pub fn set_flash_placing(&mut self, how: Option<FlashPlacing>) {
        if self.flash.is_none() {
            return;
        }
        match (how, &mut self.placed) {
            (None, _) => {
                self.end_placement();
                self.placed = None;
            }
            (Some(how), Some(Placed { how: now, placement: Some(placement), .. }))
                if now.chunk == how.chunk =>
            {
                placement.set(how.placing);
                *now = how;
            }
            (Some(how), _) => {
                self.end_placement();
                self.placed = Some(Placed { how, placement: None, number: 0, blocks_shift: 0 });
                self.place_anew();
            }
        }
    }

    /// Requests that follow are this client's. At first they are of one that is not known.
    pub fn asked_by(&mut self, client: ClientAddress) {
        self.askers.asked_by(client);
    }

    /// Requests of these clients, and of no others, bring no chunk onto flash from now on; they are answered from it as everybody's are. Without effect
    /// where whatever memory evicts is let in.
    pub fn leave_out_of_flash(&mut self, clients: BTreeSet<ClientAddress>) {
        self.askers.leave_out(clients);
    }

    /// Ends the placement, if there is one: what it did goes on to count.
    fn end_placement(&mut self) {
        self.cancel_migrations();
        if let Some(placement) = self.placed.as_mut().and_then(|placed| placed.placement.take()) {
            self.placed_before += placement.statistics();
        }
    }

    /// Begins the placement anew, for the quota that flash has now.
    pub(super) fn place_anew(&mut self) {
        if self.placed.is_none() {
            return;
        }
        self.end_placement();
        let (quota, block_shift) = (self.flash_quota().0, self.settings.block_size.shift());
        let size_bytes = self.size_bytes();
        let Some(placed) = &mut self.placed else { return };
        let least = chunk_least(size_bytes).max(1 << block_shift);
        let shape = Shape::new(quota, placed.how.chunk.0.max(least));
        let tracked_chunks = f64::from(shape.capacity_chunks) * (1.0 + TRACKED_BESIDES);
        let shape = Shape { tracked_chunks: (tracked_chunks as u32).max(64), ..shape };
        self.placements += 1;
        placed.number = self.placements;
        placed.blocks_shift = shape.chunk_bytes.trailing_zeros() - block_shift;
        placed.placement = Placement::new(shape, placed.how.placing).ok();
        if let Some(placement) = &mut placed.placement {
            placement.set_client(LEFT_OUT, false).expect("there is no other switch");
        }
    }

    /// Memory answers a client's read, or the first part of it: sequential runs go on over that.
    #[inline]
    pub(super) fn passed(&mut self, range: ByteRange) {
        if let Some(Placed { placement: Some(placement), .. }) = &mut self.placed {
            placement.passed(VOLUME, range.offset, range.length);
        }
    }

    /// A client's request asks for what memory does not have, or writes. How long ago its first chunk was last asked for.
    pub(super) fn touched(&mut self, now: Nanos, range: ByteRange, writes: bool) -> Option<Age> {
        let placement = self.placed.as_mut()?.placement.as_mut()?;
        let client = if self.askers.is_left_out() { LEFT_OUT } else { COUNTED };
        let (mut age, mut left) = (None, Vec::new());
        let request = Request { volume: VOLUME, client, offset: range.offset, length: range.length, writes };
        placement.request(now, request, |touch| {
            age.get_or_insert(touch.age);
            left.extend(touch.demotion.map(|demotion| demotion.place));
        });
        // Nothing on flash is newer than the origin, so nothing is moved back.
        left.into_iter().for_each(|place| placement.left(place));
        age
    }

    /// Has a chunk loaded into flash.
    fn migrate(&mut self, chunk: Chunk) {
        let Some(Placed { placement: Some(placement), number, .. }) = &self.placed else { return };
        let chunk_bytes = placement.shape().chunk_bytes;
        let plan = PrewarmPlan {
            ranges: vec![ByteRange::new(chunk.index * chunk_bytes, chunk_bytes)],
            bytes_per_second: None,
            insertion: Insertion::Miss,
            own_partition: false,
        };
        let mut load = Prewarm::new(plan, self.size_bytes(), self.settings.block_size);
        load.purpose = Purpose::Migration(chunk, *number);
        let key = self.loads.all.insert(load);
        self.loads.migrations.push_back(key);
        self.finish_if_ended(key);
    }

    /// A migration ended.
    pub(super) fn migrated(&mut self, chunk: Chunk, number: u64, kept: bool) {
        if let Some(Placed { placement: Some(placement), number: current, .. }) = &mut self.placed
            && *current == number
        {
            placement.moved(chunk, kept);
        }
    }

    /// Ends all migrations; their reads at the origin complete and are inserted.
    pub(super) fn cancel_migrations(&mut self) {
        for key in self.loads.migrations.clone() {
            if let Some(load) = self.loads.all.get_mut(key) {
                load.end(PrewarmEnd::Cancelled);
            }
            self.finish_if_ended(key);
        }
    }

    /// Blocks of a migration arrived; how many are on flash now.
    pub(super) fn put_on_flash(&mut self, blocks: BlockRange, data: &[u8]) -> u64 {
        let Some(flash) = &mut self.flash else { return 0 };
        let block_bytes = self.settings.block_size.bytes() as usize;
        let mut appended = 0;
        let mut whole = Vec::new();
        for (block, bytes) in blocks.zip(data.chunks(block_bytes)) {
            // The volume's last block may be short.
            whole.clear();
            whole.extend_from_slice(bytes);
            whole.resize(block_bytes, 0);
            appended += u64::from(flash.append(block, &whole) == Appended::Yes);
        }
        appended
    }

    /// The origin answered a read, which tells what a cache in front of its disks holds.
    pub(super) fn origin_answered(&mut self, fill: &Fill, latency: Nanos) {
        if let Some(age) = fill.age
            && let Some(placement) = self.placed.as_mut().and_then(|placed| placed.placement.as_mut())
        {
            placement.origin_answered(age, latency);
        }
    }

    /// A client's request that went to the origin was answered: migrations must not make that longer. What it has brought about is moved now.
    pub(super) fn foreground_answered(&mut self, now: Nanos, started: Nanos) {
        let Some(Placed { placement: Some(placement), .. }) = &mut self.placed else { return };
        placement.answered(now, started, now.saturating_since(started));
        let due: Vec<Chunk> = iter::from_fn(|| placement.due()).map(|promotion| promotion.chunk).collect();
        due.into_iter().for_each(|chunk| self.migrate(chunk));
    }
}

/// The smallest chunk of a volume of so many bytes, whose numbers have 32 bits.
fn chunk_least(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(1 << 32).next_power_of_two().max(CHUNK_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_have_numbers_of_32_bits_whatever_the_size() {
        for size in
            [1, 1 << 40, (1 << 44) - 1, 1 << 44, (1 << 44) + 1, 3 << 44, (1 << 48) + 512, u64::MAX >> 1]
        {
            let chunk = chunk_least(size);
            assert!((size - 1) / chunk < 1 << 32 && chunk.is_power_of_two(), "{size}: {chunk}");
            assert!(
                chunk == CHUNK_BYTES_MIN || (size - 1) / (chunk / 2) >= 1 << 32,
                "{size}: {chunk} is more than it takes"
            );
        }
    }
}
