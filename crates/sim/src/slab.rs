//! Numbered places that are used again: what is in flight, without an allocation per event.

/// The number of no place.
pub(crate) const NONE: u32 = u32::MAX;

/// A list of values by number; freed numbers are given out again, the last one freed first.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    values: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { values: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Puts `value` somewhere.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.values[at as usize] = value;
                at
            }
            None => {
                self.values.push(value);
                (self.values.len() - 1) as u32
            }
        }
    }

    /// Gives the place `at` back; its value stays until the place is used again.
    #[inline]
    pub(crate) fn free(&mut self, at: u32) {
        self.free.push(at);
    }

    /// How many places are in use.
    pub(crate) fn used(&self) -> usize {
        self.values.len() - self.free.len()
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: u32) -> &T {
        &self.values[at as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.values[at as usize]
    }
}

/// Singly linked lists through one slab, for those who wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chains {
    nodes: Slab<(u32, u32)>,
}

impl Chains {
    /// Puts `value` in front of the chain `head`; returns the new head.
    pub(crate) fn push(&mut self, head: u32, value: u32) -> u32 {
        self.nodes.insert((value, head))
    }

    /// Takes the first value of the chain `head`, with what is left; `None` for an empty one.
    pub(crate) fn pop(&mut self, head: u32) -> Option<(u32, u32)> {
        if head == NONE {
            return None;
        }
        let (value, next) = self.nodes[head];
        self.nodes.free(head);
        Some((value, next))
    }

    /// The first value of the chain `head`.
    pub(crate) fn first(&self, head: u32) -> Option<u32> {
        (head != NONE).then(|| self.nodes[head].0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_and_chains_come_back_last_first() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        slab.free(a);
        assert_eq!((slab.insert('c'), slab[a], slab[b], slab.used()), (a, 'c', 'b', 2));
        let mut chains = Chains::default();
        let head = [7, 8].into_iter().fold(NONE, |head, value| chains.push(head, value));
        assert_eq!(chains.first(head), Some(8));
        let (value, head) = chains.pop(head).unwrap();
        assert_eq!((value, chains.pop(head)), (8, Some((7, NONE))));
        assert_eq!((chains.pop(NONE), chains.nodes.used()), (None, 0));
    }
}
