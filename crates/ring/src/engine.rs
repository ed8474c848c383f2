//! Which of the two ways is asked for, and which it is.

use std::fmt;

/// Which way is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// io_uring where the kernel allows it, threads elsewhere.
    #[default]
    Auto,
    /// io_uring, or nothing at all.
    IoUring,
    /// Threads.
    Threads,
}

/// Which way it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// What goes into a ring goes there; threads do the rest.
    IoUring,
    /// Threads do everything.
    Threads {
        /// Why.
        reason: String,
    },
}

impl Engine {
    /// Its name, as in configurations.
    pub fn name(&self) -> &'static str {
        match self {
            Engine::IoUring => "io_uring",
            Engine::Threads { .. } => "threads",
        }
    }

    /// Why it is not io_uring.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Engine::IoUring => None,
            Engine::Threads { reason } => Some(reason),
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            None => f.write_str(self.name()),
            Some(reason) => write!(f, "{} ({reason})", self.name()),
        }
    }
}
