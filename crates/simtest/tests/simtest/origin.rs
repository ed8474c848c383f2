//! A simulated origin: it samples reads and applies changes cell by cell, in any order, at any moment between submission and
//! completion; it fails, loses connections, applies lost writes late, and forgets what was not flushed when it crashes.
//!
//! It promises no more than the contract of `Origin`: a flush makes stable what was *completed* before it was submitted.

use forebay_appliance::service::SlabKey;
use forebay_linear::{History, cell_bytes, version_in};
use forebay_nbd::wire::AllocationFlags;
use forebay_origin::{ExtentList, OriginOperation, OriginRequest, OriginTraits};
use forebay_units::ByteRange;
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, BTreeSet};

/// A request at the origin.
#[derive(Debug)]
pub(crate) struct AtOrigin {
    /// Which start of the daemon asked, and which of its volumes.
    pub(crate) incarnation: u64,
    pub(crate) volume: SlabKey,
    pub(crate) request: OriginRequest,
    pub(crate) submitted: u64,
    /// The worker's ring has it.
    pub(crate) in_ring: bool,
    /// Cells not yet sampled or applied.
    pub(crate) todo: Vec<u64>,
    /// A read's answer so far.
    pub(crate) data: Vec<u8>,
    /// What it writes.
    pub(crate) version: u64,
    /// How many cells are left when it fails, or nothing more is heard of it.
    pub(crate) fate: Fate,
}

/// What will become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Done,
    Fails { errno: i32 },
    Unreachable,
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Applied {
    version: u64,
    serial: u64,
}

/// One volume's data: what it holds, and what of it is stable.
#[derive(Debug)]
pub(crate) struct SimOrigin {
    pub(crate) traits: OriginTraits,
    pub(crate) cell: u64,
    live: Vec<u64>,
    stable: Vec<u64>,
    /// Applied since the last flush, in order.
    unflushed: Vec<Vec<Applied>>,
    pub(crate) requests: BTreeMap<u64, AtOrigin>,
    /// Changes of unknown outcome that may still be applied.
    ghosts: BTreeMap<u64, AtOrigin>,
    next_serial: u64,
    /// Requests (by serial) that were completed, and when.
    completed: BTreeMap<u64, u64>,
    /// (cell, version) of everything that was ever applied.
    applied: BTreeSet<(u64, u64)>,
    /// (cell, version) of the changes that were completed with success.
    pub(crate) written: BTreeSet<(u64, u64)>,
    /// (cell, version) of changes with an unknown outcome.
    pub(crate) lost: BTreeSet<(u64, u64)>,
    /// (submitted, completed) of the flushes that succeeded.
    pub(crate) flushes: Vec<(u64, u64)>,
    /// Writes that were acknowledged may be gone, which the next flush must tell.
    pub(crate) next_flush_fails: bool,
}

impl SimOrigin {
    pub(crate) fn new(traits: OriginTraits, cell: u64) -> SimOrigin {
        let cells = traits.size_bytes / cell;
        let content: Vec<u64> = (1..=cells).collect();
        SimOrigin {
            traits,
            cell,
            stable: content.clone(),
            live: content,
            unflushed: vec![Vec::new(); cells as usize],
            requests: BTreeMap::new(),
            ghosts: BTreeMap::new(),
            next_serial: 0,
            completed: BTreeMap::new(),
            applied: (0..cells).zip(1..).collect(),
            written: BTreeSet::new(),
            lost: BTreeSet::new(),
            flushes: Vec::new(),
            next_flush_fails: false,
        }
    }

    pub(crate) fn cells(&self, range: ByteRange) -> std::ops::Range<u64> {
        let cell = self.cell;
        assert!(
            range.offset.is_multiple_of(cell) && range.length.is_multiple_of(cell),
            "{range:?} is not aligned to the smallest unit, {cell}"
        );
        range.offset / cell..range.end() / cell
    }

    pub(crate) fn cell_count(&self) -> u64 {
        self.live.len() as u64
    }

    pub(crate) fn held(&self, cell: u64) -> u64 {
        self.live[cell as usize]
    }

