//! Changes: writes, trims and zeroes on their way to the origin, and what becomes of the cached blocks when they end.

use super::super::ranges::RangeSet;
use super::super::request::{Errno, Reply, RequestTag};
use super::super::writes::{Change, Write, WritePart, Writes, common};
use super::reading::Entered;
use super::{InFlight, Kind, VolumeMachine, span_in};
use crate::slab::SlabKey;
use forebay_cache::{CachePartition, Insertion};
use forebay_origin::OriginError;
use forebay_policy::TwoPool;
use forebay_units::{BlockIndex, BlockRange, BlockSize, ByteRange, Nanos};

impl VolumeMachine {
    pub(super) fn change(
        &mut self,
        now: Nanos,
        tag: RequestTag,
        range: ByteRange,
        change: Change,
        fua: bool,
    ) {
        if let Err(errno) = self.check(range, true) {
            return self.refuse(tag, errno);
        }
        if range.length == 0 {
            return self.reply(Reply::new(tag, Ok(Vec::new())));
        }
        if matches!(change, Change::Write { .. }) {
            self.touched(now, range, true);
        }
        let write = Write {
            tag,
            started: now,
            range,
            blocks: range.blocks(self.settings.block_size),
            whole: self.whole_blocks(range),
            wanted: RangeSet::default(),
            change,
            fua,
            cursor: range.offset,
            parts_pending: 0,
            error: None,
            is_said_once: false,
            is_emptied: false,
        };
        let (key, may_start) = self.writes.admit(write);
        if may_start {
            self.start(now, key);
        } else {
            self.observer.counters.writes_delayed += 1;
        }
    }

    /// The blocks of which `range` holds every byte that the volume has.
    fn whole_blocks(&self, range: ByteRange) -> BlockRange {
        let block_size = self.settings.block_size;
        let first = range.offset.div_ceil(block_size.bytes());
        let end = if range.end() == self.size_bytes() {
            range.end().div_ceil(block_size.bytes())
        } else {
            range.end() / block_size.bytes()
        };
        BlockRange { first, end: end.max(first) }
    }

    /// Starts a change that may be in flight: from here on its blocks enter only with what it makes of them, and fills in flight are marked.
    fn start(&mut self, now: Nanos, key: SlabKey) {
        let takes_something = !self.takes_nothing();
        let write = self.writes.writes.get_mut(key).expect("the caller just admitted it");
        let blocks = write.blocks;
        if self.doubt.overlaps(blocks) {
            write.error = Some(Errno::IO);
            return self.finish(now, key);
        }
        while let Some(fill_key) = self.reads.joinable.take_overlapping(blocks) {
            let Some(InFlight { kind: Kind::Fill(fill), .. }) = self.in_flight.get_mut(fill_key) else {
                unreachable!("a joinable fill is in flight");
            };
            fill.marked = true;
            // What is loaded for nobody is left to be loaded again.
            if takes_something && !fill.waiters.is_empty() {
                write.want(fill.blocks);
            }
        }
        self.send_parts(key);
    }

    /// Sends as many parts of a change as may be outstanding.
    fn send_parts(&mut self, key: SlabKey) {
        let block_size = self.settings.block_size;
        loop {
            let write = self.writes.writes.get_mut(key).expect("a change with parts to send is in flight");
            let done = write.error.is_some() || write.cursor == write.range.end();
            // Zeroes that must be fast go one after the other: the first that is refused is mostly the first, and nothing is changed then.
            let parts_max = match write.change {
                Change::WriteZeroes { fast: true, .. } => 1,
                _ => self.settings.limits.write_parts_max,
            };
            if done || write.parts_pending >= parts_max {
                return;
            }
            let zero_max =
                self.settings.limits.zero_part_bytes_max.0 >> block_size.shift() << block_size.shift();
            let bytes_max = match write.change {
                Change::Write { .. } => self.part_bytes_max,
                _ => self.part_bytes_max.min(zero_max.max(block_size.bytes())),
            };
            let end = write.next_part_end(bytes_max, block_size);
            let part = write.cut_part(key, end);
            self.enqueue(Kind::Part(part));
        }
    }

