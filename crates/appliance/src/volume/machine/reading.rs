//! Reads: hits, misses, and the fills that bring what was missed.

use super::super::prewarm::Destination;
use super::super::reads::{Delivered, Fill, Read};
use super::super::request::{Errno, InPlaceOutcome, Missed, Place, ReadOutcome, Reply, RequestTag};
use super::flashing::{FlashRun, FoundOnFlash, demote};
use super::{InFlight, Kind, VolumeMachine, span_in};
use crate::slab::SlabKey;
use forebay_cache::flash::FlashAddress;
use forebay_cache::{ANTICIPATED_MAX, Inserted, Insertion, Refusal};
use forebay_origin::OriginError;
use forebay_units::{BlockIndex, BlockRange, ByteRange, Nanos};

/// Who asks for a fill: a client's read, or what is to be loaded.
#[derive(Clone, Copy, Debug)]
pub(super) struct FillFor {
    pub(super) waiter: Option<SlabKey>,
    pub(super) load: Option<(SlabKey, Destination)>,
}

/// What became of a block that was to enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    Yes,
    No,
    /// There is no quota.
    NothingDoes,
}

impl FillFor {
    pub(super) fn read(key: SlabKey) -> FillFor {
        FillFor { waiter: Some(key), load: None }
    }
}

impl VolumeMachine {
    /// A client reads `range`. If all of it is cached, the bytes are appended to `output`; else a [`Reply`] for `tag` follows, and
    /// `output` is as it was.
    pub fn read(
        &mut self,
        now: Nanos,
        tag: RequestTag,
        range: ByteRange,
        output: &mut Vec<u8>,
    ) -> ReadOutcome {
        let mut places = Vec::new();
        match self.read_in_place(now, range, &mut places) {
            InPlaceOutcome::Served => {
                places.iter().for_each(|place| output.extend_from_slice(self.bytes_at(*place)));
                ReadOutcome::Served
            }
            InPlaceOutcome::Refused(errno) => ReadOutcome::Refused(errno),
            InPlaceOutcome::Missed(missed) => {
                self.read_missed(now, tag, range, missed, &places);
                ReadOutcome::Pending
            }
        }
    }

    /// A client reads `range`: appends where its bytes are, as far as they are cached without a gap from its start. Changes
    /// nothing but the order of the cache and what is observed, so that bytes located before stay where they are.
    #[inline]
    pub fn read_in_place(&mut self, now: Nanos, range: ByteRange, places: &mut Vec<Place>) -> InPlaceOutcome {
        self.observer.read(range);
        if let Err(errno) = self.check(range, false) {
            self.observer.counters.errors += 1;
            return InPlaceOutcome::Refused(errno);
        }
        let blocks = range.blocks(self.settings.block_size);
        if let Some(locality) = &mut self.locality {
            locality.observe_read(blocks.first, blocks.count(), now);
        }
        if self.caches_nothing() {
            // Counted, so that hits, misses and bypasses add up to the blocks read, whatever the quota was.
            self.cache.bypass(blocks.count());
            if range.length > 0 {
                return InPlaceOutcome::Missed(Missed { block: BlockIndex(blocks.first) });
            }
            return InPlaceOutcome::Served;
        }
        for block in blocks {
            let Some(slot) = self.cache.locate(block) else {
                return InPlaceOutcome::Missed(Missed { block });
            };
            let span = span_in(range, block, self.settings.block_size);
            places.push(Place { slot, start: span.start as u32, end: span.end as u32 });
        }
        self.observer.counters.reads_hit += 1;
        self.served_in_batch += 1;
        self.passed(range);
        InPlaceOutcome::Served
    }

    /// Reads of `ranges` follow, each of which is inside the volume: fetches together what their look-ups need of memory, which else is
    /// waited for one after the other. Changes nothing.
    pub fn anticipate(&self, ranges: &[ByteRange]) {
        let mut blocks = [BlockIndex(0); ANTICIPATED_MAX];
        let asked = ranges.iter().flat_map(|range| range.blocks(self.settings.block_size));
        let count = blocks.iter_mut().zip(asked).map(|(block, asked)| *block = asked).count();
        self.cache.anticipate(&blocks[..count]);
    }

    /// The bytes at a place.
    #[inline]
    pub fn bytes_at(&self, place: Place) -> &[u8] {
        &self.cache.bytes_in(place.slot)[place.start as usize..place.end as usize]
    }

