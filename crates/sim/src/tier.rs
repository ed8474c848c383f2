//! The chunk tier on virtual time: where requests go, and what is moved. The decisions are `policy::placement`'s.
//!
//! Simplified, and said: from the instant at which a chunk loses its place it is served by its origin, though it may still have to be written back; a
//! migration goes in steps, one request each, and bypasses the volumes' limit of requests at the origin (there are at most `moving_max`).
//!
//! Nobody waits for copies of writes. Invariant: a write sets copies out only while fewer than [`COPIES_MAX`] of its volume are on their way, all of its own then; one that finds as many is not
//! copied, and its chunks lose their places, as blocks do not enter the daemon's flash while as many of its segments are on their way as may be.

use crate::scenario::{Flag, TierTable, TierWrites};
use crate::slab::{NONE, Slab};
use crate::volume::{Flight, Purpose, World};
use forebay_policy::placement::{Age, Chunk, Placement, Promotion, Request, ShapeError, Where};
use forebay_units::{ByteRange, Nanos};
use serde::Serialize;

/// Copies of a volume's writes on their way to the tier, one a chunk, from which on no write is copied (ours: as many as its requests at the origin).
const COPIES_MAX: u32 = 256;

/// Where a volume lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    pub(crate) origin: u32,
    pub(crate) base: u64,
    pub(crate) size: u64,
}

/// Part of a request, and the device that serves it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// Bytes of the volume.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) device: u32,
    pub(crate) range: ByteRange,
    /// Where the origin serves it: the age of its first chunk.
    pub(crate) age: Option<Age>,
}

/// What a migration does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Reads the chunk that leaves from the tier.
    ReadBack,
    /// Writes it to its origin.
    WriteBack,
    /// Reads the chunk that comes from its origin.
    Read,
    /// Writes it to the tier.
    Write,
}

/// A chunk that comes to a place, one that leaves it, or both.
#[derive(Clone, Copy, Debug)]
struct Migration {
    comes: Option<Chunk>,
    leaves: Option<Chunk>,
    place: u32,
    /// A write has overtaken it.
    spoiled: bool,
}

/// Bytes that were moved or written, and chunks that were dropped; they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Moved {
    promoted: u64,
    demoted: u64,
    /// Writes of clients to the tier: copies, or in place of the origin.
    written: u64,
    /// Chunks whose write could not be copied.
    dropped: u64,
}

/// One interval of the tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TierRow {
    /// Its end, in seconds.
    pub at_s: f64,
    /// The threshold in force; absent where counts do not decide.
    pub threshold: Option<u16>,
    /// Bytes per second that may be moved.
    pub pace_bytes_per_second: f64,
    /// Chunks in the tier.
    pub held_chunks: u32,
    /// What was done in it.
    #[serde(flatten)]
    pub totals: TierTotals,
}

/// What the tier did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TierTotals {
    /// Chunks touched by reads that the caches above did not answer.
    pub reads: u64,
    /// Those among them that were in the tier.
    pub read_hits: u64,
    /// Chunks touched by writes.
    pub writes: u64,
    /// Those among them that were in the tier.
    pub write_hits: u64,
    /// Touches that continued sequential runs.
    pub sequential: u64,
    /// Bytes of chunks that came into the tier.
    pub promoted_bytes: u64,
    /// Bytes of chunks that had to be written back when they left.
    pub demoted_bytes: u64,
    /// Bytes that clients' writes wrote to the tier.
    pub written_bytes: u64,
    /// Chunks that lost their place because a write of theirs was not copied: as many copies as may be were on their way.
    pub dropped: u64,
    /// Chunks that were hot enough, when there was no budget.
    pub deferred: u64,
    /// Changes of the threshold.
    pub threshold_changes: u64,
    /// Those among them that were taken back.
    pub threshold_reversals: u64,
    /// Times that the pace was halved.
    pub halvings: u64,
}

impl TierTotals {
    /// Everything, field by field.
    fn fields(&mut self) -> [&mut u64; 13] {
        [
            &mut self.reads,
            &mut self.read_hits,
            &mut self.writes,
            &mut self.write_hits,
            &mut self.sequential,
            &mut self.promoted_bytes,
            &mut self.demoted_bytes,
            &mut self.written_bytes,
            &mut self.dropped,
            &mut self.deferred,
            &mut self.threshold_changes,
            &mut self.threshold_reversals,
            &mut self.halvings,
        ]
    }

    fn since(mut self, mut before: TierTotals) -> TierTotals {
        for (now, before) in self.fields().into_iter().zip(before.fields()) {
            *now -= *before;
        }
        self
    }

