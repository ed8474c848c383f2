//! The warm-up of a volume: ranges that are read in their order, at a rate, behind what clients ask for.

use super::{ORIGIN_REQUESTS_MAX, Purpose, Volume, World};
use crate::calendar::Planned;
use forebay_control::ZoneRange;
use forebay_policy::paced;
use forebay_units::{Bytes, Nanos};
use std::collections::VecDeque;

/// Reads of a warm-up at the origin at most, and the bytes of one at most, as in the daemon.
const PREWARM_OUTSTANDING_MAX: u32 = 4;
const PREWARM_READ_BYTES: u64 = 256 << 10;

/// A warm-up that goes on.
#[derive(Debug, Default)]
pub(super) struct Prewarm {
    pub(super) ranges: VecDeque<(u64, u64)>,
    bytes_per_second: u64,
    next_at: Nanos,
    pub(super) outstanding: u32,
    pub(super) generation: u32,
    /// The next read's instant, if that is planned; what was planned before for a later one counts no more.
    planned: Option<Nanos>,
}

impl Volume {
    /// Starts a warm-up in place of the one that goes on.
    pub(crate) fn warm(&mut self, world: &mut World, zones: &[ZoneRange], bytes_per_second: u64) {
        let blocks = self.block_size.blocks_for(Bytes(self.size));
        let ranges = zones
            .iter()
            .map(|zone| (zone.first_block.min(blocks), (zone.first_block + zone.blocks).min(blocks)))
            .filter(|(first, end)| first < end)
            .collect();
        self.prewarm = Prewarm {
            ranges,
            bytes_per_second,
            next_at: world.now,
            outstanding: 0,
            generation: self.prewarm.generation.wrapping_add(1),
            planned: self.prewarm.planned,
        };
        self.pump(world);
    }

    /// Ends the warm-up; what it asked for is still inserted.
    pub(crate) fn cancel_warm(&mut self) {
        self.prewarm.ranges.clear();
    }

    /// Whether a warm-up goes on.
    pub(crate) fn is_warming(&self) -> bool {
        !self.prewarm.ranges.is_empty() || self.prewarm.outstanding > 0
    }

    /// The rate allows the next read of the warm-up.
    pub(crate) fn wake_prewarm(&mut self, world: &mut World) {
        self.prewarm.planned.take_if(|planned| *planned == world.now);
        self.pump(world);
    }

    pub(super) fn pump_prewarm(&mut self, world: &mut World) {
        if world.caches[self.cache.0].quota_blocks() == 0 {
            self.prewarm.ranges.clear();
        }
        let rate = Bytes(self.prewarm.bytes_per_second);
        let most = (paced::read_bytes_max(rate, PREWARM_READ_BYTES) >> self.block_size.shift()).max(1);
        while self.at_origin < ORIGIN_REQUESTS_MAX && self.prewarm.outstanding < PREWARM_OUTSTANDING_MAX {
            if self.prewarm.ranges.is_empty() {
                return;
            }
            if world.now < self.prewarm.next_at {
                let next_at = self.prewarm.next_at;
                if self.prewarm.planned.is_none_or(|planned| next_at < planned) {
                    self.prewarm.planned = Some(next_at);
                    world.calendar.plan(next_at, Planned::Prewarm { volume: self.number });
                }
                return;
            }
            let Some(blocks) = self.next_warm_run(world, most) else { return };
            let bytes = (blocks.end - blocks.start) << self.block_size.shift();
            self.prewarm.next_at =
                self.prewarm.next_at.max(world.now).saturating_add(paced::pause(rate, bytes));
            self.prewarm.outstanding += 1;
            let purpose = Purpose::Prewarm(self.prewarm.generation);
            let flight = world.flights.insert(self.flight(world.now, purpose, &blocks));
            self.joinable.put(blocks, flight);
            // As in the daemon, behind the clients' requests, of which none waits here.
            self.at_origin += 1;
            world.set_out(flight);
        }
    }

