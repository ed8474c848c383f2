//! The one place of the data path that reads a clock.

use forebay_units::Nanos;
use std::time::Instant;

/// Nanoseconds since the appliance started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        Nanos::from(self.start.elapsed())
    }
}
