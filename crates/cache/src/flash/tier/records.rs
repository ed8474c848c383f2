//! The two copies of a volume's record: written, read back, revoked.

use super::super::format::{Record, SECTOR};
use super::{FlashError, FlashTier, io_error};

/// How often a revocation is tried before the device is given up (ours).
pub(super) const REVOCATIONS_MAX: usize = 3;

impl FlashTier {
    /// Makes both copies of a record say what `record` says, and makes sure: what they said before is revoked.
    pub(super) fn establish(&self, number: u32, record: &Record) -> Result<(), FlashError> {
        let geometry = self.geometry();
        for _ in 0..REVOCATIONS_MAX {
            self.write_record(number, record)?;
            let is_there = |copy| {
                let offset = geometry.record_offset(number, copy);
                let sector = self.device.read(offset, SECTOR).ok()?;
                Record::decode(&sector, self.superblock.device_id, offset).ok()
            };
            if is_there(0) == Some(*record) && is_there(1) == Some(*record) {
                return Ok(());
            }
        }
        Err(FlashError::NotRevoked)
    }

    pub(super) fn write_record(&self, number: u32, record: &Record) -> Result<(), FlashError> {
        for copy in 0..2 {
            let offset = self.geometry().record_offset(number, copy);
            self.device.write(offset, &record.encode(offset)).map_err(io_error("writing a record"))?;
        }
        self.device.sync().map_err(io_error("syncing a record"))
    }
}
