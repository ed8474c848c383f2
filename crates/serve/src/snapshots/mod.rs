//! Snapshots of what the caches hold, taken while they serve: every so often, or after so many requests, and once more at the end.
//!
//! The worker lists its blocks a piece per turn; sorting, compressing and writing happen on a thread of its own. If that hangs or fails, clients
//! notice nothing, and the end of the daemon waits a little for it (`patient`). They go to a folder, to a range of an origin or to a database. Snapshots are hints: see [`crate::loading`] for who reads them.

mod database;
mod folder;
mod patient;
mod ring;
mod store;

pub(crate) use database::{DatabaseError, trouble_of_database};
pub(crate) use folder::Series;
pub(crate) use patient::PatientStore;
pub(crate) use ring::slots;
pub use store::SnapshotPlace;
pub(crate) use store::{SnapshotStore, StoreError};

use crate::clock::unix_ms;
use crate::daemon::Shared;
use forebay_appliance::CommandError;
use forebay_appliance::volume::{Counters, ListedBlock, VolumePulse};
use forebay_cache::Statistics;
use forebay_cache::flash::VolumeId;
use forebay_cache::snapshot::{Activity, SnapshotHeader, SnapshotWriter, WriteError};
use forebay_units::{BlockIndex, BlockSize, Nanos, with_causes};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How often it is looked whether one is due.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How snapshots are taken and kept.
#[derive(Clone, Debug)]
pub struct SnapshotConfig {
    /// Where they are, which hosts may share.
    pub place: SnapshotPlace,
    /// A volume's next one is taken so long after its last,
    pub every: Duration,
    /// or after so many requests, whatever is first.
    pub every_requests: u64,
    /// So many are kept of each volume, and read of it,
    pub keep: usize,
    /// if they are no older.
    pub expire: Duration,
}

impl SnapshotConfig {
    /// In `directory` every minute or 100,000 requests; 24 of each volume, for a week.
    pub fn new(directory: impl Into<PathBuf>) -> SnapshotConfig {
        SnapshotConfig {
            place: SnapshotPlace::Folder(directory.into()),
            every: Duration::from_secs(60),
            every_requests: 100_000,
            keep: 24,
            expire: Duration::from_secs(7 * 86_400),
        }
    }
}

/// What became of snapshots since the start, of all volumes.
#[derive(Debug, Default)]
pub(crate) struct SnapshotCounters {
    pub(crate) taken: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Processor time and waiting together, in microseconds, from the listing to the rename.
    pub(crate) taking_us: AtomicU64,
    /// Found and used, or refused.
    pub(crate) used: AtomicU64,
    pub(crate) refused: AtomicU64,
}

/// Why a snapshot was not taken.
#[derive(Debug, Error)]
enum TakeError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("cannot write it to `{place}`")]
    Store { place: String, source: Box<StoreError> },
}

impl TakeError {
    /// Whether no other volume's could be written either.
    fn is_of_all(&self) -> bool {
        matches!(self, TakeError::Store { source, .. } if !source.is_of_one_volume())
    }

    /// Whether the daemon ends, and the store was not waited for any longer.
    fn is_given_up(&self) -> bool {
        matches!(self, TakeError::Store { source, .. } if matches!(**source, StoreError::Hangs { .. }))
    }
}

/// Who a volume is to its snapshots: its name and where its origin is, as the appliance says.
pub(crate) fn identity(name: &str, origin: &str) -> VolumeId {
    VolumeId::new(name, origin)
}

/// What is remembered of a volume from one snapshot to the next.
struct Before {
    at: Instant,
    pulse: VolumePulse,
    sequence: u64,
}

impl Before {
    /// Of a volume that nobody had used at this time of the data path.
    fn unused(at: Nanos) -> Before {
        let pulse =
            VolumePulse { at, counters: Counters::default(), cache: Statistics::default(), prewarm: None };
        Before { at: Instant::now(), pulse, sequence: 0 }
    }
}

/// Runs until the daemon stops; then takes the last ones.
pub(crate) fn run(shared: &Shared, config: &SnapshotConfig) {
    let mut taker = Taker { config, before: BTreeMap::new(), looked_at: shared.appliance.now() };
    let mut asked: Option<Instant> = None;
    while shared.sleep_until(Instant::now() + LOOK_EVERY.min(config.every)) {
        // So that it is told from the start, and that it is over, whether a snapshot is due or not.
        let store = shared.snapshot_store.as_ref().expect("snapshots are configured");
        if asked.is_none_or(|at| store.is_unreadable() && at.elapsed() >= config.every) {
            asked = Some(Instant::now());
            let _ = store.ask(shared, |store| store.newest(VolumeId(0)));
        }
        taker.look(shared, false);
    }
    taker.look(shared, true);
}

struct Taker<'a> {
    config: &'a SnapshotConfig,
    before: BTreeMap<String, Before>,
    /// When the volumes were last looked at, on the data path's clock: one that is new to us came later, and had not been used then.
    looked_at: Nanos,
}

