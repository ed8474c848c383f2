//! Loads like those that SANCache was measured with, as far as they are published: SPC-1's streams by their published shares, TPC-C's pages by its random function.
//!
//! Which blocks a stream comes back to, all sizes and all rates are ours. It is *not* either benchmark: neither its results nor its rules.

use crate::load::RecordedRequest;
use forebay_units::{Nanos, mix64};
use forebay_workload::generator::{Arrivals, Random, Scatter, ZipfRanks, random, unit};
use serde::Serialize;
use std::sync::Arc;

/// What is hot is hot in pieces of this size.
const EXTENT: u64 = 256 << 10;
/// The unit of requests.
const SECTOR: u64 = 4 << 10;

/// Where a stream's requests go.
#[derive(Clone, Copy, Debug)]
enum Pattern {
    /// Anywhere.
    Uniform,
    /// To scattered extents by Zipf's law.
    Hot { theta: f64, seed: u64 },
    /// One after the other, beginning again at random after so many.
    Sequential { run: u32 },
    /// To a few extents, which are others after a while.
    Moving { extents: u64, every: Nanos, seed: u64 },
    /// To a few places of an extent's first quarter, then of another extent, never to come back.
    Bursts { requests: u32 },
    /// To rows of 1 / `pages` of a table each, by TPC-C's NURand with this `a`.
    NonUniform { a: u64, rows_per_page: u64, rows: u64 },
}

/// A stream of requests.
#[derive(Clone, Debug)]
struct Stream {
    share: f64,
    read_share: f64,
    start: u64,
    bytes: u64,
    pattern: Pattern,
    /// Sizes of requests with their shares.
    sizes: &'static [(f64, u64)],
}

const SMALL: &[(f64, u64)] = &[(1.0, 4 << 10)];
const PAGE: &[(f64, u64)] = &[(1.0, 8 << 10)];
/// SPC-1's mix for its sequential streams: 8 to 128 sectors, as a public re-implementation has it; the specification itself was not at hand.
const MIXED: &[(f64, u64)] =
    &[(0.40, 4 << 10), (0.24, 8 << 10), (0.20, 16 << 10), (0.08, 32 << 10), (0.08, 64 << 10)];

/// What a stream remembers.
#[derive(Clone, Debug, Default)]
struct Cursor {
    next: u64,
    left: u32,
}

/// A load from an instant on.
#[derive(Clone, Debug)]
struct Phase {
    from: Nanos,
    rate: f64,
    streams: Vec<Stream>,
}

/// Which load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadKind {
    /// Eight streams over three application storage units, 60 % writes.
    Spc1,
    /// The first of SPC-1's units alone, in 2 GiB.
    Lun1,
    /// Stock and customers by NURand, orders and a log at their ends.
    Tpcc,
    /// A hot set that stays, under bursts of accesses that never come back.
    Noisy,
    /// A hot set that is another one every 15 s.
    Moving,
    /// Noisy and moving, in turns.
    Phases,
    /// The same with bursts of five, so that the best thresholds of the two lie further apart.
    FarPhases,
    /// A recorded trace.
    Recorded,
}

impl LoadKind {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            LoadKind::Spc1 => "SPC-1-like",
            LoadKind::Lun1 => "SPC-1-like, first unit",
            LoadKind::Tpcc => "TPC-C-like",
            LoadKind::Noisy => "noisy",
            LoadKind::Moving => "moving",
            LoadKind::Phases => "phases",
            LoadKind::FarPhases => "phases far apart",
            LoadKind::Recorded => "recorded",
        }
    }
}

/// The volume of all loads.
pub(super) const VOLUME: u64 = 16 << 30;
/// That of the isolation experiment's victim.
pub(super) const LUN1: u64 = 2 << 30;

/// SPC-1: eight streams over units of 45, 45 and 10 % of the capacity, with the specification's shares and read shares. Its "hierarchical reuse random walks" are hot extents here.
fn spc1(rate: f64, seed: u64) -> Vec<Phase> {
    let (first, second) = (VOLUME / 100 * 45 / EXTENT * EXTENT, VOLUME / 100 * 90 / EXTENT * EXTENT);
    let units = [(0, first), (first, second - first), (second, VOLUME - second)];
    let hot = |stream: u64| Pattern::Hot { theta: 1.0, seed: mix64(seed ^ stream) };
    let stream = |unit: usize, share, read_share, pattern, sizes| {
        let (start, bytes) = units[unit];
        Stream { share, read_share, start, bytes, pattern, sizes }
    };
    let streams = vec![
        stream(0, 0.035, 0.5, Pattern::Uniform, SMALL),
        stream(0, 0.281, 0.5, hot(1), SMALL),
        stream(0, 0.070, 1.0, Pattern::Sequential { run: 64 }, MIXED),
        stream(0, 0.210, 0.5, hot(2), SMALL),
        stream(1, 0.018, 0.3, Pattern::Uniform, SMALL),
        stream(1, 0.070, 0.3, hot(3), SMALL),
        stream(1, 0.035, 1.0, Pattern::Sequential { run: 64 }, MIXED),
        stream(2, 0.281, 0.0, Pattern::Sequential { run: 256 }, MIXED),
    ];
    vec![Phase { from: Nanos::ZERO, rate, streams }]
}

