//! How much is said of what others can cause as often as they like, as lines of a log.

use crate::Nanos;

/// What is said in a span of time at most: the first few at once, and of the others how many they were and why the last one was.
///
/// A span begins with what is said first in quiet. While it goes on and on, only sums are said, one a span; whoever logs asks for them with
/// [`Sparing::untold`], at [`Sparing::due`]. What is counted is exact: said at once or in a sum, each is in the log once.
#[derive(Debug)]
pub struct Sparing {
    at_once_max: u32,
    span: Nanos,
    /// When the span is over that has begun; `None` in quiet.
    ends: Option<Nanos>,
    told: u32,
    untold: u64,
    last: String,
}

impl Sparing {
    /// Says `at_once_max` at once, and a sum at the end of each `span`.
    pub const fn new(at_once_max: u32, span: Nanos) -> Sparing {
        Sparing { at_once_max, span, ends: None, told: 0, untold: 0, last: String::new() }
    }

    /// Counts one more; whether it is to be said now. If not, `why` is kept for the sum.
    pub fn tells(&mut self, now: Nanos, why: impl FnOnce() -> String) -> bool {
        if self.ends.is_some_and(|ends| now >= ends && self.untold == 0) {
            self.ends = None;
        }
        if self.ends.is_none() {
            self.ends = Some(now.saturating_add(self.span));
            self.told = 0;
        }
        if self.told < self.at_once_max {
            self.told += 1;
            return true;
        }
        self.untold += 1;
        self.last = why();
        false
    }

    /// How many were not said in the span that is over, and why the last one was. Then the next span begins, in which none is said at once.
    pub fn untold(&mut self, now: Nanos) -> Option<(u64, String)> {
        if now < self.due()? {
            return None;
        }
        self.ends = Some(now.saturating_add(self.span));
        self.told = self.at_once_max;
        Some((std::mem::take(&mut self.untold), std::mem::take(&mut self.last)))
    }

    /// When there is a sum to be said, if no more happens.
    pub fn due(&self) -> Option<Nanos> {
        self.ends.filter(|_| self.untold > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a log gets of something that happens at each of `times`, in seconds: (when, how many in a sum, or 0).
    fn said(sparing: &mut Sparing, times: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
        let mut lines = Vec::new();
        let sum = |sparing: &mut Sparing, at: u64, lines: &mut Vec<(u64, u64)>| {
            if let Some((count, _)) = sparing.untold(Nanos::secs(at)) {
                lines.push((at, count));
            }
        };
        for at in times {
            if let Some(due) = sparing.due().filter(|due| *due < Nanos::secs(at)) {
                sum(sparing, due.0 / Nanos::secs(1).0, &mut lines);
            }
            if sparing.tells(Nanos::secs(at), || at.to_string()) {
                lines.push((at, 0));
            }
            sum(sparing, at, &mut lines);
        }
        lines
    }

    #[test]
    fn what_goes_on_and_on_is_said_in_sums_alone() {
        let mut sparing = Sparing::new(2, Nanos::secs(60));
        // One a second from 0 to 149: 0 and 1 at once, 2 to 60 with the 60th, then 60 more each minute.
        assert_eq!(said(&mut sparing, 0..150), [(0, 0), (1, 0), (60, 59), (120, 60)]);
        assert_eq!(sparing.due(), Some(Nanos::secs(180)));
        assert_eq!(sparing.untold(Nanos::secs(179)), None);
        assert_eq!(sparing.untold(Nanos::secs(180)), Some((29, "149".to_owned())));
        assert_eq!(sparing.due(), None, "nobody wakes for nothing");
    }

    #[test]
    fn after_a_quiet_span_the_first_are_said_at_once_again() {
        let mut sparing = Sparing::new(2, Nanos::secs(60));
        assert_eq!(said(&mut sparing, [0, 10, 20].into_iter()), [(0, 0), (10, 0)]);
        assert_eq!(sparing.untold(Nanos::secs(60)), Some((1, "20".to_owned())));
        // The span of the sum goes on until 120.
        assert_eq!(
            said(&mut sparing, [119, 179, 240, 241].into_iter()),
            [(120, 1), (180, 1), (240, 0), (241, 0)]
        );
        // What is seldom is always said at once.
        let mut seldom = Sparing::new(1, Nanos::secs(60));
        assert_eq!(said(&mut seldom, (0..5).map(|index| 60 * index)).len(), 5);
    }
}
