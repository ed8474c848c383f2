//! Who is the coldest: a heap of dense numbers, ordered by keys that are kept elsewhere. It is not a table of what the numbers stand for.
//!
//! Invariant: `at[heap[i]] == i`, and no key is below that of its parent (equal keys: the smaller number is the parent).

const NONE: u32 = u32::MAX;

/// Some of the numbers from 0 on, the one with the smallest key first. 8 bytes for each that it may ever hold; `O(log n)`.
#[derive(Debug)]
pub(super) struct Coldest {
    heap: Vec<u32>,
    /// By number: its place in the heap.
    at: Vec<u32>,
}

impl Coldest {
    /// None of the numbers below `numbers`, of which at most `held` are held at once.
    pub(super) fn new(numbers: u32, held: u32) -> Coldest {
        Coldest { heap: Vec::with_capacity(held as usize), at: vec![NONE; numbers as usize] }
    }

    pub(super) fn len(&self) -> u32 {
        self.heap.len() as u32
    }

    pub(super) fn first(&self) -> Option<u32> {
        self.heap.first().copied()
    }

    pub(super) fn holds(&self, number: u32) -> bool {
        self.at[number as usize] != NONE
    }

    /// All that are held, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.heap.iter().copied()
    }

    pub(super) fn clear(&mut self) {
        for number in self.heap.drain(..) {
            self.at[number as usize] = NONE;
        }
    }

    /// Holds `number`, which it does not hold yet.
    pub(super) fn insert(&mut self, number: u32, key: impl Fn(u32) -> u64) {
        debug_assert!(!self.holds(number));
        self.heap.push(number);
        let end = self.heap.len() - 1;
        self.at[number as usize] = end as u32;
        self.rise(end, key);
    }

    /// Holds `number` no more.
    pub(super) fn remove(&mut self, number: u32, key: impl Fn(u32) -> u64) {
        let place = self.at[number as usize] as usize;
        let last = self.heap.pop().expect("who is removed is held");
        self.at[number as usize] = NONE;
        if last != number {
            self.heap[place] = last;
            self.at[last as usize] = place as u32;
            self.settle(place, key);
        }
    }

    /// The key of `number`, which is held, has changed.
    pub(super) fn changed(&mut self, number: u32, key: impl Fn(u32) -> u64) {
        self.settle(self.at[number as usize] as usize, key);
    }

    fn settle(&mut self, place: usize, key: impl Fn(u32) -> u64) {
        let place = self.rise(place, &key);
        self.sink(place, &key);
    }

    fn rise(&mut self, mut place: usize, key: impl Fn(u32) -> u64) -> usize {
        let number = self.heap[place];
        let own = (key(number), number);
        while place > 0 {
            let parent = (place - 1) / 2;
            let above = self.heap[parent];
            if (key(above), above) <= own {
                break;
            }
            self.put(place, above);
            place = parent;
        }
        self.put(place, number);
        place
    }

    fn sink(&mut self, mut place: usize, key: impl Fn(u32) -> u64) {
        let number = self.heap[place];
        let own = (key(number), number);
        loop {
            let mut least = (own, place);
            for child in [2 * place + 1, 2 * place + 2] {
                if let Some(&below) = self.heap.get(child)
                    && (key(below), below) < least.0
                {
                    least = ((key(below), below), child);
                }
            }
            if least.1 == place {
                break;
            }
            self.put(place, least.0.1);
            place = least.1;
        }
        self.put(place, number);
    }

    fn put(&mut self, place: usize, number: u32) {
        self.heap[place] = number;
        self.at[number as usize] = place as u32;
    }

    pub(super) fn footprint_bytes(&self) -> u64 {
        4 * (self.heap.capacity() + self.at.capacity()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_first_is_the_least_of_a_list(steps in proptest::collection::vec((0u32..12, 0u64..9, 0u8..3), 0..120)) {
            let mut keys = [0u64; 12];
            let mut coldest = Coldest::new(12, 12);
            let mut held = std::collections::BTreeSet::new();
            for (number, key, what) in steps {
                match (what, held.contains(&number)) {
                    (0, true) => {
                        coldest.remove(number, |number| keys[number as usize]);
                        held.remove(&number);
                    }
                    (_, true) => {
                        keys[number as usize] = key;
                        coldest.changed(number, |number| keys[number as usize]);
                    }
                    (_, false) => {
                        keys[number as usize] = key;
                        coldest.insert(number, |number| keys[number as usize]);
                        held.insert(number);
                    }
                }
                let least = held.iter().copied().min_by_key(|number| (keys[*number as usize], *number));
                prop_assert_eq!((coldest.first(), coldest.len()), (least, held.len() as u32));
            }
        }
    }
}
