//! The two case studies of DCIO (section II-C): what a cache of solid state saves, and what rearranging blocks saves.
//!
//! Here is what each does to a trace; a device on which the trace is then played gives the latencies (see [`crate::compare`]). The
//! paper defines neither its speed-up nor its rearrangement; ours are stated below. A speed-up here is the share of the mean
//! latency that is saved: 0.18 is the paper's 18 %.
//!
//! Invariant: a study changes where and whether requests reach the disks, never when they arrive.

use forebay_locality::ExactLru;
use forebay_trace::{Operation, Request, block_key, split_into_blocks};
use forebay_units::{BlockIndex, BlockSize, Nanos};
use hashbrown::HashMap;
use serde::Serialize;

/// The paper's cache, and the storage that it stood in front of: 32 GB before 2.3 TB.
pub const PAPER_CACHE_SHARE: f64 = 32.0 / 2300.0;

/// What the paper reports on average over its applications.
pub const PAPER_CACHING_SPEEDUP: f64 = 0.18;
/// What the paper reports on average over its applications.
pub const PAPER_DEFRAGMENTATION_SPEEDUP: f64 = 0.14;

/// The latency of a read from the cache (ours: flash of the paper's time).
pub const HIT: Nanos = Nanos::micros(100);

/// Extents that are moved as one by rearranging (ours).
pub const EXTENT_BYTES: u64 = 64 << 10;

/// What a change does to the mean latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speedup {
    /// Mean latency as recorded, in seconds.
    pub before_s: f64,
    /// Mean latency with the change, in seconds.
    pub after_s: f64,
    /// Share of the mean latency that is saved; negative if it got worse.
    pub saved: f64,
}

impl Speedup {
    /// From the mean latencies before, which is above 0, and after.
    pub fn of(before: Nanos, after: Nanos) -> Speedup {
        let (before_s, after_s) = (before.as_secs_f64(), after.as_secs_f64());
        Speedup { before_s, after_s, saved: 1.0 - after_s / before_s }
    }
}

/// The size of a cache that is to a trace's footprint what the paper's was to its storage, in blocks of 4 KiB; at least one.
pub fn scaled_cache_blocks(footprint_blocks: u64) -> u64 {
    ((footprint_blocks as f64 * PAPER_CACHE_SHARE).round() as u64).max(1)
}

/// A cache of solid state in front of the disks: an LRU of blocks of 4 KiB, write-through, empty at first.
///
/// Writes reach the disks and leave their blocks in the cache; a read of which every block is cached takes [`HIT`], any other goes
/// to the disks as a whole. `O(log n)` a block; about 40 bytes for each distinct block.
#[derive(Debug)]
pub struct Cache {
    lru: ExactLru,
    blocks: u64,
    reads: u64,
    hits: u64,
    to_disks: u64,
}

impl Cache {
    /// A cache of `blocks` blocks.
    pub fn new(blocks: u64) -> Cache {
        Cache { lru: ExactLru::new(), blocks, reads: 0, hits: 0, to_disks: 0 }
    }

    /// Clears `to_disks` and fills it with those of the next requests that reach the disks. What neither reads nor writes a
    /// byte is left out.
    pub fn requests(&mut self, requests: &[Request], to_disks: &mut Vec<Request>) {
        to_disks.clear();
        for request in requests {
            if request.length == 0 || !matches!(request.operation, Operation::Read | Operation::Write) {
                continue;
            }
            let blocks = split_into_blocks(request, BlockSize::DEFAULT);
            let mut is_hit = true;
            for block in blocks.first..blocks.end {
                let distance = self.lru.access(block_key(request.volume, BlockIndex(block)), 1);
                is_hit &= distance.is_some_and(|distance| distance <= self.blocks);
            }
            let is_read = request.operation == Operation::Read;
            self.reads += u64::from(is_read);
            if is_read && is_hit {
                self.hits += 1;
            } else {
                to_disks.push(*request);
            }
        }
        self.to_disks += to_disks.len() as u64;
    }

