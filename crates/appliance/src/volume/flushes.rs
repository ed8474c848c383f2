//! Flushes that are at the origin together.
//!
//! An origin tells of a loss once, to one of those who flush: Linux does so for all who share an open file. Its answers may overtake each other, so that a flush is heard to have succeeded before
//! the failure is heard that another one was told in its place. So a success is held until all that were at the origin with it have ended, and is none where any has failed since it was asked for:
//! a client that loses an fsync too many asks again; one that is told too early that its data are safe does not.

use super::request::Errno;
use std::collections::VecDeque;

/// The number of one that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlushNumber(u64);

/// How many had failed, for who asks later whether one has since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailuresSeen(u64);

/// A success of which nobody has been told.
#[derive(Debug)]
struct Held<T> {
    /// Of those before this one, whatever is at the origin was there with it.
    before: FlushNumber,
    seen: FailuresSeen,
    who: T,
}

/// Those that are at the origin, and the successes that wait for them. Each waits for those alone that were sent before it ended, so for no longer than these take.
///
/// Invariants: `at_origin` ascends; so does `before` along `held`.
#[derive(Debug)]
pub(crate) struct OverlappingFlushes<T> {
    sent: u64,
    at_origin: Vec<FlushNumber>,
    held: VecDeque<Held<T>>,
    failures: u64,
    last_failure: Option<Errno>,
}

impl<T> OverlappingFlushes<T> {
    pub(crate) fn new() -> OverlappingFlushes<T> {
        let (at_origin, held) = (Vec::new(), VecDeque::new());
        OverlappingFlushes { sent: 0, at_origin, held, failures: 0, last_failure: None }
    }

    /// For who asks for one now.
    pub(crate) fn seen(&self) -> FailuresSeen {
        FailuresSeen(self.failures)
    }

    /// One is sent.
    pub(crate) fn send(&mut self) -> FlushNumber {
        let number = FlushNumber(self.sent);
        self.sent += 1;
        self.at_origin.push(number);
        number
    }

    /// One ended that says nothing of any other: it never came to the origin, or promises less than a flush.
    pub(crate) fn end(&mut self, number: FlushNumber) {
        self.at_origin.retain(|other| *other != number);
    }

    /// One failed, for all that were asked for before this.
    pub(crate) fn fail(&mut self, number: FlushNumber, errno: Errno) {
        self.end(number);
        self.failures += 1;
        self.last_failure = Some(errno);
    }

    /// One of `who` succeeded, who had `seen` so many fail when it was asked for: [`OverlappingFlushes::take_told`] has it in time.
    pub(crate) fn succeed(&mut self, number: FlushNumber, seen: FailuresSeen, who: T) {
        self.end(number);
        self.held.push_back(Held { before: FlushNumber(self.sent), seen, who });
    }

    /// Who can be told now how its flush ended that succeeded by itself: with the error of another one, if one failed.
    pub(crate) fn take_told(&mut self) -> Option<(T, Result<(), Errno>)> {
        let first = self.at_origin.first();
        let held = self.held.pop_front_if(|held| first.is_none_or(|first| *first >= held.before))?;
        let failure = self.last_failure.filter(|_| held.seen != self.seen());
        Some((held.who, failure.map_or(Ok(()), Err)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that can be told.
    fn told(flushes: &mut OverlappingFlushes<u32>) -> Vec<(u32, Result<(), Errno>)> {
        std::iter::from_fn(|| flushes.take_told()).collect()
    }

    #[test]
    fn one_alone_is_told_at_once() {
        let mut flushes = OverlappingFlushes::new();
        let (seen, number) = (flushes.seen(), flushes.send());
        flushes.succeed(number, seen, 1);
        assert_eq!(told(&mut flushes), [(1, Ok(()))]);
        let number = flushes.send();
        flushes.fail(number, Errno::IO);
        let (seen, number) = (flushes.seen(), flushes.send());
        flushes.succeed(number, seen, 2);
        assert_eq!(
            told(&mut flushes),
            [(2, Ok(()))],
            "what failed before it was asked for is no matter of its"
        );
    }

    #[test]
    fn a_success_waits_for_all_that_were_there_with_it_whichever_was_sent_first_and_for_no_other() {
        for is_first in [true, false] {
            let mut flushes = OverlappingFlushes::new();
            let seen = flushes.seen();
            let (one, two) = (flushes.send(), flushes.send());
            let (ends, stays) = if is_first { (one, two) } else { (two, one) };
            flushes.succeed(ends, seen, 1);
            let later = flushes.send();
            assert_eq!(told(&mut flushes), []);
            flushes.succeed(stays, seen, 2);
            // The other had the later one beside it.
            assert_eq!(told(&mut flushes), [(1, Ok(()))]);
            flushes.end(later);
            assert_eq!(told(&mut flushes), [(2, Ok(()))]);
        }
    }

    #[test]
    fn a_failure_is_one_of_all_that_were_asked_for_before_it() {
        let mut flushes = OverlappingFlushes::new();
        let seen = flushes.seen();
        let (fails, overtakes) = (flushes.send(), flushes.send());
        flushes.succeed(overtakes, seen, 1);
        let full = Errno(28);
        flushes.fail(fails, full);
        // Asked for before, and sent later only.
        let late = flushes.send();
        assert_eq!(told(&mut flushes), [(1, Err(full))]);
        flushes.succeed(late, seen, 2);
        assert_eq!(told(&mut flushes), [(2, Err(full))]);
    }
}