    pub(super) fn part_ended(&mut self, now: Nanos, part: WritePart, result: Result<Vec<u8>, OriginError>) {
        let blocks = part.range.blocks(self.settings.block_size);
        let write =
            self.writes.writes.get_mut(part.write).expect("a change is in flight until its last part ended");
        write.parts_pending -= 1;
        match result {
            Ok(_) => {
                let zeroes = matches!(write.change, Change::WriteZeroes { .. });
                let (whole, mut wanted) = (write.whole, std::mem::take(&mut write.wanted));
                let is_long = !matches!(write.change, Change::Write { .. })
                    && write.blocks.count() > self.settings.limits.patched_blocks_max;
                // With the first part that is done: zeroes that must be fast may all be refused. None of its blocks enters before all parts have ended, but what is wanted of them.
                if is_long && !std::mem::replace(&mut write.is_emptied, true) {
                    let blocks = write.blocks;
                    self.invalidate(blocks);
                }
                self.apply(&part, blocks, zeroes, is_long, common(whole, blocks), &mut wanted);
                self.writes.writes.get_mut(part.write).expect("as above").wanted = wanted;
            }
            Err(error) => {
                write.error = write.error.or(Some(Errno(error.errno())));
                let has_failed = matches!(error, OriginError::Failed { .. });
                write.is_said_once |= write.fua && has_failed && error.errno() == Errno::IO.0;
                self.invalidate(blocks);
                if matches!(error, OriginError::OutcomeUnknown { .. }) && !self.leave.settled {
                    self.observer.counters.outcomes_unknown += 1;
                    self.doubt.insert(blocks);
                    if self.doubt.len() > self.settings.limits.doubt_runs_max {
                        self.doubt.widen();
                        self.invalidate_doubt();
                    }
                }
            }
        }
        self.send_parts(part.write);
        let write = self.writes.writes.get(part.write).expect("it is finished below only");
        if write.parts_pending == 0 {
            self.finish(now, part.write);
        }
    }

    /// What is cached of `blocks` leaves every tier.
    pub(super) fn invalidate(&mut self, blocks: BlockRange) {
        self.cache.invalidate(blocks);
        if let Some(flash) = &mut self.flash {
            flash.invalidate(blocks);
        }
    }

    /// Blocks in doubt are not cached and not about to be: true of those that became so by widening, too.
    fn invalidate_doubt(&mut self) {
        let runs: Vec<BlockRange> = self.doubt.iter().collect();
        runs.into_iter().for_each(|blocks| self.forget(blocks));
    }

    /// What is cached of `blocks` leaves every tier, and what is on its way is not kept.
    pub(super) fn forget(&mut self, blocks: BlockRange) {
        self.invalidate(blocks);
        while let Some(fill_key) = self.reads.joinable.take_overlapping(blocks) {
            if let Some(InFlight { kind: Kind::Fill(fill), .. }) = self.in_flight.get_mut(fill_key) {
                fill.marked = true;
            }
        }
    }

