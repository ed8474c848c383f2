//! The life of a partition's segments: taken from the pool, filled, written, emptied when they are the oldest, given back.

use super::{FlashPartition, FlashWrite, WRITES_MAX};

/// Where the content of a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In the open segment's buffer, which is being filled.
    Open,
    /// In a buffer, and on its way to the device.
    Writing,
    /// On the device.
    Stored,
}

/// A segment that the partition has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) segment: u32,
    pub(super) live: u32,
    pub(super) sequence: u64,
    /// How many frames had been opened when it was: its age, in segments.
    pub(super) born: u64,
    pub(super) state: State,
}

/// The segment that is being filled.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) frame: u32,
    pub(super) used: u32,
    pub(super) bytes: Vec<u8>,
}

/// A segment on its way to the device.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) frame: u32,
    pub(super) sequence: u64,
    pub(super) bytes: Vec<u8>,
}

impl FlashPartition {
    /// Makes a frame the open one: a new one if quota and pool allow, or else the oldest, whose blocks leave.
    pub(super) fn open_segment(&mut self) -> bool {
        if self.writing.len() >= WRITES_MAX || self.settings.quota_segments == 0 {
            return false;
        }
        let frame = if (self.frames.len() as u64) < u64::from(self.settings.quota_segments) {
            self.new_frame()
        } else {
            None
        };
        let Some(frame) = frame.or_else(|| self.reclaim_oldest()) else { return false };
        let sequence = self.settings.next_sequence;
        self.settings.next_sequence += 1;
        self.opened += 1;
        let found = &mut self.frames[frame as usize];
        (found.sequence, found.born, found.state) = (sequence, self.opened, State::Open);
        debug_assert_eq!(found.live, 0);
        let bytes = Vec::with_capacity(self.settings.geometry.segment_bytes as usize);
        self.open = Some(Open { frame, used: 0, bytes });
        true
    }

    fn new_frame(&mut self) -> Option<u32> {
        let segment = self.settings.pool.take()?;
        let frame = self.grow(segment);
        if frame.is_none() {
            self.settings.pool.give(segment);
        }
        frame
    }

    /// A frame more, for a segment that is ours; `None` if there is no memory for it.
    pub(super) fn grow(&mut self, segment: u32) -> Option<u32> {
        if self.frames.try_reserve(1).is_err() || !self.places.grow() {
            return None;
        }
        self.frames.push(Frame { segment, live: 0, sequence: 0, born: self.opened, state: State::Stored });
        Some(self.frames.len() as u32 - 1)
    }

    /// Empties the oldest frame and takes it out of the order, if it is on the device.
    pub(super) fn reclaim_oldest(&mut self) -> Option<u32> {
        let frame = *self.order.front()?;
        if self.frames[frame as usize].state != State::Stored {
            return None;
        }
        self.order.pop_front();
        self.counters.evictions += self.clear(frame);
        Some(frame)
    }

    /// Takes all blocks out of a frame; how many.
    pub(super) fn clear(&mut self, frame: u32) -> u64 {
        self.frames[frame as usize].live = 0;
        self.places.clear(frame)
    }

    /// Sends the open frame on its way.
    pub(super) fn seal(&mut self) {
        let Some(Open { frame, used, mut bytes }) = self.open.take() else { return };
        if used == 0 {
            self.remove_frame(frame);
            return;
        }
        bytes.resize(self.settings.geometry.segment_bytes as usize, 0);
        let found = &mut self.frames[frame as usize];
        found.state = State::Writing;
        let (sequence, offset) = (found.sequence, self.settings.geometry.segment_offset(found.segment));
        self.order.push_back(frame);
        self.to_write.push_back(FlashWrite { sequence, offset, data: bytes.clone() });
        self.writing.push(Writing { frame, sequence, bytes });
    }

    /// Sends what is buffered on its way, although its segment is not full: the partition is about to be stopped. At most one segment more
    /// than [`WRITES_MAX`] is on its way then.
    pub fn seal_open(&mut self) {
        self.seal();
    }

    /// The next segment to write.
    pub fn take_write(&mut self) -> Option<FlashWrite> {
        self.to_write.pop_front()
    }

    /// Whether a segment is to be written or on its way.
    pub fn is_writing(&self) -> bool {
        !self.writing.is_empty()
    }

    /// Whether everything that it holds is on the device.
    pub fn is_quiet(&self) -> bool {
        self.open.is_none() && self.writing.is_empty()
    }

    /// The write `sequence` ended. If it failed, its blocks leave and its segment is given back.
    pub fn write_ended(&mut self, sequence: u64, is_done: bool) {
        let Some(at) = self.writing.iter().position(|writing| writing.sequence == sequence) else { return };
        let Writing { frame, .. } = self.writing.swap_remove(at);
        if is_done {
            self.frames[frame as usize].state = State::Stored;
            self.counters.segments_written += 1;
        } else {
            self.counters.write_errors += 1;
            self.counters.evictions += self.clear(frame);
            self.order.retain(|other| *other != frame);
            self.remove_frame(frame);
        }
    }

    /// Gives an empty frame's segment back; the last frame takes its place.
    pub(super) fn remove_frame(&mut self, frame: u32) {
        debug_assert_eq!(self.frames[frame as usize].live, 0);
        self.settings.pool.give(self.frames[frame as usize].segment);
        let last = self.frames.len() as u32 - 1;
        if frame != last {
            self.places.relocate(last, frame);
            self.frames[frame as usize] = self.frames[last as usize];
            let renamed =
                self.order.iter_mut().chain(self.writing.iter_mut().map(|writing| &mut writing.frame));
            for number in renamed.chain(self.open.iter_mut().map(|open| &mut open.frame)) {
                if *number == last {
                    *number = frame;
                }
            }
        }
        self.frames.pop();
        self.places.shrink_to(last);
    }

    // ---- Quota ------------------------------------------------------------------------------------------------

    /// Sets the quota; [`FlashPartition::step`] puts a smaller one in force.
    pub fn set_quota(&mut self, quota_segments: u32) {
        self.settings.quota_segments = quota_segments;
    }

    /// The quota in segments.
    pub fn quota_segments(&self) -> u32 {
        self.settings.quota_segments
    }

    /// Whether [`FlashPartition::step`] has something to do now.
    pub fn wants_step(&self) -> bool {
        self.frames.len() as u64 > u64::from(self.settings.quota_segments)
            && (self.open.as_ref().is_some_and(|_| self.settings.quota_segments == 0)
                || self
                    .order
                    .front()
                    .is_some_and(|oldest| self.frames[*oldest as usize].state == State::Stored))
    }

    /// Gives one segment above the quota back, the oldest; a few tens of microseconds.
    pub fn step(&mut self) {
        if !self.wants_step() {
            return;
        }
        if let Some(frame) = self.reclaim_oldest() {
            self.remove_frame(frame);
        } else if let Some(open) = self.open.take() {
            self.counters.evictions += self.clear(open.frame);
            self.remove_frame(open.frame);
        }
    }
}
