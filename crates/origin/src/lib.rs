//! Where the data lives: files, block devices, NBD exports, an emulated disk group, and layers stacked on any of them.
//!
//! Everything here implements [`Origin`]: requests go in without blocking, and each is completed exactly once, on a
//! thread of the origin's own or of whoever drives its [`Reactor`]. No origin caches, reorders writes for its own sake, or sends a write twice.
//!
//! Invariants: every queue has a maximum, above which a request is answered with `EBUSY`; dropping an origin completes
//! what is in flight on it; an error is never turned into a success.
//!
//! It is not: a cache, a scheduler, or a judge of whether a volume may be served from here; that is decided above.

mod disk_group;
mod extents;
mod file;
mod image;
pub mod layer;
mod memory;
mod nbd;
mod on_ring;
mod open_error;
mod pending;
mod pool;
mod request;
mod statistics;
mod syncs;
mod timer;

pub use disk_group::{DiskGroupDevice, DiskGroupOrigin, VolumeBacking};
pub use extents::{EXTENTS_MAX, ExtentList};
pub use file::{FileOrigin, FileOriginOptions};
pub use image::{MemoryImage, open_patiently};
pub use memory::MemoryOrigin;
pub use nbd::{
    ConnectError, KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES, Lineage, NbdOrigin, NbdOriginOptions,
    UnflushedChanges, Withheld, keep_alive,
};
pub use on_ring::{OnRing, OnRingError};
pub use open_error::OpenError;
pub use request::{
    CompletionSink, Origin, OriginCompletion, OriginError, OriginOperation, OriginRequest, OriginRequestId,
    OriginTraits, Reactor, Unflushed,
};
pub use statistics::{DeviceStatistics, OriginState, OriginStatistics};
pub use timer::Timer;
