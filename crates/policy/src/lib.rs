//! Eviction, admission and placement: one policy a file, written once for daemon, simulator and tests; and how reads at a rate are spread ([`paced`]).
//!
//! A policy orders *slots*: dense numbers of the places in which a partition keeps its blocks. It knows neither the
//! bytes nor which slots are free, it looks nothing up, does no I/O and reads no clock. `cache::Partition` looks
//! blocks up, owns the slots and calls the policy; the simulator uses the same partition without bytes.
//!
//! Invariant of every policy here: the set of slots it orders is exactly the set of slots between their
//! [`Policy::on_insert`] and their [`Policy::on_evict`] or [`Policy::on_remove`], renamed by [`Policy::on_move`].

mod arc;
mod belady;
mod bucket;
mod clock;
mod fifo;
mod ghosts;
mod idle;
mod kind;
mod lfu;
mod links;
mod lirs;
mod lru;
#[cfg(test)]
mod model;
mod own_partition;
pub mod paced;
pub mod placement;
mod policy;
mod recent;
mod s3_fifo;
mod segmented;
mod sieve;
mod sketch;
mod slots;
mod slru;
mod two_pool;
mod two_q;
mod w_tiny_lfu;

pub use arc::Arc;
pub use belady::{Belady, Future};
pub use clock::Clock;
pub use fifo::Fifo;
pub use kind::{PolicyKind, UnknownPolicy};
pub use lfu::Lfu;
pub use links::{ANTICIPATED, Links, List};
pub use lirs::Lirs;
pub use lru::Lru;
pub use own_partition::OwnPartition;
pub use policy::{Incoming, Insertion, Policy, SLOTS_MAX, Slot};
pub use s3_fifo::S3Fifo;
pub use segmented::SegmentedVec;
pub use sieve::Sieve;
pub use slots::{SlotTable, Upcoming};
pub use slru::Slru;
pub use two_pool::TwoPool;
pub use two_q::TwoQ;
pub use w_tiny_lfu::WTinyLfu;