    fn add(&mut self, mut other: TierTotals) {
        for (sum, other) in self.fields().into_iter().zip(other.fields()) {
            *sum += *other;
        }
    }

    /// Bytes that were written to the tier's device.
    pub fn flash_bytes(&self) -> u64 {
        self.promoted_bytes + self.written_bytes
    }

    /// The share of reads that the tier answered; 0 without reads.
    pub fn read_hit_ratio(&self) -> f64 {
        self.read_hits as f64 / self.reads.max(1) as f64
    }
}

/// The tier over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TierOutcome {
    /// Who may enter.
    pub admission: String,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Places.
    pub capacity_chunks: u32,
    /// Memory of the decision, in bytes.
    pub memory_bytes: u64,
    /// Sums from `measure_from` on.
    pub totals: TierTotals,
    /// All intervals.
    pub intervals: Vec<TierRow>,
}

/// The tier.
#[derive(Debug)]
pub(crate) struct Tier {
    pub(crate) placement: Placement,
    pub(crate) device: u32,
    writes: TierWrites,
    chunk_bytes: u64,
    homes: Vec<Home>,
    /// Whether a volume ever uses it.
    members: Vec<bool>,
    /// By place: whether the origin has older content.
    dirty: Vec<bool>,
    migrations: Slab<Migration>,
    under_way: Vec<u32>,
    /// By volume: copies of its writes that are on their way.
    copying: Vec<u32>,
    moved: Moved,
    before: TierTotals,
    totals: TierTotals,
    rows: Vec<TierRow>,
    /// Of the request that is being routed.
    pieces: Vec<Piece>,
    migrates: Vec<Migration>,
    copies: Vec<ByteRange>,
    drops: Vec<Chunk>,
}

impl Tier {
    pub(crate) fn new(
        table: &TierTable,
        device: u32,
        homes: Vec<Home>,
        members: Vec<bool>,
    ) -> Result<Tier, ShapeError> {
        let placement = Placement::new(table.shape(), table.placing())?;
        Ok(Tier {
            device,
            writes: table.writes,
            chunk_bytes: table.chunk().get(),
            dirty: vec![false; placement.shape().capacity_chunks as usize],
            placement,
            copying: vec![0; homes.len()],
            homes,
            members,
            migrations: Slab::default(),
            under_way: Vec::new(),
            moved: Moved::default(),
            before: TierTotals::default(),
            totals: TierTotals::default(),
            rows: Vec::new(),
            pieces: Vec::new(),
            migrates: Vec::new(),
            copies: Vec::new(),
            drops: Vec::new(),
        })
    }

    pub(crate) fn serves(&self, volume: u32) -> bool {
        self.members[volume as usize]
    }

    /// Whether a byte of a volume is served from it.
    pub(crate) fn holds(&self, volume: u32, byte: u64) -> bool {
        let chunk = Chunk { volume, index: byte / self.chunk_bytes };
        matches!(self.placement.find(chunk), Where::Tier(_))
    }

    /// Divides a request for bytes of a volume among the origin and the tier, into `pieces`.
    fn route(&mut self, now: Nanos, volume: u32, start: u64, end: u64, writes: bool) {
        let Tier { placement, pieces, migrates, copies, drops, dirty, migrations, under_way, .. } = self;
        let (home, device, chunk_bytes) = (self.homes[volume as usize], self.device, self.chunk_bytes);
        let may_copy = self.copying[volume as usize] < COPIES_MAX;
        let takes = !writes || self.writes == TierWrites::Home;
        pieces.clear();
        let request = Request { volume, client: volume, offset: start, length: end - start, writes };
        placement.request(now, request, |touch| {
            let first = (touch.chunk.index * chunk_bytes).max(start);
            let last = ((touch.chunk.index + 1) * chunk_bytes).min(end);
            migrates.extend(touch.demotion.map(|demotion| Migration {
                comes: None,
                leaves: Some(demotion.chunk),
                place: demotion.place,
                spoiled: false,
            }));
            if writes && touch.at == Where::Moving {
                for number in under_way.iter().copied() {
                    let migration = &mut migrations[number];
                    migration.spoiled |= migration.comes == Some(touch.chunk);
                }
            }
            if let Where::Tier(place) = touch.at {
                let offset = u64::from(place) * chunk_bytes + first % chunk_bytes;
                let range = ByteRange::new(offset, last - first);
                if takes {
                    dirty[place as usize] |= writes;
                    pieces.push(Piece { start: first, end: last, device, range, age: None });
                    return;
                }
                if may_copy {
                    copies.push(range);
                } else {
                    drops.push(touch.chunk);
                }
            }
            match pieces.last_mut() {
                Some(piece) if piece.device != device && piece.end == first => {
                    piece.end = last;
                    piece.range.length += last - first;
                }
                _ => pieces.push(Piece {
                    start: first,
                    end: last,
                    device: home.origin,
                    range: ByteRange::new(home.base + first, last - first),
                    age: Some(touch.age),
                }),
            }
        });
        for chunk in drops.drain(..) {
            // Another chunk of the request may have taken its place.
            self.moved.dropped += u64::from(matches!(placement.find(chunk), Where::Tier(_)));
            placement.invalidate(chunk);
        }
        self.copying[volume as usize] += copies.len() as u32;
        if writes {
            self.moved.written += copies.iter().map(|range| range.length).sum::<u64>();
            let taken = pieces.iter().filter(|piece| piece.device == device);
            self.moved.written += taken.map(|piece| piece.range.length).sum::<u64>();
        }
    }

