//! Of what time the rows of this process are, by the wall clock that may be set.
//!
//! It bounds what is too old by the time that has passed. It is *not* a clock: times are those of rows.

use super::{Batch, PRUNE};
use std::time::Instant;

/// When the rows of this process say that they are of. The wall clock may be set, for a while by years: one row of a time that has not come must neither take all
/// others with it nor outlast them.
#[derive(Debug, Default)]
pub(super) struct Stamps {
    first: Option<(i64, Instant)>,
    pub(super) last: Option<(i64, Instant)>,
}

impl Stamps {
    pub(super) fn take(&mut self, batch: &Batch, now: Instant) {
        let intervals = batch.intervals.iter().map(|row| row.at_unix_ms);
        let newest = intervals.chain(batch.decisions.iter().map(|dated| dated.at_unix_ms)).max();
        if let Some(newest) = newest {
            self.first.get_or_insert((newest, now));
            self.last = Some((newest, now));
        }
    }

    /// The time that rows must be compared with to be too old: the last row's, and no later than has passed since the first.
    pub(super) fn age_from(&self) -> Option<i64> {
        let ((first, began), (last, now)) = (self.first?, self.last?);
        let passed = i64::try_from(now.saturating_duration_since(began).as_millis()).unwrap_or(i64::MAX);
        // What waited in the queue may be written together.
        let slack = i64::try_from(PRUNE.as_millis()).unwrap_or(i64::MAX);
        Some(last.min(first.saturating_add(passed).saturating_add(slack)))
    }
}
