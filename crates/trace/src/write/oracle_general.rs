//! The writer of oracleGeneral; `formats/oracle_general.rs` is its layout.

use super::{Encode, Written, from_sector, invalid};
use crate::{Operation, Request};
use hashbrown::HashMap;
use std::io::{self, Write};

/// The bits of an id that are the sector: 8 PiB of sectors per volume.
const SECTOR_BITS: u32 = 44;
/// Ids stay below 2^54, so that their bytes are below 2^63.
const VOLUMES_MAX: u64 = 1 << (54 - SECTOR_BITS);

/// A request as it will be written, but for the next access.
struct Record {
    id: u64,
    time: u32,
    size: u32,
}

pub(super) struct OracleGeneralWriter<W> {
    write: W,
    records: Vec<Record>,
}

impl<W: Write> OracleGeneralWriter<W> {
    pub(super) fn new(write: W) -> OracleGeneralWriter<W> {
        OracleGeneralWriter { write, records: Vec::new() }
    }
}

impl<W: Write> Encode<W> for OracleGeneralWriter<W> {
    fn write(&mut self, requests: &[Request], _: &[String], written: &mut Written) -> io::Result<()> {
        for request in requests {
            if !matches!(request.operation, Operation::Read | Operation::Write) || request.length == 0 {
                written.left_out += 1;
                continue;
            }
            let (sector, length) = from_sector(request, written);
            let volume = u64::from(request.volume.0);
            if sector >> SECTOR_BITS != 0 || volume >= VOLUMES_MAX {
                return Err(invalid(format!(
                    "sector {sector} of volume {volume}: ids have room for 2^{SECTOR_BITS} sectors of {VOLUMES_MAX} volumes"
                )));
            }
            let size =
                u32::try_from(length).map_err(|_| invalid(format!("{length} bytes: sizes have 32 bits")))?;
            let seconds = request.time.0 / 1_000_000_000;
            let time =
                u32::try_from(seconds).map_err(|_| invalid(format!("{seconds} s: times have 32 bits")))?;
            self.records.push(Record { id: volume << SECTOR_BITS | sector, time, size });
            written.requests += 1;
            written.operations_lost += u64::from(request.operation != Operation::Read);
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<W> {
        // From the last request to the first: what was seen is what comes next.
        let mut seen: HashMap<u64, u64, foldhash::fast::FixedState> = HashMap::default();
        let mut next: Vec<i64> = vec![-1; self.records.len()];
        for (index, record) in self.records.iter().enumerate().rev() {
            if let Some(later) = seen.insert(record.id, index as u64) {
                next[index] = later as i64;
            }
        }
        for (record, next) in self.records.iter().zip(next) {
            let mut bytes = [0; 24];
            bytes[0..4].copy_from_slice(&record.time.to_le_bytes());
            bytes[4..12].copy_from_slice(&record.id.to_le_bytes());
            bytes[12..16].copy_from_slice(&record.size.to_le_bytes());
            bytes[16..24].copy_from_slice(&next.to_le_bytes());
            self.write.write_all(&bytes)?;
        }
        self.write.flush()?;
        Ok(self.write)
    }
}