    fn end_migration(&mut self, number: u32) {
        self.migrations.free(number);
        self.under_way.retain(|other| *other != number);
    }

    fn chunk_range(&self, chunk: Chunk) -> ByteRange {
        let home = self.homes[chunk.volume as usize];
        let start = chunk.index * self.chunk_bytes;
        ByteRange::new(home.base + start, self.chunk_bytes.min(home.size - start))
    }

    fn totals_now(&self) -> TierTotals {
        let seen = self.placement.statistics();
        TierTotals {
            reads: seen.reads,
            read_hits: seen.read_hits,
            writes: seen.writes,
            write_hits: seen.write_hits,
            sequential: seen.sequential,
            promoted_bytes: self.moved.promoted,
            demoted_bytes: self.moved.demoted,
            written_bytes: self.moved.written,
            dropped: self.moved.dropped,
            deferred: seen.deferred,
            threshold_changes: seen.threshold_changes,
            threshold_reversals: seen.threshold_reversals,
            halvings: seen.halvings,
        }
    }

    /// An interval ends.
    pub(crate) fn end_interval(&mut self, now: Nanos, measured: bool) {
        let late = self.totals_now();
        let totals = late.since(std::mem::replace(&mut self.before, late));
        if measured {
            self.totals.add(totals);
        }
        self.rows.push(TierRow {
            at_s: now.as_secs_f64(),
            threshold: self.placement.threshold(),
            pace_bytes_per_second: self.placement.pace(),
            held_chunks: self.placement.held().0,
            totals,
        });
    }

    /// What a run had to drop.
    pub(crate) fn flag(&self) -> Option<Flag> {
        let dropped = self.moved.dropped;
        (dropped > 0).then(|| {
            let message = format!(
                "chunks lost their place on the tier {dropped} times, since {COPIES_MAX} copies of their volume's writes were on their way there: \
                 what it holds was written faster than its device takes it"
            );
            Flag { key: "tier.writes".to_owned(), message }
        })
    }

    pub(crate) fn outcome(self) -> TierOutcome {
        TierOutcome {
            admission: self.placement.placing().admission.to_string(),
            chunk_bytes: self.chunk_bytes,
            capacity_chunks: self.placement.shape().capacity_chunks,
            memory_bytes: self.placement.footprint_bytes(),
            totals: self.totals,
            intervals: self.rows,
        }
    }
}

impl World {
    /// Divides a request among the origin and the tier: its pieces are in the tier's list then. Copies of writes, and chunks that leave without another that comes, set out at once.
    pub(crate) fn route(&mut self, volume: u32, start: u64, end: u64, writes: bool) {
        let now = self.now;
        let tier = self.tier.as_mut().expect("only volumes with a tier are routed");
        tier.route(now, volume, start, end, writes);
        let device = tier.device;
        let mut copies = std::mem::take(&mut tier.copies);
        for range in copies.drain(..) {
            self.set_out_alone(Purpose::Copy, volume, device, range);
        }
        let tier = self.tier.as_mut().expect("as above");
        tier.copies = copies;
        let mut migrates = std::mem::take(&mut tier.migrates);
        for migration in migrates.drain(..) {
            self.begin_migration(migration);
        }
        self.tier.as_mut().expect("as above").migrates = migrates;
    }

    /// Has the chunks set out that are due.
    pub(crate) fn begin_promotions(&mut self) {
        while let Some(Promotion { chunk, place, displaced }) =
            self.tier.as_mut().and_then(|tier| tier.placement.due())
        {
            self.begin_migration(Migration { comes: Some(chunk), leaves: displaced, place, spoiled: false });
        }
    }

    /// The pieces of the request that was routed last.
    pub(crate) fn pieces(&mut self) -> &mut Vec<Piece> {
        &mut self.tier.as_mut().expect("only volumes with a tier are routed").pieces
    }

