//! The daemon: configuration, wiring, the control loop, HTTP, history.
//!
//! [`Daemon::start`] takes a [`config::Config`], which is made in code or read from a file, and serves its volumes. It decides
//! nothing (that is `control`) and moves no client's byte (that is `appliance`): it observes the one, asks the other,
//! and does what was decided.
//!
//! Invariant: clients are served whatever happens here. The control loop, loading, snapshots, HTTP and the history each have a
//! thread of their own, and none of them is waited for by a request.

mod books;
mod bounded_listener;
mod clock;
pub mod config;
mod daemon;
mod flash_file;
pub mod fleet;
pub mod history;
mod http;
pub mod interfering;
mod kept;
pub mod lease;
mod listing;
mod loading;
mod metrics;
mod monitor;
mod objects;
pub mod observed;
mod orders;
mod origins;
mod past;
mod pilot;
pub mod placing;
mod report;
pub mod reservation;
pub mod route;
mod snapshots;
pub mod status;
pub mod succession;
mod supervised;
pub mod switch;
mod trouble;

pub use daemon::{Daemon, StartError};
pub use history::DatedDecision;
pub use loading::{LoadChoice, PrewarmError};
pub use origins::OriginFailure;
pub use snapshots::snapshot_of;
