//! Doubly linked lists over slots: 8 bytes a slot, whatever the number of lists.
//!
//! The lists own no elements: a slot is in at most one list of its [`Links`], and the caller knows in which. Each slot
//! carries a tag of two bits in the spare top bits of its links, in the cache line that a hit touches anyway.

use crate::{SLOTS_MAX, SegmentedVec, Slot};
use forebay_units::prefetch;
use std::collections::TryReserveError;

/// "No slot": larger than every slot and still without the top bit.
const NONE: u32 = SLOTS_MAX + 1;
const LINK: u32 = (1 << 31) - 1;
const TAG: u32 = 1 << 31;

/// How many look-ups are anticipated together; processors have about as many places for lines that are on their way (ours).
pub const ANTICIPATED: usize = 32;

#[derive(Clone, Copy, Debug)]
struct Node {
    /// Towards the front; its top bit is the low bit of the tag.
    previous: u32,
    /// Towards the back; its top bit is the high bit of the tag.
    next: u32,
}

/// How many slots at the end of a list [`Links::fetch_ahead`] fetches: what some microseconds evict (ours).
const FETCHED_MAX: u32 = 16;
/// They are counted at slots with a multiple of this number (ours).
const COUNTED_EVERY: u32 = 128;

/// The ends and the length of one list; the front is where [`Links::push_front`] puts a slot.
#[derive(Clone, Copy, Debug)]
pub struct List {
    front: u32,
    back: u32,
    length: u32,
    /// The slot up to which the links of the last ones have been fetched: in this list, or `NONE`.
    ahead: u32,
    /// How many these are. Who leaves between `ahead` and the end, or enters there, is not noticed, so that it is counted now and then.
    fetched: u32,
}

impl List {
    /// A list without slots.
    pub const EMPTY: List = List { front: NONE, back: NONE, length: 0, ahead: NONE, fetched: 0 };

    /// How many slots.
    pub const fn len(&self) -> u32 {
        self.length
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The first slot.
    pub fn front(&self) -> Option<Slot> {
        some(self.front)
    }

    /// The last slot.
    pub fn back(&self) -> Option<Slot> {
        some(self.back)
    }
}

impl Default for List {
    fn default() -> List {
        List::EMPTY
    }
}

fn some(link: u32) -> Option<Slot> {
    (link != NONE).then_some(Slot(link))
}

/// The links of all slots of one policy. Every operation is `O(1)`; a slot that was not reserved panics.
#[derive(Debug, Default)]
pub struct Links {
    nodes: SegmentedVec<Node>,
}

impl Links {
    /// Links of no slots.
    pub const fn new() -> Links {
        Links { nodes: SegmentedVec::new() }
    }

    /// Makes the slots `0..slots` usable.
    ///
    /// # Errors
    /// The allocator's refusal.
    pub fn reserve(&mut self, slots: u32) -> Result<(), TryReserveError> {
        self.nodes.try_extend_to(slots, Node { previous: NONE, next: NONE })
    }

    /// Gives back the memory of the slots from `slots` on; none of them is in a list.
    pub fn release(&mut self, slots: u32) {
        self.nodes.truncate(slots);
    }

    /// The memory it holds, in bytes.
    pub fn footprint_bytes(&self) -> u64 {
        self.nodes.footprint_bytes()
    }

    /// The tag of `slot`, from 0 to 3. [`Links::push_front`] and [`Links::push_back`] set it to 0.
    #[inline]
    pub fn tag(&self, slot: Slot) -> u8 {
        let node = self.nodes.get(slot.0);
        ((node.previous >> 31) | (node.next >> 31) << 1) as u8
    }

    /// Sets the tag of `slot`, from 0 to 3; higher bits are ignored.
    #[inline]
    pub fn set_tag(&mut self, slot: Slot, tag: u8) {
        let node = self.nodes.get_mut(slot.0);
        node.previous = node.previous & LINK | u32::from(tag) << 31;
        node.next = node.next & LINK | u32::from(tag >> 1) << 31;
    }

    /// The slot behind `slot`, towards the back.
    pub fn next(&self, slot: Slot) -> Option<Slot> {
        some(self.nodes.get(slot.0).next & LINK)
    }

