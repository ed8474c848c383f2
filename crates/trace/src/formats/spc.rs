//! SPC trace format as UMass publishes it (Financial1/2, WebSearch1-3): CSV without header.
//!
//! `ASU,LBA,Size,Opcode,Timestamp[,optional...]`
//!
//! | field | meaning |
//! | --- | --- |
//! | ASU | application-specific unit: the volume, named `asu<number>` |
//! | LBA | 512-byte blocks from 0 |
//! | Size | bytes |
//! | Opcode | `R`, `r`, `W` or `w` |
//! | Timestamp | decimal seconds from the start, nearly ascending |
//!
//! Optional fields are not looked at. Source: SPC trace file format specification, revision 1.0.1.

use crate::Request;
use crate::error::Bad;
use crate::formats::{LineParser, SECOND, SECTOR, read_or_write};
use crate::state::{NumberedVolumes, State, request, scaled};
use crate::text::{Fields, decimal_nanos, missing};
use forebay_units::Nanos;

pub(crate) struct Spc {
    volumes: NumberedVolumes,
}

impl Spc {
    pub(crate) fn new() -> Spc {
        Spc { volumes: NumberedVolumes::new() }
    }
}

impl LineParser for Spc {
    fn parse(&mut self, line: &[u8], state: &mut State) -> Result<Option<Request>, Bad> {
        let mut fields = Fields::new(line);
        let asu = fields.number(b',', "ASU")?;
        let offset = scaled(fields.number(b',', "LBA")?, SECTOR, "LBA")?;
        let size = fields.number(b',', "size")?;
        let operation = read_or_write(fields.next(b',').ok_or_else(|| missing("opcode"))?, "opcode")?;
        let time = fields.next(b',').ok_or_else(|| missing("timestamp"))?;
        let time = Nanos(decimal_nanos(time, SECOND, "timestamp")?);
        let volume = self.volumes.index_of(asu, &mut state.volumes, |asu| format!("asu{asu}"))?;
        request(time, volume, operation, offset, size).map(Some)
    }
}
