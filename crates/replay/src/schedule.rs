//! When each request of a trace is issued, and where: a pure machine that takes requests and gives [`Due`]s.
//!
//! It reads no trace and no clock. Memory is constant: at most [`REORDER_MAX`] requests are held to put them in order, and
//! at most [`SECOND_MAX`] to spread them over their second.

use crate::address::AddressMap;
use crate::load::Due;
use crate::survey::{Survey, is_playable};
use forebay_trace::{Operation, Request, ThreadNumber};
use forebay_units::{ByteRange, Nanos};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// How many requests are held so that one that was recorded late is put in its place (ours).
pub const REORDER_MAX: usize = 1 << 16;

/// How many requests of one second are held so that they can be spread over it (ours); those beyond come at its end.
pub const SECOND_MAX: usize = 1 << 20;

const SECOND: u64 = 1_000_000_000;

/// What becomes of requests whose times were recorded in whole seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WholeSeconds {
    /// The k-th of n requests of a second is issued k / n of a second after its start.
    #[default]
    Spread,
    /// All of them are issued at its start, as one burst that nobody recorded.
    AsIs,
}

impl FromStr for WholeSeconds {
    type Err = ParseWholeSecondsError;

    fn from_str(text: &str) -> Result<WholeSeconds, ParseWholeSecondsError> {
        match text {
            "spread" => Ok(WholeSeconds::Spread),
            "as-is" => Ok(WholeSeconds::AsIs),
            _ => Err(ParseWholeSecondsError { found: text.to_owned() }),
        }
    }
}

impl fmt::Display for WholeSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            WholeSeconds::Spread => "spread",
            WholeSeconds::AsIs => "as-is",
        })
    }
}

/// A text that names no [`WholeSeconds`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{found}` says nothing about whole seconds: expected `spread` or `as-is`")]
pub struct ParseWholeSecondsError {
    found: String,
}

/// What is issued, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleOptions {
    /// Recorded times are divided by this; above 0.
    pub speed: f64,
    /// The paper's knob (DCIO, section II-A): gaps between requests are divided by this, while the run takes as long as it
    /// would without. Above 1 the trace begins again at its end, below 1 its end is not reached. Above 0.
    pub intensity: f64,
    /// Issue this many requests per second, evenly, whatever was recorded; above 0. For traces without times.
    pub rate: Option<f64>,
    /// What becomes of times in whole seconds.
    pub whole_seconds: WholeSeconds,
    /// Leave out what changes the target.
    pub reads_only: bool,
    /// Leave out discards, because the target does not know them or content is checked.
    pub no_discards: bool,
    /// Issue nothing after this time.
    pub duration: Option<Nanos>,
    /// Longer requests are issued as several at the same time; at least a unit of the target.
    pub request_bytes_max: u64,
}

impl Default for ScheduleOptions {
    fn default() -> ScheduleOptions {
        ScheduleOptions {
            speed: 1.0,
            intensity: 1.0,
            rate: None,
            whole_seconds: WholeSeconds::Spread,
            reads_only: false,
            no_discards: false,
            duration: None,
            request_bytes_max: 32 << 20,
        }
    }
}

/// What was done to the requests of a trace on their way to the target, of those alone that lie before the end of the run.
/// Counted over all laps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScheduleCounts {
    /// Requests of the trace that are issued.
    pub taken: u64,
    /// Requests left out: other operations, reads and writes of nothing, volumes that are not played, what changes the target
    /// where it is not to be changed, and discards that it does not know.
    pub left_out: u64,
    /// Requests grown to whole units of the target.
    pub widened: u64,
    /// Requests that lie elsewhere because the target is smaller than the trace.
    pub moved: u64,
    /// Requests made shorter because the target is.
    pub cut: u64,
    /// Requests issued in several parts.
    pub split: u64,
    /// Requests that were recorded so late that they could not be put in their place, and are issued with those around them.
    pub out_of_order: u64,
}