    /// The slot before `slot`, towards the front.
    pub fn previous(&self, slot: Slot) -> Option<Slot> {
        some(self.nodes.get(slot.0).previous & LINK)
    }

    fn set_next(&mut self, slot: u32, next: u32) {
        let node = self.nodes.get_mut(slot);
        node.next = node.next & TAG | next;
    }

    fn set_previous(&mut self, slot: u32, previous: u32) {
        let node = self.nodes.get_mut(slot);
        node.previous = node.previous & TAG | previous;
    }

    /// Puts `slot`, which is in no list, at the front of `list`, with tag 0.
    #[inline]
    pub fn push_front(&mut self, list: &mut List, slot: Slot) {
        let front = list.front;
        *self.nodes.get_mut(slot.0) = Node { previous: NONE, next: front };
        if front == NONE {
            list.back = slot.0;
        } else {
            self.set_previous(front, slot.0);
        }
        list.front = slot.0;
        list.length += 1;
    }

    /// Puts `slot`, which is in no list, at the back of `list`, with tag 0.
    #[inline]
    pub fn push_back(&mut self, list: &mut List, slot: Slot) {
        let back = list.back;
        *self.nodes.get_mut(slot.0) = Node { previous: back, next: NONE };
        if back == NONE {
            list.front = slot.0;
        } else {
            self.set_next(back, slot.0);
        }
        list.back = slot.0;
        list.length += 1;
    }

    /// Puts `slot`, which is in no list, right before `next` in `list`, towards the front, with tag 0.
    #[inline]
    pub fn insert_before(&mut self, list: &mut List, next: Slot, slot: Slot) {
        let previous = self.nodes.get(next.0).previous & LINK;
        *self.nodes.get_mut(slot.0) = Node { previous, next: next.0 };
        self.set_previous(next.0, slot.0);
        if previous == NONE {
            list.front = slot.0;
        } else {
            self.set_next(previous, slot.0);
        }
        list.length += 1;
    }

    /// Takes `slot` out of `list`, in which it is. Its tag stays until it is pushed again.
    #[inline]
    pub fn unlink(&mut self, list: &mut List, slot: Slot) {
        let node = *self.nodes.get(slot.0);
        let (previous, next) = (node.previous & LINK, node.next & LINK);
        debug_assert!(list.length > 0, "slot {} leaves an empty list", slot.0);
        debug_assert!(previous != NONE || list.front == slot.0, "slot {} is not in this list", slot.0);
        debug_assert!(next != NONE || list.back == slot.0, "slot {} is not in this list", slot.0);
        if previous == NONE {
            list.front = next;
        } else {
            self.set_next(previous, next);
        }
        if next == NONE {
            list.back = previous;
        } else {
            self.set_previous(next, previous);
        }
        list.length -= 1;
        let was_ahead = list.ahead == slot.0;
        list.ahead = if was_ahead { next } else { list.ahead };
        list.fetched = if list.ahead == NONE {
            0
        } else {
            list.fetched.saturating_sub(u32::from(was_ahead || next == NONE))
        };
    }

    /// Puts `to`, which is in no list, at the place of `from` in `list`, with the tag of `from`, which leaves.
    pub fn rename(&mut self, list: &mut List, from: Slot, to: Slot) {
        let node = *self.nodes.get(from.0);
        *self.nodes.get_mut(to.0) = node;
        match node.previous & LINK {
            NONE => list.front = to.0,
            previous => self.set_next(previous, to.0),
        }
        match node.next & LINK {
            NONE => list.back = to.0,
            next => self.set_previous(next, to.0),
        }
        if list.ahead == from.0 {
            list.ahead = to.0;
        }
    }

    /// Has the links of `slots` and of their neighbours fetched: a list that is followed step by step waits for each step.
    #[inline]
    pub fn anticipate(&self, slots: &[Slot]) {
        for slot in slots {
            prefetch(self.nodes.get(slot.0));
        }
        for slot in slots {
            let node = self.nodes.get(slot.0);
            for neighbour in [node.previous & LINK, node.next & LINK] {
                if neighbour != NONE {
                    prefetch(self.nodes.get(neighbour));
                }
            }
        }
    }

