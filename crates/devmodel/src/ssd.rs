//! A solid-state disk: dies behind channels, a translation layer, and reads that wait behind programs and erases.
//!
//! A die does one thing at a time, and so does a channel. A read holds its die for the flash's read, then its channel for
//! the bytes asked for; a write holds the channel for a whole page, then the die for the program; a write of part of a
//! page that was written before reads that page first. Cleaning moves pages within the die (a read and a program each, no
//! channel) and erases; it comes before the write that led to it. There is no write buffer: a write completes when it is
//! programmed. Invariants: every accepted request completes exactly once, in order of time, however coarsely time is told.
//!
//! Source of the structure: Agrawal et al., "Design tradeoffs for SSD performance", USENIX ATC 2008. Typical times are
//! those of published TLC flash, rounded: ours.

use crate::geometry::ParameterError;
use crate::group::{DiskCompletion, DiskRequest, DiskRequestId, DiskRequestKind, SubmitError, admit};
use crate::translation::{RESERVED, Translation, Victim};
use forebay_units::Nanos;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What makes an SSD.
#[derive(Clone, Debug, PartialEq)]
pub struct SsdParameters {
    /// Bytes that it offers, at least a page per die; rounded down to whole pages of all dies.
    pub capacity_bytes: u64,
    /// Channels, 1 to 64.
    pub channels: u32,
    /// Dies of a channel, 1 to 64. Logical pages go round the channels, then the dies.
    pub dies_per_channel: u32,
    /// Bytes of a page, the unit of mapping and programming, at least 512.
    pub page_bytes: u64,
    /// Pages of a block, the unit of erasing, 1 to 4,096.
    pub pages_per_block: u32,
    /// Flash beyond the capacity, as a share of it, 0 to 10; a die always has three blocks more than its data.
    pub spare_share: f64,
    /// Share of the capacity that holds data at time zero, written once in order, 0 to 1.
    pub filled_share: f64,
    /// Flash to register.
    pub read: Nanos,
    /// Register to flash.
    pub program: Nanos,
    /// Of a block.
    pub erase: Nanos,
    /// Bytes per second of a channel; 0: transfers take no time.
    pub channel_bytes_s: u64,
    /// Every request's time in the controller; it holds up no other.
    pub latency: Nanos,
    /// Waiting reads go before whatever else waits at a die; what is under way is never interrupted.
    pub reads_first: bool,
    /// Which block is cleaned.
    pub victim: Victim,
    /// Requests outstanding, at least 1.
    pub outstanding_max: usize,
}

impl SsdParameters {
    /// A typical SSD (ours): 8 channels of 4 dies, pages of 16 KiB, blocks of 4 MiB, 7 % spare, full; 60 us to read, 600 us to
    /// program, 3 ms to erase, 800 MB/s a channel, 20 us in the controller, reads first.
    pub fn typical(capacity_bytes: u64) -> SsdParameters {
        SsdParameters {
            capacity_bytes,
            channels: 8,
            dies_per_channel: 4,
            page_bytes: 16 << 10,
            pages_per_block: 256,
            spare_share: 0.07,
            filled_share: 1.0,
            read: Nanos::micros(60),
            program: Nanos::micros(600),
            erase: Nanos::millis(3),
            channel_bytes_s: 800_000_000,
            latency: Nanos::micros(20),
            reads_first: true,
            victim: Victim::Greedy,
            outstanding_max: 4_096,
        }
    }
}

impl SsdParameters {
    /// Checks every range without making anything; the number of dies, and the logical pages of each.
    ///
    /// # Errors
    /// [`ParameterError`] names the parameter that is out of its range.
    pub fn check(&self) -> Result<(u32, u64), ParameterError> {
        let p = self;
        for (name, found) in [("channels", p.channels), ("dies_per_channel", p.dies_per_channel)] {
            if !(1..=64).contains(&found) {
                return Err(ParameterError::new(name, found, "from 1 to 64"));
            }
        }
        if p.page_bytes < 512 || p.page_bytes > 1 << 20 {
            return Err(ParameterError::new("page_bytes", p.page_bytes, "from 512 to 1 MiB"));
        }
        if !(1..=4_096).contains(&p.pages_per_block) {
            return Err(ParameterError::new("pages_per_block", p.pages_per_block, "from 1 to 4096"));
        }
        if !(0.0..=10.0).contains(&p.spare_share) {
            return Err(ParameterError::new("spare_share", p.spare_share, "from 0 to 10"));
        }
        if !(0.0..=1.0).contains(&p.filled_share) {
            return Err(ParameterError::new("filled_share", p.filled_share, "from 0 to 1"));
        }
        if p.outstanding_max == 0 {
            return Err(ParameterError::new("outstanding_max", 0, "at least 1"));
        }
        let dies = p.channels * p.dies_per_channel;
        let logical = p.capacity_bytes / p.page_bytes / u64::from(dies);
        // Memory is held for every page: 8 bytes.
        if logical == 0 || logical * u64::from(dies) > 1 << 28 {
            let found = p.capacity_bytes;
            return Err(ParameterError::new("capacity_bytes", found, "a page per die to 2^28 pages"));
        }
        Ok((dies, logical))
    }
}

