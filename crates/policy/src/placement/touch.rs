//! What is asked of a placement, and what it says of each chunk.

use super::Age;

/// Chunks of a volume at most, and volumes at most.
const INDEX_BITS: u32 = 32;
const VOLUME_BITS: u32 = 20;

/// A client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Of which volume, below 2^20.
    pub volume: u32,
    /// From which client.
    pub client: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Whether it writes.
    pub writes: bool,
}

/// A chunk of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Chunk {
    /// Of which volume.
    pub volume: u32,
    /// Which one, from 0.
    pub index: u64,
}

impl Chunk {
    pub(super) fn id(self) -> u64 {
        debug_assert!(self.volume < 1 << VOLUME_BITS && self.index < 1 << INDEX_BITS);
        u64::from(self.volume) << INDEX_BITS | self.index
    }

    pub(super) fn of_id(id: u64) -> Chunk {
        Chunk { volume: (id >> INDEX_BITS) as u32, index: id & ((1 << INDEX_BITS) - 1) }
    }
}

/// Where a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// At the origin alone.
    Origin,
    /// On its way to a place; until it is there, at the origin. Who writes to it meanwhile has the migration end as not kept.
    Moving,
    /// In this place of the tier, counted from 0.
    Tier(u32),
}

/// A chunk is to be moved: from the origin to a place, out of which another one goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promotion {
    /// Which one.
    pub chunk: Chunk,
    /// Its place.
    pub place: u32,
    /// Whose place that was until now.
    pub displaced: Option<Chunk>,
}

/// A chunk is to go back to the origin, since it is worth nothing in its place any more; nobody comes for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demotion {
    /// Which one.
    pub chunk: Chunk,
    /// Its place, which is taken until [`Placement::left`] is told.
    pub place: u32,
}

/// What is said at once of one chunk of a request; that it is to be promoted is said later, by [`Placement::due`](super::Placement::due).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Which one.
    pub chunk: Chunk,
    /// Where it is now.
    pub at: Where,
    /// How long ago it was accessed, to be handed to [`Placement::origin_answered`].
    pub age: Age,
    /// What is to be done. The request itself is served from where the chunk is now.
    pub demotion: Option<Demotion>,
}
