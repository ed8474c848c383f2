//! A vector that grows and shrinks in small steps, whatever its size.
//!
//! A `Vec` of two million elements copies them all when it grows: a stall of milliseconds in the middle of a request.
//! Here growth copies at most one segment of 4,096 elements, and wastes at most 512. It is not a general collection: it has what slot tables need.

use std::collections::TryReserveError;

const SHIFT: u32 = 12;
const SEGMENT: usize = 1 << SHIFT;
/// The last segment grows by doubling from the least to the most, then by the most (a power of two that divides `SEGMENT`).
const GROWTH_MIN: usize = 16;
const GROWTH_MAX: usize = 512;

/// A vector in segments of 4,096 elements, of which only the last one grows.
///
/// Indices are `u32`. Access is two loads instead of one. An index beyond the length panics.
#[derive(Debug)]
pub struct SegmentedVec<T> {
    /// Full ones, so that what lies in them needs no second comparison.
    full: Vec<Box<[T; SEGMENT]>>,
    /// The elements behind them, less than a segment.
    last: Vec<T>,
    /// How many elements both have.
    length: u32,
}

impl<T> Default for SegmentedVec<T> {
    fn default() -> SegmentedVec<T> {
        SegmentedVec::new()
    }
}

impl<T> SegmentedVec<T> {
    /// A vector without elements and without memory.
    pub const fn new() -> SegmentedVec<T> {
        SegmentedVec { full: Vec::new(), last: Vec::new(), length: 0 }
    }

    /// How many elements.
    #[inline]
    pub const fn len(&self) -> u32 {
        self.length
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The element at `index`.
    #[inline]
    pub fn get(&self, index: u32) -> &T {
        match self.full.get((index >> SHIFT) as usize) {
            Some(segment) => &segment[index as usize & (SEGMENT - 1)],
            None => &self.last[index as usize - (self.full.len() << SHIFT)],
        }
    }

    /// The element at `index`, to be changed.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> &mut T {
        let before = self.full.len() << SHIFT;
        match self.full.get_mut((index >> SHIFT) as usize) {
            Some(segment) => &mut segment[index as usize & (SEGMENT - 1)],
            None => &mut self.last[index as usize - before],
        }
    }

    /// Appends `value`.
    ///
    /// # Errors
    /// The allocator's refusal; the vector is then as it was.
    pub fn try_push(&mut self, value: T) -> Result<(), TryReserveError> {
        if self.last.len() == SEGMENT - 1 {
            self.full.try_reserve(1)?;
        }
        if self.last.len() == self.last.capacity() {
            // A partition of a few blocks must not pay for a whole segment; there may be thousands of them.
            self.last.try_reserve_exact(self.last.len().clamp(GROWTH_MIN, GROWTH_MAX))?;
        }
        self.last.push(value);
        self.length += 1;
        if self.last.len() == SEGMENT {
            match std::mem::take(&mut self.last).try_into() {
                Ok(segment) => self.full.push(segment),
                Err(last) => self.last = last,
            }
        }
        Ok(())
    }

    /// Removes and returns the last element.
    pub fn pop(&mut self) -> Option<T> {
        if self.last.is_empty()
            && let Some(segment) = self.full.pop()
        {
            self.last = (segment as Box<[T]>).into_vec();
        }
        let value = self.last.pop();
        self.length -= u32::from(value.is_some());
        // The first segment stays: a partition that empties and fills again must not allocate each time.
        if self.last.is_empty() && !self.full.is_empty() {
            self.last = Vec::new();
        }
        value
    }

    /// Removes elements from the end until at most `length` are left.
    pub fn truncate(&mut self, length: u32) {
        while self.len() > length {
            self.pop();
        }
    }

    /// The memory it holds, in bytes, by the capacity of its allocations.
    pub fn footprint_bytes(&self) -> u64 {
        let elements = (self.full.len() << SHIFT) + self.last.capacity();
        (elements * size_of::<T>() + self.full.capacity() * size_of::<Box<[T; SEGMENT]>>()) as u64
    }
}

impl<T: Clone> SegmentedVec<T> {
    /// Appends copies of `value` until there are at least `length` elements.
    ///
    /// # Errors
    /// The allocator's refusal; what was appended until then stays.
    pub fn try_extend_to(&mut self, length: u32, value: T) -> Result<(), TryReserveError> {
        while self.len() < length {
            self.try_push(value.clone())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_stay_in_place_across_segments_and_memory_goes_back() {
        let mut vector = SegmentedVec::new();
        for value in 0..10_000u32 {
            vector.try_push(value).unwrap();
        }
        assert_eq!(vector.len(), 10_000);
        assert!((0..10_000).all(|index| *vector.get(index) == index));
        // 10,000 elements are two segments of 4,096 and one of 1,808, which is 2,048: 10,240 at 4 bytes each are 40,960 bytes,
        // and the table of segments.
        assert!((40_960..40_960 + 4 * 24 + 1).contains(&vector.footprint_bytes()));
        *vector.get_mut(4096) = 7;
        assert_eq!((*vector.get(4095), *vector.get(4096), *vector.get(4097)), (4095, 7, 4097));
        vector.truncate(4097);
        assert_eq!(vector.pop(), Some(7));
        assert!(vector.footprint_bytes() < 17_000);
        vector.truncate(0);
        assert_eq!((vector.pop(), vector.is_empty()), (None, true));
        vector.try_extend_to(20, 3).unwrap();
        assert_eq!((vector.len(), *vector.get(19)), (20, 3));
    }

    /// At and around the borders of segments, up and down.
    #[test]
    fn it_agrees_with_a_vector_across_borders() {
        let (mut vector, mut plain) = (SegmentedVec::new(), Vec::new());
        for (target, mark) in [
            (4_095, 1),
            (4_097, 2),
            (4_096, 3),
            (8_193, 4),
            (8_191, 5),
            (12_288, 6),
            (4_096, 7),
            (1, 8),
            (0, 9),
            (17, 10),
        ] {
            while plain.len() < target {
                vector.try_push(mark * 100_000 + plain.len()).unwrap();
                plain.push(mark * 100_000 + plain.len());
            }
            while plain.len() > target {
                assert_eq!(vector.pop(), plain.pop());
            }
            assert_eq!((vector.len() as usize, vector.is_empty()), (target, target == 0));
            let changed: Vec<usize> =
                [0, target / 2, target.saturating_sub(1)].into_iter().filter(|at| *at < target).collect();
            for at in changed {
                *vector.get_mut(at as u32) += 1;
                plain[at] += 1;
            }
            assert!(plain.iter().enumerate().all(|(at, value)| vector.get(at as u32) == value), "{target}");
            // Of what is not in use at most a segment stays.
            assert!(vector.footprint_bytes() <= ((target + 2 * SEGMENT) * 8 + 4 * 8) as u64, "{target}");
        }
        assert_eq!((0..18).map(|_| vector.pop()).filter(Option::is_some).count(), 17);
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn an_index_whole_segments_beyond_the_length_panics() {
        let mut vector = SegmentedVec::new();
        vector.try_extend_to(4_097, 0u8).unwrap();
        vector.get(8_192);
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn an_index_right_behind_a_full_segment_panics() {
        let mut vector = SegmentedVec::new();
        vector.try_extend_to(4_096, 0u8).unwrap();
        vector.get(4_096);
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn an_index_beyond_the_length_panics() {
        let mut vector = SegmentedVec::new();
        vector.try_push(1u8).unwrap();
        vector.get(1);
    }
}
