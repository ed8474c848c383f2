//! Service times of storage devices: a disk and a group of disks.
//!
//! The models are pure state machines that are told the time. `origin` runs them in real time to make an emulated disk
//! group on which neighbours really interfere; a simulator runs the same code on virtual time. They hold no data, read
//! no clock and draw no random numbers: what they do follows from their parameters and from what is submitted when.
//!
//! Invariants: every request accepted completes exactly once; completions come out in order of time, and at equal times
//! in order of spindle and then of submission; time never runs backwards.
//!
//! Source of the disk model: Ruemmler and Wilkes, "An introduction to disk drive modeling", IEEE Computer 27(3), 1994
//! (seek curve, rotation, zones). The presets are typical values of published data sheets, rounded: they are ours.

mod disk;
mod geometry;
mod group;
mod layout;

pub use disk::{Disk, DiskObservation, QueueDiscipline};
pub use geometry::{DiskParameters, ParameterError};
pub use group::{
    DiskCompletion, DiskGroup, DiskGroupObservation, DiskGroupParameters, DiskRequest, DiskRequestId,
    DiskRequestKind, SubmitError,
};
pub use layout::{DiskPart, Layout};
