//! Warm-up in progress: a list of ranges, worked off in order, below the priority of clients.
//!
//! It decides when the next read may go out; what is skipped (cached, being filled, being written, in doubt) is the
//! machine's to say. Invariant: `remaining_bytes` only falls, and reaches 0 exactly when nothing is left to ask for.

use forebay_cache::Insertion;
use forebay_units::{BlockRange, BlockSize, ByteRange, Bytes, Nanos};
use std::collections::VecDeque;

/// What is to be loaded before it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrewarmPlan {
    /// What, in this order; parts outside the volume are dropped.
    pub ranges: Vec<ByteRange>,
    /// Bytes per second at most; `None`: as fast as the outstanding reads allow.
    pub bytes_per_second: Option<Bytes>,
    /// Where the blocks enter the order of eviction.
    pub insertion: Insertion,
}

/// How a warm-up ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrewarmEnd {
    /// Everything was loaded, or was there, or failed.
    Done,
    /// The partition refused a block: there is no room that warm-up may take.
    Full,
    /// It was told to stop, or another one took its place.
    Cancelled,
}

/// How far a warm-up is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrewarmProgress {
    /// All bytes of the plan that lie in the volume, in whole blocks.
    pub total_bytes: Bytes,
    /// Not yet looked at.
    pub remaining_bytes: Bytes,
    /// Asked of the origin and inserted.
    pub loaded_bytes: Bytes,
    /// Cached already, or on their way for others.
    pub skipped_bytes: Bytes,
    /// Lost to origin errors or to writes that came in between.
    pub failed_bytes: Bytes,
    /// How it ended; `None` while it goes on.
    pub ended: Option<PrewarmEnd>,
}

/// Blocks looked at per call, so that no call takes long (ours).
pub(crate) const PREWARM_SCAN_BLOCKS_MAX: usize = 4096;

#[derive(Debug)]
pub(crate) struct Prewarm {
    ranges: VecDeque<BlockRange>,
    block_size: BlockSize,
    bytes_per_second: Option<Bytes>,
    pub(crate) insertion: Insertion,
    next_at: Nanos,
    pub(crate) outstanding: usize,
    pub(crate) progress: PrewarmProgress,
}

impl Prewarm {
    pub(crate) fn new(plan: PrewarmPlan, volume_bytes: u64, block_size: BlockSize, now: Nanos) -> Prewarm {
        let ranges: VecDeque<BlockRange> = plan
            .ranges
            .iter()
            .filter(|range| range.offset < volume_bytes)
            .map(|range| {
                ByteRange::new(range.offset, range.length.min(volume_bytes - range.offset)).blocks(block_size)
            })
            .filter(|blocks| blocks.count() > 0)
            .collect();
        let total = Bytes(ranges.iter().map(|blocks| blocks.count()).sum::<u64>() << block_size.shift());
        let progress = PrewarmProgress {
            total_bytes: total,
            remaining_bytes: total,
            loaded_bytes: Bytes::ZERO,
            skipped_bytes: Bytes::ZERO,
            failed_bytes: Bytes::ZERO,
            ended: None,
        };
        let mut prewarm = Prewarm {
            ranges,
            block_size,
            bytes_per_second: plan.bytes_per_second,
            insertion: plan.insertion,
            next_at: now,
            outstanding: 0,
            progress,
        };
        prewarm.end_if_done();
        prewarm
    }

    /// Whether a read may go out at `now`, as far as rate and outstanding reads are concerned.
    pub(crate) fn may_read(&self, now: Nanos, outstanding_max: usize) -> bool {
        self.progress.ended.is_none()
            && !self.ranges.is_empty()
            && self.outstanding < outstanding_max
            && now >= self.next_at
    }

    /// When the rate allows the next read; `None` if time is not what it waits for.
    pub(crate) fn wake_at(&self, outstanding_max: usize) -> Option<Nanos> {
        (self.progress.ended.is_none() && !self.ranges.is_empty() && self.outstanding < outstanding_max)
            .then_some(self.next_at)
    }

