//! Loading in progress: a list of ranges, worked off in order, below the priority of clients. Warm-up, the cache requests of clients and chunks
//! on their way to flash are all this.
//!
//! It decides when the next read may go out; what is skipped (cached, being filled, being written, in doubt) is the
//! machine's to say. Invariant: `remaining_bytes` only falls, and reaches 0 exactly when nothing is left to ask for.

use super::request::{Errno, RequestTag};
use crate::slab::{Slab, SlabKey};
use forebay_cache::Insertion;
use forebay_policy::paced;
use forebay_policy::placement::Chunk;
use forebay_units::{BlockRange, BlockSize, ByteRange, Bytes, Nanos};
use std::collections::VecDeque;

/// What is to be loaded before it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrewarmPlan {
    /// What, in this order; parts outside the volume are dropped.
    pub ranges: Vec<ByteRange>,
    /// Bytes per second at most, 0: none for now; `None`: as fast as the outstanding reads allow.
    pub bytes_per_second: Option<Bytes>,
    /// Where the blocks enter the order of eviction.
    pub insertion: Insertion,
    /// Whether those that enter at the tail get a partition of their own, as large as the plan at most, which clients' misses cannot take.
    pub own_partition: bool,
}

impl PrewarmPlan {
    /// What of it lies in a volume of so many bytes, in whole blocks, in the order in which it is loaded.
    pub fn blocks(&self, volume_bytes: u64, block_size: BlockSize) -> impl Iterator<Item = BlockRange> {
        self.ranges
            .iter()
            .filter(move |range| range.offset < volume_bytes)
            .map(move |range| {
                ByteRange::new(range.offset, range.length.min(volume_bytes - range.offset)).blocks(block_size)
            })
            .filter(|blocks| blocks.count() > 0)
    }
}

/// How a warm-up ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrewarmEnd {
    /// Everything was loaded, or was there, or failed.
    Done,
    /// The partition refused a block: there is no room that warm-up may take.
    Full,
    /// It was told to stop, or another one took its place.
    Cancelled,
}

/// How far a warm-up is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrewarmProgress {
    /// All bytes of the plan that lie in the volume, in whole blocks.
    pub total_bytes: Bytes,
    /// Not yet looked at.
    pub remaining_bytes: Bytes,
    /// Asked of the origin and inserted.
    pub loaded_bytes: Bytes,
    /// Cached already, or on their way for others.
    pub skipped_bytes: Bytes,
    /// Lost to origin errors or to writes that came in between.
    pub failed_bytes: Bytes,
    /// Bytes per second at most, as it stands now.
    pub bytes_per_second: Option<Bytes>,
    /// How it ended; `None` while it goes on.
    pub ended: Option<PrewarmEnd>,
}

impl PrewarmProgress {
    /// Bytes of the plan that are not there yet: what was not yet looked at, and what is on its way.
    pub fn missing_bytes(&self) -> u64 {
        let over = self.loaded_bytes.get() + self.skipped_bytes.get() + self.failed_bytes.get();
        self.total_bytes.get().saturating_sub(over)
    }
}

/// Blocks looked at per call, so that no call takes long (ours).
pub(crate) const PREWARM_SCAN_BLOCKS_MAX: usize = 4096;

/// What something is loaded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Before it is asked for.
    WarmUp,
    /// A client's cache request, which is answered when it ends.
    Asked(RequestTag),
    /// To be on flash, because the placement of this number says so.
    Migration(Chunk, u64),
}

/// Where blocks that are loaded enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// Memory, at this place of the order of eviction.
    Memory(Insertion),
    /// Flash; memory, too, if clients wait for them.
    Flash,
}

/// One list that is being loaded.
#[derive(Debug)]
pub(crate) struct Prewarm {
    ranges: VecDeque<BlockRange>,
    block_size: BlockSize,
    pub(crate) insertion: Insertion,
    pub(crate) own_partition: bool,
    next_at: Nanos,
    /// Bytes of the last read, which the rate spreads over the time before the next.
    last_bytes: u64,
    pub(crate) outstanding: usize,
    pub(crate) progress: PrewarmProgress,
    pub(crate) purpose: Purpose,
    pub(crate) error: Option<Errno>,
}

/// Everything that is being loaded: the last warm-up, which is kept when it has ended, and cache requests and migrations to flash, first come first
/// served.
#[derive(Debug)]
pub(crate) struct Loads {
    pub(crate) all: Slab<Prewarm>,
    pub(crate) warm_up: Option<SlabKey>,
    pub(crate) asked: VecDeque<SlabKey>,
    pub(crate) migrations: VecDeque<SlabKey>,
}

impl Loads {
    pub(crate) fn new() -> Loads {
        Loads { all: Slab::new(), warm_up: None, asked: VecDeque::new(), migrations: VecDeque::new() }
    }

