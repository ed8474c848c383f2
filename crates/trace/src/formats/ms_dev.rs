//! Cuts of MSR volumes as replayers of flash studies use them.
//!
//! `milliseconds device offset size type`: decimal milliseconds, the volume's number, which is its name, bytes, bytes,
//! 1 = read and 0 = write. Source: the files and scripts of ucare-uchicago/Heimdall.

use crate::error::Bad;
use crate::formats::{LineParser, MILLISECOND};
use crate::state::{NumberedVolumes, State, request};
use crate::text::{Fields, decimal_nanos, missing};
use crate::{Operation, Request};
use forebay_units::Nanos;

pub(crate) struct MsDev {
    volumes: NumberedVolumes,
}

impl MsDev {
    pub(crate) fn new() -> MsDev {
        MsDev { volumes: NumberedVolumes::new() }
    }
}

impl LineParser for MsDev {
    fn parse(&mut self, line: &[u8], state: &mut State) -> Result<Option<Request>, Bad> {
        let mut fields = Fields::new(line);
        let time = fields.next_word().ok_or_else(|| missing("time"))?;
        let time = Nanos(decimal_nanos(time, MILLISECOND, "time")?);
        let device = fields.number_word("device")?;
        let offset = fields.number_word("offset")?;
        let size = fields.number_word("size")?;
        let operation = match fields.next_word().ok_or_else(|| missing("type"))? {
            b"1" => Operation::Read,
            b"0" => Operation::Write,
            text => return Err(Bad::field("type", text, "`1` (read) or `0` (write)")),
        };
        if let Some(extra) = fields.next_word() {
            return Err(Bad::field("sixth field", extra, "five fields"));
        }
        let volume = self.volumes.index_of(device, &mut state.volumes, |device| device.to_string())?;
        request(time, volume, operation, offset, size).map(Some)
    }
}
