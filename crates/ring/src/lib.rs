//! Reads and writes of files that complete later: in the io_uring of the calling thread, or else on threads.
//!
//! [`FileIo`] is an open file. What is asked of it goes into the ring of the calling thread, if that thread drives one
//! ([`ThreadRing`]) and the operation is one for it, and to [`Threads`] otherwise, so that who asks need not know which. The outcome is
//! the same: what a ring does not carry out as asked (a short read, an interruption, memory that the kernel has not) is carried out anew by a thread.
//!
//! It is not: a runtime, a scheduler, or a cache; it knows nothing of sockets, volumes and requests.
//!
//! # Invariants
//!
//! 1. Every operation ends exactly once, whatever becomes of the ring, the threads and who asked.
//! 2. The kernel writes only to memory that nobody else has: buffers move into the ring with their operation and come out with its completion. What
//!    the kernel may still write to when a ring is given up is never freed.
//! 3. A ring is used by the thread that made it and by no other.
//! 4. No lock or borrow of this room is held while an operation's end is told.
//!
//! All `unsafe` of the workspace but a hint to the processor (`forebay_units::prefetch`) is in `ring.rs`, one block. Source: `io_uring(7)`, `io_uring_setup(2)`, `io_uring_enter(2)`.

mod buffer;
mod engine;
mod file;
mod refused;
mod ring;
mod threads;

pub use engine::{Engine, EngineChoice};
pub use file::{FileError, FileIo, Operation, RING_BYTES_MAX, carry_out};
pub use refused::{RINGS_SINCE, RingRefused};
pub use ring::{RING_OPERATIONS_MAX, STUCK_MAX, ThreadRing};
pub use threads::{Job, Threads, ThreadsHandle};