    /// Goes on with a read that [`VolumeMachine::read_in_place`] found not to be cached as a whole, and `prefix` the places that
    /// it appended; nothing else was told in between. A [`Reply`] for `tag` follows.
    pub fn read_missed(
        &mut self,
        now: Nanos,
        tag: RequestTag,
        range: ByteRange,
        missed: Missed,
        prefix: &[Place],
    ) {
        if self.caches_nothing() {
            return self.pass_through(now, tag, range);
        }
        let mut bytes = Vec::new();
        prefix.iter().for_each(|place| bytes.extend_from_slice(self.bytes_at(*place)));
        self.look_elsewhere(now, tag, range, missed.block, &bytes);
    }

    /// Whether reads may go past the cache: there is no quota, and nothing left of an earlier one. As long as a block is
    /// resident it must be served: a read past it could see a write that is in flight, and a later one the block, which is
    /// older.
    fn caches_nothing(&self) -> bool {
        self.cache.quota_blocks() == 0
            && self.cache.resident_blocks() == 0
            && self.flash.as_ref().is_none_or(|flash| flash.quota_segments() == 0 && flash.is_empty())
    }

    /// A read of a volume that caches nothing: as it is, widened only to the origin's smallest unit.
    fn pass_through(&mut self, now: Nanos, tag: RequestTag, range: ByteRange) {
        let unit = u64::from(self.settings.origin.block_size_min.max(1));
        let (mut offset, end) = (range.offset / unit * unit, range.end().next_multiple_of(unit));
        let end = end.min(self.size_bytes());
        let read = Read {
            tag,
            started: now,
            range,
            buffer: Vec::new(),
            asks_origin: true,
            fills_pending: 0,
            error: None,
            age: None,
            is_left_out: self.askers.is_left_out(),
        };
        let key = self.reads.reads.insert(read);
        while offset < end {
            let bytes = ByteRange::new(offset, (end - offset).min(self.part_bytes_max));
            self.send_fill(BlockRange { first: 0, end: 0 }, bytes, Vec::new(), true, FillFor::read(key));
            offset = bytes.end();
        }
    }

    /// A read whose blocks before `missed` were hits with the bytes `prefix`; `missed` was looked up and is not there.
    fn look_elsewhere(
        &mut self,
        now: Nanos,
        tag: RequestTag,
        range: ByteRange,
        missed: BlockIndex,
        prefix: &[u8],
    ) {
        let missed_offset = missed.offset(self.settings.block_size).max(range.offset);
        self.passed(ByteRange::new(range.offset, missed_offset - range.offset));
        let age = self.touched(now, ByteRange::new(missed_offset, range.end() - missed_offset), false);
        let mut read = Read {
            tag,
            started: now,
            range,
            buffer: Vec::new(),
            asks_origin: false,
            fills_pending: 0,
            error: None,
            age,
            is_left_out: self.askers.is_left_out(),
        };
        if !prefix.is_empty() {
            read.copy_in(range.offset, prefix);
        }
        let key = self.reads.reads.insert(read);
        let blocks = range.blocks(self.settings.block_size);
        let mut joined_until = 0;
        let mut run: Option<u64> = None;
        let mut flash_run = FlashRun::default();
        for block in missed.0..blocks.end {
            let hit = if block == missed.0 { None } else { self.cache.get(BlockIndex(block)) };
            if let Some(bytes) = hit {
                let span = span_in(range, BlockIndex(block), self.settings.block_size);
                let offset = BlockIndex(block).offset(self.settings.block_size) + span.start as u64;
                let read = self.reads.reads.get_mut(key).expect("inserted above");
                read.copy_in(offset, &bytes[span]);
                self.fetch(run.take(), block, key);
                self.fetch_flash(&mut flash_run, key);
            } else if block < joined_until {
                debug_assert!(run.is_none() && flash_run.is_empty());
            } else if let Some((fill_blocks, fill_key)) = self.reads.joinable_at(BlockIndex(block)) {
                self.fetch(run.take(), block, key);
                self.fetch_flash(&mut flash_run, key);
                self.wait_for(fill_key, key);
                self.observer.counters.reads_coalesced += 1;
                joined_until = fill_blocks.end;
            } else if let Some(found) = self.find_on_flash(BlockIndex(block), range, key) {
                self.fetch(run.take(), block, key);
                match found {
                    FoundOnFlash::Answered => self.fetch_flash(&mut flash_run, key),
                    FoundOnFlash::At(address) => {
                        if !flash_run.takes(block, address, self.settings.block_size.bytes()) {
                            self.fetch_flash(&mut flash_run, key);
                        }
                        flash_run.push(block, address);
                    }
                }
            } else {
                self.fetch_flash(&mut flash_run, key);
                run.get_or_insert(block);
            }
        }
        self.fetch(run, blocks.end, key);
        self.fetch_flash(&mut flash_run, key);
        // Everything may have been in the buffers of the flash tier.
        if self.reads.reads.get(key).is_some_and(|read| read.fills_pending == 0) {
            let read = self.reads.reads.remove(key).expect("looked up above");
            self.count_answered(now, Delivered { started: read.started, asked_origin: false }, false);
            self.reply(Reply::new(read.tag, Ok(read.buffer)));
        }
    }

