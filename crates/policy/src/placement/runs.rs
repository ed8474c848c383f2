//! Sequential runs: requests that begin where another one ended. They are told apart, not counted: arrays read ahead, and disks do them well.
//!
//! Not a prefetcher. Source: SANCache, MSST 2006 ("do not increment the access count for sequential accesses"). Numbers are ours.

/// Ends of requests that nothing has continued yet, and of runs that go on.
const FRESH: usize = 64;
const RUNS: usize = 32;
const NONE: (u32, u64) = (u32::MAX, u64::MAX);

/// The runs of all volumes together; 1.5 KiB.
#[derive(Clone, Debug)]
pub(super) struct Runs {
    fresh: [(u32, u64); FRESH],
    fresh_next: usize,
    /// The latest first.
    runs: [(u32, u64); RUNS],
}

impl Runs {
    pub(super) fn new() -> Runs {
        Runs { fresh: [NONE; FRESH], fresh_next: 0, runs: [NONE; RUNS] }
    }

    /// A request for bytes from `offset` to before `end` arrives: whether it continues a run.
    pub(super) fn continues(&mut self, volume: u32, offset: u64, end: u64) -> bool {
        let goes_on = self.goes_on(volume, offset, end);
        if !goes_on {
            self.fresh[self.fresh_next] = (volume, end);
            self.fresh_next = (self.fresh_next + 1) % FRESH;
        }
        goes_on
    }

    /// The same, but where it continues none, none may begin with it.
    pub(super) fn goes_on(&mut self, volume: u32, offset: u64, end: u64) -> bool {
        let place = match self.runs.iter().position(|run| *run == (volume, offset)) {
            Some(place) => place,
            None => {
                let Some(fresh) = self.fresh.iter().position(|fresh| *fresh == (volume, offset)) else {
                    return false;
                };
                self.fresh[fresh] = NONE;
                RUNS - 1
            }
        };
        self.runs[..=place].rotate_right(1);
        self.runs[0] = (volume, end);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_on_between_others() {
        let mut runs = Runs::new();
        assert!(!runs.continues(0, 0, 10));
        assert!(runs.continues(0, 10, 20));
        // The same place of another volume is another matter.
        assert!(!runs.continues(1, 20, 30));
        // A thousand requests at random do not end a run once it is known as one.
        for number in 0..1_000 {
            assert!(!runs.continues(0, 1_000_000 + 100 * number, 1_000_000 + 100 * number + 1));
        }
        assert!(runs.continues(0, 20, 30));
        // The same request again is no continuation.
        assert!(!runs.continues(0, 20, 30));
    }

    #[test]
    fn runs_that_alternate_all_go_on() {
        let mut runs = Runs::new();
        let mut from = |offset| [0, 1, 2].map(|volume| runs.continues(volume, offset, offset + 10));
        assert_eq!([from(0), from(10), from(20)], [[false; 3], [true; 3], [true; 3]]);
    }

    #[test]
    fn a_run_goes_on_over_what_is_answered_elsewhere_and_none_begins_there() {
        let mut runs = Runs::new();
        assert!(!runs.continues(0, 0, 10) && runs.goes_on(0, 10, 30));
        assert!(runs.continues(0, 30, 40));
        assert!(!runs.goes_on(0, 70, 80) && !runs.continues(0, 80, 90));
    }

    #[test]
    fn what_one_request_went_on_from_no_other_does() {
        let mut runs = Runs::new();
        assert_eq!([0, 10, 10].map(|offset| runs.continues(0, offset, offset + 10)), [false, true, false]);
    }
}
