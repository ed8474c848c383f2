//! Eviction and admission: one policy a file, written once for daemon, simulator and tests.
//!
//! A policy orders *slots*: dense numbers of the places in which a partition keeps its blocks. It knows neither the
//! bytes nor which slots are free, it looks nothing up, does no I/O and reads no clock. `cache::Partition` looks
//! blocks up, owns the slots and calls the policy; the simulator uses the same partition without bytes.
//!
//! Invariant of every policy here: the set of slots it orders is exactly the set of slots between their
//! [`Policy::on_insert`] and their [`Policy::on_evict`] or [`Policy::on_remove`], renamed by [`Policy::on_move`].

mod clock;
mod fifo;
mod links;
mod lru;
#[cfg(test)]
mod model;
mod policy;
mod segmented;
mod sieve;
mod slru;
mod two_pool;

pub use clock::Clock;
pub use fifo::Fifo;
pub use links::{Links, List};
pub use lru::Lru;
pub use policy::{Incoming, Insertion, Policy, SLOTS_MAX, Slot};
pub use segmented::SegmentedVec;
pub use sieve::Sieve;
pub use slru::Slru;
pub use two_pool::TwoPool;
