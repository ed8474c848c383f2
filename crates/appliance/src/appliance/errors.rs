//! Why an appliance did not start, or did not do as it was told.

use crate::driver::ListenError;
use crate::service::{FenceError, RaiseError};
use crate::volume::VolumeSettingsError;
use forebay_ring::RingRefused;
use forebay_units::BlockSize;
use std::io;
use thiserror::Error;

/// Why an appliance did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// A volume cannot be served.
    #[error(transparent)]
    Volume(#[from] AddVolumeError),
    /// A listener cannot be opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A listener offers TLS, and there is no certificate to show.
    #[error("a listener offers TLS, and there is no certificate for it")]
    NoCertificate,
    /// io_uring must be used, and cannot.
    #[error("files are to be read and written by io_uring")]
    Io(#[source] RingRefused),
    /// The system has no threads or descriptors for it.
    #[error("cannot start the threads of the data path")]
    System(#[from] io::Error),
}

/// Why a volume was not added.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AddVolumeError {
    /// There is one of that name.
    #[error("volume `{name}` exists already")]
    Exists {
        /// The name.
        name: String,
    },
    /// The name is empty or too long.
    #[error("volume name of {bytes} bytes; expected 1 to 4096")]
    Name {
        /// How long it is.
        bytes: usize,
    },
    /// Block size and origin do not go together.
    #[error("volume `{name}`: {source}")]
    Settings {
        /// The volume.
        name: String,
        /// Why.
        source: VolumeSettingsError,
    },
    /// Blocks of this size do not go with flash.
    #[error("volume `{name}`: blocks of {found} do not go with flash; expected 4 KiB to 1 MiB")]
    FlashBlockSize {
        /// The volume.
        name: String,
        /// Its block size.
        found: BlockSize,
    },
    /// The flash device cannot be used for it. Its flash must not be used at all then: what is there may be old.
    #[error("volume `{name}`: {reason}")]
    Flash {
        /// The volume.
        name: String,
        /// Why.
        reason: String,
    },
    /// The worker thread is gone.
    #[error(transparent)]
    Worker(#[from] WorkerGone),
}

/// The thread that owns the volume has ended: it was shut down, or it panicked, which the log tells. The volume can be removed and added
/// again; another worker serves it then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the worker thread {worker} has ended")]
pub struct WorkerGone {
    /// Which, from 0.
    pub worker: usize,
}

/// Why a command to a volume failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CommandError {
    /// There is no such volume.
    #[error("there is no volume `{name}`, or its origin is absent")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The worker thread is gone.
    #[error(transparent)]
    Worker(#[from] WorkerGone),
}

/// Why a lease was not raised, or its fence cannot be vouched for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// The volume has no leases: everybody is let in.
    #[error("volume `{name}` has no leases")]
    NotLeased {
        /// The volume.
        name: String,
    },
    /// The epoch is over. Nothing has changed.
    #[error("volume `{name}`: {source}")]
    Stale {
        /// The volume.
        name: String,
        /// What holds.
        source: RaiseError,
    },
    /// Whom the lease does not admit is refused, but what they sent before may still be on its way to the data.
    #[error("volume `{name}`: {source}")]
    Fence {
        /// The volume.
        name: String,
        /// Why.
        source: FenceError,
    },
    /// The command did not reach the volume.
    #[error(transparent)]
    Command(#[from] CommandError),
}
