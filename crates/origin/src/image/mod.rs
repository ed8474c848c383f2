//! The bytes themselves, read and changed by calls that may block: what file, memory and disk group origins share.

mod file;
mod memory;

pub(crate) use file::FileImage;
pub use file::open_patiently;
pub use memory::MemoryImage;

use crate::pending::{EINVAL, ENOTSUP, EPERM};
use crate::request::{OriginError, OriginOperation, OriginTraits};
use std::fs::Metadata;

/// Longest read or write of the origins of this room that hold their own bytes (ours; NBD clients stay below it).
pub(crate) const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// Bytes that can be read and changed at once or after a while.
pub(crate) trait Image: Send + Sync {
    fn size_bytes(&self) -> u64;
    fn read_only(&self) -> bool;
    /// Whether a sync can take long, so that it must not be made on a thread that keeps time.
    fn sync_blocks(&self) -> bool;
    /// Whether zeroes are made faster than by writing them.
    fn can_fast_zero(&self) -> bool;
    /// Carries the operation out without forcing it to stable storage. A flush does nothing here.
    fn apply(&self, operation: &OriginOperation) -> Result<Vec<u8>, OriginError>;
    /// Everything applied until now to stable storage.
    fn sync(&self) -> Result<(), OriginError>;
    fn describe(&self) -> String;
    /// Of the file that holds the bytes, if there is one.
    fn metadata(&self) -> Option<Metadata> {
        None
    }

    fn traits(&self) -> OriginTraits {
        OriginTraits {
            size_bytes: self.size_bytes(),
            read_only: self.read_only(),
            block_size_min: 1,
            block_size_preferred: 4096,
            request_bytes_max: REQUEST_BYTES_MAX,
            can_trim: !self.read_only(),
            can_fast_zero: !self.read_only() && self.can_fast_zero(),
            can_multi_conn: true,
        }
    }

    /// Carries the operation out, to stable storage where it asks for that.
    fn execute(&self, operation: &OriginOperation) -> Result<Vec<u8>, OriginError> {
        let bytes = self.apply(operation)?;
        if wants_sync(operation) {
            self.sync()?;
        }
        Ok(bytes)
    }
}

/// Whether the operation is complete only once it is on stable storage.
pub(crate) fn wants_sync(operation: &OriginOperation) -> bool {
    *operation == OriginOperation::Flush || operation.fua()
}

/// Refuses what the submitter should have refused: cheap, and the last place where it can be caught.
pub(crate) fn check(operation: &OriginOperation, traits: &OriginTraits) -> Result<(), OriginError> {
    let range = operation.range();
    let failed = |errno, context| Err(OriginError::Failed { errno, context });
    if range.offset.checked_add(range.length).is_none_or(|end| end > traits.size_bytes) {
        let (offset, length, size) = (range.offset, range.length, traits.size_bytes);
        return failed(EINVAL, format!("bytes {offset}+{length} pass the end of the origin at {size}"));
    }
    let carries_data = matches!(operation, OriginOperation::Read { .. } | OriginOperation::Write { .. });
    if carries_data && range.length > u64::from(traits.request_bytes_max) {
        let (length, max) = (range.length, traits.request_bytes_max);
        return failed(EINVAL, format!("a request of {length} bytes is longer than the maximum of {max}"));
    }
    if traits.read_only && operation.changes_content() {
        return failed(EPERM, "origin is read-only".into());
    }
    if matches!(operation, OriginOperation::WriteZeroes { fast: true, .. }) && !traits.can_fast_zero {
        return failed(ENOTSUP, "zeroes are no faster here than writes".into());
    }
    Ok(())
}
