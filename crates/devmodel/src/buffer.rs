//! A disk's on-board cache: segments that hold what was read last, one of which the media goes on to fill.
//!
//! It knows which bytes are there at which instant, and nothing of seeks or queues: the disk asks it. It is *not* a
//! write cache: writes go to the media and drop what they overlap. Invariant: at most one segment is being filled, and
//! an instant that was told is never followed by an earlier one. Source: Ruemmler and Wilkes 1994, the section on the
//! disk's cache (read-ahead until another request needs the heads; segments for several streams).

use forebay_units::{ByteRange, Nanos};

/// The buffer's parameters; without segments there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskBuffer {
    /// Streams that are told apart, 0 to 256; 0: no buffer and no read-ahead.
    pub segments: u32,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Bytes that an idle disk reads on beyond a read; at most a segment. 0: none.
    pub read_ahead_bytes: u64,
    /// Rate from the buffer to the host, in bytes per second; 0: it takes no time.
    pub interface_bytes_s: u64,
}

impl DiskBuffer {
    /// A typical buffer of today's disks: 32 segments of 2 MiB, 1 MiB of read-ahead, 550 MB/s (ours).
    pub fn typical() -> DiskBuffer {
        DiskBuffer {
            segments: 32,
            segment_bytes: 2 << 20,
            read_ahead_bytes: 1 << 20,
            interface_bytes_s: 550_000_000,
        }
    }

    /// Time for `length` bytes from the buffer to the host.
    pub(crate) fn host_time(&self, length: u64) -> Nanos {
        if self.interface_bytes_s == 0 {
            return Nanos::ZERO;
        }
        Nanos((u128::from(length) * 1_000_000_000 / u128::from(self.interface_bytes_s)) as u64)
    }
}

#[derive(Clone, Debug)]
struct Segment {
    start: u64,
    end: u64,
    used: u64,
}

/// The media fills a segment from `base` on since `from`, up to `until`.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    segment: usize,
    from: Nanos,
    base: u64,
    until: u64,
    rate: u64,
}

impl Ahead {
    fn reached(&self, now: Nanos) -> u64 {
        let span = u128::from(now.saturating_since(self.from).0);
        let passed = span * u128::from(self.rate) / 1_000_000_000;
        u128::from(self.until).min(u128::from(self.base) + passed) as u64
    }
}

/// What the buffer says of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffered {
    /// All of it is there.
    Whole,
    /// The media, which goes on reading, reaches its end at this instant.
    Coming(Nanos),
    /// The heads must move.
    No,
}

/// What is in the buffer.
#[derive(Clone, Debug)]
pub(crate) struct Segments {
    parameters: DiskBuffer,
    capacity_bytes: u64,
    segments: Vec<Segment>,
    ahead: Option<Ahead>,
    uses: u64,
}

impl Segments {
    pub(crate) fn new(parameters: DiskBuffer, capacity_bytes: u64) -> Segments {
        Segments { parameters, capacity_bytes, segments: Vec::new(), ahead: None, uses: 0 }
    }

    /// Where the heads stand at `now` if the media reads ahead: the next byte they would read.
    pub(crate) fn head(&self, now: Nanos) -> Option<u64> {
        self.ahead.map(|ahead| ahead.reached(now))
    }

    fn end_at(&self, segment: usize, now: Nanos) -> u64 {
        match self.ahead {
            Some(ahead) if ahead.segment == segment => ahead.reached(now),
            _ => self.segments[segment].end,
        }
    }

    /// Looks a read up at `now` and takes note of its use. Cost is linear in the segments.
    pub(crate) fn read(&mut self, now: Nanos, range: ByteRange) -> Buffered {
        let holds = |at: usize| {
            let end = self.end_at(at, now);
            let reading = self.ahead.is_some_and(|ahead| ahead.segment == at && end < ahead.until);
            let begins = self.segments[at].start <= range.offset && range.offset <= end;
            begins && (range.end() <= end || reading)
        };
        let Some(at) = (0..self.segments.len()).find(|&at| holds(at)) else { return Buffered::No };
        self.uses += 1;
        self.segments[at].used = self.uses;
        let whole = range.end() <= self.end_at(at, now);
        if let Some(ahead) = self.ahead.as_mut().filter(|ahead| ahead.segment == at) {
            // The media that still reads goes on for the request and its read-ahead; one that has stopped has lost its
            // place, and stays stopped.
            if ahead.reached(now) < ahead.until {
                let until = range.end().saturating_add(self.parameters.read_ahead_bytes);
                ahead.until = ahead.until.max(until.min(self.capacity_bytes));
                let segment = &mut self.segments[at];
                segment.start = segment.start.max(ahead.until.saturating_sub(self.parameters.segment_bytes));
                segment.start = segment.start.min(range.offset);
            }
            if !whole {
                let bytes = u128::from(range.end().saturating_sub(ahead.base));
                let span = (bytes * 1_000_000_000).div_ceil(u128::from(ahead.rate.max(1)));
                return Buffered::Coming(ahead.from.saturating_add(Nanos(span as u64)));
            }
        }
        Buffered::Whole
    }