    /// Sends a request for which no client waits.
    fn set_out_alone(&mut self, purpose: Purpose, volume: u32, device: u32, range: ByteRange) {
        let flight = Flight {
            volume,
            purpose,
            marked: false,
            first: 0,
            end: 0,
            whole_first: 0,
            whole_end: 0,
            waiters: NONE,
            dependents: NONE,
            waits_for: 0,
            device,
            range,
            age: None,
            sent: self.now,
            asked: self.now,
        };
        let flight = self.flights.insert(flight);
        self.set_out(flight);
    }

    fn begin_migration(&mut self, migration: Migration) {
        let tier = self.tier.as_mut().expect("it has asked for it");
        let dirty = std::mem::take(&mut tier.dirty[migration.place as usize]);
        let first = match (dirty && migration.leaves.is_some(), migration.comes) {
            (true, _) => Step::ReadBack,
            (false, Some(_)) => Step::Read,
            (false, None) => return tier.placement.left(migration.place),
        };
        let number = tier.migrations.insert(migration);
        tier.under_way.push(number);
        self.migrate(number, first);
    }

    fn migrate(&mut self, number: u32, step: Step) {
        let tier = self.tier.as_mut().expect("there is a migration");
        let Migration { comes, leaves, place, .. } = tier.migrations[number];
        let place = u64::from(place) * tier.chunk_bytes;
        let (chunk, in_tier) = match step {
            Step::ReadBack => (leaves, true),
            Step::WriteBack => (leaves, false),
            Step::Read => (comes, false),
            Step::Write => (comes, true),
        };
        let chunk = chunk.expect("a step moves the chunk that comes, or the one that leaves");
        let home = tier.chunk_range(chunk);
        let (device, range) = match in_tier {
            true => (tier.device, ByteRange::new(place, home.length)),
            false => (tier.homes[chunk.volume as usize].origin, home),
        };
        self.set_out_alone(Purpose::Migration(number, step), chunk.volume, device, range);
    }

