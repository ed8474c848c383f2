//! What is asked by others than clients: warm-up, quota, the end of doubt, observation. Clients' cache requests are here too: they load as
//! a warm-up does.

use super::super::listing::{Listing, ListingPiece};
use super::super::observation::{Counters, VolumeObservation, VolumePulse};
use super::super::prewarm::{
    PREWARM_SCAN_BLOCKS_MAX, Prewarm, PrewarmEnd, PrewarmPlan, PrewarmProgress, Purpose,
};
use super::super::reads::Fill;
use super::super::request::{Errno, Reply, RequestTag};
use super::flashing::demote;
use super::reading::FillFor;
use super::{QUOTA_STEP_SLOTS, VolumeMachine};
use crate::slab::SlabKey;
use forebay_cache::flash::FlashPartition;
use forebay_cache::{Insertion, Progress};
use forebay_units::{BlockIndex, BlockRange, BlockSize, ByteRange, Bytes, Nanos};
use std::sync::mpsc::Sender;

impl VolumeMachine {
    /// Starts a warm-up in place of the one that goes on.
    pub fn prewarm(&mut self, plan: PrewarmPlan) {
        self.start_prewarm(Prewarm::new(plan, self.size_bytes(), self.settings.block_size));
    }

    /// As [`VolumeMachine::prewarm`], of a list that was put in shape elsewhere.
    pub(crate) fn start_prewarm(&mut self, prewarm: Prewarm) {
        if let Some(key) = self.loads.warm_up.take() {
            self.loads.all.remove(key);
        }
        let blocks = prewarm.progress.total_bytes.0 >> self.settings.block_size.shift();
        self.cache.open_own_partition(if prewarm.own_partition { blocks } else { 0 });
        let key = self.loads.all.insert(prewarm);
        self.loads.warm_up = Some(key);
        self.finish_if_ended(key);
    }

    /// Ends the warm-up; its reads at the origin complete and are inserted.
    pub fn cancel_prewarm(&mut self) {
        if let Some(prewarm) = self.loads.warm_up_mut() {
            prewarm.end(PrewarmEnd::Cancelled);
        }
        self.cache.close_own_partition();
    }

    /// From `now` on the warm-up reads at most so many bytes per second, 0: none; `None`: as fast as its outstanding reads allow.
    pub fn set_prewarm_rate(&mut self, now: Nanos, rate: Option<Bytes>) {
        if let Some(prewarm) = self.loads.warm_up_mut() {
            prewarm.set_rate(now, rate);
        }
    }

    /// A client wants `range` loaded: what is neither cached nor on its way is, by the rules of warm-up and as fast as it goes.
    pub(super) fn load(&mut self, tag: RequestTag, range: ByteRange) {
        if let Err(errno) = self.check(range, false) {
            return self.refuse(tag, errno);
        }
        // With less quota than was asked for it would only push out its own blocks.
        let quota_bytes = (u64::from(self.cache.quota_blocks()) << self.settings.block_size.shift())
            .max(self.flash_quota().0);
        let plan = PrewarmPlan {
            ranges: vec![ByteRange::new(range.offset, range.length.min(quota_bytes))],
            bytes_per_second: None,
            insertion: Insertion::Miss,
            own_partition: false,
        };
        let mut load = Prewarm::new(plan, self.size_bytes(), self.settings.block_size);
        load.purpose = Purpose::Asked(tag);
        let key = self.loads.all.insert(load);
        self.loads.asked.push_back(key);
        self.finish_if_ended(key);
    }

    /// Answers a cache request, or says of a migration how it ended, of which nothing is left to do.
    pub(super) fn finish_if_ended(&mut self, key: SlabKey) {
        let Some(load) = self.loads.all.get_mut(key) else { return };
        load.end_if_done();
        let (Some(ended), 0) = (load.progress.ended, load.outstanding) else { return };
        let error = load.error;
        match load.purpose {
            // The last one is kept, to be asked about.
            Purpose::WarmUp => self.cache.close_own_partition(),
            Purpose::Asked(tag) => {
                self.loads.all.remove(key);
                self.loads.asked.retain(|asked| *asked != key);
                self.reply(Reply::new(tag, error.map_or(Ok(Vec::new()), Err)));
            }
            Purpose::Migration(chunk, placement) => {
                self.loads.all.remove(key);
                self.loads.migrations.retain(|migration| *migration != key);
                self.migrated(chunk, placement, ended == PrewarmEnd::Done && error.is_none());
            }
        }
    }

    /// Puts reads of what is to be loaded behind the clients' requests, if none of those waits.
    pub(super) fn pump_loads(&mut self, now: Nanos) {
        let limits = self.settings.limits;
        let block_size = self.settings.block_size;
        let bytes_max = limits.prewarm_read_bytes.0.min(self.part_bytes_max);
        let mut scan = PREWARM_SCAN_BLOCKS_MAX;
        if self.takes_nothing()
            && let Some(prewarm) = self.loads.warm_up_mut().filter(|prewarm| prewarm.has_more())
        {
            prewarm.end(PrewarmEnd::Full);
        }
        while self.queue.len() + self.at_origin < limits.origin_requests_max {
            let Some(key) = self.loads.next(now, limits.prewarm_outstanding_max) else { return };
            if scan == 0 {
                return;
            }
            let (cache, flash) = (&self.cache, &self.flash);
            let (reads, writes, doubt) = (&self.reads, &self.writes, &self.doubt);
            let load = self.loads.all.get_mut(key).expect("the next load is there");
            let blocks_max = (load.read_bytes_max(bytes_max) >> block_size.shift()).max(1);
            let run = load.next_run(blocks_max, &mut scan, |block| {
                let one = BlockRange { first: block, end: block + 1 };
                cache.contains(BlockIndex(block))
                    || flash.as_ref().is_some_and(|flash| flash.contains(BlockIndex(block)))
                    || reads.joinable.overlaps(one)
                    || writes.changes(one)
                    || doubt.overlaps(one)
            });
            let Some(blocks) = run else {
                self.finish_if_ended(key);
                continue;
            };
            load.sent(blocks.count(), now);
            let load = Some((key, load.destination()));
            self.send_fill(blocks, self.bytes_of(blocks), Vec::new(), false, FillFor { waiter: None, load });
        }
    }

