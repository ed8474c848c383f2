//! Objectives, conformance, interference, sizing, planning and warm-up as pure decisions over plain data.
//!
//! Observations and the time come in, decisions and actions go out. Nothing here does I/O, reads a clock, spawns or
//! draws random numbers, so the daemon and a simulator on virtual time run the same code. It is *not* the actuator:
//! it never learns whether an action worked except from the next observation.
//!
//! Invariant: the sum of all quotas that it hands out never exceeds the capacity that it was given.
//! Sources: Dynamite (the nine steps), Hybrid Store (sizing by feedback), and what each module names.

mod allocation;
mod cacheability;
mod claims;
pub mod config;
pub mod conformance;
pub mod controller;
pub mod decision;
pub mod eafc;
pub mod feedback;
pub mod foresight;
pub mod host;
pub mod interference;
pub mod inventory;
mod model_law;
mod needs;
pub mod objective;
pub mod observation;
pub mod performance;
mod plain;
pub mod plan;
pub mod prewarm;
mod priorities;
mod refill;
mod removal;
pub mod reservation;
pub mod response;
mod sizing;
mod solutions;
mod trims;
pub mod violation;
pub mod warmup;
mod windows;

pub use config::{ConfigError, ControlConfig};
pub use controller::{
    Controller, ObjectiveStatus, OriginInterference, Past, RecallError, VolumeState, VolumeStatus,
};
pub use decision::{Action, Alternative, Decision, DecisionKind, Fact, FactValue, StepOutcome, ZoneRange};
pub use inventory::{HostId, HostSpec, OriginId, OriginSpec, VolumeId, VolumeSpec, VolumeSpecError};
pub use objective::{
    Objective, ObjectiveError, Operations, StatedError, StatedObjective, Statistic, StatisticError, Target,
};
pub use observation::{
    CacheObservation, HostObservation, Observation, OriginObservation, VolumeObservation, ZoneHeat,
};
pub use plan::{Plan, PlanError, PlanInput, plan};
pub use reservation::Reserved;