    /// The answer to a request for which no client waits; `false` if it is another one.
    pub(crate) fn answered_alone(&mut self, flight: u32) -> bool {
        let done = self.flights[flight];
        let (number, step) = match done.purpose {
            Purpose::Copy => {
                self.tier.as_mut().expect("it has the copy").copying[done.volume as usize] -= 1;
                self.flights.free(flight);
                return true;
            }
            Purpose::Migration(number, step) => (number, step),
            _ => return false,
        };
        self.flights.free(flight);
        let tier = self.tier.as_mut().expect("there is a migration");
        match step {
            Step::ReadBack => self.migrate(number, Step::WriteBack),
            Step::WriteBack => {
                tier.moved.demoted += done.range.length;
                match tier.migrations[number] {
                    Migration { comes: None, place, .. } => {
                        tier.end_migration(number);
                        tier.placement.left(place);
                    }
                    _ => self.migrate(number, Step::Read),
                }
            }
            Step::Read => self.migrate(number, Step::Write),
            Step::Write => {
                tier.moved.promoted += done.range.length;
                let Migration { comes, spoiled, .. } = tier.migrations[number];
                tier.end_migration(number);
                tier.placement.moved(comes.expect("a chunk came"), !spoiled);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Asked;
    use crate::origin::Origin;
    use crate::scenario::{OriginKind, OriginTable};
    use crate::volume::Volume;
    use crate::volume::tests::{run, volume_of};
    use forebay_locality::{LiveConfig, LiveObserver};
    use forebay_policy::placement::Admission;
    use forebay_units::{BlockSize, Bytes};

    const CHUNK: u64 = 64 << 10;

    /// A volume of 16 chunks whose origin takes 10 ms, as the device of a tier of `chunks` does.
    fn tiered(chunks: u64, writes: TierWrites, size: u64) -> (World, Volume) {
        let service = Nanos::millis(10);
        let (mut world, volume) = volume_of(0, service);
        let flash = OriginTable { service: Some(service), ..OriginTable::new("f", OriginKind::Servers) };
        world.origins.push(Origin::new(&flash, 1).unwrap());
        let lru = TierTable { admission: Admission::Lru, ..TierTable::new("f", Bytes(chunks * CHUNK)) };
        let table = TierTable { writes, ..lru };
        let home = Home { size, ..volume.home() };
        world.tier = Some(Box::new(Tier::new(&table, 1, vec![home], vec![true]).unwrap()));
        (world, volume)
    }

    /// The first block of a chunk is asked for at `ms`, and 100 ms pass.
    fn ask(world: &mut World, volume: &mut Volume, ms: u64, chunk: u64, writes: bool) {
        world.now = Nanos::millis(ms);
        let first = chunk * 16;
        let asked = Asked { first, end: first + 1, offset: first << 12, bytes: 4_096, writes };
        let now = world.now;
        volume.ask(world, asked, 0, now);
        run(volume, world, Nanos::millis(ms + 100));
    }

    fn tier(world: &mut World) -> &mut Tier {
        world.tier.as_mut().unwrap()
    }

    #[test]
    fn a_chunk_that_a_write_overtook_on_its_way_gets_no_place() {
        for overtakes in [false, true] {
            let (mut world, mut volume) = tiered(4, TierWrites::Through, 16 * CHUNK);
            let asked = Asked { first: 16, end: 17, offset: CHUNK, bytes: 4_096, writes: false };
            volume.ask(&mut world, asked, 0, Nanos::ZERO);
            // The client's read until 10 ms, the chunk's until 20, and its write to the tier until 30.
            run(&mut volume, &mut world, Nanos::millis(15));
            if overtakes {
                ask(&mut world, &mut volume, 15, 1, true);
            }
            run(&mut volume, &mut world, Nanos::millis(200));
            assert_eq!(tier(&mut world).holds(0, CHUNK), !overtakes);
        }
    }

    #[test]
    fn what_comes_to_the_place_of_a_changed_chunk_is_not_written_back_for_it() {
        let (mut world, mut volume) = tiered(1, TierWrites::Home, 16 * CHUNK);
        ask(&mut world, &mut volume, 0, 1, false);
        ask(&mut world, &mut volume, 1_000, 1, true);
        for (ms, chunk) in [(2_000, 2), (3_000, 3)] {
            ask(&mut world, &mut volume, ms, chunk, false);
            assert!(tier(&mut world).holds(0, chunk * CHUNK), "chunk {chunk} does not come");
        }
        assert_eq!(tier(&mut world).moved.demoted, CHUNK);
    }

    #[test]
    fn a_write_that_cannot_be_copied_leaves_nothing_old_on_the_tier() {
        let (mut world, mut volume) = tiered(4, TierWrites::Through, 16 * CHUNK);
        ask(&mut world, &mut volume, 0, 1, false);
        assert!(tier(&mut world).holds(0, CHUNK));
        tier(&mut world).copying[0] = COPIES_MAX;
        ask(&mut world, &mut volume, 1_000, 1, true);
        assert!(!tier(&mut world).holds(0, CHUNK));
        assert_eq!((tier(&mut world).moved.dropped, tier(&mut world).moved.written), (1, 0));
    }

    #[test]
    fn the_last_chunk_of_a_volume_is_as_long_as_what_is_left_of_it() {
        let (mut world, mut volume) = tiered(4, TierWrites::Through, 16 * CHUNK - 4_096);
        ask(&mut world, &mut volume, 0, 15, false);
        assert!(tier(&mut world).holds(0, 15 * CHUNK));
        assert_eq!(tier(&mut world).moved.promoted, CHUNK - 4_096);
    }

    #[test]
    fn copies_count_for_the_volume_that_wrote() {
        let (mut world, _) = tiered(4, TierWrites::Through, 16 * CHUNK);
        let tier_of = tier(&mut world);
        tier_of.homes.insert(0, tier_of.homes[0]);
        tier_of.members.insert(0, true);
        tier_of.copying = vec![0; 2];
        let locality = LiveObserver::new(LiveConfig::default(), Nanos::ZERO);
        let size = (16 * CHUNK, BlockSize::DEFAULT);
        let mut volume = Volume::new(1, (0, 0), size, (0, 0), None, locality);
        ask(&mut world, &mut volume, 0, 1, false);
        world.now = Nanos::secs(1);
        let asked = Asked { first: 16, end: 17, offset: CHUNK, bytes: 4_096, writes: true };
        volume.ask(&mut world, asked, 0, Nanos::secs(1));
        assert_eq!(tier(&mut world).copying, [0, 1]);
        run(&mut volume, &mut world, Nanos::secs(2));
        assert_eq!(tier(&mut world).copying, [0, 0]);
    }

    #[test]
    fn reads_are_hits_by_reads_and_flash_takes_what_comes_and_what_is_written() {
        let totals = TierTotals {
            reads: 8,
            read_hits: 2,
            writes: 24,
            promoted_bytes: 300,
            written_bytes: 40,
            ..TierTotals::default()
        };
        assert_eq!((totals.read_hit_ratio(), totals.flash_bytes()), (0.25, 340));
        assert_eq!(TierTotals::default().read_hit_ratio(), 0.0);
    }
}