    fn count_answered(&mut self, now: Nanos, read: Delivered, has_failed: bool) {
        let latency = now.saturating_since(read.started);
        self.observer.missed(latency, has_failed);
        if read.asked_origin {
            self.foreground_answered(now, read.started);
        }
        self.observer.counters.reads_flash += u64::from(!read.asked_origin);
    }

    /// Asks the origin for the blocks `run..end`, none of which is cached or being filled, for the read `key`.
    fn fetch(&mut self, run: Option<u64>, end: u64, key: SlabKey) {
        let Some(mut first) = run else { return };
        let blocks = BlockRange { first, end };
        let marked = self.is_untrustworthy(blocks);
        if marked && !self.takes_nothing() {
            self.writes.want(blocks);
        }
        let blocks_max = self.part_bytes_max >> self.settings.block_size.shift();
        while first < end {
            let piece = BlockRange { first, end: end.min(first + blocks_max) };
            first = piece.end;
            if marked || !self.merge(piece, key) {
                self.send_fill(piece, self.bytes_of(piece), Vec::new(), marked, FillFor::read(key));
            }
        }
    }

    /// Whether neither memory nor flash has a quota.
    pub(super) fn takes_nothing(&self) -> bool {
        self.cache.quota_blocks() == 0 && self.flash.as_ref().is_none_or(|flash| flash.quota_segments() == 0)
    }

    /// Whether data of these blocks that the origin is asked for now may be out of date when it comes.
    pub(super) fn is_untrustworthy(&self, blocks: BlockRange) -> bool {
        self.takes_nothing() || self.writes.changes(blocks) || self.doubt.overlaps(blocks)
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
        if fill.submitted || fill.is_flash() {
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
            let read = self.reads.reads.get_mut(key).expect("the caller inserted it");
            read.fills_pending += 1;
            read.asks_origin |= !fill.is_flash();
        }
    }

    pub(super) fn send_fill(
        &mut self,
        blocks: BlockRange,
        bytes: ByteRange,
        flash: Vec<FlashAddress>,
        marked: bool,
        asked: FillFor,
    ) {
        let FillFor { waiter, load } = asked;
        let age = waiter.and_then(|key| self.reads.reads.get(key)).and_then(|read| read.age);
        let fill = Fill {
            age,
            flash,
            blocks,
            bytes,
            marked,
            submitted: false,
            load,
            waiters: waiter.into_iter().collect(),
        };
        if let Some(key) = waiter {
            let read = self.reads.reads.get_mut(key).expect("the caller inserted it");
            read.fills_pending += 1;
            read.asks_origin |= !fill.is_flash();
        }
        let key = self.enqueue(Kind::Fill(fill));
        if !marked {
            self.reads.joinable.insert(blocks, key);
        }
    }

