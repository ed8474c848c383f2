//! Looks whether the flash file is still where it was opened. Whoever removes it, or puts another in its place, changes nothing for the daemon, which goes on with what it has open: but its room is not
//! free before the daemon ends, and the next one does not find what is on it.

use crate::daemon::Shared;
use crate::trouble::Trouble;
use std::time::{Duration, Instant};

/// How often it is looked: two calls of the file system each time.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs until the daemon stops.
pub(crate) fn run(shared: &Shared) {
    let Some(flash) = &shared.flash else { return };
    let path = flash.path().display();
    let mut trouble = Trouble::default();
    loop {
        let told = flash.missing().map(|missing| {
            format!(
                "`{path}`: {missing}; its volumes are served from it until the daemon ends, its room is free only then, and the next start does not find what is on it: start anew when it suits"
            )
        });
        match &told {
            Some(told) if trouble.is_news(told) => tracing::warn!("flash {told}"),
            None if trouble.is_over() => tracing::info!("flash `{path}` is where it was opened again"),
            _ => {}
        }
        shared.state().flash_trouble = told;
        if !shared.sleep_until(Instant::now() + LOOK_EVERY) {
            return;
        }
    }
}
