//! The two copies of a volume's record: written, read back, revoked; and the number of the start, by which those are revoked that it does not serve.

use super::super::format::{Record, SECTOR, Superblock};
use super::{FlashError, FlashTier, State, io_error};

/// How often a revocation is tried before the device is given up (ours).
pub(super) const REVOCATIONS_MAX: usize = 3;

impl FlashTier {
    /// The number of this start, which the device has once something is served.
    pub(super) fn start(&self) -> u64 {
        self.superblock.start.wrapping_add(1)
    }

    /// Has the device know of this start, and makes sure, before it serves anything. Not sooner: one that fails before that changes nothing.
    pub(super) fn begin(&self, state: &mut State) -> Result<(), FlashError> {
        if state.is_begun {
            return Ok(());
        }
        let superblock = Superblock { start: self.start(), ..self.superblock };
        for _ in 0..REVOCATIONS_MAX {
            self.device.write(0, &superblock.encode()).map_err(io_error("writing the superblock"))?;
            self.device.sync().map_err(io_error("syncing the superblock"))?;
            let found = self.device.read(0, SECTOR).ok().and_then(|sector| Superblock::decode(&sector).ok());
            if found == Some(superblock) {
                state.is_begun = true;
                return Ok(());
            }
        }
        Err(FlashError::NotRevoked)
    }

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
