//! A disk group behind an array's shared cache: reads of all volumes compete for its pages, and writes are acknowledged
//! from it until it holds as many dirty pages as it may. So one volume's flood of writes takes another's pages, its disks'
//! time, and in the end its quick writes.
//!
//! It holds no bytes and loses none: the cache is taken to survive a loss of power, as arrays' caches do. Invariants: a
//! page is clean, dirty or being destaged; dirty and destaged ones are never evicted and never more than `dirty_max`;
//! every accepted request completes exactly once, in order of time, however coarsely time is told. Source of the effect:
//! Ari, Gottwals and Henze, "SANCache", MSST 2006 (workload isolation). Sizes, marks and ages are ours.

use crate::geometry::ParameterError;
use crate::group::{
    DiskCompletion, DiskGroup, DiskGroupObservation, DiskGroupParameters, DiskRequest, DiskRequestId,
    DiskRequestKind, SubmitError, admit,
};
use crate::pages::{Page, Pages};
use forebay_units::{ByteRange, Nanos};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The cache of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayCache {
    /// Its size in bytes, at least 16 pages.
    pub bytes: u64,
    /// The unit of caching, at least 512 bytes; 16 KiB by default.
    pub page_bytes: u64,
    /// Time of every request in the controller; 200 us by default.
    pub latency: Nanos,
    /// Pages that may be dirty, in hundredths of all, 0 to 90; above it writes wait. 0: writes go through to the disks.
    /// 50 by default.
    pub dirty_percent_max: u64,
    /// Above so many hundredths dirty, pages are destaged at once, oldest first; at most the above. 10 by default.
    pub flush_percent: u64,
    /// A page that has been dirty for so long is destaged; 5 s by default.
    pub flush_after: Nanos,
    /// Writes to the disks that destaging keeps outstanding, at least 1; 32 by default.
    pub flush_outstanding_max: usize,
}

impl ArrayCache {
    /// A cache of `bytes` with the defaults of the fields (ours).
    pub fn new(bytes: u64) -> ArrayCache {
        ArrayCache {
            bytes,
            page_bytes: 16 << 10,
            latency: Nanos::micros(200),
            dirty_percent_max: 50,
            flush_percent: 10,
            flush_after: Nanos::secs(5),
            flush_outstanding_max: 32,
        }
    }
}

/// What an array has done; counts only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArrayObservation {
    /// Its disks.
    pub group: DiskGroupObservation,
    /// Reads accepted.
    pub reads: u64,
    /// Those among them that the cache answered.
    pub read_hits: u64,
    /// Writes accepted.
    pub writes: u64,
    /// Those among them that had to wait for room.
    pub writes_blocked: u64,
    /// Pages written to the disks by destaging.
    pub pages_destaged: u64,
    /// Pages dirty or being destaged now.
    pub pages_dirty: u64,
}

/// What a request to the disks is for.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Read(DiskRequestId, u64, u64),
    Through(DiskRequestId),
    Destage(u64, u64),
}

/// An array: a cache and a [`DiskGroup`], with the group's interface.
#[derive(Clone, Debug)]
pub struct Array {
    cache: ArrayCache,
    group: DiskGroup,
    outstanding_max: usize,
    pages: Pages,
    dirty_max: u64,
    flush_above: u64,
    /// Bytes of a destaging write at most: a row of the group, so that rows go out whole where they can.
    run_bytes: u64,
    purposes: Vec<Option<Purpose>>,
    purposes_free: Vec<usize>,
    destaging: usize,
    blocked: VecDeque<(DiskRequestId, ByteRange)>,
    /// Answers on their way, by time and then by order.
    answers: BinaryHeap<Reverse<(Nanos, u64, DiskRequestId)>>,
    answered: u64,
    outstanding: usize,
    /// Completions that were due before a request was submitted.
    due: Vec<DiskCompletion>,
    from_group: Vec<DiskCompletion>,
    clock: Nanos,
    totals: ArrayObservation,
}

