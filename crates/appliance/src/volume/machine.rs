//! The machine of one volume: what happens to every request, without I/O, clock or threads.

use super::observation::{Counters, Observer, VolumeObservation};
use super::prewarm::{PREWARM_SCAN_BLOCKS_MAX, Prewarm, PrewarmEnd, PrewarmPlan, PrewarmProgress};
use super::ranges::RangeSet;
use super::reads::{Fill, Read, Reads};
use super::request::{ClientOperation, Errno, ReadOutcome, Reply, RequestTag, VolumeLimits};
use super::writes::{Change, Write, WritePart, Writes};
use crate::slab::{Slab, SlabKey};
use forebay_cache::{CachePartition, Inserted, Insertion, Progress, Refusal};
use forebay_locality::{LiveConfig, LiveObserver};
use forebay_origin::{
    OriginCompletion, OriginError, OriginOperation, OriginRequest, OriginRequestId, OriginTraits,
};
use forebay_policy::TwoPool;
use forebay_units::{BlockIndex, BlockRange, BlockSize, ByteRange, Bytes, Nanos, Ratio};
use std::collections::VecDeque;
use thiserror::Error;

/// What a volume's machine is made from.
#[derive(Clone, Debug)]
pub struct VolumeSettings {
    /// Size and abilities of the origin.
    pub origin: OriginTraits,
    /// Refuses every change, whatever the origin allows.
    pub read_only: bool,
    /// The unit of caching.
    pub block_size: BlockSize,
    /// The partition's quota at the start, in bytes; whole blocks of it are used. 0: nothing is cached.
    pub quota: Bytes,
    /// The share of the single-touch pool.
    pub single_touch_share: Ratio,
    /// Makes the collisions of the index unpredictable to clients.
    pub seed: u64,
    /// How curve, working set and hot zones are observed; `None`: not at all. Its block size is that of the volume.
    pub locality: Option<LiveConfig>,
    /// Maxima.
    pub limits: VolumeLimits,
}

/// Why a machine cannot be made from its settings.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VolumeSettingsError {
    /// Blocks would not be aligned as the origin needs it.
    #[error("block size `{found}` is below the origin's smallest unit `{origin}`")]
    BlockSizeBelowOrigin {
        /// What was set.
        found: BlockSize,
        /// What the origin accepts at least.
        origin: Bytes,
    },
    /// The origin cannot fill a block in one request.
    #[error("block size `{found}` is above the origin's longest request `{origin}`")]
    BlockSizeAboveOrigin {
        /// What was set.
        found: BlockSize,
        /// What the origin accepts at most.
        origin: Bytes,
    },
}

/// A request at the origin, or in the queue before it.
#[derive(Debug)]
struct InFlight {
    kind: Kind,
    submitted_at: Nanos,
}

#[derive(Debug)]
enum Kind {
    Fill(Fill),
    Part(WritePart),
    Flush { tag: RequestTag },
}

/// The request machine of one volume: its partition, everything in flight on it, and the rules that keep reads true.
///
/// Told of requests ([`VolumeMachine::read`], [`VolumeMachine::request`]), completions ([`VolumeMachine::complete`]), commands and
/// the time, it yields replies ([`VolumeMachine::take_replies`]) and requests for the origin ([`VolumeMachine::take_submissions`]).
/// The same calls with the same arguments yield the same answers.
#[derive(Debug)]
pub struct VolumeMachine {
    settings: VolumeSettings,
    /// Longest origin request, a multiple of the block size.
    part_bytes_max: u64,
    cache: CachePartition<TwoPool>,
    reads: Reads,
    writes: Writes,
    in_flight: Slab<InFlight>,
    /// Not yet handed to the origin.
    queue: VecDeque<SlabKey>,
    at_origin: usize,
    flushes: usize,
    doubt: RangeSet,
    prewarm: Option<Prewarm>,
    prewarm_generation: u32,
    observer: Observer,
    locality: Option<LiveObserver>,
    replies: Vec<Reply>,
    /// Reads served since the batch began, whose latency is known when it ends.
    served_in_batch: u32,
    draining: bool,
}

/// Slots of a shrinking partition that one call of [`VolumeMachine::step`] works off (ours; well under a millisecond).
pub const QUOTA_STEP_SLOTS: u32 = 256;