    pub(super) fn fill_ended(
        &mut self,
        now: Nanos,
        key: SlabKey,
        fill: Fill,
        result: Result<Vec<u8>, OriginError>,
    ) {
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
                self.prefer_cached(&fill, data);
            }
        } else {
            self.reads.joinable.remove(fill.blocks, key);
            if let Ok(data) = &data {
                inserted_blocks = self.insert(&fill, data);
            }
        }
        if fill.load.is_some() {
            self.load_ended(&fill, inserted_blocks, data.as_ref().err().copied());
        }
        for (index, read) in fill.waiters.iter().enumerate() {
            let last = index + 1 == fill.waiters.len();
            if let Some((reply, delivered)) = self.reads.deliver(*read, fill.bytes, &mut data, last) {
                self.count_answered(now, delivered, reply.result.is_err());
                self.reply(reply);
            }
        }
    }

    /// Replaces what a marked fill brought by what is cached meanwhile. The fill may have seen a change that is in flight,
    /// of which readers of the cached block will learn only when it is complete: nobody may see it and then not. What is only on
    /// the flash device would have to be read for that; it leaves instead, so that later readers see what the origin holds, too.
    fn prefer_cached(&mut self, fill: &Fill, data: &mut [u8]) {
        if self.cache.resident_blocks() == 0 && self.flash.is_none() {
            return;
        }
        let block_size = self.settings.block_size;
        let range = fill.bytes;
        for block in range.blocks(block_size) {
            let buffered = || self.flash.as_ref()?.buffered(block);
            if let Some(bytes) = self.cache.peek(block).or_else(buffered) {
                let span = span_in(range, block, block_size);
                let at = (block.offset(block_size) + span.start as u64 - range.offset) as usize;
                data[at..at + span.len()].copy_from_slice(&bytes[span]);
            } else if !fill.is_flash()
                && let Some(flash) = &mut self.flash
            {
                flash.remove(block);
            }
        }
    }

    /// Inserts what an unmarked fill brought; how many blocks entered memory, or flash where memory takes none.
    fn insert(&mut self, fill: &Fill, data: &[u8]) -> u64 {
        debug_assert!(
            !self.writes.changes(fill.blocks) && !self.doubt.overlaps(fill.blocks),
            "a fill of {:?} is not marked although a write overlaps it",
            fill.blocks
        );
        let migrated_blocks = match fill.load {
            Some((_, Destination::Flash)) => self.put_on_flash(fill.blocks, data),
            _ => 0,
        };
        let insertion = match fill.load {
            Some((_, Destination::Flash)) if fill.waiters.is_empty() => return migrated_blocks,
            Some((_, Destination::Memory(insertion))) if fill.waiters.is_empty() => insertion,
            _ => Insertion::Miss,
        };
        let block_bytes = self.settings.block_size.bytes() as usize;
        let is_for_left_out = self.is_for_left_out(fill);
        let mut inserted_blocks = 0;
        for (block, bytes) in fill.blocks.zip(data.chunks(block_bytes)) {
            if is_for_left_out && self.would_go_to_flash(fill, block) {
                continue;
            }
            // At the head, too, what is loaded takes free room only; at the tail the policy sees to that.
            if insertion == Insertion::Prewarm && self.cache.quota_blocks() > 0 && self.cache.is_full() {
                continue;
            }
            match self.enter(block, bytes, insertion, fill.load.is_some()) {
                Entered::Yes => inserted_blocks += 1,
                Entered::No => {}
                Entered::NothingDoes => break,
            }
        }
        inserted_blocks.max(migrated_blocks)
    }

    /// Whether nobody waits for a fill but clients that bring nothing onto flash.
    fn is_for_left_out(&self, fill: &Fill) -> bool {
        let is_left_out = |key: &SlabKey| self.reads.reads.get(*key).is_some_and(|read| read.is_left_out);
        self.placed.is_some() && fill.load.is_none() && fill.waiters.iter().all(is_left_out)
    }

    /// Whether memory, where `block` of a fill would enter, would have it written to flash once it leaves: another time, or where others have their place.
    fn would_go_to_flash(&self, fill: &Fill, block: BlockIndex) -> bool {
        fill.is_flash() || self.placed.as_ref().is_some_and(|placed| placed.admits(block))
    }

    /// A block that is not cached enters memory, or flash where memory takes none. `is_load`: it was decided elsewhere what is loaded.
    pub(super) fn enter(
        &mut self,
        block: BlockIndex,
        bytes: &[u8],
        insertion: Insertion,
        is_load: bool,
    ) -> Entered {
        let VolumeMachine { cache, flash, placed, .. } = self;
        let placed = placed.as_ref();
        debug_assert!(!cache.contains(block), "block {} was filled twice", block.0);
        let inserted = cache.insert_demoting(block, bytes, insertion, |victim, bytes| {
            demote(flash.as_mut(), placed, victim, bytes);
        });
        match inserted {
            // Memory takes nothing: flash may.
            Inserted::Refused(Refusal::NoQuota) if flash.is_some() => {
                let mut whole = bytes.to_vec();
                whole.resize(self.settings.block_size.bytes() as usize, 0);
                match demote(flash.as_mut(), placed.filter(|_| !is_load), block, &whole) {
                    true => Entered::Yes,
                    false => Entered::No,
                }
            }
            Inserted::Refused(Refusal::NoQuota) => Entered::NothingDoes,
            Inserted::Refused(_) => Entered::No,
            _ => Entered::Yes,
        }
    }
}
