//! Which segments of a device are free. Shared by the partitions of all volumes; asked once per segment, never per block.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
struct State {
    taken: Vec<bool>,
    taken_count: u32,
    /// Where the search for a free one goes on.
    cursor: usize,
}

/// The free segments of one device; clones are the same pool.
#[derive(Clone, Debug)]
pub struct SegmentPool {
    state: Arc<Mutex<State>>,
}

impl SegmentPool {
    /// A pool of `segments` segments, all free.
    pub fn new(segments: u32) -> SegmentPool {
        let state = State { taken: vec![false; segments as usize], taken_count: 0, cursor: 0 };
        SegmentPool { state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in here leaves at most a segment that nobody uses.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a free segment, in rising order as long as it goes, so that a device is filled from front to back.
    pub fn take(&self) -> Option<u32> {
        let mut state = self.lock();
        let segments = state.taken.len();
        if state.taken_count as usize == segments {
            return None;
        }
        loop {
            let segment = state.cursor % segments;
            state.cursor = segment + 1;
            if !state.taken[segment] {
                state.taken[segment] = true;
                state.taken_count += 1;
                return Some(segment as u32);
            }
        }
    }

    /// Takes this segment; whether it was there and free.
    pub fn claim(&self, segment: u32) -> bool {
        let mut state = self.lock();
        match state.taken.get_mut(segment as usize) {
            Some(taken) if !*taken => {
                *taken = true;
                state.taken_count += 1;
                true
            }
            _ => false,
        }
    }

    /// Gives a segment back.
    ///
    /// # Panics
    /// If it was not taken.
    pub fn give(&self, segment: u32) {
        let mut state = self.lock();
        assert!(state.taken[segment as usize], "segment {segment} is given back but was not taken");
        state.taken[segment as usize] = false;
        state.taken_count -= 1;
    }

    /// How many segments there are.
    pub fn len(&self) -> u32 {
        self.lock().taken.len() as u32
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether any is free.
    pub fn has_room(&self) -> bool {
        let state = self.lock();
        (state.taken_count as usize) < state.taken.len()
    }

    /// How many are taken.
    pub fn taken(&self) -> u32 {
        self.lock().taken_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_has_one_owner() {
        let pool = SegmentPool::new(3);
        assert!(pool.claim(1) && !pool.claim(1) && !pool.claim(3));
        assert_eq!((pool.take(), pool.take(), pool.take()), (Some(0), Some(2), None));
        pool.give(1);
        assert_eq!((pool.take(), pool.taken()), (Some(1), 3));
    }
}
