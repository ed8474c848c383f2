//! Tencent cloud block storage: CSV without header.
//!
//! `Timestamp,Offset,Size,IOType,VolumeID`: seconds since 1970, 512-byte sectors, sectors, 0 = read and 1 = write, a
//! number that is the volume and its name. Times are whole seconds and step back; whoever replays them spreads the
//! requests of a second over it, we keep what is stated. Source: SNIA IOTTA 27917 (Zhang et al., USENIX ATC '20).

use crate::error::Bad;
use crate::formats::{LineParser, SECOND, SECTOR};
use crate::state::{NumberedVolumes, State, request, scaled};
use crate::text::{Fields, missing};
use crate::{Operation, Request};

pub(crate) struct Tencent {
    volumes: NumberedVolumes,
}

impl Tencent {
    pub(crate) fn new() -> Tencent {
        Tencent { volumes: NumberedVolumes::new() }
    }
}

impl LineParser for Tencent {
    fn parse(&mut self, line: &[u8], state: &mut State) -> Result<Option<Request>, Bad> {
        if line.starts_with(b"Timestamp,") {
            return Ok(None);
        }
        let mut fields = Fields::new(line);
        let time = scaled(fields.number(b',', "timestamp")?, SECOND, "timestamp")?;
        let offset = scaled(fields.number(b',', "offset")?, SECTOR, "offset")?;
        let length = scaled(fields.number(b',', "size")?, SECTOR, "size")?;
        let operation = match fields.next(b',').ok_or_else(|| missing("I/O type"))?.trim_ascii() {
            b"0" => Operation::Read,
            b"1" => Operation::Write,
            text => return Err(Bad::field("I/O type", text, "`0` (read) or `1` (write)")),
        };
        let volume = fields.number(b',', "volume id")?;
        if let Some(extra) = fields.next(b',') {
            return Err(Bad::field("sixth field", extra, "five fields"));
        }
        let volume = self.volumes.index_of(volume, &mut state.volumes, |volume| volume.to_string())?;
        request(state.since_start(time), volume, operation, offset, length).map(Some)
    }
}