/// Turns the requests of a trace, lap by lap, into what is due.
pub struct Schedule {
    options: ScheduleOptions,
    map: AddressMap,
    /// Recorded times are divided by this.
    factor: f64,
    /// Nothing is due at or after this.
    end: Option<Nanos>,
    first: Nanos,
    /// From the first request of the trace to the last.
    span: Nanos,
    lap_length: f64,
    lap: u64,
    has_steps_back: bool,
    is_spread: bool,
    /// Requests held to be put in order: by time, then by place.
    held: BinaryHeap<Reverse<(Nanos, u64, Place)>>,
    sequence: u64,
    /// Requests of the second that is being collected, and the second.
    second: Vec<Place>,
    second_at: u64,
    /// As many of its requests were spread as are held; those that follow come at its end.
    is_second_full: bool,
    latest: Nanos,
    issued: u64,
    is_over: bool,
    counts: ScheduleCounts,
}

/// What a request does, and where on the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    operation: u8,
    offset: u64,
    length: u64,
    thread: ThreadNumber,
    is_widened: bool,
    is_moved: bool,
    is_cut: bool,
    is_out_of_order: bool,
}

const OPERATIONS: [Operation; 5] =
    [Operation::Read, Operation::Write, Operation::Flush, Operation::Discard, Operation::Other];

impl Schedule {
    /// For the trace that `survey` describes, on the target that `map` maps to.
    pub fn new(survey: &Survey, map: AddressMap, options: ScheduleOptions) -> Schedule {
        let span = survey.span().0 as f64;
        let factor = options.speed * options.intensity;
        // From the last request of a lap to the first of the next: as long as from one to the next on average.
        let gap = span / (survey.playable().max(2) - 1) as f64;
        let is_spread = options.whole_seconds == WholeSeconds::Spread && survey.has_whole_seconds();
        // The requests of the last second are spread over all of it.
        let length = if is_spread { span + SECOND as f64 } else { span + gap };
        let changes_length = options.intensity != 1.0 && options.rate.is_none();
        // A lap without length would come round for ever.
        let run = (changes_length && length > 0.0).then(|| Nanos((length / options.speed) as u64));
        let end = [run, options.duration].into_iter().flatten().min();
        Schedule {
            factor,
            end,
            first: survey.first.unwrap_or(Nanos::ZERO),
            span: survey.span(),
            lap_length: length / factor,
            lap: 0,
            has_steps_back: survey.steps_back > 0,
            is_spread,
            held: BinaryHeap::new(),
            sequence: 0,
            second: Vec::new(),
            second_at: 0,
            is_second_full: false,
            latest: Nanos::ZERO,
            issued: 0,
            is_over: false,
            counts: ScheduleCounts::default(),
            options,
            map,
        }
    }

    /// Takes the next request of the trace, and adds what is due to `out`. `O(log held)` where times step back, else `O(1)`.
    pub fn push(&mut self, request: &Request, out: &mut Vec<Due>) {
        let is_change = matches!(request.operation, Operation::Write | Operation::Discard);
        let is_left_out = !is_playable(request)
            || (self.options.reads_only && is_change)
            || (self.options.no_discards && request.operation == Operation::Discard);
        let mapped = if is_left_out { None } else { self.map.map(request) };
        let time = request.time.saturating_since(self.first);
        let Some(mapped) = mapped else {
            self.counts.left_out += u64::from(!self.is_behind_end(time));
            return;
        };
        let place = Place {
            operation: request.operation as u8,
            offset: mapped.range.offset,
            length: mapped.range.length,
            thread: request.thread,
            is_widened: mapped.is_widened,
            is_moved: mapped.is_moved,
            is_cut: mapped.is_cut,
            is_out_of_order: false,
        };
        if !self.has_steps_back || self.options.rate.is_some() {
            return self.order(time, place, out);
        }
        self.held.push(Reverse((time, self.sequence, place)));
        self.sequence += 1;
        if self.held.len() > REORDER_MAX
            && let Some(Reverse((time, _, place))) = self.held.pop()
        {
            self.order(time, place, out);
        }
    }

    /// The trace is at its end: adds what was held. Whether it is to be read once more, for another lap.
    pub fn end_lap(&mut self, out: &mut Vec<Due>) -> bool {
        while let Some(Reverse((time, _, place))) = self.held.pop() {
            self.order(time, place, out);
        }
        self.end_second(out);
        self.lap += 1;
        self.latest = Nanos::ZERO;
        let comes_round = self.options.intensity > 1.0 && self.end.is_some() && self.options.rate.is_none();
        !self.is_over && comes_round && self.issued > 0
    }