/// What an SSD has done; counts and times only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SsdObservation {
    /// Sum over all dies of the time in which they were busy, up to the instant of the observation.
    pub dies_busy: Nanos,
    /// The same of the channels.
    pub channels_busy: Nanos,
    /// Pages written for clients.
    pub pages_written: u64,
    /// Pages that cleaning moved: write amplification is 1 plus these per page written.
    pub pages_moved: u64,
    /// Blocks erased.
    pub blocks_erased: u64,
    /// Requests accepted and not completed.
    pub outstanding: u64,
}

/// What a die or a channel does for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Flash to register, then `bytes` over the channel, for a client's read.
    Read {
        token: u32,
        bytes: u32,
    },
    /// Flash to register, then the page over the channel, before a write of part of it.
    ReadBeforeWrite {
        token: u32,
        page: u64,
    },
    /// The page over the channel, then the program.
    Write {
        token: u32,
        page: u64,
    },
    Program {
        token: u32,
    },
    /// So many pages within the die.
    Move {
        pages: u32,
    },
    Erase,
}

/// One thing at a time.
#[derive(Clone, Debug, Default)]
struct Station {
    /// Reads that go before the others.
    urgent: VecDeque<Work>,
    waiting: VecDeque<Work>,
    current: Option<(Work, Nanos, Nanos)>,
    busy_before: Nanos,
}

impl Station {
    fn busy(&self, now: Nanos) -> Nanos {
        let current =
            self.current.map_or(Nanos::ZERO, |(_, from, done)| now.min(done).saturating_since(from));
        self.busy_before + current
    }
}

#[derive(Clone, Debug)]
struct Outstanding {
    id: DiskRequestId,
    pages_left: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Ssd {
    parameters: SsdParameters,
    pages: u64,
    translation: Translation,
    /// Dies first, then channels.
    stations: Vec<Station>,
    /// At most one entry per station, by time and then by number.
    events: BinaryHeap<Reverse<(Nanos, u32)>>,
    outstanding: Vec<Option<Outstanding>>,
    tokens_free: Vec<u32>,
    count: usize,
    /// Answers on their way, by time and then by order.
    answers: BinaryHeap<Reverse<(Nanos, u64, DiskRequestId)>>,
    answered: u64,
    due: Vec<DiskCompletion>,
    clock: Nanos,
}

impl Ssd {
    /// An SSD at rest at time zero. Cost is linear in its pages: 8 bytes each are held.
    ///
    /// # Errors
    /// [`ParameterError`] names the parameter that is out of its range.
    pub fn new(parameters: SsdParameters) -> Result<Ssd, ParameterError> {
        let (dies, logical) = parameters.check()?;
        let p = &parameters;
        let per_block = u64::from(p.pages_per_block);
        let needed = logical.div_ceil(per_block);
        let wanted = (logical as f64 * (1.0 + p.spare_share) / per_block as f64).round() as u64;
        let blocks = wanted.max(needed + RESERVED);
        let mut translation = Translation::new(dies, logical, blocks, p.pages_per_block, p.victim);
        let pages = logical * u64::from(dies);
        (0..(pages as f64 * p.filled_share) as u64).for_each(|page| {
            translation.write(page);
        });
        (translation.written, translation.moved, translation.erased) = (0, 0, 0);
        Ok(Ssd {
            pages,
            translation,
            stations: vec![Station::default(); (dies + p.channels) as usize],
            events: BinaryHeap::new(),
            outstanding: Vec::new(),
            tokens_free: Vec::new(),
            count: 0,
            answers: BinaryHeap::new(),
            answered: 0,
            due: Vec::new(),
            clock: Nanos::ZERO,
            parameters,
        })
    }

    /// What it is made of.
    pub fn parameters(&self) -> &SsdParameters {
        &self.parameters
    }

