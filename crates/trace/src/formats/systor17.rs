//! SYSTOR '17 (Fujitsu VDI): CSV with a header line, one file per LUN and hour.
//!
//! `Timestamp,Response,IOType,LUN,Offset,Size`
//!
//! | field | meaning |
//! | --- | --- |
//! | Timestamp | seconds since 1970, 9 decimals |
//! | Response | seconds; may be blank |
//! | IOType | `R`, `W`, or blank for what is neither, which is [`crate::Operation::Other`] |
//! | LUN | the volume, named `LUN<number>` |
//! | Offset, Size | bytes; may be blank where the type is |
//!
//! Not ordered by time. Source: the readme of SNIA IOTTA 4964 (Lee et al., SYSTOR '17).

use crate::error::Bad;
use crate::formats::{LineParser, SECOND, read_or_write};
use crate::state::{NumberedVolumes, State, request};
use crate::text::{Fields, decimal_nanos, missing, whole};
use crate::{Operation, Request};
use forebay_units::Nanos;

pub(crate) struct Systor17 {
    volumes: NumberedVolumes,
}

impl Systor17 {
    pub(crate) fn new() -> Systor17 {
        Systor17 { volumes: NumberedVolumes::new() }
    }
}

impl LineParser for Systor17 {
    fn parse(&mut self, line: &[u8], state: &mut State) -> Result<Option<Request>, Bad> {
        if line.starts_with(b"Timestamp,") {
            return Ok(None);
        }
        let mut fields = Fields::new(line);
        let time =
            decimal_nanos(fields.next(b',').ok_or_else(|| missing("timestamp"))?, SECOND, "timestamp")?;
        let latency = match fields.next(b',').ok_or_else(|| missing("response"))?.trim_ascii() {
            b"" => Nanos::MAX,
            text => Nanos(decimal_nanos(text, SECOND, "response")?),
        };
        let operation = match fields.next(b',').ok_or_else(|| missing("I/O type"))?.trim_ascii() {
            b"" => Operation::Other,
            text => read_or_write(text, "I/O type")?,
        };
        let lun = fields.number(b',', "LUN")?;
        let mut bytes = |name| match fields.next(b',').ok_or_else(|| missing(name))? {
            b"" if operation == Operation::Other => Ok(0),
            text => whole(text, name),
        };
        let offset = bytes("offset")?;
        let size = bytes("size")?;
        if let Some(extra) = fields.next(b',') {
            return Err(Bad::field("seventh field", extra, "six fields"));
        }
        let volume = self.volumes.index_of(lun, &mut state.volumes, |lun| format!("LUN{lun}"))?;
        let mut request = request(state.since_start(time), volume, operation, offset, size)?;
        request.latency = latency;
        Ok(Some(request))
    }
}
