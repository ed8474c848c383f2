//! Service times of devices: a disk, a group of disks with or without redundancy, an array with a shared cache, a
//! solid-state disk, and a lane (a direction of a link, or a worker).
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

mod array;
mod buffer;
mod disk;
mod geometry;
mod group;
mod lane;
mod layout;
mod pages;
mod ssd;
mod translation;

pub use array::{Array, ArrayCache, ArrayObservation};
pub use buffer::DiskBuffer;
pub use disk::{Disk, DiskObservation, QueueDiscipline};
pub use geometry::{DiskParameters, ParameterError};
pub use group::{
    DiskCompletion, DiskGroup, DiskGroupObservation, DiskGroupParameters, DiskRequest, DiskRequestId,
    DiskRequestKind, SubmitError,
};
pub use lane::{Lane, LaneObservation, LaneParameters};
pub use layout::{DiskPart, Layout, WritePlan};
pub use ssd::{Ssd, SsdObservation, SsdParameters};
pub use translation::Victim;