impl Array {
    /// An array at rest with an empty cache.
    ///
    /// # Errors
    /// [`ParameterError`] names the parameter that is out of its range.
    pub fn new(group: DiskGroupParameters, cache: ArrayCache) -> Result<Array, ParameterError> {
        if cache.page_bytes < 512 {
            return Err(ParameterError::new("page_bytes", cache.page_bytes, "at least 512"));
        }
        let pages = cache.bytes / cache.page_bytes;
        if !(16..1 << 31).contains(&pages) {
            return Err(ParameterError::new("array_cache", cache.bytes, "from 16 to 2^31 pages"));
        }
        if cache.dirty_percent_max > 90 {
            return Err(ParameterError::new("dirty_percent_max", cache.dirty_percent_max, "at most 90"));
        }
        if cache.flush_percent > cache.dirty_percent_max {
            return Err(ParameterError::new(
                "flush_percent",
                cache.flush_percent,
                "at most `dirty_percent_max`",
            ));
        }
        if cache.flush_outstanding_max == 0 {
            return Err(ParameterError::new("flush_outstanding_max", 0, "at least 1"));
        }
        let outstanding_max = group.outstanding_max;
        let row = u64::from(group.layout.data_spindles(group.spindles)) * group.stripe_unit_bytes;
        let run_bytes = row.max(cache.page_bytes);
        let inner = outstanding_max.saturating_add(cache.flush_outstanding_max);
        Ok(Array {
            group: DiskGroup::new(DiskGroupParameters { outstanding_max: inner, ..group })?,
            outstanding_max,
            pages: Pages::new(pages),
            dirty_max: pages * cache.dirty_percent_max / 100,
            flush_above: pages * cache.flush_percent / 100,
            run_bytes,
            cache,
            purposes: Vec::new(),
            purposes_free: Vec::new(),
            destaging: 0,
            blocked: VecDeque::new(),
            answers: BinaryHeap::new(),
            answered: 0,
            outstanding: 0,
            due: Vec::new(),
            from_group: Vec::new(),
            clock: Nanos::ZERO,
            totals: ArrayObservation::default(),
        })
    }

    /// The disks behind the cache.
    pub fn group(&self) -> &DiskGroup {
        &self.group
    }

    /// The size of the address space.
    pub fn capacity_bytes(&self) -> u64 {
        self.group.capacity_bytes()
    }

    /// Requests accepted and not completed.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Accepts a request that arrives at `now`; as [`DiskGroup::submit`]. Cost is linear in the pages of the request.
    ///
    /// # Errors
    /// [`SubmitError::Full`] at the maximum of outstanding requests, [`SubmitError::OutOfRange`] beyond the end.
    pub fn submit(&mut self, now: Nanos, request: DiskRequest) -> Result<(), SubmitError> {
        let range = request.range;
        admit(range, self.capacity_bytes(), self.outstanding, self.outstanding_max)?;
        if now > self.clock {
            let mut due = std::mem::take(&mut self.due);
            self.take_until(Nanos(now.0 - 1), &mut due);
            self.due = due;
            self.clock = now;
        }
        self.outstanding += 1;
        if range.length == 0 {
            self.answer(self.clock, request.id);
            return Ok(());
        }
        match request.kind {
            DiskRequestKind::Read => self.read(request.id, range),
            DiskRequestKind::Write => {
                self.totals.writes += 1;
                if !self.blocked.is_empty() || !self.write(request.id, range) {
                    self.totals.writes_blocked += 1;
                    self.blocked.push_back((request.id, range));
                }
                self.destage();
            }
        }
        Ok(())
    }

    /// When [`Array::advance`] has something to do next; `None` for an array at rest.
    pub fn next_event(&self) -> Option<Nanos> {
        let due = self.due.first().map(|completion| completion.at);
        due.into_iter().chain(self.next_inner()).min()
    }

    fn next_inner(&self) -> Option<Nanos> {
        let answer = self.answers.peek().map(|Reverse((at, ..))| *at);
        let flush = self.pages.oldest_dirty().filter(|_| self.destaging < self.cache.flush_outstanding_max);
        let flush = flush.map(|since| since.saturating_add(self.cache.flush_after).max(self.clock));
        [self.group.next_event(), answer, flush].into_iter().flatten().min()
    }