    pub(crate) fn warm_up(&self) -> Option<&Prewarm> {
        self.all.get(self.warm_up?)
    }

    pub(crate) fn warm_up_mut(&mut self) -> Option<&mut Prewarm> {
        self.all.get_mut(self.warm_up?)
    }

    /// The next load of which a read may go out at `now`: cache requests before migrations before the warm-up.
    pub(crate) fn next(&self, now: Nanos, outstanding_max: usize) -> Option<SlabKey> {
        let may_read = |key: &SlabKey, max| self.all.get(*key).is_some_and(|load| load.may_read(now, max));
        self.next_unpaced(outstanding_max)
            .or_else(|| self.warm_up.filter(|key| may_read(key, outstanding_max)))
    }

    /// The next of those that go as fast as their outstanding reads allow. Migrations were paced when they were decided.
    fn next_unpaced(&self, outstanding_max: usize) -> Option<SlabKey> {
        self.first_of(&self.asked, outstanding_max)
            .or_else(|| self.first_of(&self.migrations, outstanding_max))
    }

    /// The first of the list with something left to ask for, if those before it leave room. Each of those has reads outstanding, so
    /// that no more than `outstanding_max` are looked at.
    fn first_of(&self, list: &VecDeque<SlabKey>, outstanding_max: usize) -> Option<SlabKey> {
        let mut outstanding = 0;
        for key in list {
            let load = self.all.get(*key)?;
            outstanding += load.outstanding;
            if outstanding >= outstanding_max {
                return None;
            }
            if load.has_more() {
                return Some(*key);
            }
        }
        None
    }

    /// When the rate allows the next read; `None` if time is not what is waited for.
    pub(crate) fn wake_at(&self, outstanding_max: usize) -> Option<Nanos> {
        match self.next_unpaced(outstanding_max) {
            Some(_) => Some(Nanos::ZERO),
            None => self.warm_up()?.wake_at(outstanding_max),
        }
    }
}

impl Prewarm {
    /// Where its blocks enter.
    pub(crate) fn destination(&self) -> Destination {
        match self.purpose {
            Purpose::WarmUp | Purpose::Asked(_) => Destination::Memory(self.insertion),
            Purpose::Migration(..) => Destination::Flash,
        }
    }

    /// `O(ranges)`: of a long list on a thread that has the time.
    pub(crate) fn new(plan: PrewarmPlan, volume_bytes: u64, block_size: BlockSize) -> Prewarm {
        let ranges: VecDeque<BlockRange> = plan.blocks(volume_bytes, block_size).collect();
        let total = Bytes(ranges.iter().map(|blocks| blocks.count()).sum::<u64>() << block_size.shift());
        let progress = PrewarmProgress {
            total_bytes: total,
            remaining_bytes: total,
            loaded_bytes: Bytes::ZERO,
            skipped_bytes: Bytes::ZERO,
            failed_bytes: Bytes::ZERO,
            bytes_per_second: plan.bytes_per_second,
            ended: None,
        };
        let mut prewarm = Prewarm {
            ranges,
            block_size,
            insertion: plan.insertion,
            own_partition: plan.own_partition,
            next_at: Nanos::ZERO,
            last_bytes: 0,
            outstanding: 0,
            progress,
            purpose: Purpose::WarmUp,
            error: None,
        };
        prewarm.end_if_done();
        prewarm
    }

    /// Whether something is left to ask for.
    pub(crate) fn has_more(&self) -> bool {
        self.progress.ended.is_none() && !self.ranges.is_empty()
    }

    /// Whether a read may go out at `now`, as far as rate and outstanding reads are concerned.
    pub(crate) fn may_read(&self, now: Nanos, outstanding_max: usize) -> bool {
        self.wake_at(outstanding_max).is_some_and(|at| now >= at)
    }

    /// When the rate allows the next read; `None` if time is not what it waits for.
    pub(crate) fn wake_at(&self, outstanding_max: usize) -> Option<Nanos> {
        let is_paused = self.progress.bytes_per_second == Some(Bytes::ZERO);
        (self.has_more() && self.outstanding < outstanding_max && !is_paused).then_some(self.next_at)
    }

    /// Another rate from `now` on.
    pub(crate) fn set_rate(&mut self, now: Nanos, rate: Option<Bytes>) {
        self.progress.bytes_per_second = rate;
        self.next_at = self.next_at.min(now.saturating_add(self.pause()));
    }

    /// The most that one read may bring, of `most` bytes: a part of what the rate allows in a second, so that it holds in each; but a block at least.
    pub(crate) fn read_bytes_max(&self, most: u64) -> u64 {
        let rate = self.progress.bytes_per_second.filter(|_| self.purpose == Purpose::WarmUp);
        rate.map_or(most, |rate| paced::read_bytes_max(rate, most))
    }