    /// A read of what is to be loaded ended; `error` says how, if it brought nothing.
    pub(super) fn load_ended(&mut self, fill: &Fill, inserted_blocks: u64, error: Option<Errno>) {
        let bytes = |blocks: u64| Bytes(blocks << self.settings.block_size.shift());
        let Some((key, _)) = fill.load else { return };
        let Some(load) = self.loads.all.get_mut(key) else { return };
        load.outstanding -= 1;
        load.progress.loaded_bytes += bytes(inserted_blocks);
        load.progress.failed_bytes += bytes(fill.blocks.count() - inserted_blocks);
        load.error = load.error.or(error);
        if error.is_none() && !fill.marked && inserted_blocks < fill.blocks.count() {
            load.end(PrewarmEnd::Full);
        }
        self.finish_if_ended(key);
    }

    /// Sets the quota; whole blocks of it are used. A smaller one is put in force by [`VolumeMachine::step`].
    pub fn set_quota(&mut self, quota: Bytes) {
        self.settings.quota = quota;
        self.cache.set_quota(quota.0 >> self.settings.block_size.shift());
    }

    /// Tells `listener` what is in memory, a piece with each [`VolumeMachine::step`].
    pub fn list_resident(&mut self, listener: Sender<ListingPiece>) {
        self.listings.push_back(Listing::new(listener));
    }

    /// Works off a bounded part of a quota change, and of a listing; whether there is more to do at once.
    pub fn step(&mut self) -> bool {
        let VolumeMachine { cache, flash, placed, .. } = self;
        cache.step_demoting(QUOTA_STEP_SLOTS, |victim, bytes| {
            demote(flash.as_mut(), placed.as_ref(), victim, bytes);
        });
        if let Some(flash) = flash {
            flash.step();
        }
        if self.listings.front_mut().is_some_and(|listing| listing.step(&self.cache)) {
            self.listings.pop_front();
        }
        self.wants_step()
    }

    /// Whether a quota change or a listing waits for [`VolumeMachine::step`].
    pub fn wants_step(&self) -> bool {
        !self.listings.is_empty()
            || self.cache.progress() != Progress::Settled
            || self.flash.as_ref().is_some_and(FlashPartition::wants_step)
    }

    /// When [`VolumeMachine::take_submissions`] should be called although nothing happened; `None`: not before something does.
    pub fn wake_at(&self) -> Option<Nanos> {
        let limits = self.settings.limits;
        // Where the origin has no room, its next answer is waited for, not the time: that would be a busy loop.
        let has_room = self.hold.is_none() && self.queue.len() + self.at_origin < limits.origin_requests_max;
        if has_room { self.loads.wake_at(limits.prewarm_outstanding_max) } else { None }
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

    /// The first bytes that a write of unknown outcome may yet change.
    pub fn first_in_doubt(&self) -> Option<ByteRange> {
        self.doubt.iter().next().map(|blocks| self.bytes_of(blocks))
    }

    /// How far the last warm-up is.
    pub fn prewarm_progress(&self) -> Option<PrewarmProgress> {
        self.loads.warm_up().map(|prewarm| prewarm.progress)
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        self.observer.counters
    }

    /// The little that is asked for often.
    pub fn pulse(&self, now: Nanos) -> VolumePulse {
        VolumePulse {
            at: now,
            counters: self.observer.counters,
            cache: self.cache.statistics(),
            prewarm: self.prewarm_progress(),
        }
    }

    /// The unit of caching.
    pub fn block_size(&self) -> BlockSize {
        self.settings.block_size
    }

    /// What is known of the volume; `end_interval` starts a new interval of latencies.
    pub fn observe(&mut self, now: Nanos, end_interval: bool) -> VolumeObservation {
        let block_size = self.settings.block_size;
        let began = self.observer.interval_started;
        let observation = VolumeObservation {
            at: now,
            interval_started: began,
            counters: self.observer.counters,
            outstanding_max: self.observer.outstanding_max(),
            idle: self.observer.idle(now),
            reads_hung: self.reads.reads.iter().filter(|(_, read)| read.started < began).count(),
            writes_hung: self.writes.writes.iter().filter(|(_, write)| write.started < began).count(),
            latencies: self.observer.latencies(),
            locality: self.locality.as_mut().map(|locality| locality.snapshot(now)),
            cache: self.cache.statistics(),
            quota_progress: self.cache.progress(),
            quota_bytes: Bytes(u64::from(self.cache.quota_blocks()) << block_size.shift()),
            resident_bytes: self.cache.resident_bytes(),
            held_bytes: self.cache.held_bytes(),
            bookkeeping_bytes: self.cache.footprint_bytes(),
            flash: self.observe_flash(),
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