impl Taker<'_> {
    /// Takes what is due; at the `end` whatever was used since its last one.
    fn look(&mut self, shared: &Shared, end: bool) {
        let looked_at = std::mem::replace(&mut self.looked_at, shared.appliance.now());
        let store = shared.snapshot_store.as_ref().expect("snapshots are configured");
        // At the end: why none is written any more, and of which volumes.
        let (mut refused, mut unwritten): (Option<String>, Vec<&str>) = (None, Vec::new());
        for volume in &shared.config.volumes {
            let name = &volume.name;
            let Ok(pulse) = shared.appliance.pulse(name) else { continue };
            let before = self.before.entry(name.clone()).or_insert_with(|| Before::unused(looked_at));
            let requests = |pulse: &VolumePulse| pulse.counters.reads + pulse.counters.writes;
            let since = requests(&pulse) - requests(&before.pulse);
            let is_due =
                end || before.at.elapsed() >= self.config.every || since >= self.config.every_requests;
            // Nobody's cache changes without requests, but for what is loaded: that is known already.
            if !is_due || since == 0 || pulse.cache.resident_blocks == 0 {
                continue;
            }
            if refused.is_some() {
                unwritten.push(name);
                continue;
            }
            let counters = &shared.snapshot_counters;
            let began = Instant::now();
            match self.take(shared, name, volume.block_size, &pulse) {
                Ok(bytes) => {
                    counters.taken.fetch_add(1, Ordering::Relaxed);
                    counters.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                    counters.taking_us.fetch_add(began.elapsed().as_micros() as u64, Ordering::Relaxed);
                    tracing::debug!(volume = name, bytes, took = ?began.elapsed(), "a snapshot is taken");
                    if store.note_taking(name, None) {
                        tracing::info!(volume = name, "snapshots are taken again");
                    }
                }
                // The last look, which is next, tells of it.
                Err(error) if !end && error.is_given_up() => return,
                Err(error) => {
                    counters.failed.fetch_add(1, Ordering::Relaxed);
                    let reason = with_causes(&error);
                    if end {
                        // Whoever waits for the end does not wait for each volume's, where none may be written.
                        if error.is_of_all() {
                            unwritten.push(name);
                            refused = Some(reason);
                        } else {
                            tracing::warn!(volume = name, error = reason, "its last snapshot is not written");
                        }
                        continue;
                    }
                    if !error.is_of_all() && store.note_taking(name, Some(&reason)) {
                        tracing::warn!(volume = name, error = reason, "no snapshot is taken");
                    }
                    // Not again at once.
                    if let Some(before) = self.before.get_mut(name) {
                        (before.at, before.pulse) = (Instant::now(), pulse);
                    }
                }
            }
        }
        if let Some(error) = refused {
            let volumes = unwritten.join(", ");
            tracing::warn!(
                volumes,
                error,
                "the last snapshots are not written: what takes these volumes over begins with older ones"
            );
        }
    }

    fn take(
        &mut self,
        shared: &Shared,
        name: &str,
        block_size: BlockSize,
        pulse: &VolumePulse,
    ) -> Result<usize, TakeError> {
        let seen = shared.appliance.observe(name, false)?;
        let volume = identity(name, &seen.origin);
        let before = &self.before[name];
        let now_unix_ms = unix_ms().max(0) as u64;
        // Rising, also over restarts, other hosts' and clocks that were set back.
        let store = shared.snapshot_store.as_ref().expect("snapshots are configured");
        let unkept =
            |source| TakeError::Store { place: self.config.place.to_string(), source: Box::new(source) };
        let newest = store.ask(shared, move |store| store.newest(volume)).map_err(unkept)?.unwrap_or(0);
        let sequence = now_unix_ms.max(newest + 1).max(before.sequence + 1);
        let (old, new) = (&before.pulse, pulse);
        let hits = new.cache.hits - old.cache.hits;
        let working_set = seen.observation.locality.as_ref().map(|locality| &locality.working_set);
        let activity = Activity {
            lookups: hits + (new.cache.misses - old.cache.misses),
            hits,
            span_ms: new.at.0.saturating_sub(old.at.0) / 1_000_000,
            working_set_blocks: working_set
                .map_or(0, |set| set.last_blocks.unwrap_or(0).max(set.current_blocks)),
            quota_blocks: new.cache.quota_blocks.into(),
        };
        // Of an instant before the listing: what comes in between is in both, and counts once.
        let progress = pulse.prewarm.filter(|progress| progress.ended.is_none());
        let loading = progress.zip(shared.books.loads().plan(name));
        let header = SnapshotHeader {
            volume,
            block_bytes: block_size.bytes() as u32,
            volume_blocks: block_size.blocks_for(seen.size),
            sequence,
            taken_at_unix_s: now_unix_ms / 1000,
            activity: loading
                .as_ref()
                .map_or(activity, |(_, plan)| used_while_loading(plan.activity, activity)),
        };
        let mut listed = shared.appliance.list_resident(name)?;
        if let Some((progress, plan)) = &loading {
            add_missing(&mut listed, plan.missing(progress), new.cache.quota_blocks as usize);
        }
        let bytes = snapshot_of(header, listed)?;
        let epoch = shared.books.leases().and_then(|leases| leases.of(name)).map_or(0, |lease| lease.epoch);
        let (length, config) = (bytes.len(), self.config.clone());
        let write = move |store: &SnapshotStore| store.write(&header, &bytes, epoch, &config);
        let expired = store.write(shared, write).map_err(unkept)?;
        let before = Before { at: Instant::now(), pulse: *pulse, sequence };
        self.before.insert(name.to_owned(), before);
        shared.snapshot_counters.expired.fetch_add(expired as u64, Ordering::Relaxed);
        Ok(length)
    }
}

