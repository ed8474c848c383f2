//! A naive partition for tests: it drives a policy as the protocol of [`Policy`] says, beside a model made of vectors.

use crate::{Incoming, Insertion, Policy, Slot};
use forebay_units::BlockIndex;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// What a policy should do, in the plainest code that says it.
pub(crate) trait Model {
    fn set_capacity(&mut self, _capacity: usize) {}
    /// A look-up did not find `block`.
    fn miss(&mut self, _block: u64) {}
    /// Asked once per insertion, before `victim`.
    fn admits(&mut self, block: u64, insertion: Insertion, capacity: usize) -> bool;
    fn victim(&mut self, insertion: Option<Insertion>, capacity: usize) -> u64;
    fn hit(&mut self, block: u64);
    fn insert(&mut self, block: u64, insertion: Insertion);
    /// `block` leaves because `victim` chose it.
    fn evict(&mut self, block: u64) {
        self.remove(block);
    }
    /// `block` leaves because it is invalid.
    fn remove(&mut self, block: u64);
    /// All resident blocks, hottest first.
    fn order(&self) -> Vec<u64>;
}

/// The slots in the order of the policy, hottest first.
pub(crate) fn order(policy: &impl Policy) -> Vec<Slot> {
    let mut slots = Vec::new();
    policy.visit_hottest_first(&mut |slot| {
        slots.push(slot);
        ControlFlow::Continue(())
    });
    slots
}

/// A partition made of maps.
pub(crate) struct Run<P> {
    pub(crate) policy: P,
    pub(crate) capacity: usize,
    pub(crate) slots: BTreeMap<u64, u32>,
    pub(crate) evicted: Vec<u64>,
    pub(crate) hits: u64,
    reserved: u32,
}

/// Accesses `blocks` in a partition of `capacity` blocks; every miss is inserted.
pub(crate) fn trace<P: Policy>(mut policy: P, capacity: usize, blocks: &[u64]) -> Run<P> {
    policy.set_capacity(capacity as u32);
    let mut run = Run { policy, capacity, slots: BTreeMap::new(), evicted: Vec::new(), hits: 0, reserved: 0 };
    for block in blocks {
        run.access(*block);
    }
    run
}

impl<P: Policy> Run<P> {
    pub(crate) fn access(&mut self, block: u64) {
        if let Some(slot) = self.slots.get(&block) {
            self.policy.on_hit(Slot(*slot), BlockIndex(block));
            self.hits += 1;
        } else {
            self.policy.on_miss(BlockIndex(block));
            self.insert(block, Insertion::Miss);
        }
    }

    pub(crate) fn insert(&mut self, block: u64, insertion: Insertion) -> bool {
        let incoming = Incoming { block: BlockIndex(block), insertion };
        if !self.policy.admit(incoming) {
            return false;
        }
        if self.slots.len() >= self.capacity {
            self.evict(Some(incoming));
        }
        let slot = self.free_slot();
        self.policy.on_insert(Slot(slot), incoming);
        self.slots.insert(block, slot);
        true
    }

    pub(crate) fn evict(&mut self, incoming: Option<Incoming>) {
        let slot = self.policy.victim(incoming).expect("a victim among residents");
        let block = self.block_in(slot);
        self.policy.on_evict(slot, BlockIndex(block));
        self.slots.remove(&block);
        self.evicted.push(block);
    }

    fn free_slot(&mut self) -> u32 {
        let slot = (0..).find(|slot| !self.slots.values().any(|used| used == slot)).unwrap();
        if slot >= self.reserved {
            self.reserved = slot + 1;
            self.policy.reserve(self.reserved).unwrap();
        }
        slot
    }

    fn block_in(&self, slot: Slot) -> u64 {
        *self.slots.iter().find(|(_, used)| **used == slot.0).expect("an occupied slot").0
    }

    pub(crate) fn order_blocks(&self) -> Vec<u64> {
        order(&self.policy).into_iter().map(|slot| self.block_in(slot)).collect()
    }
}

/// Random runs of look-ups, insertions, removals, moves and changes of capacity: policy and model agree on every decision
/// and on the whole order after every step.
pub(crate) fn check_against<P: Policy, M: Model>(policy: impl Fn() -> P, model: impl Fn() -> M) {
    let operations = prop::collection::vec((0u8..16, 0u64..24), 0..300);
    let mut runner = TestRunner::new(Config::with_cases(96));
    runner
        .run(&(1usize..12, operations), |(capacity, operations)| {
            let mut run = trace(policy(), capacity, &[]);
            let mut model = model();
            model.set_capacity(capacity);
            for (operation, block) in operations {
                let present = run.slots.contains_key(&block);
                match operation {
                    0 if present => {
                        run.policy.on_remove(Slot(run.slots[&block]), BlockIndex(block));
                        run.slots.remove(&block);
                        model.remove(block);
                    }
                    1 if present => {
                        let (from, to) = (run.slots[&block], run.free_slot());
                        run.policy.on_move(Slot(from), Slot(to));
                        run.slots.insert(block, to);
                    }
                    2 => {
                        run.capacity = 1 + (block as usize) % 12;
                        run.policy.set_capacity(run.capacity as u32);
                        model.set_capacity(run.capacity);
                        while run.slots.len() > run.capacity {
                            let expected = model.victim(None, run.capacity);
                            run.evict(None);
                            prop_assert_eq!(run.evicted.last(), Some(&expected));
                            model.evict(expected);
                        }
                    }
                    _ if present => {
                        run.access(block);
                        model.hit(block);
                    }
                    _ => {
                        let insertion = match operation {
                            3 => Insertion::Prewarm,
                            4 | 5 => Insertion::PrewarmTail,
                            _ => Insertion::Miss,
                        };
                        if insertion == Insertion::Miss {
                            run.policy.on_miss(BlockIndex(block));
                            model.miss(block);
                        }
                        let admitted = model.admits(block, insertion, run.capacity);
                        let full = run.slots.len() >= run.capacity;
                        if admitted && full {
                            let expected = model.victim(Some(insertion), run.capacity);
                            model.evict(expected);
                        }
                        if admitted {
                            model.insert(block, insertion);
                        }
                        prop_assert_eq!(run.insert(block, insertion), admitted);
                    }
                }
                prop_assert_eq!(run.order_blocks(), model.order());
                prop_assert_eq!(run.slots.len(), run.order_blocks().len());
            }
            Ok(())
        })
        .unwrap();
}