    /// The size of the address space: whole pages of all dies.
    pub fn capacity_bytes(&self) -> u64 {
        self.pages * self.parameters.page_bytes
    }

    /// All dies.
    pub fn dies(&self) -> u32 {
        self.parameters.channels * self.parameters.dies_per_channel
    }

    /// Requests accepted and not completed.
    pub fn outstanding(&self) -> usize {
        self.count
    }

    /// Accepts a request that arrives at `now`; as [`crate::DiskGroup::submit`]. Cost is linear in its pages, and for
    /// writes that lead to cleaning in a block's pages and a die's blocks.
    ///
    /// # Errors
    /// [`SubmitError::Full`] at the maximum of outstanding requests, [`SubmitError::OutOfRange`] beyond the end.
    pub fn submit(&mut self, now: Nanos, request: DiskRequest) -> Result<(), SubmitError> {
        let range = request.range;
        admit(range, self.capacity_bytes(), self.count, self.parameters.outstanding_max)?;
        if now > self.clock {
            let mut due = std::mem::take(&mut self.due);
            self.take_until(Nanos(now.0 - 1), &mut due);
            self.due = due;
            self.clock = now;
        }
        self.count += 1;
        if range.length == 0 {
            self.answer(self.clock, request.id);
            return Ok(());
        }
        let page_bytes = self.parameters.page_bytes;
        let pages = range.offset / page_bytes..(range.end() - 1) / page_bytes + 1;
        let token = self.tokens_free.pop().unwrap_or_else(|| {
            self.outstanding.push(None);
            (self.outstanding.len() - 1) as u32
        });
        self.outstanding[token as usize] =
            Some(Outstanding { id: request.id, pages_left: (pages.end - pages.start) as u32 });
        for page in pages {
            let low = range.offset.max(page * page_bytes);
            let bytes = range.end().min((page + 1) * page_bytes) - low;
            let die = self.translation.die_of(page);
            match request.kind {
                DiskRequestKind::Read => self.enter(die, Work::Read { token, bytes: bytes as u32 }),
                DiskRequestKind::Write if bytes < page_bytes && self.translation.is_written(page) => {
                    self.enter(die, Work::ReadBeforeWrite { token, page });
                }
                DiskRequestKind::Write => {
                    self.enter(self.channel_of(die), Work::Write { token, page });
                }
            }
        }
        Ok(())
    }

    fn channel_of(&self, die: u32) -> u32 {
        self.dies() + die % self.parameters.channels
    }

    /// Work arrives at a station.
    fn enter(&mut self, station: u32, work: Work) {
        let reads = matches!(work, Work::Read { .. } | Work::ReadBeforeWrite { .. });
        let at = &mut self.stations[station as usize];
        if reads && self.parameters.reads_first {
            at.urgent.push_back(work);
        } else {
            at.waiting.push_back(work);
        }
        if at.current.is_none() {
            self.begin(station);
        }
    }

