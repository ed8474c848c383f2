//! A node that serves: the one that fails, and takes the daemon's snapshots, and the one that takes over, and is loaded.

use super::load::{Kind, Look, Looks};
use forebay_cache::{Inserted, Insertion, Partition};
use forebay_policy::{Slot, TwoPool};
use forebay_sim::presto::{Entry, HORIZON, Object, Place, Pools};
use forebay_units::BlockIndex;
use std::collections::{BTreeSet, VecDeque};

/// As the daemon takes snapshots: each minute or 100,000 look-ups of an access, and keeps so many.
const EVERY_MILLIS: u32 = 60_000;
const EVERY_LOOKS: usize = 100_000;
const KEEP: usize = 24;
/// Milliseconds after which an access is a new visit, as `VisitRules` has it.
const GAP_MILLIS: u32 = 5_000;
/// Visits since the snapshot before from which on a block is in the next class: three bits in a snapshot.
const VISIT_CLASSES: [u16; 7] = [1, 2, 3, 4, 6, 8, 12];
/// The same of all visits since a block was cached: four bits.
const TOTAL_CLASSES: [u16; 15] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256];

/// A cache: PRESTO's for its objects, the daemon's for blocks.
pub(crate) enum Cache {
    Objects(Pools),
    Blocks(Box<Partition<TwoPool>>),
}

impl Cache {
    pub(crate) fn new(kind: &Kind, capacity_bytes: u64) -> Cache {
        match kind {
            Kind::Objects(objects) => Cache::Objects(Pools::new(objects.clone(), capacity_bytes)),
            Kind::Blocks => {
                let blocks = capacity_bytes / super::load::BLOCK_BYTES;
                Cache::Blocks(Box::new(Partition::new(TwoPool::default(), blocks, 0)))
            }
        }
    }

    /// Looks a thing up, and lets it in after a miss.
    fn look_up(&mut self, thing: u32) -> bool {
        match self {
            Cache::Objects(pools) => pools.look_up(Object(thing)),
            Cache::Blocks(partition) => {
                let block = BlockIndex(thing.into());
                let hit = partition.lookup(block).is_some();
                if !hit {
                    partition.insert(block, Insertion::Miss);
                }
                hit
            }
        }
    }

    fn holds(&self, thing: u32) -> bool {
        match self {
            Cache::Objects(pools) => pools.place(Object(thing)) != Place::Out,
            Cache::Blocks(partition) => partition.peek(BlockIndex(thing.into())).is_some(),
        }
    }

    /// Loads what is not there; whether there was room.
    fn prewarm(&mut self, thing: u32) -> bool {
        match self {
            Cache::Objects(pools) => pools.prewarm(Object(thing), Entry::Tail),
            Cache::Blocks(partition) => {
                let block = BlockIndex(thing.into());
                !partition.is_full()
                    && matches!(partition.insert(block, Insertion::PrewarmTail), Inserted::New { .. })
            }
        }
    }

    /// What is there, and whether it was used again.
    fn resident(&self) -> Vec<(u32, bool)> {
        match self {
            Cache::Objects(pools) => {
                pools.cached().map(|object| (object.0, pools.place(object) == Place::Multi)).collect()
            }
            Cache::Blocks(partition) => {
                let of = |slot| {
                    Some((partition.block_in(slot)?.0 as u32, partition.policy().is_multi_touch(slot)))
                };
                (0..partition.slots_in_use()).map(Slot).filter_map(of).collect()
            }
        }
    }
}

/// What a snapshot tells of a thing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) thing: u32,
    pub(crate) used_again: bool,
    /// Since the snapshot before, as a class says it.
    pub(crate) visits_since: u16,
    /// Since it was cached, likewise.
    pub(crate) visits_since_cached: u16,
}

/// A snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) told: Vec<Told>,
    pub(crate) span_s: f64,
}

/// What the node that failed left.
pub(crate) struct Left {
    /// The oldest first.
    pub(crate) snapshots: Vec<Snapshot>,
    pub(crate) lately_looks: u64,
    pub(crate) lately_hits: u64,
    pub(crate) lately_things: u64,
    /// Its cache.
    pub(crate) cache: Cache,
}

