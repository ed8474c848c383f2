//! What must be known of a whole trace before it can be replayed: how large its volumes are, how long it takes, and what its
//! times are worth. One pass, constant memory per volume.

use forebay_trace::{Operation, Request, ThreadNumber, VolumeIndex};
use forebay_units::Nanos;

/// What is known of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeSurvey {
    /// Requests that touch a byte of it, and flushes.
    pub requests: u64,
    /// Writes and discards among them.
    pub changes: u64,
    /// One past the last byte that any request touches.
    pub end: u64,
}

/// What is known of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// By volume index.
    pub volumes: Vec<VolumeSurvey>,
    /// Reads that touch a byte.
    pub reads: u64,
    /// Writes that touch a byte.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards that touch a byte.
    pub discards: u64,
    /// What cannot be replayed: other operations, and reads and writes of nothing.
    pub unplayable: u64,
    /// The smallest time.
    pub first: Option<Nanos>,
    /// The largest time.
    pub last: Nanos,
    /// Requests whose time lies before that of an earlier one.
    pub steps_back: u64,
    /// Requests whose time is no whole second.
    pub within_seconds: u64,
    /// Whether the thread of any request is known.
    pub has_threads: bool,
}

impl Survey {
    /// Of nothing yet.
    pub fn new() -> Survey {
        Survey::default()
    }

    /// Counts `requests`.
    pub fn add(&mut self, requests: &[Request]) {
        for request in requests {
            if !is_playable(request) {
                self.unplayable += 1;
                continue;
            }
            match request.operation {
                Operation::Write => self.writes += 1,
                Operation::Flush => self.flushes += 1,
                Operation::Discard => self.discards += 1,
                Operation::Read | Operation::Other => self.reads += 1,
            }
            let VolumeIndex(index) = request.volume;
            if self.volumes.len() <= index as usize {
                self.volumes.resize(index as usize + 1, VolumeSurvey::default());
            }
            let volume = &mut self.volumes[index as usize];
            volume.requests += 1;
            volume.changes += u64::from(matches!(request.operation, Operation::Write | Operation::Discard));
            volume.end = volume.end.max(request.range().end());
            self.steps_back += u64::from(request.time < self.last);
            self.within_seconds += u64::from(!request.time.0.is_multiple_of(Nanos::secs(1).0));
            self.has_threads |= request.thread != ThreadNumber::UNKNOWN;
            self.first = Some(self.first.map_or(request.time, |first| first.min(request.time)));
            self.last = self.last.max(request.time);
        }
    }

    /// Requests that can be played.
    pub fn playable(&self) -> u64 {
        self.reads + self.writes + self.flushes + self.discards
    }

    /// Writes and discards of the volumes `only`, or of all.
    pub fn changes(&self, only: Option<&[VolumeIndex]>) -> u64 {
        let is_played = |index: &usize| only.is_none_or(|only| only.contains(&VolumeIndex(*index as u32)));
        (0..self.volumes.len()).filter(is_played).map(|index| self.volumes[index].changes).sum()
    }

    /// From the first to the last request.
    pub fn span(&self) -> Nanos {
        self.first.map_or(Nanos::ZERO, |first| self.last.saturating_since(first))
    }

    /// Whether times were recorded in whole seconds: all of them are, and there are fewer seconds than requests.
    pub fn has_whole_seconds(&self) -> bool {
        let seconds = self.span().0 / Nanos::secs(1).0 + 1;
        self.within_seconds == 0 && self.playable() > seconds
    }
}

/// Whether a request means something to a target.
pub(crate) fn is_playable(request: &Request) -> bool {
    match request.operation {
        Operation::Flush => true,
        Operation::Read | Operation::Write | Operation::Discard => request.length > 0,
        Operation::Other => false,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn request(
        time: Nanos,
        operation: Operation,
        volume: u32,
        offset: u64,
        length: u64,
    ) -> Request {
        Request {
            time,
            offset,
            length,
            latency: Nanos::MAX,
            volume: VolumeIndex(volume),
            thread: ThreadNumber::UNKNOWN,
            operation,
        }
    }

    #[test]
    fn volumes_times_and_what_cannot_be_played_are_counted() {
        let mut survey = Survey::new();
        assert_eq!((survey.span(), survey.playable(), survey.has_whole_seconds()), (Nanos::ZERO, 0, false));
        let at = Nanos::secs;
        survey.add(&[
            request(at(5), Operation::Read, 2, 4096, 512),
            request(at(3), Operation::Write, 0, 0, 100),
            request(at(5), Operation::Read, 2, 0, 0),
            request(at(4), Operation::Flush, 0, 0, 0),
            request(at(4), Operation::Other, 0, 9999, 1),
            request(at(5), Operation::Discard, 0, 0, 8192),
        ]);
        assert_eq!((survey.reads, survey.writes, survey.flushes, survey.discards), (1, 1, 1, 1));
        assert_eq!((survey.unplayable, survey.steps_back), (2, 2));
        assert_eq!((survey.first, survey.span()), (Some(at(3)), at(2)));
        let of = |volume| survey.changes(Some(&[VolumeIndex(volume)]));
        assert_eq!((survey.changes(None), of(0), of(2), of(9)), (2, 2, 0, 0));
        let ends: Vec<u64> = survey.volumes.iter().map(|volume| volume.end).collect();
        assert_eq!(ends, [8192, 0, 4608]);
        // Four requests in the three seconds 3, 4 and 5.
        assert!(survey.has_whole_seconds());
        survey.add(&[request(Nanos::millis(5_500), Operation::Read, 0, 0, 1)]);
        assert!(!survey.has_whole_seconds());
    }
}
