//! Bookkeeping of a cache partition (pure) and the store that holds its bytes.
//!
//! [`Partition`] is one workload's share of one appliance: which block is in which slot, who leaves, how the quota changes.
//! It works without bytes, and the simulator uses it so. [`MemoryStore`] holds the bytes of slots. [`CachePartition`] is
//! both, and what the data path uses; [`flash`] is the tier below. None of them knows volumes, origins or clients, or when a fill is too old to insert.
//!
//! Invariant: a block is in at most one slot, a slot holds at most one block, and content is only ever returned for the
//! block that it was inserted for. Nothing here stalls: every call is bounded, and a change of the quota happens in steps.

mod adaptive;
mod cached;
pub mod flash;
mod follower;
mod foretold;
mod partition;
mod selector;
mod simulation;
pub mod snapshot;
mod store;

pub use adaptive::AdaptivePartition;
pub use cached::CachePartition;
pub use forebay_policy::{Insertion, Slot};
pub use partition::{
    ANTICIPATED_MAX, BLOCK_MAX, Inserted, Partition, Progress, QUOTA_BLOCKS_MAX, Refusal, Statistics,
    StepChange,
};
pub use selector::{SELECTABLE, Selector};
pub use simulation::{Access, AdaptiveSimulation, Outcome, Simulation};
pub use store::{MemoryStore, StoreError};
