//! The node that will fail: it serves from cold, and takes snapshots of its cache.

use super::experiment::HORIZON;
use super::load::Load;
use super::objects::Object;
use super::pools::{Place, Pools};
use forebay_cache::flash::VolumeId;
use forebay_cache::snapshot::{Activity, SnapshotHeader, SnapshotWriter};
use std::collections::BTreeSet;

/// Which objects were cached at an instant.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When it was taken, in milliseconds.
    pub at_millis: u32,
    /// One bit per object.
    pub words: Vec<u64>,
    /// One bit per object: of those, what had been used again.
    pub again: Vec<u64>,
}

impl Snapshot {
    fn of(pools: &Pools, count: usize, at_millis: u32) -> Snapshot {
        let mut words = vec![0u64; count.div_ceil(64)];
        let mut again = words.clone();
        for object in pools.cached() {
            let (word, bit) = (object.index() / 64, 1 << (object.index() % 64));
            words[word] |= bit;
            if pools.place(object) == Place::Multi {
                again[word] |= bit;
            }
        }
        Snapshot { at_millis, words, again }
    }

    /// Whether it has `object`.
    pub fn has(&self, object: Object) -> bool {
        self.words[object.index() / 64] >> (object.index() % 64) & 1 == 1
    }

    /// How long it is as the daemon writes snapshots, without scores.
    pub fn encoded_bytes(&self) -> u64 {
        let header = SnapshotHeader {
            volume: VolumeId(0),
            block_bytes: 0,
            volume_blocks: self.words.len() as u64 * 64,
            sequence: 0,
            taken_at_unix_s: u64::from(self.at_millis / 1000),
            activity: Activity::default(),
        };
        let mut writer = SnapshotWriter::new(header, false).expect("objects of some volumes");
        for (first, word) in (0..).step_by(64).zip(&self.words) {
            for bit in (0..64).filter(|bit| word >> bit & 1 == 1) {
                writer.push(first + bit, 0).expect("objects ascend");
            }
        }
        writer.finish().len() as u64
    }

    /// How many objects it has.
    pub fn count(&self) -> u64 {
        ones(&self.words)
    }

    /// How many of them had been used again.
    pub fn count_again(&self) -> u64 {
        ones(&self.again)
    }
}

fn ones(words: &[u64]) -> u64 {
    words.iter().map(|word| u64::from(word.count_ones())).sum()
}

/// What survives the node.
#[derive(Clone, Debug)]
pub struct Source {
    /// The oldest first.
    pub snapshots: Vec<Snapshot>,
    /// The cache at the failure, warm: what a node that did not fail goes on with.
    pub warm: Pools,
    /// Accesses in all.
    pub accesses: usize,
    /// What it saw in the last [`super::HORIZON`] seconds.
    pub lately: Lately,
}

/// How a cache was used for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lately {
    /// Objects that were looked up,
    pub lookups: u64,
    /// those of them that were found,
    pub hits: u64,
    /// and how many different ones there were.
    pub objects: u64,
}

/// Serves the look-ups of `load` before the failure, and takes a snapshot whenever more than the next multiple of `every` accesses were
/// served, as the original does. Nothing that comes after the failure is seen.
pub fn serve(load: &Load, failure: usize, bytes: u64, every: usize) -> Source {
    let mut pools = Pools::new(load.objects.clone(), bytes);
    let mut snapshots = Vec::new();
    let mut lately = Lately::default();
    let mut extents = BTreeSet::new();
    let ends = load.accesses[..failure].last().map_or(0, |access| access.at_millis);
    for (served, access) in load.accesses[..failure].iter().enumerate() {
        let hm1 = pools.look_up(load.objects.hm1(access.extent));
        let hm3 = pools.look_up(load.objects.hm3(access.extent));
        if ends - access.at_millis < HORIZON * 1_000 {
            lately.lookups += 2;
            lately.hits += u64::from(hm1) + u64::from(hm3);
            extents.insert(access.extent);
        }
        if served + 1 > (snapshots.len() + 1) * every {
            snapshots.push(Snapshot::of(&pools, load.objects.count(), access.at_millis));
        }
    }
    lately.objects = 2 * extents.len() as u64;
    Source { snapshots, warm: pools, accesses: failure, lately }
}