    fn transfer(&self, bytes: u64) -> Nanos {
        match self.parameters.channel_bytes_s {
            0 => Nanos::ZERO,
            rate => Nanos((u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64),
        }
    }

    /// A station that is free takes its next work, if there is any.
    fn begin(&mut self, station: u32) {
        let at = &mut self.stations[station as usize];
        let Some(work) = at.urgent.pop_front().or_else(|| at.waiting.pop_front()) else { return };
        let p = &self.parameters;
        let channel = station >= self.dies();
        let span = match work {
            Work::Read { bytes, .. } if channel => self.transfer(bytes.into()),
            Work::ReadBeforeWrite { .. } | Work::Write { .. } if channel => self.transfer(p.page_bytes),
            Work::Read { .. } | Work::ReadBeforeWrite { .. } => p.read,
            Work::Program { .. } => p.program,
            Work::Move { .. } => p.read + p.program,
            Work::Erase => p.erase,
            Work::Write { .. } => unreachable!("a write reaches its die as a program"),
        };
        let done = self.clock.saturating_add(span);
        self.stations[station as usize].current = Some((work, self.clock, done));
        self.events.push(Reverse((done, station)));
    }

    /// When [`Ssd::advance`] has something to do next; `None` for an SSD at rest.
    pub fn next_event(&self) -> Option<Nanos> {
        let due = self.due.first().map(|completion| completion.at);
        due.into_iter().chain(self.next_inner()).min()
    }

    fn next_inner(&self) -> Option<Nanos> {
        let event = self.events.peek().map(|Reverse((at, _))| *at);
        let answer = self.answers.peek().map(|Reverse((at, ..))| *at);
        event.into_iter().chain(answer).min()
    }

    /// Lets time pass until `now`; as [`crate::DiskGroup::advance`].
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
                self.count -= 1;
                completions.push(DiskCompletion { id, at: when });
            }
            if let Some(&Reverse((_, station))) = self.events.peek().filter(|first| first.0.0 <= at) {
                self.events.pop();
                self.finish(station);
            }
        }
    }

    /// A station is done with its work.
    fn finish(&mut self, station: u32) {
        let at = &mut self.stations[station as usize];
        let (work, from, done) = at.current.take().expect("an event belongs to work");
        at.busy_before += done - from;
        let channel = station >= self.dies();
        match work {
            Work::Read { token, .. } if channel => self.page_done(token),
            Work::ReadBeforeWrite { token, page } if channel => {
                self.stations[station as usize].waiting.push_back(Work::Write { token, page });
            }
            Work::Write { token, page } => {
                let die = self.translation.die_of(page);
                let cleaning = self.translation.write(page);
                if cleaning.moved > 0 {
                    self.enter(die, Work::Move { pages: cleaning.moved });
                }
                (0..cleaning.erased).for_each(|_| self.enter(die, Work::Erase));
                self.enter(die, Work::Program { token });
            }
            Work::Read { .. } | Work::ReadBeforeWrite { .. } => self.enter(self.channel_of(station), work),
            Work::Program { token } => self.page_done(token),
            // One page at a time, so that reads come between.
            Work::Move { pages } if pages > 1 => {
                self.stations[station as usize].waiting.push_front(Work::Move { pages: pages - 1 });
            }
            Work::Move { .. } | Work::Erase => {}
        }
        if self.stations[station as usize].current.is_none() {
            self.begin(station);
        }
    }

    fn page_done(&mut self, token: u32) {
        let entry = self.outstanding[token as usize].as_mut().expect("a page belongs to a request");
        entry.pages_left -= 1;
        if entry.pages_left == 0 {
            let id = entry.id;
            self.outstanding[token as usize] = None;
            self.tokens_free.push(token);
            self.answer(self.clock, id);
        }
    }

    fn answer(&mut self, at: Nanos, id: DiskRequestId) {
        self.answered += 1;
        self.answers.push(Reverse((at.saturating_add(self.parameters.latency), self.answered, id)));
    }

    /// What it has done until `now`, which must not lie before the latest instant told.
    pub fn observe(&self, now: Nanos) -> SsdObservation {
        let now = now.max(self.clock);
        let sum = |stations: &[Station]| Nanos(stations.iter().map(|station| station.busy(now).0).sum());
        let (dies, channels) = self.stations.split_at(self.dies() as usize);
        SsdObservation {
            dies_busy: sum(dies),
            channels_busy: sum(channels),
            pages_written: self.translation.written,
            pages_moved: self.translation.moved,
            blocks_erased: self.translation.erased,
            outstanding: self.count as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::ByteRange;

    /// One channel of one die: pages of 1,000 bytes, 2 to a block; 10 us to read, 100 to program, 1,000 to erase; a page
    /// takes 5 us on the channel.
    fn small(reads_first: bool, filled_share: f64) -> Ssd {
        Ssd::new(SsdParameters {
            channels: 1,
            dies_per_channel: 1,
            page_bytes: 1_000,
            pages_per_block: 2,
            spare_share: 0.0,
            filled_share,
            read: Nanos::micros(10),
            program: Nanos::micros(100),
            erase: Nanos::millis(1),
            channel_bytes_s: 200_000_000,
            latency: Nanos::ZERO,
            reads_first,
            ..SsdParameters::typical(4_000)
        })
        .unwrap()
    }

    use DiskRequestKind::{Read, Write};

    fn run(ssd: &mut Ssd, requests: &[(u64, DiskRequestKind, u64, u64)]) -> Vec<(u64, f64)> {
        for (number, (at_us, kind, offset, length)) in requests.iter().enumerate() {
            let range = ByteRange::new(*offset, *length);
            let request = DiskRequest { id: DiskRequestId(number as u64), kind: *kind, range };
            ssd.submit(Nanos::micros(*at_us), request).unwrap();
        }
        let mut completions = Vec::new();
        while let Some(at) = ssd.next_event() {
            ssd.advance(at, &mut completions);
        }
        completions.iter().map(|done| (done.id.0, done.at.as_micros_f64())).collect()
    }

    #[test]
    fn dies_and_channels_do_one_thing_at_a_time() {
        // 10 us flash and 5 us channel; the second read's flash overlaps the first one's transfer: 10, 20 + 5.
        assert_eq!(
            run(&mut small(true, 0.0), &[(0, Read, 0, 1_000), (0, Read, 1_000, 1_000)]),
            [(0, 15.0), (1, 25.0)]
        );
        // 5 us channel, 100 us program.
        assert_eq!(run(&mut small(true, 0.0), &[(0, Write, 0, 1_000)]), [(0, 105.0)]);
        // Half a page that was written: 10 to read, 5 over the channel, 5 back, 100.
        assert_eq!(run(&mut small(true, 0.5), &[(0, Write, 0, 500)]), [(0, 120.0)]);
        // Two pages of a write share die and channel: 5 + 100, and another 100.
        assert_eq!(run(&mut small(true, 0.0), &[(0, Write, 0, 2_000)]), [(0, 205.0)]);
    }

    #[test]
    fn reads_wait_behind_programs_and_go_before_those_that_wait() {
        let requests = [(0, Write, 0, 1_000), (0, Write, 1_000, 1_000), (20, Read, 2_000, 1_000)];
        // Programs 5..105 and 105..205. The read waits for the first (to 115, then the channel), or for both.
        assert_eq!(run(&mut small(true, 0.0), &requests), [(0, 105.0), (2, 120.0), (1, 215.0)]);
        assert_eq!(run(&mut small(false, 0.0), &requests), [(0, 105.0), (1, 205.0), (2, 220.0)]);
    }

    #[test]
    fn a_read_waits_behind_an_erase() {
        // 4 pages in 5 blocks of 2, full. Blocks {0 1} {2 3}; two writes fill a third, whose closing leaves one block free:
        // {0 1} is cleaned. Written were 0 and 0: page 1 moves (110 us) and an erase follows before the program.
        let mut ssd = small(true, 1.0);
        let done = run(&mut ssd, &[(0, Write, 0, 1_000), (0, Write, 0, 1_000), (300, Read, 3_000, 1_000)]);
        // Channel 5 and 10; the first program 5..105; move 105..215, erase 215..1,215; the read goes next: 1,225 + 5; the
        // program it precedes ends at 1,325.
        assert_eq!(done, [(0, 105.0), (2, 1_230.0), (1, 1_325.0)]);
        let seen = ssd.observe(Nanos::secs(1));
        assert_eq!((seen.pages_written, seen.pages_moved, seen.blocks_erased), (2, 1, 1));
        assert_eq!(seen.dies_busy, Nanos::micros(100 + 110 + 1_000 + 10 + 100));
        assert_eq!(seen.channels_busy, Nanos::micros(15));
    }

    #[test]
    fn limits_are_kept() {
        let mut ssd = small(true, 0.0);
        assert_eq!((ssd.capacity_bytes(), ssd.dies()), (4_000, 1));
        let request = |offset, length| DiskRequest {
            id: DiskRequestId(1),
            kind: Read,
            range: ByteRange::new(offset, length),
        };
        assert!(matches!(ssd.submit(Nanos::ZERO, request(3_999, 2)), Err(SubmitError::OutOfRange { .. })));
        ssd.submit(Nanos::ZERO, request(0, 0)).unwrap();
        let mut done = Vec::new();
        ssd.advance(Nanos::ZERO, &mut done);
        assert_eq!((done.len(), ssd.outstanding(), ssd.next_event()), (1, 0, None));
        let good = SsdParameters::typical(1 << 30);
        let bad = [
            ("channels", SsdParameters { channels: 0, ..good.clone() }),
            ("page_bytes", SsdParameters { page_bytes: 1, ..good.clone() }),
            ("pages_per_block", SsdParameters { pages_per_block: 0, ..good.clone() }),
            ("spare_share", SsdParameters { spare_share: f64::NAN, ..good.clone() }),
            ("filled_share", SsdParameters { filled_share: 1.5, ..good.clone() }),
            ("capacity_bytes", SsdParameters { capacity_bytes: 1, ..good.clone() }),
            ("capacity_bytes", SsdParameters { capacity_bytes: 1 << 60, ..good.clone() }),
            ("outstanding_max", SsdParameters { outstanding_max: 0, ..good }),
        ];
        for (name, parameters) in bad {
            assert_eq!(Ssd::new(parameters).unwrap_err().name, name);
        }
    }
}