    /// The heads leave for another place at `now`.
    pub(crate) fn stop(&mut self, now: Nanos) {
        if let Some(ahead) = self.ahead.take() {
            self.segments[ahead.segment].end = ahead.reached(now);
        }
    }

    /// A read from the media ends at `done`, which goes on at `rate` bytes per second; [`Segments::stop`] came first.
    pub(crate) fn filled(&mut self, done: Nanos, range: ByteRange, rate: u64) {
        self.uses += 1;
        let start = range.offset.max(range.end().saturating_sub(self.parameters.segment_bytes));
        let segment = Segment { start, end: range.end(), used: self.uses };
        let at = if self.segments.len() < self.parameters.segments as usize {
            self.segments.push(segment);
            self.segments.len() - 1
        } else {
            let oldest = (0..self.segments.len()).min_by_key(|&at| self.segments[at].used);
            let at = oldest.expect("a buffer has segments");
            self.segments[at] = segment;
            at
        };
        let until = range.end().saturating_add(self.parameters.read_ahead_bytes).min(self.capacity_bytes);
        // Without a rate transfers take no time, and what is read ahead is there at once.
        if rate == 0 {
            self.segments[at].end = until;
        } else if until > range.end() {
            self.ahead = Some(Ahead { segment: at, from: done, base: range.end(), until, rate });
        }
    }

    /// A write: what it overlaps is not there any more. [`Segments::stop`] came first.
    pub(crate) fn written(&mut self, range: ByteRange) {
        for segment in &mut self.segments {
            if segment.start < range.end() && range.offset < segment.end {
                // The longer side stays.
                if range.offset.saturating_sub(segment.start) >= segment.end.saturating_sub(range.end()) {
                    segment.end = range.offset;
                } else {
                    segment.start = range.end();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(count: u32) -> Segments {
        // 1,000 bytes a segment, 400 of read-ahead, on a disk of 10,000 bytes; the media reads 1 byte per ns.
        let buffer =
            DiskBuffer { segments: count, segment_bytes: 1_000, read_ahead_bytes: 400, interface_bytes_s: 0 };
        Segments::new(buffer, 10_000)
    }

    const RATE: u64 = 1_000_000_000;

    #[test]
    fn read_ahead_goes_on_until_the_heads_leave() {
        let mut buffer = segments(2);
        buffer.filled(Nanos(100), ByteRange::new(0, 50), RATE);
        // 30 ns later byte 80 is reached: 40..80 is there, 60..120 ends 70 ns after the start at 50.
        assert_eq!(buffer.head(Nanos(130)), Some(80));
        assert_eq!(buffer.read(Nanos(130), ByteRange::new(40, 40)), Buffered::Whole);
        assert_eq!(buffer.read(Nanos(130), ByteRange::new(60, 60)), Buffered::Coming(Nanos(170)));
        // That moved the limit from 450 to 520; a gap is not bridged.
        assert_eq!(buffer.head(Nanos(10_000)), Some(520));
        assert_eq!(buffer.read(Nanos(180), ByteRange::new(131, 9)), Buffered::No);
        buffer.stop(Nanos(200));
        // 150 bytes are there: 50 and 100 of read-ahead.
        assert_eq!(buffer.read(Nanos(900), ByteRange::new(0, 150)), Buffered::Whole);
        assert_eq!(buffer.read(Nanos(900), ByteRange::new(0, 151)), Buffered::No);
    }

    #[test]
    fn a_media_that_has_stopped_stays_stopped() {
        let mut buffer = segments(1);
        buffer.filled(Nanos(0), ByteRange::new(0, 50), RATE);
        assert_eq!(buffer.read(Nanos(400), ByteRange::new(400, 50)), Buffered::Whole);
        assert_eq!(buffer.read(Nanos(401), ByteRange::new(450, 10)), Buffered::No);
    }

    #[test]
    fn the_segment_used_last_stays_and_writes_take_away() {
        let mut buffer = segments(2);
        for offset in [0, 5_000] {
            buffer.filled(Nanos(0), ByteRange::new(offset, 100), RATE);
            buffer.stop(Nanos(0));
        }
        assert_eq!(buffer.read(Nanos(1), ByteRange::new(0, 100)), Buffered::Whole);
        buffer.filled(Nanos(1), ByteRange::new(8_000, 100), RATE);
        buffer.stop(Nanos(1));
        assert_eq!(buffer.read(Nanos(1), ByteRange::new(5_000, 100)), Buffered::No);
        // 30..50 written: 50..100 is the longer side.
        buffer.written(ByteRange::new(30, 20));
        assert_eq!(buffer.read(Nanos(1), ByteRange::new(50, 50)), Buffered::Whole);
        assert_eq!(buffer.read(Nanos(1), ByteRange::new(0, 30)), Buffered::No);
        assert_eq!(buffer.read(Nanos(1), ByteRange::new(8_000, 100)), Buffered::Whole);
    }
}
