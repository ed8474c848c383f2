//! Why an origin could not be opened; the kinds are what a person mends differently.

use forebay_devmodel::ParameterError;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why an origin could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is nothing at the path.
    #[error("origin `{path}` does not exist")]
    NotFound {
        /// The path.
        path: PathBuf,
    },
    /// The path is a directory.
    #[error("origin `{path}` is a directory: expected a file or a block device")]
    Directory {
        /// The path.
        path: PathBuf,
    },
    /// The path is neither a regular file nor a block device.
    #[error("origin `{path}` is neither a file nor a block device")]
    NotStorage {
        /// The path.
        path: PathBuf,
    },
    /// The process may not open it so.
    #[error("no permission to open origin `{path}` for {access}")]
    Permission {
        /// The path.
        path: PathBuf,
        /// `reading` or `reading and writing`.
        access: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// It holds no bytes.
    #[error("origin `{path}` has a size of 0 bytes: create it with the size of the volume first")]
    Empty {
        /// The path.
        path: PathBuf,
    },
    /// Another process has it open in a way that cannot be shared, or it is a device that is mounted.
    #[error("origin `{path}` is in use: locked by another process that serves it, or mounted")]
    Locked {
        /// The path.
        path: PathBuf,
    },
    /// The system refused for another reason.
    #[error("cannot open origin `{path}`")]
    Io {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread for the origin")]
    Thread {
        /// What the system said.
        source: io::Error,
    },
    /// A parameter of the disk group is out of its range.
    #[error("disk group cannot be emulated")]
    Parameter {
        /// Which, and what would do.
        #[from]
        source: ParameterError,
    },
    /// A volume passes the end of its disk group.
    #[error(
        "volume at {offset_bytes} with {size_bytes} bytes passes the end of its disk group at {capacity_bytes}"
    )]
    BeyondGroup {
        /// Where it starts in the group.
        offset_bytes: u64,
        /// Its size.
        size_bytes: u64,
        /// The group's size.
        capacity_bytes: u64,
    },
    /// A volume would share disk space with another one of its group.
    #[error(
        "volume at {offset_bytes} with {size_bytes} bytes overlaps the volume at {other_offset_bytes} of its disk group"
    )]
    OverlapsInGroup {
        /// Where it starts in the group.
        offset_bytes: u64,
        /// Its size.
        size_bytes: u64,
        /// Where the other one starts.
        other_offset_bytes: u64,
    },
}

impl OpenError {
    pub(crate) fn from_io(path: &Path, read_only: bool, source: io::Error) -> OpenError {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::NotFound => OpenError::NotFound { path },
            io::ErrorKind::IsADirectory => OpenError::Directory { path },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                let access = if read_only { "reading" } else { "reading and writing" };
                OpenError::Permission { path, access, source }
            }
            _ => OpenError::Io { path, source },
        }
    }
}
