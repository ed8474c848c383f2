//! What a placement has done, counted.

use std::ops::AddAssign;

/// What was done; counts only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacementStatistics {
    /// Chunks touched by reads, and by writes.
    pub reads: u64,
    /// See `reads`.
    pub writes: u64,
    /// Those that were in the tier.
    pub read_hits: u64,
    /// See `read_hits`.
    pub write_hits: u64,
    /// Touches that continued a sequential run.
    pub sequential: u64,
    /// Migrations begun, and those of them that were kept.
    pub promotions: u64,
    /// See `promotions`.
    pub promotions_kept: u64,
    /// Chunks that lost their place to another.
    pub displaced: u64,
    /// Chunks that left because they were worth nothing any more.
    pub left: u64,
    /// Chunks that were hot enough, when the budget or the chunks on their way left no room.
    pub deferred: u64,
    /// Chunks that were hot enough, when those like them had saved too little.
    pub unearned: u64,
    /// Times that everything was cooled.
    pub coolings: u64,
    /// Changes of the threshold, and those that were taken back.
    pub threshold_changes: u64,
    /// See `threshold_changes`.
    pub threshold_reversals: u64,
    /// Times that the pace was halved.
    pub halvings: u64,
}

impl AddAssign for PlacementStatistics {
    /// What both have done.
    fn add_assign(&mut self, other: PlacementStatistics) {
        // Taken apart, so that no count is forgotten.
        let PlacementStatistics {
            reads,
            writes,
            read_hits,
            write_hits,
            sequential,
            promotions,
            promotions_kept,
            displaced,
            left,
            deferred,
            unearned,
            coolings,
            threshold_changes,
            threshold_reversals,
            halvings,
        } = other;
        self.reads += reads;
        self.writes += writes;
        self.read_hits += read_hits;
        self.write_hits += write_hits;
        self.sequential += sequential;
        self.promotions += promotions;
        self.promotions_kept += promotions_kept;
        self.displaced += displaced;
        self.left += left;
        self.deferred += deferred;
        self.unearned += unearned;
        self.coolings += coolings;
        self.threshold_changes += threshold_changes;
        self.threshold_reversals += threshold_reversals;
        self.halvings += halvings;
    }
}
