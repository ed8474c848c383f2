//! MSR Cambridge: CSV without header, one file per volume.
//!
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`
//!
//! | field | meaning |
//! | --- | --- |
//! | Timestamp | Windows filetime: 100 ns ticks since 1601-01-01 UTC |
//! | Hostname, DiskNumber | the volume, named `<host>_<disk>` as its file is |
//! | Type | `Read` or `Write`, in any case, because mirrors differ |
//! | Offset, Size | bytes |
//! | ResponseTime | 100 ns ticks; 0, which no disk reaches, where it is not known (ours) |
//!
//! Source: the readme of the traces (SNIA IOTTA 388; Narayanan et al., FAST '08). A line that starts with
//! `Timestamp,` is the header that some mirrors add and is ignored.

use crate::error::Bad;
use crate::formats::LineParser;
use crate::state::{NamedVolumes, State, request};
use crate::text::{Fields, missing};
use crate::{Operation, Request};
use forebay_units::Nanos;

/// Nanoseconds per filetime tick.
pub(crate) const TICK_NANOS: u64 = 100;

pub(crate) struct Msr {
    volumes: NamedVolumes,
}

impl Msr {
    pub(crate) fn new() -> Msr {
        Msr { volumes: NamedVolumes::new() }
    }
}

impl LineParser for Msr {
    fn parse(&mut self, line: &[u8], state: &mut State) -> Result<Option<Request>, Bad> {
        if line.starts_with(b"Timestamp,") {
            return Ok(None);
        }
        let mut fields = Fields::new(line);
        let ticks = fields.number(b',', "timestamp")?;
        let time = ticks.checked_mul(TICK_NANOS).ok_or_else(|| {
            Bad::new(
                format!("`{ticks}` as timestamp"),
                "100 ns ticks since 1601 whose nanoseconds are below 2^64",
            )
        })?;
        // Host and disk together are the volume's key.
        let rest = fields.rest();
        let host = fields.next(b',').ok_or_else(|| missing("host name"))?;
        let disk = fields.next(b',').ok_or_else(|| missing("disk number"))?;
        let volume = &rest[..host.len() + 1 + disk.len()];
        let operation = match fields.next(b',').ok_or_else(|| missing("type"))?.trim_ascii() {
            text if text.eq_ignore_ascii_case(b"read") => Operation::Read,
            text if text.eq_ignore_ascii_case(b"write") => Operation::Write,
            text => return Err(Bad::field("type", text, "`Read` or `Write`")),
        };
        let offset = fields.number(b',', "offset")?;
        let size = fields.number(b',', "size")?;
        let response = fields.number(b',', "response time")?;
        if let Some(extra) = fields.next(b',') {
            return Err(Bad::field("eighth field", extra, "seven fields"));
        }
        let volume = self.volumes.index_of(volume, &mut state.volumes, |text| text.replace(',', "_"))?;
        let mut request = request(state.since_start(time), volume, operation, offset, size)?;
        if response > 0 {
            request.latency = Nanos(response.saturating_mul(TICK_NANOS));
        }
        Ok(Some(request))
    }
}