    /// Share of the reads that the cache answered; 0 without reads.
    pub fn read_hit_ratio(&self) -> f64 {
        if self.reads == 0 { 0.0 } else { self.hits as f64 / self.reads as f64 }
    }

    /// The mean latency of all requests, where those that reach the disks have the mean `on_disks`.
    pub fn mean_latency(&self, on_disks: Nanos) -> Nanos {
        let sum =
            u128::from(on_disks.0) * u128::from(self.to_disks) + u128::from(HIT.0) * u128::from(self.hits);
        Nanos((sum / u128::from(self.to_disks + self.hits).max(1)) as u64)
    }
}

/// Volumes rearranged by what a trace tells: extents of [`EXTENT_BYTES`] lie in the order in which they were first touched, from the start of each
/// volume, so that what was used together lies together. 24 bytes for each extent touched.
#[derive(Debug, Default)]
pub struct Rearrangement {
    /// Where an extent lies now, by volume and number.
    places: HashMap<(u32, u64), u64, foldhash::fast::FixedState>,
    next: HashMap<u32, u64, foldhash::fast::FixedState>,
}

impl Rearrangement {
    /// Nothing touched yet.
    pub fn new() -> Rearrangement {
        Rearrangement::default()
    }

    /// Clears `out` and fills it with the next requests at their new places. A request that touches several extents which no longer
    /// follow each other becomes several, at the same time.
    pub fn requests(&mut self, requests: &[Request], out: &mut Vec<Request>) {
        out.clear();
        for request in requests {
            if request.length == 0 {
                out.push(*request);
                continue;
            }
            let volume = request.volume.0;
            let (mut at, end) = (request.offset, request.range().end());
            let mut is_first = true;
            while at < end {
                let extent = at / EXTENT_BYTES;
                let until = end.min((extent + 1).saturating_mul(EXTENT_BYTES));
                let place = *self.places.entry((volume, extent)).or_insert_with(|| {
                    let free = self.next.entry(volume).or_default();
                    *free += 1;
                    *free - 1
                });
                let offset = place * EXTENT_BYTES + at % EXTENT_BYTES;
                let length = until - at;
                match out.last_mut() {
                    Some(last) if !is_first && last.range().end() == offset => last.length += length,
                    _ => out.push(Request { offset, length, ..*request }),
                }
                (is_first, at) = (false, until);
            }
        }
    }
}

/// Counts requests that start where the one before them in their volume ended.
#[derive(Debug, Default)]
pub struct Sequentiality {
    ends: HashMap<u32, u64, foldhash::fast::FixedState>,
    requests: u64,
    sequential: u64,
}

impl Sequentiality {
    /// Nothing seen yet.
    pub fn new() -> Sequentiality {
        Sequentiality::default()
    }

    /// The next requests; those without bytes do not count.
    pub fn requests(&mut self, requests: &[Request]) {
        for request in requests.iter().filter(|request| request.length > 0) {
            self.requests += 1;
            let before = self.ends.insert(request.volume.0, request.range().end());
            self.sequential += u64::from(before == Some(request.offset));
        }
    }