/// The four streams of SPC-1's first unit, by their shares.
fn lun1(rate: f64, seed: u64) -> Vec<Phase> {
    let mut phases = spc1(rate, seed);
    for phase in &mut phases {
        phase.streams.truncate(4);
        phase.streams.iter_mut().for_each(|stream| stream.bytes = LUN1);
    }
    phases
}

/// TPC-C: pages of 8 KiB. 26 rows of stock and 12 of customers fit on one; both tables of 80 warehouses, an order area and a log.
fn tpcc(rate: f64) -> Vec<Phase> {
    const WAREHOUSES: u64 = 80;
    let stock_rows = 100_000 * WAREHOUSES;
    let customer_rows = 30_000 * WAREHOUSES;
    let pages = |rows: u64, per_page: u64| rows.div_ceil(per_page) * (8 << 10);
    let (stock, customers) = (pages(stock_rows, 26), pages(customer_rows, 12));
    let streams = vec![
        Stream {
            share: 0.52,
            read_share: 0.65,
            start: 0,
            bytes: stock,
            pattern: Pattern::NonUniform { a: 8_191, rows_per_page: 26, rows: 100_000 },
            sizes: PAGE,
        },
        Stream {
            share: 0.25,
            read_share: 0.7,
            start: stock,
            bytes: customers,
            pattern: Pattern::NonUniform { a: 1_023, rows_per_page: 12, rows: 3_000 },
            sizes: PAGE,
        },
        Stream {
            share: 0.08,
            read_share: 0.3,
            start: stock + customers,
            bytes: 2 << 30,
            pattern: Pattern::Sequential { run: 100_000 },
            sizes: PAGE,
        },
        Stream {
            share: 0.15,
            read_share: 0.0,
            start: VOLUME - (2 << 30),
            bytes: 2 << 30,
            pattern: Pattern::Sequential { run: 100_000 },
            sizes: PAGE,
        },
    ];
    vec![Phase { from: Nanos::ZERO, rate, streams }]
}

/// 40 % of the accesses to 48 MiB, which stay; the rest in bursts of so many within 64 KiB, which never come back.
fn noisy(seed: u64, burst: u32) -> Vec<Stream> {
    let stream =
        |share, bytes, pattern| Stream { share, read_share: 0.8, start: 0, bytes, pattern, sizes: SMALL };
    vec![
        stream(0.4, 48 << 20, Pattern::Hot { theta: 0.0, seed: mix64(seed ^ 11) }),
        stream(0.6, VOLUME, Pattern::Bursts { requests: burst }),
    ]
}

/// 95 % of the accesses to a set of 192 MiB, which is another one every 15 s.
fn moving(seed: u64) -> Vec<Stream> {
    let stream =
        |share, pattern| Stream { share, read_share: 0.8, start: 0, bytes: VOLUME, pattern, sizes: SMALL };
    vec![
        stream(0.95, Pattern::Moving { extents: 768, every: Nanos::secs(15), seed: mix64(seed ^ 12) }),
        stream(0.05, Pattern::Uniform),
    ]
}

/// Requests of a burst, and where the phases are to be far apart.
const BURST: u32 = 3;
const FAR_BURST: u32 = 5;

/// How long a phase lasts.
pub(super) const PHASE: Nanos = Nanos(200_000_000_000);

fn phases(kind: LoadKind, rate: f64, duration: Nanos, seed: u64) -> Vec<Phase> {
    let at = |from, streams| Phase { from, rate, streams };
    match kind {
        LoadKind::Spc1 => spc1(rate, seed),
        LoadKind::Lun1 => lun1(rate, seed),
        LoadKind::Tpcc => tpcc(rate),
        LoadKind::Recorded => Vec::new(),
        LoadKind::Noisy => vec![at(Nanos::ZERO, noisy(seed, BURST))],
        LoadKind::Moving => vec![at(Nanos::ZERO, moving(seed))],
        LoadKind::Phases | LoadKind::FarPhases => (0..duration.0.div_ceil(PHASE.0))
            .map(|number| {
                let burst = if kind == LoadKind::FarPhases { FAR_BURST } else { BURST };
                let streams = if number % 2 == 0 { noisy(seed, burst) } else { moving(seed) };
                at(Nanos(number * PHASE.0), streams)
            })
            .collect(),
    }
}