    /// Takes a request in; its serial number. `version` is what a trim leaves.
    pub(crate) fn submit(
        &mut self,
        request: OriginRequest,
        (incarnation, volume): (u64, SlabKey),
        version: u64,
        submitted: u64,
        fate: Fate,
        in_ring: bool,
    ) -> u64 {
        let range = request.operation.range();
        assert!(range.end() <= self.traits.size_bytes, "{range:?} ends behind the origin");
        assert!(
            range.length <= u64::from(self.traits.request_bytes_max)
                || matches!(request.operation, OriginOperation::BlockStatus { .. }),
            "{range:?} is longer than the origin accepts"
        );
        let (data, version) = match &request.operation {
            OriginOperation::Read { .. } => (vec![0xee; range.length as usize], 0),
            // A byte per cell, until it is answered.
            OriginOperation::BlockStatus { .. } => (vec![0xee; (range.length / self.cell) as usize], 0),
            OriginOperation::Write { data, .. } => {
                (Vec::new(), version_in(&data[..self.cell as usize], range.offset / self.cell))
            }
            OriginOperation::Trim { .. } => (Vec::new(), version),
            _ => (Vec::new(), 0),
        };
        let todo = if fate == Fate::Unreachable { Vec::new() } else { self.cells(range).collect() };
        let serial = self.next_serial;
        self.next_serial += 1;
        self.requests.insert(
            serial,
            AtOrigin { incarnation, volume, request, submitted, in_ring, todo, data, version, fate },
        );
        serial
    }

    /// Works on some cells of a request; whether it has come to its end.
    pub(crate) fn work(&mut self, serial: u64, count: usize, random: &mut Xoshiro256PlusPlus) -> bool {
        let Some(mut request) = self.requests.remove(&serial) else { return false };
        self.work_on(serial, &mut request, count, random);
        let is_over =
            request.todo.is_empty() || (request.fate != Fate::Done && random.random_range(0..3) == 0);
        self.requests.insert(serial, request);
        is_over
    }

    fn work_on(
        &mut self,
        serial: u64,
        request: &mut AtOrigin,
        count: usize,
        random: &mut Xoshiro256PlusPlus,
    ) {
        let cell_bytes_count = self.cell;
        let offset = request.request.operation.range().offset;
        for _ in 0..count.min(request.todo.len()) {
            let cell = request.todo.swap_remove(random.random_range(0..request.todo.len()));
            let at = (cell * cell_bytes_count - offset) as usize;
            let span = at..at + cell_bytes_count as usize;
            let version = match &request.request.operation {
                OriginOperation::Read { .. } => {
                    let bytes = cell_bytes(self.live[cell as usize], cell, cell_bytes_count);
                    request.data[span].copy_from_slice(&bytes);
                    continue;
                }
                OriginOperation::BlockStatus { .. } => {
                    let is_zero = self.live[cell as usize] == 0;
                    request.data[(cell - offset / cell_bytes_count) as usize] = if is_zero { 3 } else { 0 };
                    continue;
                }
                OriginOperation::Write { data, .. } => version_in(&data[span], cell),
                OriginOperation::Trim { .. } => request.version,
                OriginOperation::WriteZeroes { .. } => 0,
                OriginOperation::Flush => continue,
            };
            self.live[cell as usize] = version;
            self.applied.insert((cell, version));
            self.unflushed[cell as usize].push(Applied { version, serial });
        }
    }

    /// What is answered to a request that succeeded.
    pub(crate) fn answer(&self, request: &mut AtOrigin) -> Vec<u8> {
        let data = std::mem::take(&mut request.data);
        let OriginOperation::BlockStatus { range, one_extent } = request.request.operation else {
            return data;
        };
        let mut list = ExtentList::new(range.length, one_extent);
        data.iter().all(|flags| list.push(self.cell, AllocationFlags(u32::from(*flags))));
        list.into_bytes()
    }