impl VolumeMachine {
    /// A machine with an empty partition.
    ///
    /// # Errors
    /// [`VolumeSettingsError`] if the block size does not go with the origin.
    pub fn new(settings: VolumeSettings, now: Nanos) -> Result<VolumeMachine, VolumeSettingsError> {
        let (found, origin) = (settings.block_size, settings.origin);
        if found.bytes() < u64::from(origin.block_size_min) {
            let origin = Bytes(origin.block_size_min.into());
            return Err(VolumeSettingsError::BlockSizeBelowOrigin { found, origin });
        }
        let part_bytes_max = u64::from(origin.request_bytes_max) >> found.shift() << found.shift();
        if part_bytes_max == 0 {
            let origin = Bytes(origin.request_bytes_max.into());
            return Err(VolumeSettingsError::BlockSizeAboveOrigin { found, origin });
        }
        let cache = CachePartition::new(
            TwoPool::new(settings.single_touch_share),
            found,
            settings.quota.0 >> found.shift(),
            settings.seed,
        );
        let locality = settings.locality.map(|config| {
            let zone_size = config.zone_size.max(Bytes(found.bytes()));
            LiveObserver::new(LiveConfig { block_size: found, zone_size, ..config }, now)
        });
        Ok(VolumeMachine {
            settings,
            part_bytes_max,
            cache,
            reads: Reads::new(),
            writes: Writes::new(),
            in_flight: Slab::new(),
            queue: VecDeque::new(),
            at_origin: 0,
            flushes: 0,
            doubt: RangeSet::default(),
            prewarm: None,
            prewarm_generation: 0,
            observer: Observer::new(now),
            locality,
            replies: Vec::new(),
            served_in_batch: 0,
            draining: false,
        })
    }