    /// Whether nothing more will be due, whatever is pushed.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// What was done until now.
    pub fn counts(&self) -> ScheduleCounts {
        self.counts
    }

    /// How long the run takes, from the first request to the last, as far as that is known before: not at a rate.
    pub fn planned(&self, survey: &Survey) -> Option<Nanos> {
        if self.options.rate.is_some() {
            return self.end;
        }
        let whole = Nanos((survey.span().0 as f64 / self.factor) as u64);
        let comes_round = self.options.intensity > 1.0;
        Some(self.end.map_or(whole, |end| if comes_round { end } else { end.min(whole) }))
    }

    /// A request in order of time, but for those held too short.
    fn order(&mut self, time: Nanos, mut place: Place, out: &mut Vec<Due>) {
        place.is_out_of_order = time < self.latest && self.options.rate.is_none();
        self.latest = self.latest.max(time);
        if !self.is_spread {
            return self.emit(self.latest.0 as f64, place, out);
        }
        let second = (self.latest.0 + self.first.0 % SECOND) / SECOND;
        if second != self.second_at {
            self.end_second(out);
            self.second_at = second;
        }
        if self.second.len() == SECOND_MAX {
            self.end_second(out);
            self.is_second_full = true;
        }
        if self.is_second_full {
            return self.emit(((second + 1) * SECOND - 1) as f64, place, out);
        }
        self.second.push(place);
    }

    /// Spreads the requests of the second that was collected.
    fn end_second(&mut self, out: &mut Vec<Due>) {
        let places = std::mem::take(&mut self.second);
        let count = places.len() as f64;
        for (index, place) in places.iter().enumerate() {
            self.emit((self.second_at as f64 + index as f64 / count) * SECOND as f64, *place, out);
        }
        self.second = places;
        self.second.clear();
        self.is_second_full = false;
    }

    /// When in the run a time of this lap is, in nanoseconds of the trace since its first request.
    fn in_lap(&self, time: f64) -> Nanos {
        Nanos((self.lap as f64 * self.lap_length + time / self.factor) as u64)
    }

    /// Whether a request that is not issued, so long after the trace's first one, lies behind the end of the run. At a rate it has no
    /// time, and lies where it stands.
    fn is_behind_end(&self, time: Nanos) -> bool {
        if self.options.rate.is_some() {
            return self.is_over;
        }
        // What stands behind the last request that can be played is of its lap, however much later.
        let at = self.in_lap(time.min(self.span).0 as f64);
        self.end.is_some_and(|end| at >= end)
    }

    /// A request at a time since the trace's first one, in nanoseconds of the trace.
    fn emit(&mut self, time: f64, place: Place, out: &mut Vec<Due>) {
        let at = match self.options.rate {
            Some(rate) => Nanos((self.issued as f64 / rate * SECOND as f64) as u64),
            None => self.in_lap(time),
        };
        if self.is_over || self.end.is_some_and(|end| at >= end) {
            self.is_over = true;
            return;
        }
        self.issued += 1;
        self.counts.taken += 1;
        self.counts.widened += u64::from(place.is_widened);
        self.counts.moved += u64::from(place.is_moved);
        self.counts.cut += u64::from(place.is_cut);
        self.counts.out_of_order += u64::from(place.is_out_of_order);
        let (operation, thread) = (OPERATIONS[usize::from(place.operation)], place.thread);
        let mut range = ByteRange::new(place.offset, place.length.min(self.options.request_bytes_max));
        out.push(Due { at, operation, range, thread });
        let end = place.offset + place.length;
        self.counts.split += u64::from(range.end() < end);
        while range.end() < end {
            let offset = range.end();
            range = ByteRange::new(offset, (end - offset).min(self.options.request_bytes_max));
            out.push(Due { at, operation, range, thread });
        }
    }
}

