//! Does outside this process what was decided: starts, probes, finds and stops appliances.
//!
//! It decides nothing: what to start, where and how large is `control`'s, and so is what to do when a step fails. Every call takes a
//! [`Deadline`] and honours it, and every call may be made again: who starts what runs already gets it, who stops what is gone has nothing to do.
//! What is asked of the world (is it there? where?) is answered by the world, not from memory, so that the next controller finds what the last
//! one left.
//!
//! * [`route`]: a permanent proxy, QEMU's block graph, an address that moves.
//! * [`provision`]: appliances on this machine, in network namespaces, in virtual machines.
//! * [`guest`]: what runs first in such a virtual machine.
//! * [`secrets`]: how those in files and orders are read and written.
//! * [`api`]: how a daemon or an appliance is told and asked over HTTP.

pub mod api;
mod deadline;
mod export;
pub mod guest;
mod netlink;
mod order;
pub mod provision;
mod qmp;
pub mod route;
pub mod secrets;

pub use deadline::Deadline;
pub use order::{
    ApplianceId, ApplianceOrder, Control, Endpoint, EndpointTls, Listed, OrderError, ParseIdError, Running,
    VolumeOrder,
};
pub use provision::{Provider, ProvisionError};
pub use route::{Passage, Pause, Route, RouteError};