    /// The origin did this part: what is cached of it becomes what the origin holds, and what is wanted of it enters so. No other change in flight
    /// has bytes of a block that this one changes as a whole.
    ///
    /// `is_emptied`: no tier holds any of them any more. `whole`: the blocks of the part that are changed as a whole. What is `wanted` of them is not any more once they have had their chance; where the bytes are not
    /// known any more, since it was wanted too late, it still is.
    fn apply(
        &mut self,
        part: &WritePart,
        blocks: BlockRange,
        zeroes: bool,
        is_emptied: bool,
        whole: BlockRange,
        wanted: &mut RangeSet,
    ) {
        // Flash is not changed in place: the copy leaves, before anybody is told of the change.
        if let Some(flash) = self.flash.as_mut().filter(|_| !is_emptied) {
            flash.invalidate(blocks);
        }
        let has = |block| {
            self.cache.contains(block) || self.flash.as_ref().is_some_and(|flash| flash.contains(block))
        };
        debug_assert!(!is_emptied || !(blocks.first..blocks.end).any(|block| has(BlockIndex(block))));
        if self.cache.resident_blocks() == 0 && wanted.is_empty() || is_emptied && !zeroes {
            return;
        }
        if !zeroes && part.kept.is_none() {
            // A trim (whatever the origin returns from now on is right, so it must be asked), or a write of which
            // nothing was cached or wanted when it was submitted, and nothing entered since.
            self.cache.invalidate(blocks);
            return;
        }
        let block_size = self.settings.block_size;
        let zero_block = if zeroes { vec![0; block_size.bytes() as usize] } else { Vec::new() };
        let changed = |block: BlockIndex| {
            let span = span_in(part.range, block, block_size);
            let bytes = match &part.kept {
                Some(data) => {
                    let at = (block.offset(block_size) + span.start as u64 - part.range.offset) as usize;
                    &data[at..at + span.len()]
                }
                None => &zero_block[..span.len()],
            };
            (span.start, bytes)
        };
        let patched = if is_emptied { BlockRange { end: blocks.first, ..blocks } } else { blocks };
        for block in patched {
            let (start, bytes) = changed(block);
            self.cache.patch(block, start, bytes);
        }
        // Not before all are patched: what leaves for a block that enters goes to flash as it is.
        for block in wanted.within(whole).flatten() {
            let alone = BlockRange { first: block.0, end: block.0 + 1 };
            // Doubt that was widened meanwhile may cover it.
            if !self.cache.contains(block) && !self.doubt.overlaps(alone) {
                let entered = self.enter(block, changed(block).1, Insertion::Miss, false);
                self.observer.counters.changes_entered += u64::from(entered == Entered::Yes);
            }
        }
        wanted.remove(whole);
    }

    /// Whether the bytes of a write are needed again when it has ended: some of its blocks are cached or wanted. No other block can enter until then.
    pub(super) fn keeps(
        cache: &CachePartition<TwoPool>,
        writes: &Writes,
        part: &WritePart,
        block_size: BlockSize,
    ) -> bool {
        let mut blocks = part.range.blocks(block_size);
        let write = writes.writes.get(part.write).expect("a change is in flight until its last part ended");
        write.wanted.overlaps(common(write.whole, blocks))
            || cache.resident_blocks() > 0 && blocks.any(|block| cache.contains(block))
    }

    /// All parts of a change ended: answers, and starts those that waited for it.
    fn finish(&mut self, now: Nanos, key: SlabKey) {
        let mut ended = vec![key];
        while let Some(key) = ended.pop() {
            let write = self.writes.finish(key);
            let latency = now.saturating_since(write.started);
            // Zeroes that are to be fast or not at all have their answer: that is how a client asks whether they can be.
            let has_failed = write.error.is_some_and(|error| error != Errno::NOT_SUPPORTED);
            self.observer.changed(latency, has_failed);
            self.foreground_answered(now, write.started);
            let result = write.error.map_or(Ok(Vec::new()), Err);
            self.reply(Reply { is_said_once: write.is_said_once, ..Reply::new(write.tag, result) });
            for next in self.writes.startable() {
                self.still_wanted(&write, next);
                let blocks = self.writes.writes.get(next).expect("startable changes are in the table").blocks;
                if self.doubt.overlaps(blocks) {
                    // Not through `start`, which would come back here once per waiting change.
                    self.writes.writes.get_mut(next).expect("as above").error = Some(Errno::IO);
                    ended.push(next);
                } else {
                    self.start(now, next);
                }
            }
        }
    }

    /// What was wanted of a change too late, of one that failed, or of one that changed a part of it, is wanted of the `next` one. `O(log runs)` for each run
    /// that goes on: of the changes that waited for one no two share a unit.
    fn still_wanted(&mut self, ended: &Write, next: SlabKey) {
        let next = self.writes.writes.get_mut(next).expect("startable changes are in the table");
        for blocks in ended.wanted.within(next.blocks) {
            next.want(blocks);
        }
    }
}
