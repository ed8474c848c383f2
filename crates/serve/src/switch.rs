//! The controller's switch: paused and resumed by a person while the daemon serves.
//!
//! Paused, caches stay as they are, volumes are observed and judged, and whoever may change something may order quotas. Resumed, the
//! controller goes on from the quotas that are in force. It holds until the daemon ends: a restart begins as `control.enabled` says.
//!
//! Orders for quotas, this switch and what the controller decided exclude each other (`Shared::quota_orders`), so that once a pause is
//! answered no quota changes but by orders. Deciding itself is not waited for: a controller that hangs can be paused.

use crate::clock::unix_ms;
use crate::config::CacheConfig;
use crate::daemon::Shared;
use crate::orders;
use crate::status::ControllerState;
use forebay_units::Bytes;
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// The switch.
#[derive(Debug)]
pub(crate) struct Switch(Mutex<Position>);

#[derive(Debug)]
struct Position {
    on: bool,
    /// It was off since the controller looked at the caches last, so that others may have sized them.
    was_off: bool,
    /// When it was switched last, in milliseconds since 1970.
    at_unix_ms: Option<i64>,
}

impl Switch {
    /// As a daemon begins.
    pub(crate) fn new(on: bool) -> Switch {
        Switch(Mutex::new(Position { on, was_off: !on, at_unix_ms: None }))
    }

    fn position(&self) -> MutexGuard<'_, Position> {
        // Plain values.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the controller decides.
    pub(crate) fn is_on(&self) -> bool {
        self.position().on
    }

    /// When it was switched last, in milliseconds since 1970.
    pub(crate) fn at_unix_ms(&self) -> Option<i64> {
        self.position().at_unix_ms
    }

    /// Whether it was off since this was asked last. To be asked before the caches are looked at: then an order is either seen, or told of
    /// the next time.
    pub(crate) fn take_was_off(&self) -> bool {
        let mut position = self.position();
        let off = !position.on;
        std::mem::replace(&mut position.was_off, off)
    }

    /// Whether it is on, and was since [`Switch::take_was_off`]: else what was decided since then is of caches that may be others by now.
    pub(crate) fn stayed_on(&self) -> bool {
        let position = self.position();
        position.on && !position.was_off
    }

    /// Switches it; how it was.
    pub(crate) fn set(&self, on: bool) -> bool {
        let mut position = self.position();
        let was = position.on;
        if was != on {
            *position = Position { on, was_off: true, at_unix_ms: Some(unix_ms()) };
        }
        was
    }
}

/// What is asked of the controller; the body of `PUT /api/v1/controller`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchRequest {
    /// Whether it is to decide.
    pub enabled: bool,
}

/// What became of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switched {
    /// Whether the controller decides from now on.
    pub enabled: bool,
    /// Whether it did so before.
    pub was_enabled: bool,
    /// How it is: one that is enabled may be dead, to be started again.
    pub state: ControllerState,
}

/// Why the controller was not switched.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// The daemon was started without a controller, and there is nothing for one.
    #[error(
        "this daemon has no controller: it was started without one, and no volume's cache is left to one; a volume without a fixed `cache` in the configuration of `forebay serve` is"
    )]
    NoController,
    /// Caches of a fixed size were ordered to be larger, and leave the controller less than it may grant.
    #[error(
        "caches of a fixed size take {fixed} of `cache.memory` ({memory}), as ordered while the controller was off, and leave it less than the {controllers} that it may grant; order them back to {left} together first"
    )]
    NoRoom {
        /// What they take.
        fixed: Bytes,
        /// What they may take.
        left: Bytes,
        /// What the controller may grant.
        controllers: Bytes,
        /// All there is.
        memory: Bytes,
    },
}

/// Pauses or resumes the controller. When this returns, nothing that it decided before a pause is done any more.
///
/// # Errors
/// [`SwitchError`]; it is as before then.
pub(crate) fn switch(shared: &Shared, enabled: bool) -> Result<Switched, SwitchError> {
    let _one = shared.books.quota_orders();
    let was_enabled = shared.switch.is_on();
    if !was_enabled {
        may_switch(shared, enabled)?;
    }
    shared.switch.set(enabled);
    if enabled != was_enabled {
        tracing::info!(enabled, "controller switched");
    }
    let state = shared.controller_state(&shared.state());
    Ok(Switched { enabled, was_enabled, state })
}

/// Whether there is a controller, off as it is, and room for it to be on.
fn may_switch(shared: &Shared, enabled: bool) -> Result<(), SwitchError> {
    let config = &shared.config;
    let is_fixed = |cache: &CacheConfig| matches!(cache, CacheConfig::Fixed(_));
    if config.volumes.iter().all(|volume| is_fixed(&volume.cache)) {
        // One that was on from the start judges volumes and finds out who interferes with whom, with nothing to grant.
        return if config.control.enabled { Ok(()) } else { Err(SwitchError::NoController) };
    }
    if !enabled {
        return Ok(());
    }
    let (memory, controllers) = (config.cache_memory, config.controllers_memory());
    let left = Bytes(memory.get() - controllers.get());
    let fixed = orders::taken(shared, |volume| is_fixed(&volume.cache));
    if fixed > left { Err(SwitchError::NoRoom { fixed, left, controllers, memory }) } else { Ok(()) }
}
