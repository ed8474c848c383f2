//! What is asked by others than clients: warm-up, quota, the end of doubt, observation.

use super::super::observation::{Counters, VolumeObservation};
use super::super::prewarm::{PREWARM_SCAN_BLOCKS_MAX, Prewarm, PrewarmEnd, PrewarmPlan, PrewarmProgress};
use super::super::reads::Fill;
use super::flashing::demote;
use super::{QUOTA_STEP_SLOTS, VolumeMachine};
use forebay_cache::Progress;
use forebay_cache::flash::FlashPartition;
use forebay_units::{BlockIndex, BlockRange, Bytes, Nanos};

impl VolumeMachine {
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
    pub(super) fn pump_prewarm(&mut self, now: Nanos) {
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
            let (cache, flash) = (&self.cache, &self.flash);
            let (reads, writes, doubt) = (&self.reads, &self.writes, &self.doubt);
            let run = prewarm.next_run(blocks_max, &mut scan, |block| {
                let one = BlockRange { first: block, end: block + 1 };
                cache.contains(BlockIndex(block))
                    || flash.as_ref().is_some_and(|flash| flash.contains(BlockIndex(block)))
                    || reads.joinable.overlaps(one)
                    || writes.held.overlaps(one)
                    || doubt.overlaps(one)
            });
            let Some(blocks) = run else {
                prewarm.end_if_done();
                continue;
            };
            prewarm.sent(blocks.count(), now);
            self.send_fill(blocks, self.bytes_of(blocks), Vec::new(), false, None);
        }
    }

    pub(super) fn prewarm_read_ended(&mut self, fill: &Fill, inserted_blocks: u64, arrived: bool) {
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
        let VolumeMachine { cache, flash, .. } = self;
        cache.step_demoting(QUOTA_STEP_SLOTS, |victim, bytes| demote(flash.as_mut(), victim, bytes));
        if let Some(flash) = flash {
            flash.step();
        }
        self.wants_step()
    }

    /// Whether a quota change waits for [`VolumeMachine::step`].
    pub fn wants_step(&self) -> bool {
        self.cache.progress() != Progress::Settled
            || self.flash.as_ref().is_some_and(FlashPartition::wants_step)
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