    /// The next run of at most `most` blocks that are neither there nor on the tier nor on their way nor being written.
    fn next_warm_run(&mut self, world: &World, most: u64) -> Option<std::ops::Range<u64>> {
        let shift = self.block_size.shift();
        let mut run: Option<std::ops::Range<u64>> = None;
        while let Some(front) = self.prewarm.ranges.front_mut() {
            if front.0 == front.1 {
                self.prewarm.ranges.pop_front();
                if run.is_some() {
                    break;
                }
                continue;
            }
            if run.as_ref().is_some_and(|run| run.end - run.start >= most) {
                break;
            }
            let block = front.0;
            let skip = world.caches[self.cache.0].holds(self.cache.1 + block)
                || world.tier.as_ref().is_some_and(|tier| tier.holds(self.number, block << shift))
                || self.joinable.get(block).is_some()
                || self.writing.get(block).is_some();
            if skip && run.is_some() {
                break;
            }
            if !skip {
                run.get_or_insert(block..block).end = block + 1;
            }
            front.0 += 1;
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use crate::load::Asked;
    use crate::origin::Origin;
    use crate::scenario::{OriginKind, OriginTable, TierTable};
    use crate::tier::Tier;
    use crate::volume::tests::{run, volume_of};
    use forebay_control::ZoneRange;
    use forebay_policy::placement::Admission;
    use forebay_units::{Bytes, Nanos};

    #[test]
    fn one_that_takes_the_place_of_a_slow_one_does_not_wait_for_its_next_read() {
        let (mut world, mut volume) = volume_of(256, Nanos::micros(1));
        let whole = [ZoneRange { first_block: 0, blocks: 256 }];
        // A read of a block, and the next one in an hour.
        volume.warm(&mut world, &whole, 1);
        run(&mut volume, &mut world, Nanos::millis(1));
        assert_eq!(volume.statistics(&world).resident_blocks, 1);
        // At 64 MiB/s the other 255 take a twelfth of a second at most, though nobody asks for anything meanwhile.
        volume.warm(&mut world, &whole, 64 << 20);
        run(&mut volume, &mut world, Nanos::millis(100));
        assert_eq!(volume.statistics(&world).resident_blocks, 256);
        assert!(!volume.is_warming());
    }

    #[test]
    fn a_low_rate_is_spread_over_as_many_reads_as_in_the_daemon() {
        // Of 256 KiB from 1 MiB/s on; below, a quarter of a second's bytes, in whole blocks, and one at least.
        for (bytes_per_second, blocks) in
            [(64 << 20, 256), (1 << 20, 64), (256 << 10, 16), (50_000, 3), (1, 1)]
        {
            let (mut world, mut volume) = volume_of(256, Nanos::micros(1));
            volume.warm(&mut world, &[ZoneRange { first_block: 0, blocks: 256 }], bytes_per_second);
            run(&mut volume, &mut world, Nanos::millis(50));
            let resident = volume.statistics(&world).resident_blocks;
            assert_eq!(resident, blocks, "at {bytes_per_second} bytes/s");
        }
    }

    #[test]
    fn what_the_tier_holds_is_left_out() {
        let (mut world, mut volume) = volume_of(256, Nanos::micros(1));
        let flash =
            OriginTable { service: Some(Nanos::micros(1)), ..OriginTable::new("f", OriginKind::Servers) };
        world.origins.push(Origin::new(&flash, 1).unwrap());
        let table = TierTable { admission: Admission::Lru, ..TierTable::new("f", Bytes::mib(1)) };
        world.tier = Some(Box::new(Tier::new(&table, 1, vec![volume.home()], vec![true]).unwrap()));
        // A read of block 20 brings its chunk, the second one of 16 blocks, onto the tier.
        let asked = Asked { first: 20, end: 21, offset: 20 << 12, bytes: 4_096, writes: false };
        volume.ask(&mut world, asked, 0, Nanos::ZERO);
        run(&mut volume, &mut world, Nanos::millis(1));
        volume.warm(&mut world, &[ZoneRange { first_block: 0, blocks: 256 }], 1 << 40);
        run(&mut volume, &mut world, Nanos::millis(100));
        // That block, and all that are not there: the other fifteen chunks.
        assert_eq!(volume.statistics(&world).resident_blocks, 1 + 240);
        assert!(!volume.is_warming());
    }
}