    /// How long the rate spreads the last read.
    fn pause(&self) -> Nanos {
        self.progress.bytes_per_second.map_or(Nanos::ZERO, |rate| paced::pause(rate, self.last_bytes))
    }

    /// The next run of at most `blocks_max` blocks that `skip` does not skip; looks at `scan` blocks at most and
    /// counts them down.
    pub(crate) fn next_run(
        &mut self,
        blocks_max: u64,
        scan: &mut usize,
        mut skip: impl FnMut(u64) -> bool,
    ) -> Option<BlockRange> {
        let bytes = |blocks: u64| Bytes(blocks << self.block_size.shift());
        let mut run: Option<BlockRange> = None;
        while let Some(front) = self.ranges.front_mut() {
            if front.first == front.end {
                self.ranges.pop_front();
                if run.is_some() {
                    break;
                }
                continue;
            }
            if *scan == 0 || run.is_some_and(|run| run.count() >= blocks_max) {
                break;
            }
            *scan -= 1;
            let block = front.first;
            if skip(block) {
                if run.is_some() {
                    break;
                }
                self.progress.skipped_bytes += bytes(1);
            } else {
                run.get_or_insert(BlockRange { first: block, end: block }).end = block + 1;
            }
            front.first += 1;
            self.progress.remaining_bytes = self.progress.remaining_bytes - bytes(1);
        }
        while self.ranges.front().is_some_and(|front| front.first == front.end) {
            self.ranges.pop_front();
        }
        run
    }

    /// A read of `blocks` blocks went out at `now`.
    pub(crate) fn sent(&mut self, blocks: u64, now: Nanos) {
        self.outstanding += 1;
        self.last_bytes = blocks << self.block_size.shift();
        self.next_at = self.next_at.max(now).saturating_add(self.pause());
    }

    pub(crate) fn end(&mut self, how: PrewarmEnd) {
        self.progress.ended.get_or_insert(how);
        self.ranges.clear();
    }

    pub(crate) fn end_if_done(&mut self) {
        if self.ranges.is_empty() && self.outstanding == 0 {
            self.end(PrewarmEnd::Done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_follow_the_list_skip_what_is_there_and_keep_the_rate() {
        let plan = PrewarmPlan {
            ranges: vec![ByteRange::new(8192, 16384), ByteRange::new(0, 1), ByteRange::new(1 << 30, 5)],
            bytes_per_second: Some(Bytes(8192)),
            insertion: Insertion::PrewarmTail,
            own_partition: false,
        };
        let mut prewarm = Prewarm::new(plan, 1 << 20, BlockSize::DEFAULT);
        // Blocks 2..6 and 0..1; the third range lies outside.
        assert_eq!(prewarm.progress.total_bytes, Bytes(5 * 4096));
        let mut scan = 100;
        let run = prewarm.next_run(2, &mut scan, |block| block == 2);
        assert_eq!(run, Some(BlockRange { first: 3, end: 5 }));
        assert_eq!(prewarm.progress.skipped_bytes, Bytes(4096));
        prewarm.sent(2, Nanos::ZERO);
        // 8,192 bytes at 8,192 bytes/s: a second.
        assert!(!prewarm.may_read(Nanos::millis(999), 4) && prewarm.may_read(Nanos::secs(1), 4));
        assert_eq!(prewarm.wake_at(4), Some(Nanos::secs(1)));
        assert_eq!(prewarm.wake_at(1), None);
        assert_eq!([1 << 18, 1_000].map(|most| prewarm.read_bytes_max(most)), [2_048, 1_000]);
        // Twice as fast from 100 ms on: half a second from then. Paused, time is not what it waits for.
        prewarm.set_rate(Nanos::millis(100), Some(Bytes(16384)));
        assert_eq!(prewarm.wake_at(4), Some(Nanos::millis(600)));
        prewarm.set_rate(Nanos::millis(200), Some(Bytes::ZERO));
        assert_eq!(prewarm.wake_at(4), None);
        prewarm.set_rate(Nanos::millis(300), None);
        assert_eq!(prewarm.wake_at(4), Some(Nanos::millis(300)));
        assert_eq!(prewarm.next_run(9, &mut scan, |_| false), Some(BlockRange { first: 5, end: 6 }));
        assert_eq!(prewarm.next_run(9, &mut scan, |_| false), Some(BlockRange { first: 0, end: 1 }));
        assert_eq!(prewarm.progress.remaining_bytes, Bytes::ZERO);
        prewarm.end_if_done();
        assert_eq!(prewarm.progress.ended, None, "a read is still outstanding");
        prewarm.outstanding = 0;
        prewarm.end_if_done();
        assert_eq!(prewarm.progress.ended, Some(PrewarmEnd::Done));
    }
}
