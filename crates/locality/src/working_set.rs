//! Working set sizes: distinct blocks in named windows of time, exactly (Denning, CACM 1968).

use crate::table::KeyTable;
use forebay_units::Nanos;
use std::collections::VecDeque;

/// The working set sizes of a stream over windows of one length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkingSetSummary {
    /// How many windows were measured, empty ones included.
    pub windows: u64,
    /// The mean number of distinct blocks.
    pub mean_blocks: f64,
    /// The largest number of distinct blocks.
    pub max_blocks: u64,
    /// Whether windows were whole; else the stream is shorter than one, and counts as one.
    pub whole: bool,
    /// From the end of the last whole window, or the start, to the last access: left out but where no window is whole.
    pub rest: Nanos,
}

/// Counts distinct blocks in windows of time: window `k` covers `[k * stride, k * stride + length)` since the first access.
///
/// Each access adds one to the windows that hold it but not the block's access before: a range of windows, noted by its two
/// ends, so an access costs a table look-up whatever the overlap. 16 bytes a slot per distinct block, 8 per open window.
#[derive(Clone, Debug)]
pub struct WorkingSetWindows {
    length: u64,
    stride: u64,
    last_use: KeyTable<u64>,
    /// The time of the first access.
    origin: Option<u64>,
    /// Since then, of the latest access.
    now: u64,
    /// Changes of the count from one window to the next, from the oldest open window on.
    changes: VecDeque<i64>,
    oldest: u64,
    /// The sum of the changes of all closed windows.
    running: i64,
    closed: u64,
    sum: u128,
    max: u64,
}

impl WorkingSetWindows {
    /// Windows of `length`, one every `stride`; tumbling where both are equal.
    ///
    /// # Panics
    /// Unless 0 < stride <= length and length / stride <= 1,000,000.
    pub fn new(length: Nanos, stride: Nanos) -> WorkingSetWindows {
        assert!(
            stride.0 > 0 && stride <= length && length.0 / stride.0 <= 1_000_000,
            "a window of {length} every {stride}: the stride must be above 0, at most the length and at least a millionth of it"
        );
        WorkingSetWindows {
            length: length.0,
            stride: stride.0,
            last_use: KeyTable::new(),
            origin: None,
            now: 0,
            changes: VecDeque::new(),
            oldest: 0,
            running: 0,
            closed: 0,
            sum: 0,
            max: 0,
        }
    }

    /// Windows that do not overlap.
    pub fn tumbling(length: Nanos) -> WorkingSetWindows {
        WorkingSetWindows::new(length, length)
    }

    /// One access at `now`; a time that steps back counts as the latest one before.
    pub fn access(&mut self, key: u64, now: Nanos) {
        // The largest number marks empty slots.
        let origin = *self.origin.get_or_insert(now.0);
        self.now = self.now.max(now.0.saturating_sub(origin)).min(u64::MAX - 1);
        let newest = self.now / self.stride;
        let first = if self.now < self.length { 0 } else { (self.now - self.length) / self.stride + 1 };
        self.close_before(first);
        let from = match self.last_use.replace(key, self.now) {
            Some(before) => first.max(before / self.stride + 1),
            None => first,
        };
        if from <= newest {
            let index = |window: u64| (window - self.oldest) as usize;
            let (start, end) = (index(from), index(newest + 1));
            if self.changes.len() <= end {
                self.changes.resize(end + 1, 0);
            }
            self.changes[start] += 1;
            self.changes[end] -= 1;
        }
    }

    fn close_before(&mut self, first: u64) {
        while self.oldest < first {
            let Some(change) = self.changes.pop_front() else {
                // Nobody used anything in these: empty windows are counted, not walked through.
                self.closed += first - self.oldest;
                self.oldest = first;
                return;
            };
            self.running += change;
            self.sum += self.running as u128;
            self.max = self.max.max(self.running as u64);
            self.closed += 1;
            self.oldest += 1;
        }
    }

    /// Distinct blocks of the whole stream.
    pub fn footprint_blocks(&self) -> u64 {
        self.last_use.len() as u64
    }