/// Serves the look-ups before `failure`.
pub(crate) fn serve_until(looks: &Looks, failure: usize, capacity_bytes: u64) -> Left {
    let mut cache = Cache::new(&looks.kind, capacity_bytes);
    let mut counts = vec![0u16; looks.places.len()];
    let mut totals = counts.clone();
    let mut last = vec![0u32; looks.places.len()];
    let mut snapshots: VecDeque<Snapshot> = VecDeque::new();
    let per_access = if looks.both { 2 } else { 1 };
    let (mut taken_at, mut since) = (0, 0);
    let ends = looks.looks[..failure].last().map_or(0, |look| look.at_millis);
    let (mut lately_looks, mut lately_hits, mut lately) = (0, 0, BTreeSet::new());
    for &Look { at_millis, thing } in &looks.looks[..failure] {
        if at_millis - taken_at >= EVERY_MILLIS || since >= EVERY_LOOKS * per_access {
            let told = |(thing, used_again): (u32, bool)| {
                let class = |count, classes: &[u16]| {
                    classes.iter().rev().find(|least| **least <= count).copied().unwrap_or(0)
                };
                let visits_since = class(counts[thing as usize], &VISIT_CLASSES);
                let visits_since_cached = class(totals[thing as usize], &TOTAL_CLASSES);
                Told { thing, used_again, visits_since, visits_since_cached }
            };
            let told = cache.resident().into_iter().map(told).collect();
            snapshots.push_back(Snapshot { told, span_s: f64::from(at_millis - taken_at).max(1.0) / 1e3 });
            if snapshots.len() > KEEP {
                snapshots.pop_front();
            }
            counts.fill(0);
            (taken_at, since) = (at_millis, 0);
        }
        since += 1;
        let hit = cache.look_up(thing);
        let (count, total) = (&mut counts[thing as usize], &mut totals[thing as usize]);
        let before = &mut last[thing as usize];
        // Of one that comes anew nothing is known.
        if !hit {
            (*count, *total) = (1, 1);
        } else if at_millis - *before > GAP_MILLIS {
            (*count, *total) = (count.saturating_add(1), total.saturating_add(1));
        }
        *before = at_millis;
        if ends - at_millis < HORIZON * 1_000 {
            lately_looks += 1;
            lately_hits += u64::from(hit);
            lately.insert(thing);
        }
    }
    let lately_things = lately.len() as u64;
    Left { snapshots: snapshots.into(), lately_looks, lately_hits, lately_things, cache }
}

/// How it went after the failure.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    /// Of all look-ups of the horizon.
    pub(crate) window: f64,
    /// The mean over its seconds of the ratio since the failure.
    pub(crate) mean: f64,
    /// Things that were to be loaded.
    pub(crate) ordered: usize,
}

/// Serves a horizon from `failure` on, and loads `order` meanwhile, so many bytes at most and per second. What is cached is skipped; who finds no room ends.
pub(crate) fn take_over(
    looks: &Looks,
    failure: usize,
    mut cache: Cache,
    order: &[u32],
    limit: u64,
    rate: u64,
) -> Reached {
    let start = looks.looks.get(failure).map_or(0, |look| look.at_millis);
    let mut reached = Reached { ordered: order.len(), ..Reached::default() };
    let mut order = order.iter().copied().peekable();
    let mut loaded = 0;
    let mut seconds = vec![(0u64, 0u64); HORIZON as usize];
    let mut ended = false;
    for look in &looks.looks[failure..] {
        let second = (look.at_millis - start) / 1_000;
        if second >= HORIZON {
            break;
        }
        let allowed = limit.min(rate.saturating_mul(u64::from(second) + 1));
        while let Some(&thing) = order.peek().filter(|_| !ended) {
            if !cache.holds(thing) {
                if loaded + looks.bytes(thing) > allowed {
                    break;
                }
                loaded += looks.bytes(thing);
                ended = !cache.prewarm(thing);
            }
            order.next();
        }
        let of = &mut seconds[second as usize];
        of.0 += 1;
        of.1 += u64::from(cache.look_up(look.thing));
    }
    let (mut looked, mut found) = (0, 0);
    for (looks, hits) in &seconds {
        (looked, found) = (looked + looks, found + hits);
        reached.mean += found as f64 / (looked as f64).max(1.0) / seconds.len() as f64;
    }
    reached.window = found as f64 / (looked as f64).max(1.0);
    reached
}