    /// Lets time pass until `now`; as [`DiskGroup::advance`].
    pub fn advance(&mut self, now: Nanos, completions: &mut Vec<DiskCompletion>) {
        completions.append(&mut self.due);
        self.take_until(now.max(self.clock), completions);
        self.clock = self.clock.max(now);
    }

    fn take_until(&mut self, now: Nanos, completions: &mut Vec<DiskCompletion>) {
        while let Some(at) = self.next_inner().filter(|at| *at <= now) {
            self.clock = self.clock.max(at);
            while let Some(Reverse((when, _, id))) =
                self.answers.peek().copied().filter(|first| first.0.0 <= at)
            {
                self.answers.pop();
                self.outstanding -= 1;
                completions.push(DiskCompletion { id, at: when });
            }
            let mut done = std::mem::take(&mut self.from_group);
            self.group.advance(at, &mut done);
            for completion in done.drain(..) {
                self.disks_done(completion);
            }
            self.from_group = done;
            self.destage();
        }
    }

    fn answer(&mut self, at: Nanos, id: DiskRequestId) {
        self.answered += 1;
        self.answers.push(Reverse((at.saturating_add(self.cache.latency), self.answered, id)));
    }

    fn pages_of(&self, range: ByteRange) -> std::ops::Range<u64> {
        let page = self.cache.page_bytes;
        range.offset / page..(range.end() - 1) / page + 1
    }

    fn send(&mut self, kind: DiskRequestKind, pages: std::ops::Range<u64>, purpose: Purpose) {
        let offset = pages.start * self.cache.page_bytes;
        let end = (pages.end * self.cache.page_bytes).min(self.group.capacity_bytes());
        let token = self.purposes_free.pop().unwrap_or_else(|| {
            self.purposes.push(None);
            self.purposes.len() - 1
        });
        self.purposes[token] = Some(purpose);
        let id = DiskRequestId(token as u64);
        let request = DiskRequest { id, kind, range: ByteRange::new(offset, end - offset) };
        self.group
            .submit(self.clock, request)
            .expect("the group takes as many as the array and its destaging have");
    }

    fn read(&mut self, id: DiskRequestId, range: ByteRange) {
        self.totals.reads += 1;
        let (mut first, mut end) = (u64::MAX, 0);
        for page in self.pages_of(range) {
            if !self.pages.touch(page) {
                (first, end) = (first.min(page), page + 1);
            }
        }
        if first == u64::MAX {
            self.totals.read_hits += 1;
            self.answer(self.clock, id);
        } else {
            self.send(DiskRequestKind::Read, first..end, Purpose::Read(id, first, end));
        }
    }

    /// Accepts a write, if there is room for what it makes dirty.
    fn write(&mut self, id: DiskRequestId, range: ByteRange) -> bool {
        let pages = self.pages_of(range);
        if pages.end - pages.start > self.dirty_max {
            // Too large for the cache: straight to the disks, and what is cached of it is superseded.
            pages.clone().for_each(|page| self.pages.forget(page));
            self.send(DiskRequestKind::Write, pages, Purpose::Through(id));
            return true;
        }
        let more = pages.clone().filter(|&page| !self.pages.is_dirty(page)).count() as u64;
        if self.pages.dirty() + more > self.dirty_max {
            return false;
        }
        pages.for_each(|page| self.pages.write(page, self.clock));
        self.answer(self.clock, id);
        true
    }

    fn disks_done(&mut self, completion: DiskCompletion) {
        let token = completion.id.0 as usize;
        let purpose = self.purposes[token].take().expect("a completion belongs to a request");
        self.purposes_free.push(token);
        match purpose {
            Purpose::Read(id, first, end) => {
                (first..end).for_each(|page| self.pages.fill(page));
                self.answer(completion.at, id);
            }
            Purpose::Through(id) => self.answer(completion.at, id),
            Purpose::Destage(first, end) => {
                self.destaging -= 1;
                self.totals.pages_destaged += end - first;
                (first..end).for_each(|page| self.pages.destaged(page, completion.at));
                while let Some((id, range)) = self.blocked.front().copied() {
                    if !self.write(id, range) {
                        break;
                    }
                    self.blocked.pop_front();
                }
            }
        }
    }