/// What a schedule had counted when it gave each of the requests that are prepared and not issued yet: who prepares ahead of the
/// players learns only at the end how far they came.
///
/// Holds an entry for each request of the trace that is prepared ahead.
#[derive(Clone, Debug, Default)]
pub struct CountsAhead {
    /// How many parts were prepared, ascending; what was counted when they had been; and once nothing more was due behind them.
    entries: VecDeque<(u64, ScheduleCounts, ScheduleCounts)>,
}

impl CountsAhead {
    /// The schedule has given `prepared` parts until now, and counted `counts`.
    pub fn note(&mut self, prepared: u64, counts: ScheduleCounts) {
        match self.entries.back_mut() {
            Some((before, _, behind)) if *before == prepared => *behind = counts,
            _ => self.entries.push_back((prepared, counts, counts)),
        }
    }

    /// Players have issued `issued` parts by now: what was noted for fewer is not needed any more.
    pub fn forget(&mut self, issued: u64) {
        while self.entries.len() > 1 && self.entries[0].0 < issued {
            self.entries.pop_front();
        }
    }

    /// What was counted up to the request of which the last of `issued` parts is one; all of it where no more were prepared.
    pub fn until(&self, issued: u64) -> ScheduleCounts {
        let reached = self.entries.iter().find(|(prepared, ..)| *prepared >= issued);
        match reached.or(self.entries.back()) {
            Some((_, _, behind)) if issued >= self.prepared() => *behind,
            Some((_, counts, _)) if issued > 0 => *counts,
            _ => ScheduleCounts::default(),
        }
    }