    /// Has the links of one more slot fetched, from the end of `list` towards its front, and says which; `None` while those of enough are. Who asks
    /// twice for each slot that leaves at the end finds the links there of all that follow: who only goes along a list waits for each step.
    #[inline]
    pub fn fetch_ahead(&self, list: &mut List) -> Option<Slot> {
        if list.fetched >= FETCHED_MAX {
            return None;
        }
        let next = if list.ahead == NONE { list.back() } else { self.previous(Slot(list.ahead)) }?;
        prefetch(self.nodes.get(next.0));
        list.ahead = next.0;
        list.fetched += 1;
        if next.0.is_multiple_of(COUNTED_EVERY) {
            self.count_fetched(list);
        }
        Some(next)
    }

    /// Counts how many were fetched; where these are too many, goes back.
    fn count_fetched(&self, list: &mut List) {
        let backward = std::iter::successors(list.back(), |slot| self.previous(*slot));
        for (count, slot) in (1..=FETCHED_MAX).zip(backward) {
            list.fetched = count;
            if slot.0 == list.ahead || count == FETCHED_MAX {
                list.ahead = slot.0;
                return;
            }
        }
    }

    /// The slots of `list` from front to back.
    pub fn iter(&self, list: &List) -> impl Iterator<Item = Slot> + '_ {
        std::iter::successors(list.front(), |slot| self.next(*slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slots(links: &Links, list: &List) -> Vec<u32> {
        let forward: Vec<u32> = links.iter(list).map(|slot| slot.0).collect();
        let mut backward: Vec<u32> =
            std::iter::successors(list.back(), |slot| links.previous(*slot)).map(|slot| slot.0).collect();
        backward.reverse();
        assert_eq!(forward, backward);
        assert_eq!(forward.len() as u32, list.len());
        forward
    }

    #[test]
    fn tags_survive_their_neighbours() {
        let (mut links, mut list) = (Links::new(), List::EMPTY);
        links.reserve(5).unwrap();
        links.push_front(&mut list, Slot(0));
        for tag in 0..4 {
            links.set_tag(Slot(0), tag);
            links.push_front(&mut list, Slot(1));
            links.push_back(&mut list, Slot(2));
            assert_eq!((links.tag(Slot(0)), links.tag(Slot(1)), links.tag(Slot(2))), (tag, 0, 0));
            assert_eq!(slots(&links, &list), [1, 0, 2]);
            links.unlink(&mut list, Slot(1));
            links.unlink(&mut list, Slot(2));
            assert_eq!(links.tag(Slot(0)), tag);
        }
        links.rename(&mut list, Slot(0), Slot(4));
        assert_eq!((slots(&links, &list), links.tag(Slot(4))), (vec![4], 3));
    }

    /// Fetches ahead as for each slot that leaves at the end; which ones.
    fn told(links: &Links, list: &mut List) -> Vec<u32> {
        (0..2).filter_map(|_| links.fetch_ahead(list)).map(|slot| slot.0).collect()
    }

    #[test]
    fn the_last_ones_are_told_once_in_the_order_in_which_they_leave() {
        let (mut links, mut list) = (Links::new(), List::EMPTY);
        links.reserve(300).unwrap();
        assert_eq!(links.fetch_ahead(&mut list), None);
        (0..300).for_each(|slot| links.push_front(&mut list, Slot(slot)));
        let mut all = Vec::new();
        for left in 0..300 {
            all.extend(told(&links, &mut list));
            // From the end on two for each that leaves, until enough are; then one.
            let expected = (2 * (left + 1)).min(left + FETCHED_MAX).min(300);
            assert_eq!(all.len() as u32, expected, "{left}");
            links.unlink(&mut list, Slot(left));
        }
        assert_eq!((all, told(&links, &mut list)), ((0..300).collect(), vec![]));
    }

    /// What is not noticed, slots that leave or enter between the one that is told next and the end, is made good.
    #[test]
    fn how_many_are_told_before_they_leave_comes_back_to_what_it_was() {
        for enter in [false, true] {
            let (mut links, mut list) = (Links::new(), List::EMPTY);
            links.reserve(2_000).unwrap();
            (0..2_000).for_each(|slot| links.push_front(&mut list, Slot(slot)));
            let order = |links: &Links, list: &List| -> Vec<u32> {
                std::iter::successors(list.back(), |slot| links.previous(*slot)).map(|slot| slot.0).collect()
            };
            for _ in 0..FETCHED_MAX {
                told(&links, &mut list);
            }
            for slot in 0..FETCHED_MAX - 1 {
                // Those before the one that was told last, used once more; or forty others behind it.
                links.unlink(&mut list, Slot(slot));
                links.push_front(&mut list, Slot(slot));
            }
            if enter {
                for slot in 1_900..1_940 {
                    links.unlink(&mut list, Slot(slot));
                    links.push_back(&mut list, Slot(slot));
                }
            }
            for _ in 0..3 * COUNTED_EVERY {
                told(&links, &mut list);
                let oldest = list.back().unwrap();
                links.unlink(&mut list, oldest);
                links.push_front(&mut list, oldest);
            }
            let ahead = order(&links, &list).iter().position(|slot| *slot == list.ahead).unwrap() as u32;
            // One has left since it was told of the last.
            assert!((FETCHED_MAX - 3..FETCHED_MAX).contains(&ahead), "{ahead}, {enter}");
        }
    }

    #[test]
    fn who_is_told_next_may_leave_and_be_renamed() {
        let (mut links, mut list) = (Links::new(), List::EMPTY);
        links.reserve(9).unwrap();
        (0..8).for_each(|slot| links.push_front(&mut list, Slot(slot)));
        assert_eq!(told(&links, &mut list), [0, 1]);
        links.unlink(&mut list, Slot(1));
        assert_eq!(told(&links, &mut list), [2, 3]);
        links.rename(&mut list, Slot(3), Slot(8));
        assert_eq!(told(&links, &mut list), [4, 5]);
        // Nobody is left of those that were told.
        [0, 2, 8, 4, 5].into_iter().for_each(|slot| links.unlink(&mut list, Slot(slot)));
        assert_eq!((list.ahead, list.fetched), (NONE, 0));
        assert_eq!((told(&links, &mut list), told(&links, &mut list)), (vec![6, 7], vec![]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn two_lists_agree_with_two_vectors(operations in prop::collection::vec((0u8..6, 0u32..12, 0u32..12), 0..200)) {
            let mut links = Links::new();
            links.reserve(12).unwrap();
            let (mut lists, mut model) = ([List::EMPTY; 2], [Vec::<u32>::new(), Vec::new()]);
            for (operation, slot, other) in operations {
                let place = (0..2).find(|which| model[*which].contains(&slot));
                let which = (other & 1) as usize;
                match (operation, place) {
                    (0, None) => {
                        links.push_front(&mut lists[which], Slot(slot));
                        model[which].insert(0, slot);
                    }
                    (1, None) => {
                        links.push_back(&mut lists[which], Slot(slot));
                        model[which].push(slot);
                    }
                    (2, Some(which)) => {
                        links.unlink(&mut lists[which], Slot(slot));
                        model[which].retain(|kept| *kept != slot);
                    }
                    (3, Some(which)) if !model.iter().any(|list| list.contains(&other)) => {
                        links.rename(&mut lists[which], Slot(slot), Slot(other));
                        model[which].iter_mut().filter(|kept| **kept == slot).for_each(|kept| *kept = other);
                    }
                    // Changes nothing, and tells one of the list.
                    (4, _) => {
                        let told = links.fetch_ahead(&mut lists[which]);
                        prop_assert!(told.is_none_or(|slot| model[which].contains(&slot.0)));
                    }
                    _ => {}
                }
                for which in 0..2 {
                    prop_assert_eq!(&slots(&links, &lists[which]), &model[which]);
                    let ahead = lists[which].ahead;
                    prop_assert!(ahead == NONE || model[which].contains(&ahead));
                }
            }
        }
    }
}
