//! One volume: the machine that keeps reads true while a cache comes, goes, fills and is written around.
//!
//! It is *not* a server: it knows no connection, no protocol, no thread and no clock. [`VolumeMachine`] is told what clients ask,
//! what the origin answered and what time it is, and says what to reply and what to ask the origin.
//!
//! # Invariants
//!
//! 1. A change is answered only after the origin answered it; on success what is cached of it was made equal first.
//! 2. Changes in flight at the same time share no unit of the origin. Those that share a block change their own bytes of it, each when it has ended.
//! 3. A fill that shared a moment of its life with a change of its blocks, or with doubt about them, is marked:
//!    never inserted, never joined by a later read. What a client's read missed of blocks of which a change in flight changes every byte
//!    enters with what the change made of it, when the origin has done it; no other block enters while any change of it is in flight.
//! 4. A block that is cached holds, in whole, what the origin held after the changes that completed, and of those in flight nothing.
//! 5. Blocks of a change that failed leave the cache; after an unknown outcome they are in doubt: not cached, read from the
//!    origin each time, and changes of them are refused until [`VolumeMachine::settle`].
//! 6. As long as a block is resident, reads of it are served from the cache, whatever the quota says.
//! 7. What a marked fill brought of blocks that have been cached since is not answered: the cached content is.
//! 8. A block that is on flash is cached, in all of the above. What is read of it is believed only with its checksum; what is not becomes
//!    a fill from the origin. A marked fill from the origin takes the blocks that it brought off flash, where it cannot look at once
//!    (7). A change takes its blocks off flash before it is answered.
//! 9. An origin's error is answered to every request that depended on it, and leaves nothing in the cache.
//! 10. Bytes are said to read as zeroes only if no reader from then on can see what they held before: nothing is said of blocks of
//!     changes in flight, or of blocks in doubt.
//! 11. A flush is answered well only when all that were at the origin with it have ended, and none has failed since it was asked for: an
//!     origin tells of a loss once, and its answers overtake each other.
//! 12. A volume changes its origin only while nothing is at the old one, nothing is in doubt, and the old one flushed what was acknowledged.
//!     What is cached stays: both are ways to the same data, which is for the caller to vouch for.
//!
//! Two readers of a block that is not cached, while a change of it is in flight, may see old and new content, but never new and
//! then old: that is why marked fills are not joined. A cached block is served old until the change completed, to everybody:
//! that is invariant 7. (An old marked fill outlives the change that marked it; its block is filled anew and cached; a second
//! change of the block is applied but not complete when the old fill looks: its reader would see what later ones do not.)

mod client;
#[cfg(test)]
mod flash_tests;
mod flushes;
#[cfg(test)]
mod holding_tests;
mod listing;
mod machine;
mod observation;
mod prewarm;
mod ranges;
mod reads;
mod request;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod syncing_tests;
#[cfg(test)]
mod tests;
mod writes;

pub use client::{ClientAddress, UnknownClient};
pub use listing::{LISTING_STEP_SLOTS, ListedBlock, ListingPiece};
pub use machine::{
    FlashPlacing, HoldError, HoldState, Leave, QUOTA_STEP_SLOTS, UnfitError, VolumeMachine, VolumeSettings,
    VolumeSettingsError,
};
pub use observation::{
    Counters, FlashObservation, Latencies, PlacingObservation, VolumeObservation, VolumePulse,
};
pub(crate) use prewarm::Prewarm;
pub use prewarm::{PrewarmEnd, PrewarmPlan, PrewarmProgress};
pub use request::{
    ClientOperation, Errno, InPlaceOutcome, Missed, Place, ReadOutcome, Reply, RequestTag, VolumeLimits,
};