    /// Size of the volume in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.settings.origin.size_bytes
    }

    /// Whether changes are refused.
    pub fn is_read_only(&self) -> bool {
        self.settings.read_only || self.settings.origin.read_only
    }

    /// Whether another request may be handed in; if not, the caller stops reading its connections until replies came.
    pub fn has_room(&self) -> bool {
        self.requests_in_flight() < self.settings.limits.requests_max
    }

    /// Client requests in flight.
    pub fn requests_in_flight(&self) -> usize {
        self.reads.reads.len() + self.writes.writes.len() + self.flushes
    }

    /// Whether nothing is in flight, warm-up included.
    pub fn is_idle(&self) -> bool {
        self.requests_in_flight() == 0 && self.in_flight.is_empty() && self.replies.is_empty()
    }

    /// Refuses new requests and ends the warm-up; what is in flight completes.
    pub fn drain(&mut self) {
        self.draining = true;
        self.cancel_prewarm();
    }

    // ---- Reads ------------------------------------------------------------------------------------------------

    /// A client reads `range`. If all of it is cached, the bytes are appended to `output` (copied once) and nothing is
    /// allocated; else a [`Reply`] for `tag` follows, and `output` is as it was.
    #[inline]
    pub fn read(
        &mut self,
        now: Nanos,
        tag: RequestTag,
        range: ByteRange,
        output: &mut Vec<u8>,
    ) -> ReadOutcome {
        self.observer.read(range);
        if let Err(errno) = self.check(range, false) {
            self.observer.counters.errors += 1;
            return ReadOutcome::Refused(errno);
        }
        let blocks = range.blocks(self.settings.block_size);
        if let Some(locality) = &mut self.locality {
            locality.observe_read(blocks.first, blocks.count(), now);
        }
        if self.caches_nothing() {
            // Counted, so that hits, misses and bypasses add up to the blocks read, whatever the quota was.
            self.cache.bypass(blocks.count());
            return if range.length == 0 { ReadOutcome::Served } else { self.pass_through(now, tag, range) };
        }
        let start = output.len();
        for block in blocks {
            let Some(bytes) = self.cache.get(block) else {
                self.read_missed(now, tag, range, block, &output[start..], false);
                output.truncate(start);
                return ReadOutcome::Pending;
            };
            output.extend_from_slice(&bytes[span_in(range, block, self.settings.block_size)]);
        }
        self.observer.counters.reads_hit += 1;
        self.served_in_batch += 1;
        ReadOutcome::Served
    }

    /// Whether reads may go past the cache: there is no quota, and nothing left of an earlier one. As long as a block is
    /// resident it must be served: a read past it could see a write that is in flight, and a later one the block, which is
    /// older.
    fn caches_nothing(&self) -> bool {
        self.cache.quota_blocks() == 0 && self.cache.resident_blocks() == 0
    }

    /// A read of a volume that caches nothing: as it is, widened only to the origin's smallest unit.
    fn pass_through(&mut self, now: Nanos, tag: RequestTag, range: ByteRange) -> ReadOutcome {
        let unit = u64::from(self.settings.origin.block_size_min.max(1));
        let (mut offset, end) = (range.offset / unit * unit, range.end().next_multiple_of(unit));
        let end = end.min(self.size_bytes());
        let read = Read {
            tag,
            started: now,
            range,
            buffer: Vec::new(),
            cache_only: false,
            fills_pending: 0,
            error: None,
        };
        let key = self.reads.reads.insert(read);
        while offset < end {
            let bytes = ByteRange::new(offset, (end - offset).min(self.part_bytes_max));
            self.send_fill(BlockRange { first: 0, end: 0 }, bytes, true, Some(key));
            offset = bytes.end();
        }
        ReadOutcome::Pending
    }

    /// A read whose blocks before `missed` were hits with the bytes `prefix`; `missed` was looked up and is not there.
    fn read_missed(
        &mut self,
        now: Nanos,
        tag: RequestTag,
        range: ByteRange,
        missed: BlockIndex,
        prefix: &[u8],
        cache_only: bool,
    ) {
        let mut read =
            Read { tag, started: now, range, buffer: Vec::new(), cache_only, fills_pending: 0, error: None };
        if !prefix.is_empty() {
            read.copy_in(range.offset, prefix);
        }
        let key = self.reads.reads.insert(read);
        let blocks = range.blocks(self.settings.block_size);
        let mut joined_until = 0;
        let mut run: Option<u64> = None;
        for block in missed.0..blocks.end {
            let hit = if block == missed.0 { None } else { self.cache.get(BlockIndex(block)) };
            if let Some(bytes) = hit {
                if !cache_only {
                    let span = span_in(range, BlockIndex(block), self.settings.block_size);
                    let offset = BlockIndex(block).offset(self.settings.block_size) + span.start as u64;
                    let read = self.reads.reads.get_mut(key).expect("inserted above");
                    read.copy_in(offset, &bytes[span]);
                }
                self.fetch(run.take(), block, key);
            } else if block < joined_until {
                debug_assert!(run.is_none());
            } else if let Some((fill_blocks, fill_key)) = self.reads.joinable_at(BlockIndex(block)) {
                self.fetch(run.take(), block, key);
                self.wait_for(fill_key, key);
                self.observer.counters.reads_coalesced += 1;
                joined_until = fill_blocks.end;
            } else {
                run.get_or_insert(block);
            }
        }
        self.fetch(run, blocks.end, key);
    }

    /// Asks the origin for the blocks `run..end`, none of which is cached or being filled, for the read `key`.
    fn fetch(&mut self, run: Option<u64>, end: u64, key: SlabKey) {
        let Some(mut first) = run else { return };
        let blocks = BlockRange { first, end };
        let marked = self.is_untrustworthy(blocks);
        let blocks_max = self.part_bytes_max >> self.settings.block_size.shift();
        while first < end {
            let piece = BlockRange { first, end: end.min(first + blocks_max) };
            first = piece.end;
            if marked || !self.merge(piece, key) {
                self.send_fill(piece, self.bytes_of(piece), marked, Some(key));
            }
        }
    }

    /// Whether data of these blocks that the origin is asked for now may be out of date when it comes.
    fn is_untrustworthy(&self, blocks: BlockRange) -> bool {
        self.cache.quota_blocks() == 0 || self.writes.held.overlaps(blocks) || self.doubt.overlaps(blocks)
    }

    /// Lengthens the fill that ends where `piece` starts, if it is still in the queue.
    fn merge(&mut self, piece: BlockRange, key: SlabKey) -> bool {
        let limit = self.settings.limits.merge_bytes_max.0.min(self.part_bytes_max);
        let Some((blocks, fill_key)) = self.reads.joinable.ending_at(BlockIndex(piece.first)) else {
            return false;
        };
        let joined = BlockRange { first: blocks.first, end: piece.end };
        if joined.count() << self.settings.block_size.shift() > limit {
            return false;
        }
        let bytes = self.bytes_of(joined);
        let Some(InFlight { kind: Kind::Fill(fill), .. }) = self.in_flight.get_mut(fill_key) else {
            unreachable!("a joinable fill is in flight");
        };
        if fill.submitted {
            return false;
        }
        debug_assert!(!fill.marked && fill.blocks == blocks);
        (fill.blocks, fill.bytes) = (joined, bytes);
        self.reads.joinable.extend_to(joined.first, joined.end);
        self.observer.counters.reads_merged += 1;
        self.wait_for(fill_key, key);
        true
    }

    /// Lets the read `key` wait for the fill.
    fn wait_for(&mut self, fill_key: SlabKey, key: SlabKey) {
        let Some(InFlight { kind: Kind::Fill(fill), .. }) = self.in_flight.get_mut(fill_key) else {
            unreachable!("a joinable fill is in flight");
        };
        debug_assert!(!fill.marked);
        if fill.waiters.last() != Some(&key) {
            fill.waiters.push(key);
            self.reads.reads.get_mut(key).expect("the caller inserted it").fills_pending += 1;
        }
    }

    fn send_fill(&mut self, blocks: BlockRange, bytes: ByteRange, marked: bool, waiter: Option<SlabKey>) {
        let fill = Fill {
            blocks,
            bytes,
            marked,
            submitted: false,
            prewarm: waiter.is_none().then_some(self.prewarm_generation),
            waiters: waiter.into_iter().collect(),
        };
        if let Some(key) = waiter {
            self.reads.reads.get_mut(key).expect("the caller inserted it").fills_pending += 1;
        }
        let key = self.enqueue(Kind::Fill(fill));
        if !marked {
            self.reads.joinable.insert(blocks, key);
        }
    }

    /// The bytes of whole blocks; the volume's last block may be short.
    fn bytes_of(&self, blocks: BlockRange) -> ByteRange {
        let offset = BlockIndex(blocks.first).offset(self.settings.block_size);
        let end = BlockIndex(blocks.end).offset(self.settings.block_size).min(self.size_bytes());
        ByteRange::new(offset, end - offset)
    }

    fn fill_ended(&mut self, now: Nanos, key: SlabKey, fill: Fill, result: Result<Vec<u8>, OriginError>) {
        let mut data = match result {
            Ok(data) if data.len() as u64 == fill.bytes.length => Ok(data),
            // An origin that answers with another number of bytes is not believed.
            Ok(_) => Err(Errno::IO),
            Err(error) => Err(Errno(error.errno())),
        };
        let mut inserted_blocks = 0;
        if fill.marked {
            self.observer.counters.fills_dropped += u64::from(!fill.blocks.is_empty());
            if let Ok(data) = &mut data {
                self.prefer_cached(fill.bytes, data);
            }
        } else {
            self.reads.joinable.remove(fill.blocks, key);
            if let Ok(data) = &data {
                inserted_blocks = self.insert(&fill, data);
            }
        }
        if fill.prewarm.is_some() {
            self.prewarm_read_ended(&fill, inserted_blocks, data.is_ok());
        }
        for (index, read) in fill.waiters.iter().enumerate() {
            let last = index + 1 == fill.waiters.len();
            if let Some((reply, started)) = self.reads.deliver(*read, fill.bytes, &mut data, last) {
                self.observer.misses.record(now.saturating_since(started));
                self.reply(reply);
            }
        }
    }

    /// Replaces what a marked fill brought by what is cached meanwhile. The fill may have seen a change that is in flight,
    /// of which readers of the cached block will learn only when it is complete: nobody may see it and then not.
    fn prefer_cached(&self, range: ByteRange, data: &mut [u8]) {
        if self.cache.resident_blocks() == 0 {
            return;
        }
        let block_size = self.settings.block_size;
        for block in range.blocks(block_size) {
            if let Some(bytes) = self.cache.peek(block) {
                let span = span_in(range, block, block_size);
                let at = (block.offset(block_size) + span.start as u64 - range.offset) as usize;
                data[at..at + span.len()].copy_from_slice(&bytes[span]);
            }
        }
    }

    /// Inserts what an unmarked fill brought; how many blocks entered.
    fn insert(&mut self, fill: &Fill, data: &[u8]) -> u64 {
        debug_assert!(
            !self.writes.held.overlaps(fill.blocks) && !self.doubt.overlaps(fill.blocks),
            "a fill of {:?} is not marked although a write overlaps it",
            fill.blocks
        );
        let insertion = match &self.prewarm {
            Some(prewarm) if fill.waiters.is_empty() => prewarm.insertion,
            _ => Insertion::Miss,
        };
        let block_bytes = self.settings.block_size.bytes() as usize;
        let mut inserted_blocks = 0;
        for (block, bytes) in fill.blocks.zip(data.chunks(block_bytes)) {
            debug_assert!(!self.cache.contains(block), "block {} was filled twice", block.0);
            match self.cache.insert(block, bytes, insertion) {
                Inserted::Refused(Refusal::NoQuota) => break,
                Inserted::Refused(_) => {}
                _ => inserted_blocks += 1,
            }
        }
        inserted_blocks
    }

    // ---- Changes and the rest ---------------------------------------------------------------------------------

    /// A client asks for anything but a read; a [`Reply`] for `tag` follows, perhaps at once.
    pub fn request(&mut self, now: Nanos, tag: RequestTag, operation: ClientOperation) {
        let counters = &mut self.observer.counters;
        match operation {
            ClientOperation::Write { offset, data, fua } => {
                counters.writes += 1;
                counters.bytes_written += data.len() as u64;
                let range = ByteRange::new(offset, data.len() as u64);
                self.change(now, tag, range, Change::Write { data }, fua);
            }
            ClientOperation::Trim { range, fua } => {
                counters.trims += 1;
                self.change(now, tag, range, Change::Trim, fua);
            }
            ClientOperation::WriteZeroes { range, may_trim, fua } => {
                counters.write_zeroes += 1;
                self.change(now, tag, range, Change::WriteZeroes { may_trim }, fua);
            }
            ClientOperation::Flush => {
                counters.flushes += 1;
                if self.draining {
                    return self.refuse(tag, Errno::SHUTDOWN);
                }
                // Every write that was acknowledged is complete at the origin, so nothing has to be waited for.
                self.flushes += 1;
                self.enqueue(Kind::Flush { tag });
            }
            ClientOperation::Cache { range } => {
                counters.cache_requests += 1;
                self.load(now, tag, range);
            }
        }
    }

    fn load(&mut self, now: Nanos, tag: RequestTag, range: ByteRange) {
        if let Err(errno) = self.check(range, false) {
            return self.refuse(tag, errno);
        }
        // With less quota than was asked for it would only push out its own blocks.
        let quota_bytes = u64::from(self.cache.quota_blocks()) << self.settings.block_size.shift();
        let range = ByteRange::new(range.offset, range.length.min(quota_bytes));
        let missed = range.blocks(self.settings.block_size).find(|block| !self.cache.contains(*block));
        match missed {
            Some(block) => self.read_missed(now, tag, range, block, &[], true),
            None => self.reply(Reply { tag, result: Ok(Vec::new()) }),
        }
    }

    fn change(&mut self, now: Nanos, tag: RequestTag, range: ByteRange, change: Change, fua: bool) {
        if let Err(errno) = self.check(range, true) {
            return self.refuse(tag, errno);
        }
        if range.length == 0 {
            return self.reply(Reply { tag, result: Ok(Vec::new()) });
        }
        let write = Write {
            tag,
            started: now,
            range,
            blocks: range.blocks(self.settings.block_size),
            change,
            fua,
            cursor: range.offset,
            parts_pending: 0,
            error: None,
        };
        let (key, may_start) = self.writes.admit(write);
        if may_start {
            self.start(now, key);
        } else {
            self.observer.counters.writes_delayed += 1;
        }
    }

    /// Starts a change whose blocks it holds: from here on its blocks are not inserted, and fills in flight are marked.
    fn start(&mut self, now: Nanos, key: SlabKey) {
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
        }
        self.send_parts(key);
    }

    /// Sends as many parts of a change as may be outstanding.
    fn send_parts(&mut self, key: SlabKey) {
        let block_size = self.settings.block_size;
        loop {
            let write = self.writes.writes.get_mut(key).expect("a change with parts to send is in flight");
            let done = write.error.is_some() || write.cursor == write.range.end();
            if done || write.parts_pending >= self.settings.limits.write_parts_max {
                return;
            }
            let zero_max =
                self.settings.limits.zero_part_bytes_max.0 >> block_size.shift() << block_size.shift();
            let bytes_max = match write.change {
                Change::Write { .. } => self.part_bytes_max,
                _ => self.part_bytes_max.min(zero_max.max(block_size.bytes())),
            };
            let end = write.next_part_end(bytes_max, block_size);
            let is_write = matches!(write.change, Change::Write { .. });
            let mut blocks = ByteRange::new(write.cursor, end - write.cursor).blocks(block_size);
            // No block can enter while the change is in flight, so what is not cached now needs no copy.
            let keep = is_write && self.cache.resident_blocks() > 0 && blocks.any(|b| self.cache.contains(b));
            let part = write.cut_part(key, end, keep);
            self.enqueue(Kind::Part(part));
        }
    }

    fn part_ended(&mut self, now: Nanos, part: WritePart, result: Result<Vec<u8>, OriginError>) {
        let blocks = part.range.blocks(self.settings.block_size);
        let write =
            self.writes.writes.get_mut(part.write).expect("a change is in flight until its last part ended");
        write.parts_pending -= 1;
        match result {
            Ok(_) => {
                let zeroes = matches!(write.change, Change::WriteZeroes { .. });
                self.apply(&part, blocks, zeroes);
            }
            Err(error) => {
                write.error = write.error.or(Some(Errno(error.errno())));
                self.cache.invalidate(blocks);
                if matches!(error, OriginError::OutcomeUnknown { .. }) {
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

    /// Blocks in doubt are not cached and not about to be: true of those that became so by widening, too.
    fn invalidate_doubt(&mut self) {
        let runs: Vec<BlockRange> = self.doubt.iter().collect();
        for blocks in runs {
            self.cache.invalidate(blocks);
            while let Some(fill_key) = self.reads.joinable.take_overlapping(blocks) {
                if let Some(InFlight { kind: Kind::Fill(fill), .. }) = self.in_flight.get_mut(fill_key) {
                    fill.marked = true;
                }
            }
        }
    }

    /// The origin did this part: what is cached of it becomes what the origin holds.
    fn apply(&mut self, part: &WritePart, blocks: BlockRange, zeroes: bool) {
        if self.cache.resident_blocks() == 0 {
            return;
        }
        if !zeroes && part.kept.is_none() {
            // A trim (whatever the origin returns from now on is right, so it must be asked), or a write of which
            // nothing was cached when it started, and nothing entered since.
            self.cache.invalidate(blocks);
            return;
        }
        let block_size = self.settings.block_size;
        let zero_block = if zeroes { vec![0; block_size.bytes() as usize] } else { Vec::new() };
        for block in blocks {
            let span = span_in(part.range, block, block_size);
            match &part.kept {
                Some(data) => {
                    let at = block.offset(block_size) + span.start as u64 - part.range.offset;
                    self.cache.patch(block, span.start, &data[at as usize..at as usize + span.len()]);
                }
                None => {
                    self.cache.patch(block, span.start, &zero_block[..span.len()]);
                }
            }
        }
    }

    /// All parts of a change ended: answers, and starts those that waited for it.
    fn finish(&mut self, now: Nanos, key: SlabKey) {
        let mut ended = vec![key];
        while let Some(key) = ended.pop() {
            let write = self.writes.finish(key);
            self.observer.writes.record(now.saturating_since(write.started));
            let result = write.error.map_or(Ok(Vec::new()), Err);
            self.reply(Reply { tag: write.tag, result });
            for next in self.writes.startable() {
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

    /// Whether a request may be served at all.
    fn check(&self, range: ByteRange, changes: bool) -> Result<(), Errno> {
        if self.draining {
            return Err(Errno::SHUTDOWN);
        }
        if changes && self.is_read_only() {
            return Err(Errno::PERM);
        }
        let end = range.offset.checked_add(range.length);
        if end.is_none_or(|end| end > self.size_bytes()) {
            return Err(if changes { Errno::NO_SPACE } else { Errno::INVALID });
        }
        let unit = u64::from(self.settings.origin.block_size_min.max(1));
        if changes
            && !(range.offset.is_multiple_of(unit)
                && (range.length.is_multiple_of(unit) || end == Some(self.size_bytes())))
        {
            return Err(Errno::INVALID);
        }
        Ok(())
    }

    fn refuse(&mut self, tag: RequestTag, errno: Errno) {
        self.reply(Reply { tag, result: Err(errno) });
    }

    fn reply(&mut self, reply: Reply) {
        self.observer.counters.errors += u64::from(reply.result.is_err());
        self.replies.push(reply);
    }

    // ---- The origin's side ------------------------------------------------------------------------------------

    fn enqueue(&mut self, kind: Kind) -> SlabKey {
        let key = self.in_flight.insert(InFlight { kind, submitted_at: Nanos::ZERO });
        self.queue.push_back(key);
        key
    }

    /// Moves the requests that the origin may be asked now into `requests`. Called when a batch of requests was handed
    /// in: until then adjacent misses merge.
    pub fn take_submissions(&mut self, now: Nanos, requests: &mut Vec<OriginRequest>) {
        self.observer.outstanding(now, self.requests_in_flight());
        self.pump_prewarm(now);
        while self.at_origin < self.settings.limits.origin_requests_max {
            let Some(key) = self.queue.pop_front() else { return };
            let entry = self.in_flight.get_mut(key).expect("what is queued is in flight");
            entry.submitted_at = now;
            let counters = &mut self.observer.counters;
            counters.origin_requests += 1;
            let operation = match &mut entry.kind {
                Kind::Fill(fill) => {
                    fill.submitted = true;
                    counters.origin_reads += 1;
                    counters.origin_bytes_read += fill.bytes.length;
                    OriginOperation::Read { range: fill.bytes }
                }
                Kind::Part(part) => {
                    counters.origin_bytes_written += part.range.length;
                    part.operation.take().expect("a part is submitted once")
                }
                Kind::Flush { .. } => OriginOperation::Flush,
            };
            self.at_origin += 1;
            requests.push(OriginRequest { id: OriginRequestId(key.0), operation });
        }
    }

    /// The origin answered. A completion of nothing that is in flight is ignored: an origin that answers twice must not
    /// harm anybody.
    pub fn complete(&mut self, now: Nanos, completion: OriginCompletion) {
        let key = SlabKey(completion.id.0);
        let submitted = self.in_flight.get(key).is_some_and(|entry| match &entry.kind {
            Kind::Fill(fill) => fill.submitted,
            Kind::Part(part) => part.operation.is_none(),
            Kind::Flush { .. } => true,
        });
        if !submitted {
            tracing::error!(
                id = completion.id.0,
                "origin completed a request that is not outstanding; ignored"
            );
            return;
        }
        let Some(entry) = self.in_flight.remove(key) else { return };
        self.at_origin -= 1;
        self.observer.origin.record(now.saturating_since(entry.submitted_at));
        self.observer.counters.origin_errors += u64::from(completion.result.is_err());
        match entry.kind {
            Kind::Fill(fill) => self.fill_ended(now, key, fill, completion.result),
            Kind::Part(part) => self.part_ended(now, part, completion.result),
            Kind::Flush { tag } => {
                self.flushes -= 1;
                let result = completion.result.map(|_| Vec::new()).map_err(|error| Errno(error.errno()));
                self.reply(Reply { tag, result });
            }
        }
    }

    /// Moves the replies that are ready to the end of `replies`.
    pub fn take_replies(&mut self, replies: &mut Vec<Reply>) {
        replies.append(&mut self.replies);
    }

    /// The batch of requests that were received at `started` has been answered as far as it could be: their hits took
    /// until `now`. Called once per batch, so that a hit costs no reading of a clock.
    pub fn end_batch(&mut self, started: Nanos, now: Nanos) {
        self.observer.served(std::mem::take(&mut self.served_in_batch), started, now);
    }

    // ---- Warm-up, quota and other commands --------------------------------------------------------------------

    /// Starts a warm-up in place of the one that goes on.
    pub fn prewarm(&mut self, now: Nanos, plan: PrewarmPlan) {
        self.cancel_prewarm();
        self.prewarm_generation = self.prewarm_generation.wrapping_add(1);
        self.prewarm = Some(Prewarm::new(plan, self.size_bytes(), self.settings.block_size, now));
    }

    /// Ends the warm-up; its reads at the origin complete and are inserted.
    pub fn cancel_prewarm(&mut self) {
        if let Some(prewarm) = &mut self.prewarm {
            prewarm.end(PrewarmEnd::Cancelled);
        }
    }

    /// Puts prewarm reads behind the clients' requests, if none of those waits.
    fn pump_prewarm(&mut self, now: Nanos) {
        let limits = self.settings.limits;
        let block_size = self.settings.block_size;
        let bytes_max = limits.prewarm_read_bytes.0.min(self.part_bytes_max);
        let blocks_max = (bytes_max >> block_size.shift()).max(1);
        let mut scan = PREWARM_SCAN_BLOCKS_MAX;
        if let Some(prewarm) = self.prewarm.as_mut().filter(|_| self.cache.quota_blocks() == 0) {
            prewarm.end(PrewarmEnd::Full);
        }
        while self.queue.len() + self.at_origin < limits.origin_requests_max
            && self
                .prewarm
                .as_ref()
                .is_some_and(|prewarm| prewarm.may_read(now, limits.prewarm_outstanding_max))
        {
            if scan == 0 {
                return;
            }
            let prewarm = self.prewarm.as_mut().expect("checked above");
            let (cache, reads, writes, doubt) = (&self.cache, &self.reads, &self.writes, &self.doubt);
            let run = prewarm.next_run(blocks_max, &mut scan, |block| {
                let one = BlockRange { first: block, end: block + 1 };
                cache.contains(BlockIndex(block))
                    || reads.joinable.overlaps(one)
                    || writes.held.overlaps(one)
                    || doubt.overlaps(one)
            });
            let Some(blocks) = run else {
                prewarm.end_if_done();
                continue;
            };
            prewarm.sent(blocks.count(), now);
            self.send_fill(blocks, self.bytes_of(blocks), false, None);
        }
    }

    fn prewarm_read_ended(&mut self, fill: &Fill, inserted_blocks: u64, arrived: bool) {
        let Some(prewarm) = &mut self.prewarm else { return };
        if fill.prewarm != Some(self.prewarm_generation) {
            return;
        }
        let bytes = |blocks: u64| Bytes(blocks << self.settings.block_size.shift());
        prewarm.outstanding -= 1;
        prewarm.progress.loaded_bytes += bytes(inserted_blocks);
        prewarm.progress.failed_bytes += bytes(fill.blocks.count() - inserted_blocks);
        if arrived && !fill.marked && inserted_blocks < fill.blocks.count() {
            prewarm.end(PrewarmEnd::Full);
        }
        prewarm.end_if_done();
    }

    /// Sets the quota; whole blocks of it are used. A smaller one is put in force by [`VolumeMachine::step`].
    pub fn set_quota(&mut self, quota: Bytes) {
        self.settings.quota = quota;
        self.cache.set_quota(quota.0 >> self.settings.block_size.shift());
    }

    /// Works off a bounded part of a quota change; whether there is more to do at once.
    pub fn step(&mut self) -> bool {
        self.cache.step(QUOTA_STEP_SLOTS) != Progress::Settled
    }

    /// Whether a quota change waits for [`VolumeMachine::step`].
    pub fn wants_step(&self) -> bool {
        self.cache.progress() != Progress::Settled
    }

    /// When [`VolumeMachine::take_submissions`] should be called although nothing happened; `None`: not before something does.
    pub fn wake_at(&self) -> Option<Nanos> {
        let limits = self.settings.limits;
        // Where the origin has no room, its next answer is waited for, not the time: that would be a busy loop.
        let has_room = self.queue.len() + self.at_origin < limits.origin_requests_max;
        self.prewarm.as_ref().filter(|_| has_room)?.wake_at(limits.prewarm_outstanding_max)
    }

    /// Declares that no write of unknown outcome can be applied any more: the ranges in doubt are served and cached
    /// again. Called when the origin says so, or by an operator who knows.
    pub fn settle(&mut self) {
        // Reads that started in doubt are marked and stay so.
        self.doubt.clear();
    }

    /// Whether a write has an unknown outcome.
    pub fn is_in_doubt(&self) -> bool {
        !self.doubt.is_empty()
    }

    /// How far the last warm-up is.
    pub fn prewarm_progress(&self) -> Option<PrewarmProgress> {
        self.prewarm.as_ref().map(|prewarm| prewarm.progress)
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        self.observer.counters
    }

    /// What is known of the volume; `end_interval` starts a new interval of latencies.
    pub fn observe(&mut self, now: Nanos, end_interval: bool) -> VolumeObservation {
        let block_size = self.settings.block_size;
        let observation = VolumeObservation {
            at: now,
            interval_started: self.observer.interval_started,
            counters: self.observer.counters,
            outstanding_max: self.observer.outstanding_max(),
            idle: self.observer.idle(now),
            latencies: self.observer.latencies(),
            locality: self.locality.as_mut().map(|locality| locality.snapshot(now)),
            cache: self.cache.statistics(),
            quota_progress: self.cache.progress(),
            quota_bytes: Bytes(u64::from(self.cache.quota_blocks()) << block_size.shift()),
            resident_bytes: self.cache.resident_bytes(),
            held_bytes: self.cache.held_bytes(),
            bookkeeping_bytes: self.cache.footprint_bytes(),
            prewarm: self.prewarm_progress(),
            in_doubt: self.doubt.iter().map(|blocks| self.bytes_of(blocks)).collect(),
            requests_in_flight: self.requests_in_flight(),
            origin_in_flight: self.at_origin,
            writes_waiting: self.writes.waiting_len(),
        };
        if end_interval {
            self.observer.end_interval(now, self.requests_in_flight());
        }
        observation
    }
}

/// The bytes of `range` that lie in `block`, counted from the block's start.
#[inline]
fn span_in(range: ByteRange, block: BlockIndex, block_size: BlockSize) -> std::ops::Range<usize> {
    let start = block.offset(block_size);
    let low = range.offset.max(start) - start;
    let high = (range.end() - start).min(block_size.bytes());
    low as usize..high as usize
}