    /// How many parts were prepared.
    pub fn prepared(&self) -> u64 {
        self.entries.back().map_or(0, |(prepared, ..)| *prepared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Fit;
    use crate::survey::tests::request;

    fn read(time: Nanos) -> Request {
        request(time, Operation::Read, 0, 0, 4096)
    }

    /// All laps of `requests` as their times in microseconds, and the counts.
    fn play(requests: &[Request], options: ScheduleOptions) -> (Vec<Due>, ScheduleCounts) {
        let mut survey = Survey::new();
        survey.add(requests);
        let map = AddressMap::new(&survey, None, 1 << 20, 512, Fit::Wrap).unwrap();
        let mut schedule = Schedule::new(&survey, map, options);
        let mut out = Vec::new();
        loop {
            requests.iter().for_each(|request| schedule.push(request, &mut out));
            if !schedule.end_lap(&mut out) {
                break;
            }
        }
        assert!(out.is_sorted_by_key(|due| due.at), "{out:?}");
        (out, schedule.counts())
    }

    fn times(requests: &[Request], options: ScheduleOptions) -> Vec<u64> {
        play(requests, options).0.iter().map(|due| due.at.0 / 1_000_000).collect()
    }

    #[test]
    fn speed_and_intensity_are_different_things() {
        // At 1.0, 1.1, 1.2 and 1.3 s: three gaps of 100 ms.
        let requests = [10, 11, 12, 13].map(|tenths| read(Nanos::millis(tenths * 100)));
        let options = ScheduleOptions::default();
        assert_eq!(times(&requests, options.clone()), [0, 100, 200, 300]);
        assert_eq!(times(&requests, ScheduleOptions { speed: 10.0, ..options.clone() }), [0, 10, 20, 30]);
        // Twice the intensity: gaps halved, two laps of 200 ms in the 400 ms that the trace takes with a gap at its end.
        let twice = ScheduleOptions { intensity: 2.0, ..options.clone() };
        assert_eq!(times(&requests, twice), [0, 50, 100, 150, 200, 250, 300, 350]);
        // Half the intensity: gaps doubled, and what would come at 400 ms or later does not.
        assert_eq!(times(&requests, ScheduleOptions { intensity: 0.5, ..options.clone() }), [0, 200]);
        let both = ScheduleOptions { speed: 2.0, intensity: 2.0, ..options.clone() };
        assert_eq!(times(&requests, both), [0, 25, 50, 75, 100, 125, 150, 175]);
        assert_eq!(
            times(&requests, ScheduleOptions { rate: Some(4.0), ..options.clone() }),
            [0, 250, 500, 750]
        );
        let short = ScheduleOptions { duration: Some(Nanos::millis(150)), ..options };
        assert_eq!(times(&requests, short), [0, 100]);
    }

    #[test]
    fn a_single_request_is_issued_at_once_and_once() {
        for intensity in [0.5, 1.0, 4.0] {
            let options = ScheduleOptions { intensity, ..ScheduleOptions::default() };
            assert_eq!(times(&[read(Nanos::secs(77))], options), [0]);
        }
        assert_eq!(times(&[], ScheduleOptions::default()), [0u64; 0]);
    }

    #[test]
    fn whole_seconds_are_spread_or_left() {
        let requests = [100, 100, 100, 100, 101, 103, 103].map(|second| read(Nanos::secs(second)));
        let options = ScheduleOptions::default();
        assert_eq!(times(&requests, options.clone()), [0, 250, 500, 750, 1_000, 3_000, 3_500]);
        let as_is = ScheduleOptions { whole_seconds: WholeSeconds::AsIs, ..options.clone() };
        assert_eq!(times(&requests, as_is), [0, 0, 0, 0, 1_000, 3_000, 3_000]);
        // One request a second is what it is.
        let sparse = [100, 101, 103].map(|second| read(Nanos::secs(second)));
        assert_eq!(times(&sparse, options), [0, 1_000, 3_000]);
    }

    #[test]
    fn laps_of_whole_seconds_are_as_long_as_their_requests_are_spread() {
        let requests = [7, 7, 7, 7, 8, 8].map(|second| read(Nanos::secs(second)));
        let twice = ScheduleOptions { intensity: 2.0, ..ScheduleOptions::default() };
        // Two seconds are played in one, twice, in the two seconds that the trace takes.
        let lap = [0, 125, 250, 375, 500, 750];
        let both: Vec<u64> = lap.into_iter().chain(lap.map(|at| at + 1_000)).collect();
        assert_eq!(times(&requests, twice.clone()), both);
        // A trace that is a single second has a length, too.
        assert_eq!(times(&requests[..4], twice), [0, 125, 250, 375, 500, 625, 750, 875]);
        let half = ScheduleOptions { intensity: 0.5, ..ScheduleOptions::default() };
        assert_eq!(times(&requests, half), [0, 500, 1_000, 1_500]);
    }

    #[test]
    fn what_a_second_holds_too_many_of_comes_at_its_end() {
        let mut requests = vec![read(Nanos::secs(5)); SECOND_MAX + 3];
        requests.extend([6, 6].map(|second| read(Nanos::secs(second))));
        let (due, _) = play(&requests, ScheduleOptions::default());
        let late: Vec<u64> = due[SECOND_MAX - 1..].iter().map(|due| due.at.0).collect();
        let last_spread = (SECOND_MAX - 1) as f64 / SECOND_MAX as f64 * 1e9;
        assert_eq!(
            late,
            [last_spread as u64, 999_999_999, 999_999_999, 999_999_999, 1_000_000_000, 1_500_000_000]
        );
    }

    #[test]
    fn what_was_recorded_late_is_put_in_its_place() {
        let millis = |millis| read(Nanos::millis(millis));
        let requests = [5, 1, 9, 3].map(millis);
        let (due, counts) = play(&requests, ScheduleOptions::default());
        assert_eq!(due.iter().map(|due| due.at.0 / 1_000_000).collect::<Vec<_>>(), [0, 2, 4, 8]);
        assert_eq!(counts.out_of_order, 0);
        // Further back than is held: issued with those that it stands among.
        let mut requests: Vec<Request> = (0..=REORDER_MAX as u64 + 1).map(|at| millis(at + 1)).collect();
        requests.push(millis(0));
        let (due, counts) = play(&requests, ScheduleOptions::default());
        assert_eq!((due.len(), counts.out_of_order), (requests.len(), 1));
    }

    #[test]
    fn what_cannot_or_must_not_be_played_is_left_out_and_counted() {
        let at = Nanos::ZERO;
        let requests = [
            request(at, Operation::Read, 0, 100, 1000),
            request(at, Operation::Write, 0, 0, 4096),
            request(at, Operation::Discard, 0, 0, 4096),
            request(at, Operation::Flush, 0, 0, 0),
            request(at, Operation::Other, 0, 0, 4096),
            request(at, Operation::Read, 0, 0, 0),
        ];
        let options = ScheduleOptions { request_bytes_max: 1024, ..ScheduleOptions::default() };
        let (due, counts) = play(&requests, options.clone());
        // The read of bytes 100 to 1,099 is one of three sectors, in two parts; write and discard have four parts each.
        assert_eq!((due[0].range, due[1].range), (ByteRange::new(0, 1024), ByteRange::new(1024, 512)));
        assert_eq!(due.len(), 2 + 4 + 4 + 1);
        let expected =
            ScheduleCounts { taken: 4, left_out: 2, widened: 1, split: 3, ..ScheduleCounts::default() };
        assert_eq!(counts, expected);
        let (due, counts) = play(&requests, ScheduleOptions { reads_only: true, ..options.clone() });
        assert_eq!((due.len(), counts.taken, counts.left_out), (3, 2, 4));
        let (_, counts) = play(&requests, ScheduleOptions { no_discards: true, ..options });
        assert_eq!((counts.taken, counts.left_out), (3, 3));
    }

    #[test]
    fn what_lies_behind_the_end_of_the_run_is_not_counted() {
        let at = |tenth: u64, operation| request(Nanos::millis(tenth * 100), operation, 0, 700, 1000);
        // Reads at 0, 0.2, 0.4 and 0.6 s, and a write behind each of them; one of nothing is the last.
        let mut requests: Vec<Request> = (0..8)
            .map(|tenth| at(tenth, if tenth % 2 == 0 { Operation::Read } else { Operation::Write }))
            .collect();
        requests.push(request(Nanos::millis(900), Operation::Read, 0, 0, 0));
        let reads = ScheduleOptions { reads_only: true, ..ScheduleOptions::default() };
        let counts = |options| play(&requests, options).1;
        let all = ScheduleCounts { taken: 4, left_out: 5, widened: 4, ..ScheduleCounts::default() };
        assert_eq!(counts(reads.clone()), all);
        // Up to 0.4 s: two reads and two writes.
        let short = ScheduleOptions { duration: Some(Nanos::millis(400)), ..reads.clone() };
        let half = ScheduleCounts { taken: 2, left_out: 2, widened: 2, ..ScheduleCounts::default() };
        assert_eq!(counts(short), half);
        // Two rounds, and no part of a third.
        let twice = ScheduleOptions { intensity: 2.0, ..reads.clone() };
        let both = ScheduleCounts { taken: 8, left_out: 10, widened: 8, ..ScheduleCounts::default() };
        assert_eq!(counts(twice), both);
        // Two reads in a second at two a second, and what stands before the third.
        let slow = ScheduleOptions { rate: Some(2.0), duration: Some(Nanos::secs(1)), ..reads.clone() };
        assert_eq!(counts(slow), half);
        // Recorded late: what lies behind the end by its time is not counted, wherever it stands.
        requests.rotate_right(1);
        let short = ScheduleOptions { duration: Some(Nanos::millis(400)), ..reads };
        assert_eq!(play(&requests, short).1, half);
    }

    #[test]
    fn counts_are_those_until_the_last_request_that_was_issued() {
        let counts = |taken, left_out| ScheduleCounts { taken, left_out, ..ScheduleCounts::default() };
        let mut ahead = CountsAhead::default();
        assert_eq!(ahead.until(0), counts(0, 0));
        // One in a part, two left out, one in three parts, one left out.
        ahead.note(1, counts(1, 0));
        ahead.note(1, counts(1, 2));
        ahead.note(4, counts(2, 2));
        ahead.note(4, counts(2, 3));
        let until = |issued| ahead.clone().until(issued);
        assert_eq!([0, 1, 2, 3].map(until), [counts(0, 0), counts(1, 0), counts(2, 2), counts(2, 2)]);
        // Everything was: what stands at the end counts, too.
        assert_eq!(until(4), counts(2, 3));
        ahead.forget(2);
        assert_eq!((ahead.until(2), ahead.until(4)), (counts(2, 2), counts(2, 3)));
        assert_eq!((ahead.entries.len(), ahead.prepared()), (1, 4));
    }
}