    /// The request succeeded: what it promised holds from here on.
    pub(crate) fn complete(&mut self, serial: u64, request: &AtOrigin, now: u64) {
        self.completed.insert(serial, now);
        let operation = &request.request.operation;
        if *operation == OriginOperation::Flush {
            self.flushes.push((request.submitted, now));
            for cell in 0..self.live.len() {
                let completed = &self.completed;
                let stable = self.unflushed[cell].iter().rposition(|applied| {
                    completed.get(&applied.serial).is_some_and(|at| *at < request.submitted)
                });
                self.make_stable(cell, stable);
            }
        }
        if operation.changes_content() {
            let fua = operation.fua();
            for cell in self.cells(operation.range()) {
                let version = match operation {
                    OriginOperation::WriteZeroes { .. } => 0,
                    _ => request.version,
                };
                self.written.insert((cell, version));
                if fua {
                    let stable =
                        self.unflushed[cell as usize].iter().rposition(|applied| applied.serial == serial);
                    self.make_stable(cell as usize, stable);
                }
            }
        }
    }

    fn make_stable(&mut self, cell: usize, last: Option<usize>) {
        if let Some(last) = last {
            self.stable[cell] = self.unflushed[cell][last].version;
            self.unflushed[cell].drain(..=last);
        }
    }

    /// The answer to this change was lost on the way, or it was: it may be applied later.
    pub(crate) fn lose(&mut self, serial: u64, request: AtOrigin) {
        for cell in self.cells(request.request.operation.range()) {
            self.lost.insert((cell, request.version));
        }
        self.ghosts.insert(serial, request);
    }

    pub(crate) fn has_ghosts(&self) -> bool {
        !self.ghosts.is_empty()
    }

    /// A change that was given up for lost is applied after all, in part.
    pub(crate) fn haunt(&mut self, random: &mut Xoshiro256PlusPlus) {
        let Some(serial) = pick(&self.ghosts, random) else { return };
        let mut ghost = self.ghosts.remove(&serial).expect("picked above");
        self.work_on(serial, &mut ghost, random.random_range(1..8), random);
        self.ghosts.insert(serial, ghost);
    }

    /// Nothing lost will come back from here on: each is done, in part or whole, or never.
    pub(crate) fn end_ghosts(&mut self, random: &mut Xoshiro256PlusPlus) {
        for (serial, mut ghost) in std::mem::take(&mut self.ghosts) {
            let count = [0, 3, usize::MAX][random.random_range(0..3)];
            self.work_on(serial, &mut ghost, count, random);
        }
    }

    /// Everything at the origin ends, in part or whole, without an answer.
    pub(crate) fn end_requests(&mut self, random: &mut Xoshiro256PlusPlus) -> Vec<(u64, AtOrigin)> {
        let mut ended = Vec::new();
        for (serial, mut request) in std::mem::take(&mut self.requests) {
            let count = [0, 3, usize::MAX][random.random_range(0..3)];
            self.work_on(serial, &mut request, count, random);
            request.todo.clear();
            ended.push((serial, request));
        }
        ended
    }

    /// Power fails: of what was not flushed, any part may be gone. No request and no ghost is left.
    pub(crate) fn crash(
        &mut self,
        history: &mut History,
        cache_survived: bool,
        now: u64,
        random: &mut Xoshiro256PlusPlus,
    ) {
        assert!(self.requests.is_empty() && self.ghosts.is_empty());
        for cell in 0..self.live.len() {
            let mut possible = vec![self.stable[cell]];
            possible.extend(self.unflushed[cell].iter().map(|applied| applied.version));
            let survivor =
                if random.random_range(0..2) == 0 { 0 } else { random.random_range(0..possible.len()) };
            let survivor = possible[survivor];
            let may_come = |version| !self.applied.contains(&(cell as u64, version));
            history.crash(cell as u64, survivor, &possible, may_come, cache_survived, now);
            self.next_flush_fails |= survivor != self.live[cell];
            (self.live[cell], self.stable[cell]) = (survivor, survivor);
            self.unflushed[cell].clear();
        }
    }
}

fn pick<T>(map: &BTreeMap<u64, T>, random: &mut Xoshiro256PlusPlus) -> Option<u64> {
    if map.is_empty() { None } else { map.keys().nth(random.random_range(0..map.len())).copied() }
}