    /// Sends dirty pages to the disks: while there are too many of them or a write waits, and those that are old.
    fn destage(&mut self) {
        while self.destaging < self.cache.flush_outstanding_max
            && let Some((page, since)) = self.pages.first_dirty()
        {
            let pressed = self.pages.dirty() > self.flush_above || !self.blocked.is_empty();
            if !pressed && since.saturating_add(self.cache.flush_after) > self.clock {
                break;
            }
            // Its dirty neighbours within one row of the group go with it.
            let per_run = (self.run_bytes / self.cache.page_bytes).max(1);
            let window = page / per_run * per_run..(page / per_run + 1) * per_run;
            let waits = |page: u64| matches!(self.pages.state(page), Some(Page::Dirty));
            let (mut first, mut end) = (page, page + 1);
            while first > window.start && waits(first - 1) {
                first -= 1;
            }
            while end < window.end && waits(end) {
                end += 1;
            }
            (first..end).for_each(|page| self.pages.destage(page));
            self.destaging += 1;
            self.send(DiskRequestKind::Write, first..end, Purpose::Destage(first, end));
        }
    }

    /// What the array has done until `now`, which must not lie before the latest instant told.
    pub fn observe(&self, now: Nanos) -> ArrayObservation {
        ArrayObservation {
            group: self.group.observe(now),
            pages_dirty: self.pages.dirty(),
            ..self.totals.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::DiskParameters;
    use crate::layout::Layout;

    fn array(cache: ArrayCache) -> Array {
        // Four disks that hold every request for 10 ms.
        let disk = DiskParameters::fixed_service(1 << 30, Nanos::millis(10));
        Array::new(DiskGroupParameters::striped(4, disk), cache).unwrap()
    }

    fn request(id: u64, kind: DiskRequestKind, offset: u64, length: u64) -> DiskRequest {
        DiskRequest { id: DiskRequestId(id), kind, range: ByteRange::new(offset, length) }
    }

    use DiskRequestKind::{Read, Write};

    fn run(array: &mut Array) -> Vec<(u64, f64)> {
        let mut completions = Vec::new();
        while array.outstanding() > 0 {
            array.advance(array.next_event().unwrap(), &mut completions);
        }
        completions.iter().map(|done| (done.id.0, done.at.as_millis_f64())).collect()
    }

    #[test]
    fn reads_fill_and_writes_are_answered_at_once() {
        let mut array = array(ArrayCache { latency: Nanos::millis(1), ..ArrayCache::new(1 << 20) });
        array.submit(Nanos::ZERO, request(1, Read, 0, 4_096)).unwrap();
        array.submit(Nanos::ZERO, request(2, Write, 1 << 20, 4_096)).unwrap();
        // The write takes the controller's 1 ms, the read a disk's 10 ms besides.
        assert_eq!(run(&mut array), [(2, 1.0), (1, 11.0)]);
        // The page of 16 KiB is there now, and so is what was written.
        array.submit(Nanos::millis(20), request(3, Read, 8_192, 4_096)).unwrap();
        array.submit(Nanos::millis(20), request(4, Read, 1 << 20, 512)).unwrap();
        assert_eq!(run(&mut array), [(3, 21.0), (4, 21.0)]);
        // What is dirty is destaged 5 s after it was written.
        assert_eq!(array.next_event(), Some(Nanos::secs(5)));
        array.advance(Nanos::secs(5), &mut Vec::new());
        assert_eq!(array.observe(Nanos::secs(5)).pages_dirty, 1);
        array.advance(Nanos::secs(6), &mut Vec::new());
        let seen = array.observe(Nanos::secs(6));
        assert_eq!((seen.pages_dirty, seen.pages_destaged, seen.reads, seen.read_hits), (0, 1, 3, 2));
        assert_eq!(array.next_event(), None);
    }

    #[test]
    fn a_flood_of_writes_waits_for_the_disks_and_takes_the_readers_pages() {
        // 64 pages, 32 of them may be dirty.
        let mut array = array(ArrayCache { latency: Nanos::ZERO, ..ArrayCache::new(1 << 20) });
        for page in 0..64 {
            array.submit(Nanos::ZERO, request(page, Read, page << 14, 1)).unwrap();
        }
        run(&mut array);
        let hit = |array: &mut Array, now: Nanos| {
            array.submit(now, request(999, Read, 0, 1)).unwrap();
            let before = array.observe(now).read_hits;
            run(array);
            before
        };
        assert_eq!(hit(&mut array, Nanos::secs(1)), 1);
        // 200 scattered writes, of which no two share a row: 32 are taken, the others wait for 4 disks of 10 ms each.
        for at in 0..200u64 {
            array.submit(Nanos::secs(2), request(1_000 + at, Write, (1 << 28) + (at << 16), 4_096)).unwrap();
        }
        let done = run(&mut array);
        assert_eq!(array.observe(Nanos::secs(2)).writes_blocked, 168);
        // 168 / 4 * 10 ms.
        assert_eq!(done.last().unwrap().1, 2_000.0 + 420.0);
        // Page 0 was used last of the readers' and is still there; the flood took the others' room.
        let resident = (0..64).filter(|&page| array.pages.state(page).is_some()).count();
        assert!(resident <= 32, "{resident}");
        assert!(array.observe(Nanos::secs(9)).pages_dirty <= 32);
    }

    #[test]
    fn a_write_that_waits_for_room_has_pages_destaged_at_once() {
        // Of 64 pages 32 may be dirty, and nothing is pressed before.
        let mut array =
            array(ArrayCache { flush_percent: 50, latency: Nanos::ZERO, ..ArrayCache::new(1 << 20) });
        for page in 0..32 {
            array.submit(Nanos::ZERO, request(page, Write, page << 16, 1)).unwrap();
        }
        run(&mut array);
        array.submit(Nanos::secs(1), request(99, Write, 1 << 28, 1)).unwrap();
        // It waits for one write of a disk, not until a page is old.
        assert_eq!(run(&mut array), [(99, 1_010.0)]);
    }

    #[test]
    fn what_is_written_in_order_leaves_in_whole_rows() {
        let disk = DiskParameters::fixed_service(1 << 30, Nanos::millis(10));
        let group =
            DiskGroupParameters { layout: Layout::RotatedParity, ..DiskGroupParameters::striped(5, disk) };
        let mut array = Array::new(group, ArrayCache::new(64 << 20)).unwrap();
        // Four rows of 256 KiB in pieces of 16 KiB.
        for at in 0..64 {
            array.submit(Nanos::ZERO, request(at, Write, at << 14, 16 << 10)).unwrap();
        }
        array.advance(Nanos::secs(6), &mut Vec::new());
        let seen = array.observe(Nanos::secs(6));
        assert_eq!((seen.pages_destaged, seen.pages_dirty), (64, 0));
        // Each row is one write to each of five disks, without a read.
        assert!(
            seen.group.spindles.iter().all(|spindle| spindle.completed == 4),
            "{:?}",
            seen.group.spindles
        );
    }

    #[test]
    fn writes_too_large_for_the_cache_go_through() {
        let mut array = array(ArrayCache {
            dirty_percent_max: 0,
            flush_percent: 0,
            latency: Nanos::ZERO,
            ..ArrayCache::new(1 << 20)
        });
        array.submit(Nanos::ZERO, request(1, Write, 0, 4_096)).unwrap();
        assert_eq!(run(&mut array), [(1, 10.0)]);
        assert!(
            Array::new(
                DiskGroupParameters::striped(1, DiskParameters::rpm_7200(1 << 30)),
                ArrayCache::new(1)
            )
            .is_err()
        );
    }
}