/// The score of a block that had been used again; of others it is 0.
pub(crate) const USED_AGAIN: u8 = 1;

/// How a cache is used that is being loaded: as well as it was `before`, or as it is now if that is better. It misses what is yet to come, and who loads from
/// snapshots of caches that were of no use leaves it.
fn used_while_loading(before: Activity, now: Activity) -> Activity {
    let product = |hits: u64, lookups: u64| u128::from(hits) * u128::from(lookups);
    let was_better =
        now.lookups == 0 || product(before.hits, now.lookups) > product(now.hits, before.lookups);
    let of = if was_better { before } else { now };
    Activity {
        working_set_blocks: before.working_set_blocks.max(now.working_set_blocks),
        quota_blocks: now.quota_blocks,
        ..of
    }
}

/// Adds what is yet to be loaded, the most wanted first, as far as `room` for so many blocks would take it: as blocks that are loaded are listed, used again.
fn add_missing(listed: &mut Vec<ListedBlock>, missing: impl Iterator<Item = u64>, room: usize) {
    listed.sort_unstable();
    let known = listed.len();
    for block in missing {
        if listed.len() >= room {
            break;
        }
        if listed[..known].binary_search_by_key(&block, |listed| listed.block().0).is_err() {
            listed.push(ListedBlock::new(BlockIndex(block), true));
        }
    }
}

/// The bytes of a snapshot of what was listed, in any order. A block that was listed twice, because it moved, counts as used again if it was either time. `O(n log n)`.
///
/// # Errors
/// [`WriteError`]: a block beyond the volume's end.
pub fn snapshot_of(header: SnapshotHeader, mut listed: Vec<ListedBlock>) -> Result<Vec<u8>, WriteError> {
    listed.sort_unstable();
    let mut writer = SnapshotWriter::new(header, true)?;
    let mut next = listed.iter().peekable();
    while let Some(block) = next.next() {
        if next.peek().is_none_or(|after| after.block() != block.block()) {
            writer.push(block.block().0, if block.used_again() { USED_AGAIN } else { 0 })?;
        }
    }
    Ok(writer.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_cache::snapshot::Snapshot;

    #[test]
    fn what_is_yet_to_be_loaded_is_as_what_was_and_takes_no_more_than_its_room() {
        let all = |listed: Vec<ListedBlock>| {
            listed.iter().map(|listed| (listed.block().0, listed.used_again())).collect::<Vec<_>>()
        };
        let mut listed = [(9, false), (3, true)].map(|(b, a)| ListedBlock::new(BlockIndex(b), a)).to_vec();
        // 9 is there already, and stays as it is; 7 has no room.
        add_missing(&mut listed, [9, 5, 4, 7].into_iter(), 4);
        assert_eq!(all(listed), [(3, true), (9, false), (5, true), (4, true)]);
        let used = |lookups, hits, working_set_blocks| Activity {
            lookups,
            hits,
            span_ms: lookups,
            working_set_blocks,
            quota_blocks: 7,
        };
        // 0.5 before: that counts unless it is better now.
        let before = used(10, 5, 3);
        assert_eq!(used_while_loading(before, used(100, 49, 20)), used(10, 5, 20));
        assert_eq!(used_while_loading(before, used(100, 51, 2)), used(100, 51, 3));
        assert_eq!(used_while_loading(before, used(0, 0, 0)), before);
        assert_eq!(used_while_loading(used(0, 0, 0), used(4, 0, 2)), used(4, 0, 2));
    }

    #[test]
    fn a_block_that_was_listed_twice_is_there_once() {
        let header = SnapshotHeader {
            volume: VolumeId(1),
            block_bytes: 4096,
            volume_blocks: 100,
            sequence: 1,
            taken_at_unix_s: 0,
            activity: Activity::default(),
        };
        let listed = [(9, false), (3, true), (4, false), (3, false), (9, false)]
            .map(|(b, a)| ListedBlock::new(BlockIndex(b), a));
        let bytes = snapshot_of(header, listed.to_vec()).unwrap();
        let mut found = Vec::new();
        Snapshot::parse(bytes, VolumeId(1)).unwrap().for_each(|block, score| found.push((block, score)));
        assert_eq!(found, [(3, USED_AGAIN), (4, 0), (9, 0)]);
    }
}
