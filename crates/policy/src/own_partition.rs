//! A partition of their own for warmed objects: room that others cannot take.
//!
//! PRESTO's slides name it as an option and leave its rules open; these are ours. It is as large as what is to be warmed, but leaves the pools what they must keep. While it
//! is open, warmed objects enter it; when warming ends it is closed at what is there. An object that is used leaves it for the pools, and its room goes with it. What is never used stays.
//! Amounts are in whatever unit the cache counts: blocks, or bytes.

/// How much room warmed objects have to themselves, and whether more of them may come. Who is in it, its cache knows: calls are told how much is `used`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnPartition {
    room: u64,
    is_open: bool,
}

impl OwnPartition {
    /// None: the pools have all room.
    pub const NONE: OwnPartition = OwnPartition { room: 0, is_open: false };

    /// For `wanted`, in a cache of `capacity` whose pools keep `kept` of it at least. For 0, and where nothing is left for it: none, so that what is warmed goes
    /// where it goes without one. One that is open and has no room would turn all of it away.
    pub fn open(wanted: u64, capacity: u64, kept: u64) -> OwnPartition {
        let room = wanted.min(capacity.saturating_sub(kept));
        OwnPartition { room, is_open: room > 0 }
    }

    /// No more enters: the pools have what it did not need.
    pub fn close(&mut self, used: u64) {
        if std::mem::take(&mut self.is_open) {
            self.room = self.room.min(used);
        }
    }

    /// The room that the pools cannot take.
    #[inline]
    pub const fn room(&self) -> u64 {
        self.room
    }

    /// Whether what is warmed enters it.
    #[inline]
    pub const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether `more` fits beside what is `used`.
    pub const fn takes(&self, used: u64, more: u64) -> bool {
        used.saturating_add(more) <= self.room
    }

    /// Whether what is `used` is within its room; what is beyond it leaves before all else.
    #[inline]
    pub const fn keeps(&self, used: u64) -> bool {
        used <= self.room
    }

    /// An object of `bytes` (or 1 block) of what was `used` leaves it, and its room with it; true if no room is left by that, so that the pools share all.
    pub const fn give(&mut self, used: u64, bytes: u64) -> bool {
        if self.room == 0 || !self.keeps(used) {
            return false;
        }
        self.room = self.room.saturating_sub(bytes);
        self.room == 0
    }

    /// The capacity changes: it shrinks in proportion, and does not grow. One that had room and has none left is none.
    pub fn resize(&mut self, from: u64, to: u64) {
        let had_room = self.room > 0;
        let room = u128::from(self.room) * u128::from(to.min(from));
        self.room = room.checked_div(from.into()).unwrap_or(0) as u64;
        self.is_open &= !had_room || self.room > 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_is_asked_for_and_ends_with_what_was_used() {
        let mut own = OwnPartition::open(99, 10, 2);
        assert_eq!((own.room(), own.is_open()), (8, true));
        assert!(own.takes(7, 1) && !own.takes(7, 2) && own.keeps(8) && !own.keeps(9));
        own.close(3);
        assert_eq!((own.room(), own.is_open()), (3, false));
        // Closed once; what is there later says nothing.
        own.close(1);
        assert_eq!(own.room(), 3);
        assert!(!own.give(3, 2) && own.room() == 1);
        assert!(own.give(1, 5) && own == OwnPartition::NONE);
        assert!(!own.give(1, 1));
        assert_eq!(OwnPartition::open(0, 10, 2), OwnPartition::NONE);
        assert_eq!(OwnPartition::open(4, 2, 3), OwnPartition::NONE);
    }

    #[test]
    fn it_shrinks_with_the_capacity_and_what_is_beyond_it_gives_nothing() {
        let mut own = OwnPartition::open(4, 10, 2);
        own.resize(10, 5);
        assert_eq!(own.room(), 2);
        own.resize(5, 50);
        assert_eq!(own.room(), 2);
        assert!(!own.give(3, 1) && own.room() == 2);
        // Used up, it is as it was: as much as was to be warmed has been.
        let mut used_up = OwnPartition::open(1, 10, 2);
        assert!(used_up.give(1, 1) && used_up.is_open());
        used_up.resize(10, 5);
        assert!(used_up.is_open());
        own.resize(5, 0);
        assert_eq!(own, OwnPartition::NONE);
        own.resize(0, 7);
        assert_eq!(own, OwnPartition::NONE);
        let mut vast = OwnPartition::open(u64::MAX, u64::MAX, 0);
        vast.resize(u64::MAX, u64::MAX / 2);
        assert_eq!(vast.room(), u64::MAX / 2);
    }
}