    /// The share of the requests, 0 to 1; 0 without any.
    pub fn share(&self) -> f64 {
        self.sequential as f64 / self.requests.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_trace::{ThreadNumber, VolumeIndex};

    fn read(at: u64, offset: u64, length: u64) -> Request {
        let (time, latency, volume) = (Nanos::millis(at), Nanos::MAX, VolumeIndex(0));
        Request {
            time,
            offset,
            length,
            latency,
            volume,
            thread: ThreadNumber::UNKNOWN,
            operation: Operation::Read,
        }
    }

    /// The cache after `requests`, which come in parts, and what reached the disks.
    fn cached(requests: &[Request], blocks: u64) -> (Cache, Vec<Request>) {
        let (mut cache, mut all, mut part) = (Cache::new(blocks), Vec::new(), Vec::new());
        for requests in requests.chunks(100) {
            cache.requests(requests, &mut part);
            all.extend_from_slice(&part);
        }
        (cache, all)
    }

    fn rearranged(requests: &[Request]) -> Vec<Request> {
        let (mut rearrangement, mut all, mut part) = (Rearrangement::new(), Vec::new(), Vec::new());
        for requests in requests.chunks(2) {
            rearrangement.requests(requests, &mut part);
            all.extend_from_slice(&part);
        }
        all
    }

    #[test]
    fn extents_lie_in_the_order_of_their_first_touch() {
        let extent = EXTENT_BYTES;
        let requests = [
            read(0, 9 * extent + 512, 1024),
            // Extents 4 and 5 are new, and stay together.
            read(1, 4 * extent, 2 * extent),
            read(2, 9 * extent, 512),
            // Extent 5 lies at 2, extent 6 is new and lies at 3: they follow each other. Then 8, and 9 at 0 before it.
            read(3, 5 * extent + 4096, extent),
            read(4, 8 * extent + extent / 2, extent),
        ];
        let found: Vec<(u64, u64)> =
            rearranged(&requests).iter().map(|request| (request.offset, request.length)).collect();
        let expected = [
            (512, 1024),
            (extent, 2 * extent),
            (0, 512),
            (2 * extent + 4096, extent),
            (4 * extent + extent / 2, extent / 2),
            (0, extent / 2),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_cache_saves_what_it_hits() {
        // 64 blocks far apart, read in turn 20 times: a cache of 64 blocks misses only the first round, one of 63 always.
        let requests: Vec<Request> = (0..1280).map(|at| read(at, at % 64 * 4099 * 4096, 4096)).collect();
        let (all, to_disks) = cached(&requests, 64);
        assert_eq!((all.to_disks, all.read_hit_ratio()), (64, 0.95));
        assert_eq!(to_disks, requests[..64]);
        // 1 of 20 takes 10 ms, the others 0.1 ms: 0.5 + 0.095 ms.
        assert_eq!(all.mean_latency(Nanos::millis(10)), Nanos::micros(595));
        let study = Speedup::of(Nanos::millis(10), all.mean_latency(Nanos::millis(10)));
        assert!((study.saved - 0.9405).abs() < 1e-9, "{study:?}");
        let (none, _) = cached(&requests, 63);
        assert_eq!((none.to_disks, none.hits), (1280, 0));
        assert_eq!(none.mean_latency(Nanos::millis(10)), Nanos::millis(10));
        // A write goes to the disks, and what it wrote is read from the cache; half a hit is none.
        let write = Request { operation: Operation::Write, ..read(0, 0, 4096) };
        let (mixed, _) = cached(&[write, write, read(1, 0, 4096), read(2, 0, 8192), read(3, 0, 0)], 8);
        assert_eq!((mixed.to_disks, mixed.reads, mixed.hits), (3, 2, 1));
        assert_eq!(cached(&[], 8).0.mean_latency(Nanos::ZERO), Nanos::ZERO);
        // 32 GB of 2.3 TB are 1.39 %.
        assert_eq!((scaled_cache_blocks(100_000), scaled_cache_blocks(3)), (1_391, 1));
    }

    #[test]
    fn scattered_runs_become_sequential() {
        // Two rounds over 500 extents far apart.
        let requests: Vec<Request> =
            (0..1_000).map(|at| read(at, at % 500 * 997 % 500 * 16 * EXTENT_BYTES, EXTENT_BYTES)).collect();
        let sequential = |requests: &[Request]| {
            let mut counted = Sequentiality::new();
            // In parts, as readers yield them.
            requests.chunks(7).for_each(|part| counted.requests(part));
            counted.share()
        };
        let moved = rearranged(&requests);
        // All follow each other, but for the step from the end of the first round to the start of the second.
        assert_eq!((sequential(&requests), sequential(&moved), moved.len()), (0.0, 0.998, 1_000));
        assert!(
            moved.iter().zip(&requests).all(|(new, old)| new.time == old.time && new.length == old.length)
        );
    }
}
