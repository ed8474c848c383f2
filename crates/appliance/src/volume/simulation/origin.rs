//! The simulated origin: what it holds, what it was asked for, and the faults that are injected.
//!
//! It samples reads and applies changes cell by cell, at any moment between submission and completion, in any order; after
//! an unknown outcome at any later moment, or never. It judges nothing: that is for the simulation, which hands requests over
//! and tells the machine how they ended.

use super::{CELL, cells, happens};
use forebay_linear::{cell_bytes, version_in};
use forebay_nbd::wire::AllocationFlags;
use forebay_origin::{ExtentList, OriginError, OriginOperation, OriginRequest, OriginRequestId};
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// A request at the origin.
pub(super) struct AtOrigin {
    pub(super) request: OriginRequest,
    pub(super) submitted: u64,
    pub(super) way: u32,
    /// No client asked for it: the flush before another way is taken.
    pub(super) is_of_hold: bool,
    /// Cells not yet sampled or applied.
    pub(super) todo: Vec<u64>,
    /// A read's answer so far; the versions of a trim.
    pub(super) data: Vec<u8>,
    pub(super) version: u64,
}

impl AtOrigin {
    /// Does up to `count` cells of what is asked, in any order.
    fn work(&mut self, content: &mut [u64], count: usize, random: &mut Xoshiro256PlusPlus) {
        let offset = self.request.operation.range().offset;
        for _ in 0..count.min(self.todo.len()) {
            let cell = self.todo.swap_remove(random.random_range(0..self.todo.len()));
            match &self.request.operation {
                OriginOperation::Read { .. } => {
                    let at = (cell * CELL - offset) as usize;
                    self.data[at..at + CELL as usize].copy_from_slice(&cell_bytes(
                        content[cell as usize],
                        cell,
                        CELL,
                    ));
                }
                OriginOperation::BlockStatus { .. } => {
                    // Zeroes are a hole, too.
                    self.data[(cell - offset / CELL) as usize] =
                        if content[cell as usize] == 0 { 3 } else { 0 };
                }
                OriginOperation::Write { data, .. } => {
                    let at = (cell * CELL - offset) as usize;
                    content[cell as usize] = version_in(&data[at..at + CELL as usize], cell);
                }
                OriginOperation::Trim { .. } => content[cell as usize] = self.version,
                OriginOperation::WriteZeroes { .. } => content[cell as usize] = 0,
                OriginOperation::Flush => {}
            }
        }
    }

    /// Nothing of it was sampled or applied yet.
    fn is_whole(&self) -> bool {
        self.todo.len() == cells(self.request.operation.range()).count()
    }
}

pub(super) struct SimulatedOrigin {
    /// The version of each cell.
    pub(super) content: Vec<u64>,
    pub(super) requests: Vec<AtOrigin>,
    /// Changes of unknown outcome that may still be applied.
    pub(super) ghosts: Vec<AtOrigin>,
    pub(super) fail_percent: u32,
    pub(super) lose_percent: u32,
}

impl SimulatedOrigin {
    /// Samples or applies some cells of some request.
    pub(super) fn work(&mut self, random: &mut Xoshiro256PlusPlus) {
        if self.requests.is_empty() {
            return;
        }
        let index = random.random_range(0..self.requests.len());
        let count = random.random_range(1..8);
        self.requests[index].work(&mut self.content, count, random);
    }

    /// Some request ends, well or not.
    pub(super) fn complete_one(
        &mut self,
        random: &mut Xoshiro256PlusPlus,
    ) -> Option<(AtOrigin, Result<Vec<u8>, OriginError>)> {
        if self.requests.is_empty() {
            return None;
        }
        let mut ended = self.requests.swap_remove(random.random_range(0..self.requests.len()));
        let context = String::new;
        let result = if happens(self.fail_percent, random) {
            if ended.request.operation.changes_content() && happens(30, random) && ended.is_whole() {
                Err(OriginError::Unreachable { context: context(), unsent: None })
            } else {
                // What was applied of it stays.
                Err(OriginError::Failed { errno: 5, context: context() })
            }
        } else if happens(self.lose_percent, random) {
            let asked = Some(Box::new(ended.request.operation.clone()));
            Err(OriginError::OutcomeUnknown { context: context(), asked })
        } else {
            ended.work(&mut self.content, usize::MAX, random);
            match ended.request.operation {
                OriginOperation::BlockStatus { range, one_extent } => {
                    let mut list = ExtentList::new(range.length, one_extent);
                    for flags in &ended.data {
                        list.push(CELL, AllocationFlags(u32::from(*flags)));
                    }
                    Ok(list.into_bytes())
                }
                _ => Ok(std::mem::take(&mut ended.data)),
            }
        };
        Some((ended, result))
    }

    /// A change that was given up for lost is applied after all, in part.
    pub(super) fn haunt(&mut self, random: &mut Xoshiro256PlusPlus) {
        if !self.ghosts.is_empty() {
            let index = random.random_range(0..self.ghosts.len());
            let count = random.random_range(1..8);
            self.ghosts[index].work(&mut self.content, count, random);
        }
    }

    /// Nothing that was given up for lost comes back from now on: it is applied after all, or never.
    pub(super) fn settle(&mut self, random: &mut Xoshiro256PlusPlus) {
        for mut ghost in std::mem::take(&mut self.ghosts) {
            if happens(50, random) {
                ghost.work(&mut self.content, usize::MAX, random);
            }
        }
    }

    /// Nothing that was asked for changes anything from now on: what was never begun is given up as such, all else with what it was.
    pub(super) fn give_up(&mut self, random: &mut Xoshiro256PlusPlus) -> Vec<(OriginRequestId, OriginError)> {
        for mut ghost in std::mem::take(&mut self.ghosts) {
            let count = random.random_range(0..4);
            ghost.work(&mut self.content, count, random);
        }
        let mut ends = Vec::new();
        for mut given_up in std::mem::take(&mut self.requests) {
            let operation = given_up.request.operation.clone();
            let context = String::new();
            let error = if operation == OriginOperation::Flush && happens(self.fail_percent, random) {
                OriginError::Failed { errno: 5, context }
            } else if given_up.is_whole() && happens(60, random) {
                OriginError::Unreachable { context, unsent: Some(Box::new(operation)) }
            } else {
                let count = random.random_range(0..8);
                given_up.work(&mut self.content, count, random);
                let asked = happens(70, random).then(|| Box::new(operation));
                OriginError::OutcomeUnknown { context, asked }
            };
            ends.push((given_up.request.id, error));
        }
        ends
    }
}
