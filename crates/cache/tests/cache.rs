//! A cache partition against the plainest model that says what it must do: which blocks are resident, in which order, with
//! which content, and how much memory is held; under any interleaving of look-ups, insertions, patches, invalidations and
//! changes of the quota, worked off in steps of any size.

use forebay_cache::{CachePartition, Inserted, Insertion, Partition, Progress, Refusal};
use forebay_policy::{Belady, Future, Lru, Policy, PolicyKind, TwoPool};
use forebay_units::{BlockIndex, BlockRange, BlockSize, Bytes};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// An LRU cache as a vector, hottest first, with contents.
#[derive(Default)]
struct NaiveLru {
    order: Vec<(u64, Vec<u8>)>,
    quota: usize,
}

impl NaiveLru {
    fn place(&self, block: u64) -> Option<usize> {
        self.order.iter().position(|(kept, _)| *kept == block)
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Get(u64),
    Insert(u64, Insertion),
    Patch(u64, usize, u8),
    Invalidate(u64, u64),
    Quota(u64),
    Step(u32),
}

fn operation(blocks: u64) -> impl Strategy<Value = Operation> {
    let insertion = prop_oneof![4 => Just(Insertion::Miss), 1 => Just(Insertion::Prewarm), 1 => Just(Insertion::PrewarmTail)];
    prop_oneof![
        8 => (0..blocks).prop_map(Operation::Get),
        8 => (0..blocks, insertion).prop_map(|(block, why)| Operation::Insert(block, why)),
        2 => (0..blocks, 0usize..512, any::<u8>()).prop_map(|(block, at, byte)| Operation::Patch(block, at, byte)),
        1 => (0..blocks, 0..2 * blocks).prop_map(|(first, count)| Operation::Invalidate(first, count)),
        1 => (0..blocks + 2).prop_map(Operation::Quota),
        3 => (0u32..9).prop_map(Operation::Step),
    ]
}

fn block_size() -> BlockSize {
    BlockSize::new(Bytes(512)).unwrap()
}

fn content(block: u64, version: u64) -> Vec<u8> {
    (0..512u64).map(|at| (block * 31 + version * 7 + at) as u8).collect()
}

fn order<P: Policy>(cache: &CachePartition<P>) -> Vec<u64> {
    cache.hottest(usize::MAX).into_iter().map(|block| block.0).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn an_lru_partition_agrees_with_a_vector(
        quota in 0u64..40,
        seed in any::<u64>(),
        operations in prop::collection::vec(operation(48), 0..400),
    ) {
        let mut cache = CachePartition::new(Lru::new(), block_size(), quota, seed);
        let mut model = NaiveLru { quota: quota as usize, ..NaiveLru::default() };
        let (mut lookups, mut version) = (0, 0);
        for operation in operations {
            version += 1;
            match operation {
                Operation::Get(block) => {
                    lookups += 1;
                    let found = cache.get(BlockIndex(block)).map(<[u8]>::to_vec);
                    let place = model.place(block);
                    prop_assert_eq!(found.as_ref(), place.map(|at| &model.order[at].1));
                    if let Some(at) = place {
                        let entry = model.order.remove(at);
                        model.order.insert(0, entry);
                    }
                }
                Operation::Insert(block, why) => {
                    let data = content(block, version);
                    let inserted = cache.insert(BlockIndex(block), &data, why);
                    if let Some(at) = model.place(block) {
                        model.order[at].1 = data;
                        prop_assert!(matches!(inserted, Inserted::Present(_)));
                    } else if model.quota == 0 {
                        prop_assert_eq!(inserted, Inserted::Refused(Refusal::NoQuota));
                    } else if why == Insertion::PrewarmTail && model.order.len() >= model.quota {
                        prop_assert_eq!(inserted, Inserted::Refused(Refusal::Policy));
                    } else {
                        let full = model.order.len() >= model.quota;
                        let left = if full { model.order.pop().map(|(block, _)| BlockIndex(block)) } else { None };
                        let at = if why == Insertion::PrewarmTail { model.order.len() } else { 0 };
                        model.order.insert(at, (block, data));
                        let as_expected = matches!(inserted, Inserted::New { evicted, .. } if evicted == left);
                        prop_assert!(as_expected, "{inserted:?}, expected {left:?} to leave");
                    }
                }
                Operation::Patch(block, at, byte) => {
                    let bytes = vec![byte; 512 - at];
                    let place = model.place(block);
                    prop_assert_eq!(cache.patch(BlockIndex(block), at, &bytes), place.is_some());
                    if let Some(place) = place {
                        model.order[place].1[at..].copy_from_slice(&bytes);
                    }
                }
                Operation::Invalidate(first, count) => {
                    let before = model.order.len();
                    model.order.retain(|(block, _)| !(first..first + count).contains(block));
                    let removed = cache.invalidate(BlockRange { first, end: first + count });
                    prop_assert_eq!(removed, (before - model.order.len()) as u64);
                }
                Operation::Quota(blocks) => {
                    cache.set_quota(blocks);
                    model.quota = blocks as usize;
                }
                Operation::Step(budget) => {
                    let over = model.order.len().saturating_sub(model.quota);
                    cache.step(budget);
                    // The coldest leave, and never more than are too many: the hot set is kept.
                    model.order.truncate(model.order.len() - over.min(budget as usize));
                }
            }
            let expected: Vec<u64> = model.order.iter().map(|(block, _)| *block).collect();
            prop_assert_eq!(order(&cache), expected);
            for (block, data) in &model.order {
                prop_assert_eq!(cache.peek(BlockIndex(*block)), Some(data.as_slice()));
            }
            let statistics = cache.statistics();
            prop_assert_eq!(statistics.hits + statistics.misses, lookups);
            prop_assert_eq!(
                statistics.insertions,
                u64::from(statistics.resident_blocks) + statistics.evictions + statistics.invalidations
            );
        }
        settle(&mut cache);
        model.order.truncate(model.quota);
        let expected: Vec<u64> = model.order.iter().map(|(block, _)| *block).collect();
        prop_assert_eq!(order(&cache), expected);
        for (block, data) in &model.order {
            prop_assert_eq!(cache.peek(BlockIndex(*block)), Some(data.as_slice()));
        }
        prop_assert!(cache.partition().slots_in_use() <= cache.quota_blocks());
    }

    #[test]
    fn every_policy_keeps_slots_blocks_and_quota_straight(
        quota in 0u64..40,
        operations in prop::collection::vec(operation(96), 0..400),
    ) {
        for kind in PolicyKind::ALL {
            check_bookkeeping(kind.new_policy(), quota, &operations)?;
        }
        check_bookkeeping(Belady::new(Future::of([].into_iter())), quota, &operations)?;
    }

    #[test]
    fn a_smaller_quota_keeps_the_hottest_of_what_was_touched_twice(
        accesses in prop::collection::vec(0u64..200, 0..600),
        larger in 1u64..100,
        smaller in 1u64..100,
    ) {
        let mut partition = Partition::new(TwoPool::default(), larger, 1);
        for block in accesses.into_iter().map(BlockIndex) {
            if partition.lookup(block).is_none() {
                partition.insert(block, Insertion::Miss);
            }
        }
        let multi = partition.policy().multi_touch_blocks() as usize;
        let before = partition.hottest(multi);
        partition.set_quota(smaller);
        while partition.step(5, |_, _| ()) != Progress::Settled {}
        // The single-touch pool may keep its fifth, and at least one block of two.
        let single = ((smaller as f64 * 0.2).round() as usize).max(usize::from(smaller >= 2));
        let kept = multi.min(smaller as usize - single);
        prop_assert_eq!(&partition.hottest(kept), &before[..kept]);
        prop_assert!(u64::from(partition.resident_blocks()) <= smaller);
    }
}

fn settle<P: Policy>(cache: &mut CachePartition<P>) {
    for _ in 0..10_000 {
        if cache.step(3) == Progress::Settled {
            return;
        }
    }
    panic!("the quota does not settle: {:?}", cache.progress());
}

/// Membership by the results of the calls alone: whatever the policy decides, index, slots and order tell the same.
fn check_bookkeeping<P: Policy>(
    policy: P,
    quota: u64,
    operations: &[Operation],
) -> Result<(), TestCaseError> {
    let mut partition = Partition::new(policy, quota, 7);
    let mut resident = BTreeMap::new();
    for operation in operations {
        match *operation {
            Operation::Get(block) => {
                prop_assert_eq!(partition.lookup(BlockIndex(block)), resident.get(&block).copied());
            }
            Operation::Insert(block, why) => match partition.insert(BlockIndex(block), why) {
                Inserted::New { slot, evicted } => {
                    if let Some(left) = evicted {
                        prop_assert!(resident.remove(&left.0).is_some());
                    }
                    prop_assert!(resident.insert(block, slot).is_none());
                }
                Inserted::Present(slot) => prop_assert_eq!(resident.get(&block), Some(&slot)),
                Inserted::Refused(_) => prop_assert!(!resident.contains_key(&block)),
            },
            Operation::Patch(block, ..) => {
                prop_assert_eq!(partition.remove(BlockIndex(block)), resident.remove(&block));
            }
            Operation::Invalidate(first, count) => {
                partition.remove_range(BlockRange { first, end: first + count });
                resident.retain(|block, _| !(first..first + count).contains(block));
            }
            Operation::Quota(blocks) => partition.set_quota(blocks),
            Operation::Step(budget) => {
                let mut moves = Vec::new();
                let before = (partition.resident_blocks(), partition.slots_in_use());
                let progress = partition.step(budget, |from, to| moves.push((from, to)));
                prop_assert!(moves.len() <= budget as usize);
                prop_assert!(before.0 - partition.resident_blocks() <= budget);
                for (from, to) in moves {
                    for slot in resident.values_mut().filter(|slot| **slot == from) {
                        *slot = to;
                    }
                }
                resident.retain(|block, _| partition.peek(BlockIndex(*block)).is_some());
                let over = partition.slots_in_use() > partition.quota_blocks();
                prop_assert_eq!(progress != Progress::Settled, over);
                if budget > 0 && over {
                    prop_assert!((partition.resident_blocks(), partition.slots_in_use()) < before);
                }
            }
        }
        let mut seen = BTreeMap::new();
        partition.visit_hottest_first(&mut |block, slot| {
            seen.insert(block.0, slot);
            ControlFlow::Continue(())
        });
        prop_assert_eq!(&seen, &resident);
        let distinct: BTreeSet<_> = resident.values().collect();
        prop_assert_eq!(distinct.len(), resident.len());
        prop_assert!(resident.values().all(|slot| slot.0 < partition.slots_in_use()));
        prop_assert_eq!(partition.resident_blocks() as usize, resident.len());
        for (block, slot) in &resident {
            prop_assert_eq!(partition.block_in(*slot), Some(BlockIndex(*block)));
        }
    }
    Ok(())
}