    /// The sizes over all windows that ended at the last access or before; over the first window, cut short, where none did.
    pub fn summary(&self) -> WorkingSetSummary {
        if self.closed == 0 {
            let blocks = self.changes.front().map_or(0, |&change| change as u64);
            return WorkingSetSummary {
                windows: u64::from(blocks > 0),
                mean_blocks: blocks as f64,
                max_blocks: blocks,
                whole: false,
                rest: Nanos(self.now),
            };
        }
        WorkingSetSummary {
            windows: self.closed,
            mean_blocks: self.sum as f64 / self.closed as f64,
            max_blocks: self.max,
            whole: true,
            rest: Nanos(self.now - ((self.closed - 1) * self.stride + self.length)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn tumbling_windows_by_hand() {
        // Windows of 10: {1, 2}, {2}, {}, and the last access at 35 leaves the fourth open, 5 of it: mean (2 + 1 + 0) / 3 = 1.
        let mut windows = WorkingSetWindows::tumbling(Nanos(10));
        for (key, time) in [(1, 0), (2, 5), (1, 9), (2, 10), (2, 12), (3, 35)] {
            windows.access(key, Nanos(time));
        }
        let expected =
            WorkingSetSummary { windows: 3, mean_blocks: 1.0, max_blocks: 2, whole: true, rest: Nanos(5) };
        assert_eq!(windows.summary(), expected);
        assert_eq!(windows.footprint_blocks(), 3);
    }

    #[test]
    fn short_and_empty_streams_and_long_gaps() {
        let mut windows = WorkingSetWindows::tumbling(Nanos::secs(600));
        let short = |windows, blocks: u64, rest| WorkingSetSummary {
            windows,
            mean_blocks: blocks as f64,
            max_blocks: blocks,
            whole: false,
            rest: Nanos(rest),
        };
        assert_eq!(windows.summary(), short(0, 0, 0));
        windows.access(1, Nanos(5));
        windows.access(2, Nanos(3));
        windows.access(2, Nanos(9));
        assert_eq!(windows.summary(), short(1, 2, 4));
        let mut gap = WorkingSetWindows::tumbling(Nanos(1));
        gap.access(1, Nanos(0));
        gap.access(1, Nanos::secs(1_000_000_000));
        assert_eq!(gap.summary().windows, 1_000_000_000_000_000_000);
        assert_eq!(gap.summary().max_blocks, 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn sliding_windows_agree_with_sets(
            steps in prop::collection::vec((0u64..12, 0u64..30), 1..200),
            stride in 1u64..20,
            extra in 0u64..60,
        ) {
            let length = stride + extra;
            let mut windows = WorkingSetWindows::new(Nanos(length), Nanos(stride));
            let mut accesses = Vec::new();
            let mut now = 0;
            for (index, (key, step)) in steps.into_iter().enumerate() {
                now += if index == 0 { 0 } else { step };
                windows.access(key, Nanos(1_000_000 + now));
                accesses.push((key, now));
            }
            let sizes: Vec<u64> = (0..)
                .map(|window| window * stride)
                .take_while(|start| start + length <= now)
                .map(|start| {
                    let inside = accesses.iter().filter(|(_, at)| (start..start + length).contains(at));
                    inside.map(|(key, _)| key).collect::<BTreeSet<_>>().len() as u64
                })
                .collect();
            let summary = windows.summary();
            let ended = sizes.len().checked_sub(1).map_or(0, |last| last as u64 * stride + length);
            prop_assert_eq!((summary.whole, summary.rest), (!sizes.is_empty(), Nanos(now - ended)));
            if sizes.is_empty() {
                prop_assert!(summary.windows <= 1);
            } else {
                prop_assert_eq!(summary.windows, sizes.len() as u64);
                prop_assert_eq!(summary.max_blocks, *sizes.iter().max().unwrap());
                let mean = sizes.iter().sum::<u64>() as f64 / sizes.len() as f64;
                prop_assert!((summary.mean_blocks - mean).abs() < 1e-9);
            }
        }
    }
}