impl Stream {
    fn next(&self, now: Nanos, cursor: &mut Cursor, random: &mut Random) -> (u64, u64) {
        let mut part = unit(random);
        let size = self.sizes.iter().find(|(share, _)| {
            part -= share;
            part < 0.0
        });
        let size = size.unwrap_or(&self.sizes[0]).1;
        let below = |most: u64, random: &mut Random| ((unit(random) * most as f64) as u64).min(most - 1);
        let extents = self.bytes / EXTENT;
        let within = |extent: u64, random: &mut Random| {
            extent * EXTENT + below((EXTENT - size) / SECTOR + 1, random) * SECTOR
        };
        let offset = match self.pattern {
            Pattern::Uniform => below((self.bytes - size) / SECTOR, random) * SECTOR,
            Pattern::Hot { theta, seed } => {
                // Extents are scattered over the whole volume's stretch of this stream.
                let rank = ZipfRanks::new(extents, theta).next(random) - 1;
                within(Scatter::new(extents, seed).apply(rank), random)
            }
            Pattern::Moving { extents: few, every, seed } => {
                let set = mix64(seed ^ (now.0 / every.0));
                within(Scatter::new(extents, set).apply(below(few, random)), random)
            }
            Pattern::Sequential { run } => {
                if cursor.left == 0 || cursor.next + size > self.bytes {
                    cursor.left = run;
                    cursor.next = below((self.bytes / 2).max(1) / SECTOR, random) * SECTOR;
                }
                cursor.left -= 1;
                cursor.next += size;
                cursor.next - size
            }
            Pattern::Bursts { requests } => {
                if cursor.left == 0 {
                    (cursor.left, cursor.next) = (requests, below(extents, random) * EXTENT);
                }
                cursor.left -= 1;
                cursor.next + below((EXTENT / 4 - size) / SECTOR + 1, random) * SECTOR
            }
            Pattern::NonUniform { a, rows_per_page, rows } => {
                // NURand(a, 0, rows - 1) of TPC-C, clause 2.1.6, with C = 0, in one group of rows (a warehouse, or a district) at random.
                let groups = self.bytes / (8 << 10) * rows_per_page / rows;
                let row = (below(a + 1, random) | below(rows, random)) % rows;
                (below(groups, random) * rows + row) / rows_per_page * (8 << 10)
            }
        };
        (self.start + offset, size)
    }
}

/// The requests of a load for so long, at random instants of this rate; not of one that is recorded.
pub fn requests(kind: LoadKind, rate: f64, duration: Nanos, seed: u64) -> Arc<[RecordedRequest]> {
    let phases = phases(kind, rate, duration, seed);
    assert!(!phases.is_empty(), "a recorded load is not drawn");
    let mut random = random(mix64(seed ^ 0x5a4c));
    let mut cursors = vec![Cursor::default(); 16];
    let mut requests = Vec::with_capacity((rate * duration.as_secs_f64() * 1.02) as usize + 16);
    let (mut now, mut at) = (Nanos::ZERO, 0);
    loop {
        now += Arrivals::Poisson { rate: phases[at].rate }.next_span(&mut random);
        if now >= duration {
            break;
        }
        while phases.get(at + 1).is_some_and(|next| next.from <= now) {
            at += 1;
        }
        let mut part = unit(&mut random) * phases[at].streams.iter().map(|stream| stream.share).sum::<f64>();
        let chosen = phases[at].streams.iter().position(|stream| {
            part -= stream.share;
            part < 0.0
        });
        let chosen = chosen.unwrap_or(0);
        let stream = &phases[at].streams[chosen];
        let (offset, length) = stream.next(now, &mut cursors[chosen], &mut random);
        let writes = unit(&mut random) >= stream.read_share;
        requests.push(RecordedRequest { at: now, offset, length: length as u32, writes });
    }
    requests.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_what_they_are_said_to_be() {
        for (kind, reads) in [
            // 0.035 x 0.5 + 0.281 x 0.5 + 0.07 + 0.21 x 0.5 + 0.018 x 0.3 + 0.07 x 0.3 + 0.035.
            (LoadKind::Spc1, 0.394),
            // 0.52 x 0.65 + 0.25 x 0.7 + 0.08 x 0.3.
            (LoadKind::Tpcc, 0.537),
            (LoadKind::Phases, 0.8),
        ] {
            let asked = requests(kind, 1_000.0, Nanos::secs(30), 1);
            let count = asked.len() as f64;
            assert!((29_000.0..31_000.0).contains(&count));
            let found = asked.iter().filter(|request| !request.writes).count() as f64 / count;
            assert!((found - reads).abs() < 0.01, "{kind:?}: {found} against {reads}");
            assert!(asked.iter().all(|request| {
                request.offset % SECTOR == 0 && request.offset + u64::from(request.length) <= VOLUME
            }));
            assert!(asked.windows(2).all(|pair| pair[0].at <= pair[1].at));
            assert_eq!(asked, requests(kind, 1_000.0, Nanos::secs(30), 1));
        }
    }
}
