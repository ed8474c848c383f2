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
    segments: Vec<Vec<T>>,
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
        SegmentedVec { segments: Vec::new(), length: 0 }
    }

    /// How many elements.
    pub fn len(&self) -> u32 {
        self.length
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The element at `index`.
    #[inline]
    pub fn get(&self, index: u32) -> &T {
        &self.segments[(index >> SHIFT) as usize][index as usize & (SEGMENT - 1)]
    }

    /// The element at `index`, to be changed.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> &mut T {
        &mut self.segments[(index >> SHIFT) as usize][index as usize & (SEGMENT - 1)]
    }

    /// Appends `value`.
    ///
    /// # Errors
    /// The allocator's refusal; the vector is then as it was.
    pub fn try_push(&mut self, value: T) -> Result<(), TryReserveError> {
        let segment = (self.length >> SHIFT) as usize;
        if segment == self.segments.len() {
            self.segments.try_reserve(1)?;
            self.segments.push(Vec::new());
        }
        let last = &mut self.segments[segment];
        if last.len() == last.capacity() {
            // A partition of a few blocks must not pay for a whole segment; there may be thousands of them.
            last.try_reserve_exact(last.len().clamp(GROWTH_MIN, GROWTH_MAX))?;
        }
        last.push(value);
        self.length += 1;
        Ok(())
    }

    /// Removes and returns the last element.
    pub fn pop(&mut self) -> Option<T> {
        let length = self.length.checked_sub(1)?;
        let last = self.segments.last_mut()?;
        let value = last.pop();
        // The first segment stays: a partition that empties and fills again must not allocate each time.
        if last.is_empty() && length > 0 {
            self.segments.pop();
        }
        self.length = length;
        value
    }

    /// Removes elements from the end until at most `length` are left.
    pub fn truncate(&mut self, length: u32) {
        while self.length > length {
            self.pop();
        }
    }

    /// The memory it holds, in bytes, by the capacity of its allocations.
    pub fn footprint_bytes(&self) -> u64 {
        let elements: usize = self.segments.iter().map(Vec::capacity).sum();
        (elements * size_of::<T>() + self.segments.capacity() * size_of::<Vec<T>>()) as u64
    }
}

impl<T: Clone> SegmentedVec<T> {
    /// Appends copies of `value` until there are at least `length` elements.
    ///
    /// # Errors
    /// The allocator's refusal; what was appended until then stays.
    pub fn try_extend_to(&mut self, length: u32, value: T) -> Result<(), TryReserveError> {
        while self.length < length {
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

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn an_index_beyond_the_length_panics() {
        let mut vector = SegmentedVec::new();
        vector.try_push(1u8).unwrap();
        vector.get(1);
    }
}