    /// The next run of at most `blocks_max` blocks that `skip` does not skip; looks at `scan` blocks at most and
    /// counts them down.
    pub(crate) fn next_run(
        &mut self,
        blocks_max: u64,
        scan: &mut usize,
        mut skip: impl FnMut(u64) -> bool,
    ) -> Option<BlockRange> {
        let bytes = |blocks: u64| Bytes(blocks << self.block_size.shift());
        let mut run: Option<BlockRange> = None;
        while let Some(front) = self.ranges.front_mut() {
            if front.first == front.end {
                self.ranges.pop_front();
                if run.is_some() {
                    break;
                }
                continue;
            }
            if *scan == 0 || run.is_some_and(|run| run.count() >= blocks_max) {
                break;
            }
            *scan -= 1;
            let block = front.first;
            if skip(block) {
                if run.is_some() {
                    break;
                }
                self.progress.skipped_bytes += bytes(1);
            } else {
                run.get_or_insert(BlockRange { first: block, end: block }).end = block + 1;
            }
            front.first += 1;
            self.progress.remaining_bytes = self.progress.remaining_bytes - bytes(1);
        }
        while self.ranges.front().is_some_and(|front| front.first == front.end) {
            self.ranges.pop_front();
        }
        run
    }

    /// A read of `blocks` blocks went out at `now`.
    pub(crate) fn sent(&mut self, blocks: u64, now: Nanos) {
        self.outstanding += 1;
        if let Some(rate) = self.bytes_per_second {
            let bytes = u128::from(blocks << self.block_size.shift());
            let span = bytes * 1_000_000_000 / u128::from(rate.0.max(1));
            let span = Nanos(u64::try_from(span).unwrap_or(u64::MAX));
            self.next_at = self.next_at.max(now).saturating_add(span);
        }
    }

    pub(crate) fn end(&mut self, how: PrewarmEnd) {
        self.progress.ended.get_or_insert(how);
        self.ranges.clear();
    }

    pub(crate) fn end_if_done(&mut self) {
        if self.ranges.is_empty() && self.outstanding == 0 {
            self.end(PrewarmEnd::Done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_follow_the_list_skip_what_is_there_and_keep_the_rate() {
        let plan = PrewarmPlan {
            ranges: vec![ByteRange::new(8192, 16384), ByteRange::new(0, 1), ByteRange::new(1 << 30, 5)],
            bytes_per_second: Some(Bytes(8192)),
            insertion: Insertion::PrewarmTail,
        };
        let mut prewarm = Prewarm::new(plan, 1 << 20, BlockSize::DEFAULT, Nanos::ZERO);
        // Blocks 2..6 and 0..1; the third range lies outside.
        assert_eq!(prewarm.progress.total_bytes, Bytes(5 * 4096));
        let mut scan = 100;
        let run = prewarm.next_run(2, &mut scan, |block| block == 2);
        assert_eq!(run, Some(BlockRange { first: 3, end: 5 }));
        assert_eq!(prewarm.progress.skipped_bytes, Bytes(4096));
        prewarm.sent(2, Nanos::ZERO);
        // 8,192 bytes at 8,192 bytes/s: a second.
        assert!(!prewarm.may_read(Nanos::millis(999), 4) && prewarm.may_read(Nanos::secs(1), 4));
        assert_eq!(prewarm.wake_at(4), Some(Nanos::secs(1)));
        assert_eq!(prewarm.wake_at(1), None);
        assert_eq!(prewarm.next_run(9, &mut scan, |_| false), Some(BlockRange { first: 5, end: 6 }));
        assert_eq!(prewarm.next_run(9, &mut scan, |_| false), Some(BlockRange { first: 0, end: 1 }));
        assert_eq!(prewarm.progress.remaining_bytes, Bytes::ZERO);
        prewarm.end_if_done();
        assert_eq!(prewarm.progress.ended, None, "a read is still outstanding");
        prewarm.outstanding = 0;
        prewarm.end_if_done();
        assert_eq!(prewarm.progress.ended, Some(PrewarmEnd::Done));
    }
}
