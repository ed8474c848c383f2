//! CloudPhysics vscsi: little-endian binary records, without padding.
//!
//! | field | type | version 1 at | version 2 at |
//! | --- | --- | --- | --- |
//! | sn, serial number | u32 | 0 | 4 |
//! | len, bytes | u32 | 4 | 8 |
//! | nSG, scatter-gather elements | u32 | 8 | 12 |
//! | cmd, SCSI operation code | u16 | 12 | 0 |
//! | ver, version in the upper byte | u16 | 14 | 2 |
//! | lbn, 512-byte blocks | u64 | 16 | 16 |
//! | ts, microseconds | u64 | 24 | 24 |
//! | rt, response time in microseconds | u64 | - | 32 |
//!
//! A record has 32 or 40 bytes; the version is told by the first records. The volume is named after the source.
//! Source: libCacheSim, `traceReader/customizedReader/vscsi.h`; codes from SCSI SBC-4, table 33.

use crate::error::Bad;
use crate::formats::{MICROSECOND, RecordParser, SECTOR, each_record, le};
use crate::state::{State, request, scaled};
use crate::{Operation, Request};
use forebay_units::Nanos;

/// Version `VERSION`, whose records have `BYTES` bytes.
pub(crate) struct Vscsi<const VERSION: u8, const BYTES: usize> {
    stem: String,
}

impl<const VERSION: u8, const BYTES: usize> Vscsi<VERSION, BYTES> {
    pub(crate) fn new(stem: String) -> Vscsi<VERSION, BYTES> {
        Vscsi { stem }
    }
}

impl<const VERSION: u8, const BYTES: usize> RecordParser for Vscsi<VERSION, BYTES> {
    const BYTES: usize = BYTES;
    const NAME: &'static str = "a vscsi record";

    fn parse(&mut self, bytes: &[u8], state: &mut State, out: &mut Vec<Request>) -> Result<(), (usize, Bad)> {
        let volume = state.volumes.index_of(&self.stem).map_err(|bad| (0, bad))?;
        // Where the code and the version, and where the length stand.
        let (code, length) = if VERSION == 1 { (12, 4) } else { (0, 8) };
        each_record::<BYTES>(bytes, out, |record| {
            let version = le!(u16, record, code + 2) >> 8;
            if version != u16::from(VERSION) {
                return Err(Bad::new(
                    format!("version {version}"),
                    format!("version {VERSION}, as in the first record"),
                ));
            }
            let operation = operation(le!(u16, record, code));
            let offset = scaled(le!(u64, record, 16), SECTOR, "lbn")?;
            let time = state.since_start(scaled(le!(u64, record, 24), MICROSECOND, "ts")?);
            let mut request = request(time, volume, operation, offset, u64::from(le!(u32, record, length)))?;
            if VERSION == 2 {
                request.latency = Nanos(le!(u64, record, 32).saturating_mul(MICROSECOND));
            }
            Ok(request)
        })
    }
}

/// The operation of a SCSI command.
fn operation(code: u16) -> Operation {
    match code {
        // READ (6), (10), (12), (16).
        0x08 | 0x28 | 0xa8 | 0x88 => Operation::Read,
        // WRITE (6), (10), (12), (16) and WRITE AND VERIFY (10), (12), (16).
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e => Operation::Write,
        // SYNCHRONIZE CACHE (10), (16).
        0x35 | 0x91 => Operation::Flush,
        // UNMAP.
        0x42 => Operation::Discard,
        _ => Operation::Other,
    }
}
